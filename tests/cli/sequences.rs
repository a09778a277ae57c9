//! `slapoc verify` of sequence and context parallelism: norms, dropout and residuals, or all but attention, on a rank's piece of
//! every sequence, beside libtorch's own autograd; and what `apply` says that they move.

use super::{report, root, slapoc};
use serde_json::Value;
use std::path::{Path, PathBuf};

const GPT2: &str = "for b in m.transformer.h {
    sequence_norm(b.{ln_1, ln_2}, over: tp)
    sequence_column(b.attn.c_attn, over: tp, groups: 3)
    sequence_row(b.attn.c_proj, over: tp)
    sequence_column(b.mlp.c_fc, over: tp)
    sequence_row(b.mlp.c_proj, over: tp)
}
sequence_norm(m.transformer.ln_f, over: tp)
sequence_vocab(m.transformer.wte, over: tp)
sequence_gather(m.lm_head, over: tp)
m.transformer.wpe.weight.grad().sync(all_reduce, over: tp)";

/// Three tables are added up before the first norm; each of the other norms stands behind a residual.
const BERT: &str = "sequence_vocab(m.bert.embeddings.word_embeddings, over: tp)
m.bert.embeddings.{position_embeddings, token_type_embeddings}.weight.grad().sync(all_reduce, over: tp)
sequence_norm(m.bert.embeddings.LayerNorm, over: tp)
for l in m.bert.encoder.layer {
    sequence_gather(l.attention.self, over: tp)
    l.attention.self.{query, key, value}.{weight, bias}.shard(out, over: tp)
    sequence_row(l.attention.output.dense, over: tp)
    sequence_column(l.intermediate.dense, over: tp)
    sequence_row(l.output.dense, over: tp)
    sequence_norm([l.attention.output.LayerNorm, l.output.LayerNorm], over: tp)
}
let p = m.cls.predictions
sequence_norm(p.transform.{dense, LayerNorm}, over: tp)
sequence_gather(p.decoder, over: tp)
p.bias.shard(0, over: tp, uneven: true)";

/// The MLP's tokens are flattened: a piece of every sequence is as many pieces of them.
const OPT: &str = "let d = m.model.decoder
sequence_vocab(d.embed_tokens, over: tp)
d.embed_positions.weight.grad().sync(all_reduce, over: tp)
for l in d.layers {
    sequence_norm(l.{self_attn_layer_norm, final_layer_norm}, over: tp)
    sequence_gather(l.self_attn, over: tp)
    l.self_attn.{q_proj, k_proj, v_proj}.{weight, bias}.shard(out, over: tp)
    sequence_row(l.self_attn.out_proj, over: tp)
    sequence_column(l.fc1, over: tp)
    sequence_row(l.fc2, over: tp)
}
sequence_norm(d.final_layer_norm, over: tp)
sequence_gather(m.lm_head, over: tp)";

const LLAMA: &str = "for l in m.model.layers {
    sequence_norm(l.{input_layernorm, post_attention_layernorm}, over: tp)
    sequence_column(l.self_attn.{q_proj, k_proj, v_proj}, over: tp)
    sequence_row(l.self_attn.o_proj, over: tp)
    sequence_gather(l.mlp, over: tp)
    l.mlp.{gate_proj, up_proj}.weight.shard(out, over: tp)
    sequence_row(l.mlp.down_proj, over: tp)
}
sequence_norm(m.model.norm, over: tp)
m.model.embed_tokens.output().sync(slice(seq), over: tp)
m.model.embed_tokens.output().grad().sync(all_gather, over: tp)
m.lm_head.input().sync(all_gather, over: tp)
m.lm_head.input().grad().sync(slice(seq), over: tp)";

/// Archive, schedule, and what to recompute.
const MODELS: [(&str, &str, &str); 4] = [
    ("examples/gpt2/gpt2-tiny.pt2", GPT2, "m.transformer.h[..2].checkpoint()"),
    ("tests/data/bert-tiny.pt2", BERT, "m.bert.encoder.layer.*.checkpoint()"),
    ("tests/data/opt-tiny.pt2", OPT, "m.model.decoder.layers[0].checkpoint()"),
    ("tests/data/llama-tiny.pt2", LLAMA, "m.model.layers[1].checkpoint()"),
];

