//! `slapoc verify`: tensor and data parallelism on simulated meshes beside libtorch's own autograd, dropout on, ragged labels,
//! odd sequence lengths.

mod sequences;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn verify(schedule: &Path, options: &[&str]) -> Output {
    slapoc("verify", schedule, options)
}

fn slapoc(command: &str, schedule: &Path, options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_slapoc"))
        .current_dir(root())
        .args([command, "--message-format", "json"])
        .arg(schedule)
        .args(options)
        .output()
        .expect("slapoc starts")
}

/// The report of a run that must succeed.
fn report(schedule: &Path, options: &[&str]) -> Value {
    let output = verify(schedule, options);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {options:?}:\n{text}\n{errors}", schedule.display());
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    records.into_iter().find(|record| record["type"] == "verify").unwrap_or_else(|| panic!("no report in {text}"))
}

/// Schedules `model` on dp × tp.
fn written(folder: &Path, model: &str, dp: i64, tp: i64, body: &str) -> PathBuf {
    let path = folder.join(format!("{dp}x{tp}.slapo"));
    let model = root().join(model);
    let text = format!(
        "use std.parallel.{{column, column_gathered, row, vocab}}\nmodel \"{}\"\nmesh {{ dp = {dp}, tp = {tp} }}\nschedule main(m: Module) {{\n{body}\n}}\n",
        model.display()
    );
    std::fs::write(&path, text).expect("writing the schedule");
    path
}

const GPT2: &str = "for b in m.transformer.h {
    column(b.attn.c_attn, over: tp, groups: 3)
    row(b.attn.c_proj, over: tp)
    column(b.mlp.c_fc, over: tp)
    row(b.mlp.c_proj, over: tp)
}
m.data_parallel(over: dp)";

const BERT: &str = "for l in m.bert.encoder.layer {
    column(l.attention.self.{query, key, value}, over: tp)
    row(l.attention.output.dense, over: tp)
    column(l.intermediate.dense, over: tp)
    row(l.output.dense, over: tp)
}
m.data_parallel(over: dp)";

const OPT: &str = "for l in m.model.decoder.layers {
    column(l.self_attn.{q_proj, k_proj, v_proj}, over: tp)
    row(l.self_attn.out_proj, over: tp)
    column(l.fc1, over: tp)
    row(l.fc2, over: tp)
}
m.data_parallel(over: dp)";

const LLAMA: &str = "for l in m.model.layers {
    column(l.self_attn.{q_proj, k_proj, v_proj}, over: tp)
    row(l.self_attn.o_proj, over: tp)
    column(l.mlp.{gate_proj, up_proj}, over: tp)
    row(l.mlp.down_proj, over: tp)
}
m.data_parallel(over: dp)";

/// Archive, schedule, what to recompute, and the number of ranks that can share its heads at most.
const MODELS: [(&str, &str, &str, i64); 4] = [
    ("examples/gpt2/gpt2-tiny.pt2", GPT2, "m.transformer.h[..2].checkpoint()", 4),
    ("tests/data/bert-tiny.pt2", BERT, "m.bert.encoder.layer.*.checkpoint()", 4),
    ("tests/data/opt-tiny.pt2", OPT, "m.model.decoder.layers[0].checkpoint()", 4),
    ("tests/data/llama-tiny.pt2", LLAMA, "m.model.layers[1].checkpoint()", 2),
];

#[test]
fn tensor_and_data_parallelism_compute_what_the_model_computes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (model, body, checkpoint, most) in MODELS {
        let meshes = [(1, 2), (1, 4), (2, 1), (3, 1), (2, 2), (3, most)];
        for (dp, tp) in meshes.into_iter().filter(|(_, tp)| *tp <= most) {
            for body in [body.to_owned(), format!("{body}\n{checkpoint}")] {
                let schedule = written(folder.path(), model, dp, tp, &body);
                let batch = if dp == 2 { "8" } else { "9" };
                let report = report(&schedule, &["--batch", batch, "--seq", "11", "--clip", "0.5"]);
                assert_ne!(report["verdict"], "wrong", "{model}, dp {dp}, tp {tp}: {report:#}");
                assert_eq!(report["ranks"], dp * tp);
                assert_eq!(report["dropout"], true);
            }
        }
    }
}

