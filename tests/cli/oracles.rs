//! Every archive, trained by `slapoc`, beside what PyTorch computed for it (`tests/oracles`, with the script that did).
//!
//! Losses in float32 agree within 1e-5, gradients in float64 within 1e-10 of the largest value of their tensor (of a
//! thousandth of the largest of all, where the true gradient is zero).

use safetensors::SafeTensors;
use serde::Deserialize;
use slapo_program::Event;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `tests/oracles/make.py` stored for one archive and data set.
#[derive(Deserialize)]
struct Oracle {
    archive: String,
    data: String,
    batch: u32,
    seq: u32,
    float64: Option<Float64>,
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Float64 {
    loss: f64,
}

#[derive(Deserialize)]
struct Run {
    optimizer: String,
    lr: f64,
    steps: u32,
    clip: Option<f64>,
    losses: Vec<f64>,
    norms: Option<Vec<f64>>,
}

/// One finished training.
struct Trained {
    losses: Vec<f64>,
    norms: Vec<f64>,
    gradients: BTreeMap<String, Vec<f64>>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn oracle(name: &str) -> Oracle {
    let path = root().join(format!("tests/oracles/{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Trains `archive` under `statements` (the body of `schedule main`) on the oracle's data.
fn train(oracle: &Oracle, statements: &str, options: &[&str]) -> Trained {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let schedule = folder.path().join("main.slapo");
    let uses = if statements.contains("sdpa") { "use std.fusion.sdpa\n" } else { "" };
    std::fs::write(&schedule, format!("{uses}schedule main(m: Module) {{\n{statements}\n}}\n"))
        .expect("writing the schedule");
    let (log, dump) = (folder.path().join("log.jsonl"), folder.path().join("gradients.safetensors"));
    let output = Command::new(env!("CARGO_BIN_EXE_slapoc"))
        .current_dir(root())
        .arg("train")
        .arg(&schedule)
        .args(["--model", root().join(&oracle.archive).to_str().expect("a path in UTF-8")])
        .args(["--data", &oracle.data, "--batch", &oracle.batch.to_string(), "--seq", &oracle.seq.to_string()])
        .arg("--log")
        .arg(&log)
        .arg("--dump-gradients")
        .arg(&dump)
        .args(options)
        .output()
        .expect("slapoc starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {statements:?} {options:?}: {stderr}", oracle.archive);
    let mut trained = Trained { losses: Vec::new(), norms: Vec::new(), gradients: read(&dump) };
    for line in std::fs::read_to_string(&log).expect("a log").lines() {
        if let Ok(Event::Step { loss, grad_norm, .. }) = serde_json::from_str(line) {
            trained.losses.push(loss);
            trained.norms.extend(grad_norm);
        }
    }
    trained
}

fn read(path: &Path) -> BTreeMap<String, Vec<f64>> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let numbers = |view: safetensors::tensor::TensorView| match view.dtype() {
        safetensors::Dtype::F64 => {
            view.data().chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes"))).collect()
        }
        safetensors::Dtype::F32 => {
            let single = |b: &[u8]| f32::from_le_bytes(b.try_into().expect("four bytes"));
            view.data().chunks_exact(4).map(|b| f64::from(single(b))).collect()
        }
        other => panic!("a gradient of type {other:?}"),
    };
    file.tensors().into_iter().map(|(name, view)| (name, numbers(view))).collect()
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |m, x| x.abs().max(m))
}

/// ‖a − b‖∞ ≤ bound · max(‖b‖∞, 1e-3 · s), s the largest of all.
fn assert_close(what: &str, ours: &BTreeMap<String, Vec<f64>>, theirs: &BTreeMap<String, Vec<f64>>, bound: f64) {
    let names = |of: &BTreeMap<String, Vec<f64>>| of.keys().filter(|n| *n != "loss").cloned().collect::<Vec<_>>();
    assert_eq!(names(ours), names(theirs), "{what}: gradients of other parameters");
    let scale = names(theirs).iter().map(|n| largest(&theirs[n])).fold(0.0, f64::max);
    for name in names(theirs) {
        let (a, b) = (&ours[&name], &theirs[&name]);
        assert_eq!(a.len(), b.len(), "{what}: {name}");
        let difference = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let limit = bound * largest(b).max(1e-3 * scale);
        assert!(difference <= limit, "{what}: {name} is off by {difference:e}, over {limit:e}");
    }
}

fn assert_near(what: &str, ours: &[f64], theirs: &[f64], bound: f64) {
    assert_eq!(ours.len(), theirs.len(), "{what}: another number of steps");
    for (step, (a, b)) in ours.iter().zip(theirs).enumerate() {
        assert!((a - b).abs() <= bound * b.abs(), "{what}: step {}: {a} where PyTorch has {b}", step + 1);
    }
}

/// Float64 gradients, and ten steps with each stored optimizer, under `statements`.
fn agrees(name: &str, statements: &str) {
    let oracle = oracle(name);
    if let Some(double) = &oracle.float64 {
        let ours = train(&oracle, statements, &["--no-dropout", "--dtype", "float64", "--steps", "1"]);
        let theirs = read(&root().join(format!("tests/oracles/{name}.grads.safetensors")));
        assert_near(name, &ours.losses, &[double.loss], 1e-12);
        assert_close(name, &ours.gradients, &theirs, 1e-10);
    }
    for run in &oracle.runs {
        let (lr, steps, clip) = (run.lr.to_string(), run.steps.to_string(), run.clip.map(|c| c.to_string()));
        let mut options = vec!["--no-dropout", "--optimizer", &run.optimizer, "--lr", &lr, "--steps", &steps];
        if let Some(clip) = &clip {
            options.extend(["--clip", clip]);
        }
        let ours = train(&oracle, statements, &options);
        let what = format!("{name}, {}", run.optimizer);
        assert_near(&what, &ours.losses, &run.losses, 1e-5);
        if let Some(norms) = &run.norms {
            assert_near(&format!("{what}, gradient norm"), &ours.norms, norms, 1e-5);
        }
    }
}

#[test]
fn gpt2_agrees_with_pytorch() {
    agrees("gpt2-tiny", "");
    agrees("gpt2-tiny-text", "");
}

#[test]
fn ragged_labels_agree_with_pytorch() {
    agrees("gpt2-tiny-ragged", "");
}

#[test]
fn odd_sizes_agree_with_pytorch() {
    agrees("gpt2-odd", "");
}

#[test]
fn bert_agrees_with_pytorch() {
    agrees("bert-tiny", "");
}

#[test]
fn opt_agrees_with_pytorch() {
    agrees("opt-tiny", "");
}

#[test]
fn llama_agrees_with_pytorch() {
    agrees("llama-tiny", "");
}

/// Attention operator by operator, and the operator that stands in for it.
#[test]
fn eager_attention_agrees_with_pytorch() {
    agrees("gpt2-eager", "");
    agrees("gpt2-eager", "m.find(sdpa).expect(2).replace(attention(scale: c))");
}

/// Operators without a derivative entry, a module called twice, a non-persistent buffer.
#[test]
fn rerun_operators_agree_with_pytorch() {
    agrees("misc", "");
}

/// Buffers that change in forward.
#[test]
fn batch_norm_agrees_with_pytorch() {
    agrees("counters", "");
}

/// One module for every row of the derivative table.
#[test]
fn every_derivative_agrees_with_pytorch() {
    agrees("operators", "");
}

/// Ragged labels make the micro-batches' token counts differ: only a global count gives PyTorch's numbers.
#[test]
fn micro_batches_agree_with_pytorch() {
    agrees("gpt2-tiny-ragged", "m.accumulate(steps: 3)");
    agrees("bert-tiny", "m.accumulate(steps: 2)");
    agrees("opt-tiny", "m.accumulate(steps: 6)");
    agrees("llama-tiny", "m.accumulate(steps: 3)");
}

#[test]
fn recomputation_agrees_with_pytorch() {
    agrees("gpt2-odd", "m.transformer.h.*.checkpoint()");
    agrees("bert-tiny", "m.bert.encoder.layer.*.checkpoint()\nm.accumulate(steps: 3)");
    agrees("llama-tiny", "m.model.layers.*.checkpoint()\nm.accumulate(steps: 2)");
    agrees("operators", "m.*.checkpoint()");
}

const DROPOUT: [(&str, &str); 5] = [
    ("gpt2-tiny", "m.transformer.h.*.checkpoint()"),
    ("bert-tiny", "m.bert.encoder.layer.*.checkpoint()"),
    ("opt-tiny", "m.model.decoder.layers[0].checkpoint()"),
    ("llama-tiny", "m.model.layers[1].checkpoint()"),
    ("operators", "m.*.checkpoint()"),
];

#[test]
fn recomputation_with_dropout_is_bit_equal() {
    for (name, checkpoint) in DROPOUT {
        let oracle = oracle(name);
        let (plain, again) = (train(&oracle, "", &["--steps", "4"]), train(&oracle, checkpoint, &["--steps", "4"]));
        assert_eq!(plain.losses, again.losses, "{name}");
        assert!(plain.gradients == again.gradients, "{name}: gradients differ");
        let without = train(&oracle, "", &["--steps", "4", "--no-dropout"]);
        assert_ne!(plain.losses, without.losses, "{name}: dropout was not on");
    }
}

#[test]
fn another_number_of_micro_batches_draws_the_same_masks() {
    for (name, checkpoint) in DROPOUT.into_iter().filter(|(name, _)| *name != "operators") {
        let oracle = oracle(name);
        let options = ["--steps", "2", "--dtype", "float64"];
        let whole = train(&oracle, "", &options);
        for statements in ["m.accumulate(steps: 2)".to_owned(), format!("m.accumulate(steps: 3)\n{checkpoint}")] {
            let parts = train(&oracle, &statements, &options);
            assert_near(name, &parts.losses, &whole.losses, 1e-12);
            assert_close(&format!("{name}, {statements}"), &parts.gradients, &whole.gradients, 1e-10);
        }
    }
}

/// `labels` that equal the inputs give another loss: the two inputs are not one.
#[test]
fn labels_are_an_input_of_their_own() {
    let random = oracle("gpt2-tiny");
    let bytes = std::fs::read(root().join(&random.data)).expect("the data set");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let (ids, labels) = (file.tensor("input_ids").expect("input_ids"), file.tensor("labels").expect("labels"));
    assert_ne!(ids.data(), labels.data());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let same = folder.path().join("same.safetensors");
    safetensors::serialize_to_file([("input_ids", &ids), ("labels", &ids)], None, &same).expect("writing the data set");
    let same = Oracle { data: same.to_str().expect("a path in UTF-8").to_owned(), ..oracle("gpt2-tiny") };
    let options = ["--steps", "1", "--no-dropout"];
    assert_ne!(train(&random, "", &options).losses, train(&same, "", &options).losses);
}

/// Running statistics belong to what PyTorch calls the state of a model.
#[test]
fn buffers_that_change_are_saved() {
    let oracle = oracle("counters");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let saved = folder.path().join("saved.safetensors");
    let path = saved.to_str().expect("a path in UTF-8");
    train(&oracle, "", &["--steps", "3", "--save", path]);
    let bytes = std::fs::read(&saved).expect("the saved model");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let steps = file.tensor("norm.num_batches_tracked").expect("the counter").data().to_vec();
    assert_eq!(steps, 3i64.to_le_bytes());
    let mean = file.tensor("norm.running_mean").expect("the running mean");
    assert!(mean.data().iter().any(|byte| *byte != 0), "it began as zero");
}