fn written(folder: &Path, model: &str, dp: i64, tp: i64, body: &str) -> PathBuf {
    on(folder, model, &format!("dp = {dp}, tp = {tp}"), body)
}

fn on(folder: &Path, model: &str, mesh: &str, body: &str) -> PathBuf {
    let path = folder.join("sequences.slapo");
    let text = format!(
        "use std.parallel.{{sequence_column, sequence_gather, sequence_norm, sequence_row, sequence_vocab}}\n\
         use std.parallel.{{column, row, ulysses_in, ulysses_out, vocab}}\nmodel \"{}\"\n\
         input {{ batch = 8, seq = 12 }}\nmesh {{ {mesh} }}\nschedule main(m: Module) {{\n{body}\nm.data_parallel(over: dp)\n}}\n",
        root().join(model).display()
    );
    std::fs::write(&path, text).expect("writing the schedule");
    path
}

/// F47: dropout inside and outside of the pieces needs no word in a schedule.
#[test]
fn f47_sequence_parallelism_computes_what_the_model_computes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let meshes = [[(1, 4), (2, 2)], [(2, 4), (1, 2)], [(1, 4), (2, 2)], [(2, 2), (1, 2)]];
    for ((model, body, checkpoint), meshes) in MODELS.into_iter().zip(meshes) {
        for ((dp, tp), rest) in meshes.into_iter().zip(["", checkpoint]) {
            let schedule = written(folder.path(), model, dp, tp, &format!("{body}\n{rest}"));
            let report = report(&schedule, &["--clip", "0.5", "--steps", "2"]);
            assert_ne!(report["verdict"], "wrong", "{model}, dp {dp}, tp {tp}: {report:#}");
            assert_eq!((&report["ranks"], &report["dropout"]), (&(dp * tp).into(), &true.into()));
        }
    }
}

/// Eleven tokens on two ranks and on four, in micro-batches that are recomputed in part: some ranks have fewer, some hold masks
/// of pieces that others do not.
#[test]
fn sequences_that_do_not_divide_compute_what_the_model_computes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for ((model, body, checkpoint), (dp, tp)) in [(MODELS[0], (2, 4)), (MODELS[3], (1, 2))] {
        let schedule = written(folder.path(), model, dp, tp, &format!("{body}\n{checkpoint}\nm.accumulate(steps: 2)"));
        let report = report(&schedule, &["--seq", "11", "--clip", "0.5", "--steps", "2"]);
        assert_ne!(report["verdict"], "wrong", "{model}, dp {dp}, tp {tp}: {report:#}");
    }
}

/// Flattened tokens cannot be shared unevenly: the error says which numbers of ranks can.
#[test]
fn flattened_sequences_that_do_not_divide_name_the_legal_sizes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let schedule = written(folder.path(), MODELS[2].0, 1, 2, MODELS[2].1);
    let output = slapoc("check", &schedule, &["--seq", "15", "-A", "warnings"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("S0601") && said.contains("legal sizes of `tp` here: 1, 3, 5, 15"), "{said}");
    assert!(said.contains("8 times 15 become 120 here"), "{said}");
    assert_eq!(said.matches("\"severity\":\"error\"").count(), 1, "{said}");
}