/// The table and the tied head of each model, split along the vocabulary.
const VOCABULARY: [(&str, &str, &str); 3] = [
    (
        "examples/gpt2/gpt2-tiny.pt2",
        "vocab(m.transformer.wte, over: tp)\nm.lm_head.input().grad().sync(all_reduce, over: tp)",
        "m.transformer.h[..2].checkpoint()",
    ),
    (
        "tests/data/bert-tiny.pt2",
        "vocab(m.bert.embeddings.word_embeddings, over: tp)\n\
         m.cls.predictions.decoder.bias.shard(out, over: tp, uneven: true)\n\
         m.cls.predictions.decoder.input().grad().sync(all_reduce, over: tp)",
        "m.bert.embeddings.checkpoint()",
    ),
    (
        "tests/data/opt-tiny.pt2",
        "vocab(m.model.decoder.embed_tokens, over: tp)\nm.lm_head.input().grad().sync(all_reduce, over: tp)",
        "m.checkpoint()",
    ),
];

/// Ragged labels, padding, an odd length, dropout: every rank with the words that are its own, also beside layers that are
/// split by heads, with micro-batches and with the embedding and the loss computed again.
#[test]
fn split_vocabularies_compute_what_the_model_computes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let layers = [GPT2, BERT, OPT];
    for ((model, vocabulary, checkpoint), layers) in VOCABULARY.into_iter().zip(layers) {
        let alone = format!("{vocabulary}\nm.data_parallel(over: dp)");
        let whole = format!("{layers}\n{vocabulary}\nm.accumulate(steps: 2)\n{checkpoint}");
        for (dp, tp, body) in [(1, 2, &alone), (1, 3, &alone), (2, 2, &whole), (2, 3, &alone), (1, 4, &whole)] {
            let schedule = written(folder.path(), model, dp, tp, body);
            let report = report(&schedule, &["--batch", "8", "--seq", "11", "--clip", "0.5", "--steps", "2"]);
            assert_ne!(report["verdict"], "wrong", "{model}, dp {dp}, tp {tp}: {report:#}");
            assert_eq!(report["ranks"], dp * tp);
        }
    }
}

/// Eleven words on two to thirteen ranks, of which some have none.
#[test]
fn uneven_vocabularies_compute_what_the_model_computes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let body = "vocab(m.transformer.wte, over: tp)\nm.lm_head.input().grad().sync(all_reduce, over: tp)\n\
                m.data_parallel(over: dp)\nm.accumulate(steps: 2)\nm.transformer.wte.checkpoint()";
    for (dp, tp) in [(1, 2), (2, 4), (1, 13)] {
        let schedule = written(folder.path(), "tests/data/gpt2-short.pt2", dp, tp, body);
        let report = report(&schedule, &["--batch", "4", "--seq", "7", "--clip", "0.5"]);
        assert_ne!(report["verdict"], "wrong", "dp {dp}, tp {tp}: {report:#}");
    }
}

/// A head of its own, and logits that are put together before the loss.
#[test]
fn untied_heads_and_gathered_logits_compute_what_the_model_computes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let untied = "vocab(m.embed, over: tp)\ncolumn(m.head, over: tp, uneven: true)\nm.data_parallel(over: dp)";
    let alone = "vocab(m.embed, over: tp)\ncolumn_gathered(m.head, over: tp, uneven: true)\nm.data_parallel(over: dp)";
    let gathered = "vocab(m.transformer.wte, over: tp)\n\
                    m.lm_head.input().grad().sync(all_reduce, over: tp)\n\
                    m.lm_head.output().sync(all_gather, over: tp)\n\
                    m.lm_head.output().grad().sync(slice(hidden), over: tp)\nm.data_parallel(over: dp)";
    let small = "tests/data/bad/small.pt2";
    for (model, dp, tp, body) in [
        (small, 2, 2, untied),
        (small, 1, 8, untied),
        (small, 2, 3, alone),
        ("tests/data/gpt2-short.pt2", 1, 2, gathered),
        ("tests/data/gpt2-short.pt2", 2, 4, gathered),
    ] {
        let schedule = written(folder.path(), model, dp, tp, body);
        let report = report(&schedule, &["--batch", "4", "--seq", "7", "--clip", "0.5"]);
        assert_ne!(report["verdict"], "wrong", "{model}, dp {dp}, tp {tp}: {report:#}");
    }
}