/// Calls and bytes of one kind that a step has over `tp`, but for gradients of parameters.
fn moved(schedule: &Path, kind: &str) -> (u64, u64) {
    let output = slapoc("apply", schedule, &["-A", "warnings"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let records = said.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    let report = records.into_iter().find(|record| record["type"] == "report").expect("a report");
    let all = report["collectives"].as_array().expect("a list").iter();
    let is_kind = |c: &Value| c["kind"].as_str().is_some_and(|full| full.split('[').next() == Some(kind));
    let own = all.filter(|c| is_kind(c) && c["axis"] == "tp" && c["what"] == "a value");
    own.fold((0, 0), |(calls, bytes), c| {
        let number = |name: &str| c[name].as_u64().unwrap_or_else(|| panic!("no {name} in {c:#}"));
        (calls + number("calls"), bytes + number("bytes"))
    })
}

/// An all-reduce is a reduce-scatter and an all-gather: the same elements move, between ranks that hold half of them.
#[test]
fn sequence_parallelism_moves_what_tensor_parallelism_moves() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let whole = "for b in m.transformer.h {
        column(b.attn.c_attn, over: tp, groups: 3)
        row(b.attn.c_proj, over: tp)
        column(b.mlp.c_fc, over: tp)
        row(b.mlp.c_proj, over: tp)
    }
    vocab(m.transformer.wte, over: tp)
    m.lm_head.input().grad().sync(all_reduce, over: tp)";
    let reduced = moved(&written(folder.path(), MODELS[0].0, 1, 2, whole), "all_reduce");
    let schedule = written(folder.path(), MODELS[0].0, 1, 2, GPT2);
    let [rest, scattered, gathered] = ["all_reduce", "reduce_scatter", "all_gather"].map(|kind| moved(&schedule, kind));
    // What is left to reduce is what the loss needs, as without sequences in pieces.
    let activations = (reduced.0 - rest.0, reduced.1 - rest.1);
    assert_eq!(rest.0, 2, "three sums of the vocabulary-parallel loss, two of which travel together");
    assert_eq!(activations.0, 14, "two layers of three blocks, the embedding and the head, forward and backward");
    assert_eq!(scattered, activations);
    assert_eq!(gathered, (activations.0, activations.1 / 2), "a call's bytes are what a rank puts in");
}

/// The mask of BERT is an input, with padding; the MLP of OPT flattens its tokens.
const BERT_CONTEXT: &str = "sequence_vocab(m.bert.embeddings.word_embeddings, over: cp)
m.bert.embeddings.{position_embeddings, token_type_embeddings}.weight.grad().sync(all_reduce, over: cp)
sequence_norm(m.bert.embeddings.LayerNorm, over: cp)
for l in m.bert.encoder.layer {
    ulysses_in(l.attention.self.{query, key, value}, over: cp)
    ulysses_out(l.attention.output.dense, over: cp)
    sequence_norm([l.attention.output.LayerNorm, l.output.LayerNorm], over: cp)
    [l.intermediate.dense, l.output.dense].{weight, bias}.grad().sync(all_reduce, over: cp)
}
let p = m.cls.predictions
sequence_norm(p.transform.{dense, LayerNorm}, over: cp)
sequence_gather(p.decoder, over: cp)
p.bias.shard(0, over: cp, uneven: true)";

const OPT_CONTEXT: &str = "let d = m.model.decoder
sequence_vocab(d.embed_tokens, over: cp)
d.embed_positions.weight.grad().sync(all_reduce, over: cp)
for l in d.layers {
    sequence_norm(l.{self_attn_layer_norm, final_layer_norm}, over: cp)
    ulysses_in(l.self_attn.{q_proj, k_proj, v_proj}, over: cp)
    ulysses_out(l.self_attn.out_proj, over: cp)
    l.{fc1, fc2}.{weight, bias}.grad().sync(all_reduce, over: cp)
}
sequence_norm(d.final_layer_norm, over: cp)
sequence_gather(m.lm_head, over: cp)";

/// Heads over two axes: those that tensor parallelism leaves a rank are what it exchanges.
const GPT2_CONTEXT: &str = "for b in m.transformer.h {
    sequence_norm(b.{ln_1, ln_2}, over: cp)
    column(b.attn.c_attn, over: tp, groups: 3)
    row(b.attn.c_proj, over: tp)
    column(b.mlp.c_fc, over: tp)
    row(b.mlp.c_proj, over: tp)
    b.{attn, mlp}.{c_attn?, c_fc?, c_proj}.{weight, bias}.grad().sync(all_reduce, over: cp)
    b.attn.c_attn.output().sync(all_to_all(seq, hidden, groups: 6), over: cp)
    b.attn.c_attn.output().grad().sync(all_to_all(hidden, seq), over: cp)
    b.attn.c_proj.input().sync(all_to_all(hidden, seq), over: cp)
    b.attn.c_proj.input().grad().sync(all_to_all(seq, hidden, groups: 2), over: cp)
}
sequence_norm(m.transformer.ln_f, over: cp)
sequence_vocab(m.transformer.wte, over: cp)
sequence_gather(m.lm_head, over: cp)
m.transformer.wpe.weight.grad().sync(all_reduce, over: cp)";

/// Four ranks with a query head each, and two with the same head of keys and values.
const LLAMA_CONTEXT: &str = "for l in m.model.layers {
    let a = l.self_attn
    sequence_norm(l.{input_layernorm, post_attention_layernorm}, over: cp)
    a.{q_proj, k_proj, v_proj, o_proj}.weight.grad().sync(all_reduce, over: cp)
    l.mlp.{gate_proj, up_proj, down_proj}.weight.grad().sync(all_reduce, over: cp)
    a.q_proj.output().sync(all_to_all(seq, hidden, groups: 2), over: cp[1])
    a.q_proj.output().sync(all_to_all(seq, hidden), over: cp[0])
    a.q_proj.output().grad().sync(all_to_all(hidden, seq), over: cp[0])
    a.q_proj.output().grad().sync(all_to_all(hidden, seq, groups: 2), over: cp[1])
    a.{k_proj, v_proj}.output().sync(all_gather(seq), over: cp[1])
    a.{k_proj, v_proj}.output().sync(all_to_all(seq, hidden), over: cp[0])
    a.{k_proj, v_proj}.output().grad().sync(all_to_all(hidden, seq), over: cp[0])
    a.{k_proj, v_proj}.output().grad().sync(reduce_scatter(seq, groups: 2), over: cp[1])
    a.o_proj.input().sync(all_to_all(hidden, seq), over: cp[0])
    a.o_proj.input().sync(all_to_all(hidden, seq, groups: 2), over: cp[1])
    a.o_proj.input().grad().sync(all_to_all(seq, hidden, groups: 2), over: cp[1])
    a.o_proj.input().grad().sync(all_to_all(seq, hidden), over: cp[0])
}
sequence_norm(m.model.norm, over: cp)
m.model.embed_tokens.output().sync(slice(seq), over: cp)
m.model.embed_tokens.output().grad().sync(all_gather, over: cp)
m.lm_head.input().sync(all_gather, over: cp)
m.lm_head.input().grad().sync(slice(seq), over: cp)";

#[test]
fn context_parallelism_computes_what_the_model_computes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cases = [
        (MODELS[1], "dp = 1, cp = 4", BERT_CONTEXT, 4),
        (MODELS[2], "dp = 2, cp = 2", OPT_CONTEXT, 4),
        (MODELS[0], "dp = 2, cp = 2, tp = 2", GPT2_CONTEXT, 8),
        (MODELS[3], "dp = 1, cp = [2, 2]", LLAMA_CONTEXT, 4),
    ];
    for ((model, _, checkpoint), mesh, body, ranks) in cases {
        for rest in ["", &format!("{checkpoint}\nm.accumulate(steps: 2)")] {
            let schedule = on(folder.path(), model, mesh, &format!("{body}\n{rest}"));
            let report = report(&schedule, &["--clip", "0.5", "--steps", "2"]);
            assert_ne!(report["verdict"], "wrong", "{model}, {mesh}: {report:#}");
            assert_eq!((&report["ranks"], &report["dropout"]), (&ranks.into(), &true.into()));
        }
    }
}

/// Neither odd sequences nor more ranks than heads of keys and values: both are refused with the numbers of ranks that can.
#[test]
fn heads_and_sequences_that_cannot_be_exchanged_name_the_legal_sizes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let body = "ulysses_in(m.model.layers.*.self_attn.{q_proj, k_proj, v_proj}, over: cp)
        ulysses_out(m.model.layers.*.self_attn.o_proj, over: cp)
        m.model.embed_tokens.output().sync(slice(seq), over: cp)";
    for (cp, seq, said) in [(4, "12", "legal sizes of `cp` here: 1, 2"), (2, "15", "1, 3, 5, 15")] {
        let schedule = on(folder.path(), MODELS[3].0, &format!("dp = 1, cp = {cp}"), body);
        let output = slapoc("check", &schedule, &["--seq", seq, "-A", "warnings"]);
        let shown = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{shown}");
        assert!(shown.contains("S0601") && shown.contains(said), "{shown}");
    }
}