/// Features and sequences in uneven pieces, with dropout on the latter: its mask is that of the whole.
#[test]
fn uneven_layers_compute_what_the_model_computes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let body = "let mlp = m.transformer.h[0].mlp
        column(mlp.c_fc, over: tp, uneven: true)
        mlp.c_proj.weight.shard(in, over: tp, uneven: true)
        mlp.c_proj.output().sync(reduce_scatter(seq), over: tp)
        mlp.c_proj.output().grad().sync(all_gather, over: tp)
        mlp.output().sync(all_gather, over: tp)
        mlp.output().grad().sync(slice(seq), over: tp)
        m.accumulate(steps: 2)
        m.data_parallel(over: dp)";
    let schedule = written(folder.path(), "tests/data/gpt2-short.pt2", 2, 5, body);
    let report = report(&schedule, &["--batch", "4", "--seq", "7", "--clip", "0.5"]);
    assert_ne!(report["verdict"], "wrong", "{report:#}");
}

/// Two axes split the same heads: the inner one's pieces lie within the outer one's. With micro-batches and sequences that
/// ranks scatter among flattened tokens, three splits of one dimension nest.
#[test]
fn axes_that_split_one_dimension_compute_what_the_model_computes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let heads = "for l in m.bert.encoder.layer {
        for x in l.attention.self.{query, key, value} {
            x.{weight, bias}.shard(out, over: tp)
            x.{weight, bias}.shard(out, over: dp)
            x.input().grad().sync(all_reduce, over: tp)
            x.input().grad().sync(all_reduce, over: dp)
        }
        let d = l.attention.output.dense
        d.weight.shard(in, over: dp)
        d.weight.shard(in, over: tp)
        d.output().sync(all_reduce, over: tp)
        d.output().sync(all_reduce, over: dp)
    }";
    let tokens = "for l in m.model.decoder.layers {
        l.fc1.{weight, bias}.shard(out, over: tp)
        l.fc2.weight.shard(in, over: tp)
        l.fc1.input().grad().sync(reduce_scatter(seq), over: tp)
        l.fc1.input().grad().sync(all_gather, over: tp)
        l.fc2.output().sync(reduce_scatter(seq), over: tp)
        l.fc2.output().sync(all_gather, over: tp)
    }
    m.accumulate(steps: 2)
    m.data_parallel(over: dp)";
    for (model, body) in [("tests/data/bert-tiny.pt2", heads), ("tests/data/opt-tiny.pt2", tokens)] {
        let schedule = written(folder.path(), model, 2, 2, body);
        let report = report(&schedule, &["--batch", "4", "--seq", "6", "--clip", "0.5"]);
        assert_ne!(report["verdict"], "wrong", "{model}: {report:#}");
    }
}

/// Micro-batches of a rank's rows, two axes of data parallelism, and recomputation at once.
#[test]
fn everything_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("all.slapo");
    let text = format!(
        "use std.parallel.{{column, row, vocab}}\nmodel \"{}\"\ninput {{ batch = 12, seq = 17 }}\nmesh {{ pod = 2, dp = 3, tp = 2 }}\n\
         schedule main(m: Module) {{\n{GPT2}\n{}\nm.data_parallel(over: pod)\nm.accumulate(steps: 2)\nm.transformer.h.*.checkpoint()\n}}\n",
        root().join("examples/gpt2/gpt2-tiny.pt2").display(),
        VOCABULARY[0].1
    );
    std::fs::write(&path, text).expect("writing the schedule");
    let report = report(&path, &["--clip", "0.3", "--optimizer", "sgd", "--lr", "0.1"]);
    assert_ne!(report["verdict"], "wrong", "{report:#}");
    assert_eq!(report["ranks"], 12);
}

/// Grouped heads, gated MLP and rotary tables, cut into micro-batches of a rank's rows, and recomputed.
#[test]
fn llama_in_micro_batches() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (dp, tp, batch, steps) in [(1, 1, "9", 3), (3, 2, "12", 2)] {
        for again in ["", "m.model.layers.*.checkpoint()"] {
            let body = format!("{LLAMA}\nm.accumulate(steps: {steps})\n{again}");
            let schedule = written(folder.path(), "tests/data/llama-tiny.pt2", dp, tp, &body);
            let report = report(&schedule, &["--batch", batch, "--seq", "13", "--clip", "0.5"]);
            assert_ne!(report["verdict"], "wrong", "dp {dp}, tp {tp}: {report:#}");
            assert_eq!(report["dropout"], true);
        }
    }
}

/// Three ranks with a head each, and all with the one head of keys and values; one table for embedding and head.
#[test]
fn heads_share_one_of_keys_and_values() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let keys_and_values = "l.self_attn.{k_proj, v_proj}.weight.grad().sync(all_reduce, over: tp)
    l.self_attn.{k_proj, v_proj}.input().grad().sync(all_reduce, over: tp)";
    let whole =
        LLAMA.replace("{q_proj, k_proj, v_proj}, over: tp)", &format!("q_proj, over: tp)\n    {keys_and_values}"));
    for (dp, dropout) in [(1, None), (2, None), (2, Some("--no-dropout"))] {
        let schedule = written(folder.path(), "tests/data/llama-odd.pt2", dp, 3, &whole);
        let options: Vec<&str> = ["--batch", "6", "--seq", "7", "--clip", "0.5"].into_iter().chain(dropout).collect();
        let report = report(&schedule, &options);
        assert_ne!(report["verdict"], "wrong", "dp {dp}: {report:#}");
        assert_eq!(report["ranks"], dp * 3);
        assert_eq!(report["dropout"], dropout.is_none());
    }
}

/// Both axes of a mesh cut the same heads and features, the inner one what the outer one leaves.
#[test]
fn two_axes_of_tensor_parallelism() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let layers: Vec<&str> = GPT2.lines().filter(|line| line.contains("over: tp")).collect();
    let layers = layers.join("\n");
    let body = format!("for b in m.transformer.h {{\n{layers}\n{}\n}}", layers.replace("over: tp", "over: dp"));
    let schedule = written(folder.path(), "examples/gpt2/gpt2-tiny.pt2", 2, 2, &body);
    let report = report(&schedule, &["--batch", "3", "--seq", "7"]);
    assert_ne!(report["verdict"], "wrong", "{report:#}");
}

/// One process: the canonical form, the derivative table and the rerun operators beside autograd.
#[test]
fn single_rank_programs_compute_what_the_model_computes() {
    for model in ["bert-tiny", "opt-tiny", "llama-tiny", "gpt2-odd", "misc", "counters", "operators"] {
        let path = root().join(format!("tests/data/{model}.pt2"));
        let report = report(&path, &["--batch", "6", "--seq", "9"]);
        assert_ne!(report["verdict"], "wrong", "{model}: {report:#}");
    }
}

#[test]
fn the_examples_compute_what_the_model_computes() {
    for folder in ["examples/gpt2", "examples/llama"] {
        let files = std::fs::read_dir(root().join(folder)).expect("a folder");
        let paths = files.map(|file| file.expect("a file").path());
        let schedules: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|e| e == "slapo")).collect();
        assert!(!schedules.is_empty(), "{folder}");
        for path in schedules {
            let report = report(&path, &["--steps", "2"]);
            assert_ne!(report["verdict"], "wrong", "{}: {report:#}", path.display());
        }
    }
}

#[test]
fn a_schedule_that_does_not_check_is_not_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let body = "m.transformer.h[0].mlp.c_proj.weight.shard(in, over: tp)";
    let schedule = written(folder.path(), "examples/gpt2/gpt2-tiny.pt2", 1, 2, body);
    assert_eq!(verify(&schedule, &[]).status.code(), Some(1));
}

/// What the worker counts is what the compiler foretells from the program, call by call and byte by byte.
#[test]
fn collectives_are_foretold_exactly() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for ((model, body, checkpoint, _), (dp, tp)) in MODELS.into_iter().zip([(2, 2), (1, 4), (2, 1)]) {
        let body = format!("{body}\n{checkpoint}\nm.accumulate(steps: 2)");
        let schedule = written(folder.path(), model, dp, tp, &body);
        let report = report(&schedule, &["--batch", "8", "--seq", "7", "--clip", "0.5", "--steps", "1"]);
        let counted = report["collectives"].as_array().expect("a list");
        assert_eq!(report["collectives"], report["predicted_collectives"], "{model}, dp {dp}, tp {tp}");
        let calls = |axis: &str, function: &str| {
            let own = counted.iter().filter(|c| c["axis"] == axis && c["function"] == function);
            own.map(|c| c["calls"].as_u64().expect("a number")).sum::<u64>()
        };
        assert_eq!(calls("dp", "prologue"), if dp > 1 { 2 } else { 0 }, "one count of tokens a micro-batch");
        assert_eq!(calls("tp", "optimizer"), u64::from(tp > 1), "one norm of the sharded gradients");
        assert_eq!(calls("tp", "forward") > 0, tp > 1);
    }
}

/// torchtitan #1750, Megatron #1736: curves of tensor parallelism differ in float32. Is that rounding, or a bug?
#[test]
fn b40_float32_distances_come_with_the_verdict_of_float64() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (model, body, ..) = MODELS[0];
    let schedule = written(folder.path(), model, 1, 2, body);
    let options = ["--batch", "4", "--seq", "9", "--steps", "2", "--dtype", "f32"];
    let report = report(&schedule, &options);
    assert_eq!(report["verdict"], "rounding", "{report:#}");
    let rows = report["float32"].as_array().expect("rows of float32");
    let gradients = rows.iter().find(|row| row["what"] == "gradients").expect("gradients");
    let (worst, ulps) = (gradients["worst"].as_f64().expect("a number"), gradients["ulps"].as_f64().expect("a number"));
    // Not the distances of float64 again, and such as a few hundred sums in another order give.
    assert!((1e-8..1e-4).contains(&worst), "{worst}");
    assert!((worst / f64::from(f32::EPSILON) / ulps - 1.0).abs() < 1e-9 && ulps > 0.1, "{ulps}");
    let said = Command::new(env!("CARGO_BIN_EXE_slapoc"))
        .current_dir(root())
        .arg("verify")
        .arg(&schedule)
        .args(options)
        .output()
        .expect("slapoc starts");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains(" ulp") && said.contains("right: float64 agrees"), "{said}");
}

/// torchtitan #596, NeMo-RL #3788, Megatron #5916: on a mesh of two by two the norm counts what ranks split over all of
/// them, and what they replicate once. A norm that clips shows in every parameter.
#[test]
fn b31_b32_the_clip_norm_is_that_of_the_whole_gradients() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (model, body, ..) in MODELS {
        let schedule = written(folder.path(), model, 2, 2, body);
        for clip in ["0.001", "1000"] {
            let options =
                ["--batch", "4", "--seq", "9", "--steps", "2", "--optimizer", "sgd", "--lr", "1", "--clip", clip];
            let report = report(&schedule, &options);
            let rows = report["rows"].as_array().expect("rows");
            let norm = rows.iter().find(|row| row["what"] == "gradient norm").expect("a row of norms");
            assert_eq!(norm["count"], 2);
            assert!(norm["worst"].as_f64().is_some_and(|worst| worst < 1e-12), "{model}, clip {clip}: {norm}");
            assert_ne!(report["verdict"], "wrong", "{model}, clip {clip}: {report:#}");
        }
    }
}

/// What claims to change no bit is held to it, beside the program of the empty schedule.
#[test]
fn an_exact_schedule_is_equal_to_the_bit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (model, _, checkpoint, _) in MODELS {
        let schedule = written(folder.path(), model, 1, 1, checkpoint);
        let report =
            report(&schedule, &["--batch", "6", "--seq", "11", "--steps", "2", "--deterministic", "--seed", "3"]);
        assert_eq!((&report["class"], &report["verdict"]), (&"exact".into(), &"equal".into()), "{model}: {report:#}");
        let own = report["unscheduled"].as_array().expect("rows");
        assert!(own.iter().all(|row| row["verdict"] == "equal") && own.len() == 3, "{model}: {report:#}");
    }
}

#[test]
fn half_precision_has_no_verdict() {
    let output = verify(&root().join("examples/gpt2/plain.slapo"), &["--dtype", "bf16"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("float64") && said.contains("--dtype f32"), "{said}");
}

/// Values that are kept in recomputed blocks, in every combination of inside and border: equal in every bit.
#[test]
fn what_is_kept_changes_no_bit() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cases = [
        (
            "examples/gpt2/gpt2-tiny.pt2",
            "for b in m.transformer.h { b.checkpoint(keep: [b.attn.output(), b.mlp.c_fc.output()]) }",
        ),
        (
            "tests/data/bert-tiny.pt2",
            "for l in m.bert.encoder.layer { l.checkpoint(keep: [l.attention.output.dense.input()]) }",
        ),
        ("tests/data/opt-tiny.pt2", "m.model.decoder.checkpoint(keep: m.model.decoder.layers.*.self_attn.output())"),
        (
            "tests/data/llama-tiny.pt2",
            "for l in m.model.layers { l.checkpoint(keep: [l.input(), l.mlp.act_fn.output(), l.mlp.output()]) }",
        ),
    ];
    for (model, body) in cases {
        let schedule = written(folder.path(), model, 1, 1, body);
        let report = report(&schedule, &["--batch", "4", "--seq", "11", "--steps", "2"]);
        assert_eq!((&report["class"], &report["verdict"]), (&"exact".into(), &"equal".into()), "{model}: {report:#}");
    }
    // On a mesh, with micro-batches, what is kept is what the ranks hold.
    let body = format!(
        "{GPT2}\nm.accumulate(steps: 2)\nfor b in m.transformer.h {{ b.checkpoint(keep: [b.attn.output(), b.mlp.c_proj.input()]) }}"
    );
    let schedule = written(folder.path(), "examples/gpt2/gpt2-tiny.pt2", 2, 2, &body);
    assert_ne!(report(&schedule, &["--batch", "8", "--seq", "11"])["verdict"], "wrong");
}

#[test]
fn verify_takes_and_tells_the_values_of_knobs() {
    let schedule = root().join("examples/gpt2/recompute.slapo");
    let report = report(&schedule, &["--steps", "1", "--set", "ratio=1"]);
    assert_eq!(report["knobs"], serde_json::json!([{ "name": "ratio", "value": 1, "is_set": true }]));
    assert_ne!(report["verdict"], "wrong", "{report:#}");
}

/// ZeRO, of parameters whose rows do not divide among three ranks too, beside layers that are split, over the axis that splits
/// them, with micro-batches and recomputation; a clipped norm is that of all pieces.
#[test]
fn parameters_in_pieces_compute_what_the_model_computes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let meshes = [
        (2, 1, "dp", 1),
        (3, 1, "dp", 2),
        (2, 2, "dp", 3),
        (3, 2, "dp", 1),
        (2, 2, "tp", 1),
        (3, 1, "dp", 3),
        (2, 2, "tp", 3),
        (2, 2, "dp", 2),
    ];
    for ((model, body, checkpoint, _), (dp, tp, over, stage)) in MODELS.into_iter().cycle().zip(meshes) {
        for rest in ["", "m.accumulate(steps: 3)"] {
            let body = format!("m.zero(stage: {stage}, over: {over})\n{body}\n{rest}\n{checkpoint}");
            let schedule = written(folder.path(), model, dp, tp, &body);
            let report = report(&schedule, &["--batch", "18", "--seq", "11", "--clip", "0.5"]);
            assert_ne!(report["verdict"], "wrong", "{model}, dp {dp}, tp {tp}, stage {stage}: {report:#}");
            let sent = report["collectives"].as_array().expect("collectives");
            let gathers = if stage == 3 { "forward" } else { "optimizer" };
            let gathered = |c: &Value| c["function"] == gathers && c["kind"] == "all_gather" && c["axis"] == over;
            assert!(sent.iter().any(gathered), "{report:#}");
        }
    }
}

/// Gradients travel once a step, however many micro-batches there are.
#[test]
fn gradients_are_reduced_once_a_step() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sent = |steps: i64| {
        let body = format!("{GPT2}\nm.accumulate(steps: {steps})");
        let schedule = written(folder.path(), "examples/gpt2/gpt2-tiny.pt2", 2, 1, &body);
        let report = report(&schedule, &["--batch", "8", "--seq", "5", "--steps", "1"]);
        assert_ne!(report["verdict"], "wrong", "{report:#}");
        let sent = report["collectives"].as_array().expect("collectives");
        let reduction = sent.iter().find(|c| c["function"] == "reduction").expect("a reduction");
        (reduction["calls"].as_u64(), reduction["bytes"].as_u64())
    };
    let (calls, bytes) = sent(1);
    assert_eq!(calls, Some(1), "one bucket");
    assert!(bytes > Some(0));
    assert_eq!(sent(4), (calls, bytes));
}
