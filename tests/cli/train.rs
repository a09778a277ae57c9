//! `slapoc train` with a real worker: from the schedule to falling losses, and every way to fail on the way.
//!
//! The worker is found as users' is: `SLAPO_WORKER`, beside slapoc, or on the `PATH`. Without one every test here fails,
//! saying how to build it.

mod running;
mod support;

use running::{children, end, gone, signal};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;
use std::fs;
use std::io::{BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use support::{Run, command, run};
use tempfile::TempDir;

const TEXT: &str = "examples/gpt2/corpus.txt";
/// Small enough that a step takes no time.
const SMALL: [&str; 6] = ["--batch", "4", "--seq", "16", "--threads", "1"];
const LONG: [&str; 2] = ["--steps", "1000000"];

fn train(schedule: &str, args: &[&str]) -> Run {
    run(&[&["train", schedule, "--data", TEXT], args].concat())
}

fn small(args: &[&str]) -> Run {
    train("examples/gpt2/gpt2-tiny.pt2", &[&SMALL[..], args].concat())
}

fn folder() -> TempDir {
    TempDir::new().expect("a folder")
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).to_str().expect("UTF-8").to_owned()
}

fn records(text: &str, kind: &str) -> Vec<Value> {
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{line}: {e}")));
    all.filter(|record| record["type"] == kind).collect()
}

fn losses(text: &str) -> Vec<f64> {
    records(text, "step").iter().map(|step| step["loss"].as_f64().expect("a loss")).collect()
}

#[test]
fn the_loss_falls_under_the_example_schedules() {
    for name in ["plain", "recompute"] {
        let run =
            train(&format!("examples/gpt2/{name}.slapo"), &["--steps", "12", "--message-format", "json"]).expect(0);
        let losses = losses(&run.stdout);
        assert_eq!(losses.len(), 12, "{name}");
        assert!(losses[11] < losses[0] - 0.5, "{name}: {losses:?}");
        let summary = records(&run.stdout, "summary").remove(0);
        assert_eq!(summary["last_loss"], losses[11]);
        let bytes = |field: &str| summary[field].as_f64().expect("bytes");
        let ratio = bytes("predicted_memory") / bytes("measured_memory");
        assert!((0.95..1.05).contains(&ratio), "{name}: predicted memory is {ratio} of what was measured");
    }
}

#[test]
fn a_model_alone_is_trained_with_sizes_that_are_told() {
    let run = train("examples/gpt2/gpt2-tiny.pt2", &["--steps", "1"]).expect(0);
    assert!(run.stderr.contains("batch 8, seq 64, by default"), "{}", run.stderr);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(lines[0].trim_start().starts_with("step") && lines[1].trim_start().starts_with("1 "), "{}", run.stdout);
    assert_eq!(lines[0].len(), lines[1].len(), "columns keep their places");
    assert!(run.stdout.contains("peak memory"), "{}", run.stdout);
}

#[test]
fn files_that_were_asked_for_are_written() {
    let folder = folder();
    let (save, dump, log) =
        (path(&folder, "w.safetensors"), path(&folder, "g.safetensors"), path(&folder, "log.jsonl"));
    small(&["--steps", "2", "--save", &save, "--dump-gradients", &dump, "--log", &log]).expect(0);
    let names = |path: &str| {
        let bytes = fs::read(path).expect("was written");
        let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
        file.names().iter().map(|name| name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&save).len(), names(&dump).len());
    assert!(names(&save).contains(&"transformer.wte.weight".to_owned()));
    let log = fs::read_to_string(log).expect("was written");
    assert!(log.starts_with("{\"type\":\"version\""), "{log}");
    assert_eq!(losses(&log).len(), 2);
    for kind in ["training", "ready", "summary"] {
        assert_eq!(records(&log, kind).len(), 1, "{kind}");
    }
    assert_eq!(records(&log, "wrote").len(), 2);
}

#[test]
fn the_seed_decides_and_deterministic_runs_repeat() {
    let losses = |args: &[&str]| {
        let common =
            ["--batch", "4", "--seq", "16", "--deterministic", "--init", "--steps", "2", "--message-format", "json"];
        let run = train("examples/gpt2/gpt2-tiny.pt2", &[&common[..], args].concat()).expect(0);
        assert!(run.stderr.contains("initial     normal 0.02  "), "{}", run.stderr);
        losses(&run.stdout)
    };
    assert_eq!(losses(&[]), losses(&["--seed", "0"]));
    assert_ne!(losses(&[]), losses(&["--seed", "1"]));
}

#[test]
fn text_shorter_than_a_batch_is_refused() {
    let folder = folder();
    let short = path(&folder, "short.txt");
    fs::write(&short, "too short").expect("writes");
    let run = run(&["train", "examples/gpt2/plain.slapo", "--data", &short]).expect(2);
    assert!(run.stderr.contains("too short") && run.stderr.contains("512 bytes"), "{}", run.stderr);
}

#[test]
fn the_page_on_data_says_the_truth() {
    support::try_page(slapo_syntax::Code::UnfitData, None);
}

#[test]
fn missing_data_is_refused() {
    let run = run(&["train", "examples/gpt2/plain.slapo", "--data", "absent.txt"]).expect(2);
    assert!(run.stderr.contains("`absent.txt`"), "{}", run.stderr);
}

#[test]
fn a_mesh_of_several_ranks_is_refused_without_saying_who_starts_them() {
    let folder = folder();
    let schedule = path(&folder, "main.slapo");
    fs::write(&schedule, "mesh { dp = 2 }\ninput { batch = 4, seq = 16 }\nschedule main(m: Module) {}\n")
        .expect("writes");
    let run = run(&["train", &schedule, "--model", "examples/gpt2/gpt2-tiny.pt2", "--data", TEXT]).expect(2);
    assert!(run.stderr.contains("error[S0652]: the mesh has 2 ranks"), "{}", run.stderr);
    assert!(run.stderr.contains("`slapoc train --nproc 2`"), "{}", run.stderr);
}

/// A data set of two rows whose last label is `label`.
fn data_with_label(path: &str, label: i64) {
    let bytes = |values: &[i64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let (ids, mut labels) = (vec![1; 32], vec![1; 32]);
    labels[31] = label;
    let (ids, labels) = (bytes(&ids), bytes(&labels));
    let view = |data| TensorView::new(Dtype::I64, vec![2, 16], data).expect("a tensor");
    let tensors = [("input_ids", view(&ids)), ("labels", view(&labels))];
    safetensors::serialize_to_file(tensors, None, Path::new(path)).expect("writes");
}

/// Also where ranks share the vocabulary: each would take a label that no rank has for one of another's.
#[test]
fn labels_beyond_the_vocabulary_are_refused_with_their_place() {
    let folder = folder();
    let data = path(&folder, "data.safetensors");
    let sizes = ["--batch", "2", "--seq", "16", "--steps", "1"];
    let alone = || run(&[&["train", "examples/gpt2/gpt2-tiny.pt2", "--data", &data], &sizes[..]].concat());
    let schedule = path(&folder, "split.slapo");
    let text = "use std.parallel.vocab\nmesh { tp = 2 }\ninput { batch = 2, seq = 16 }\n\n\
        schedule main(m: GPT2LMHeadModel) {\n    vocab(m.transformer.wte, over: tp)\n    \
        m.lm_head.input().grad().sync(all_reduce, over: tp)\n}\n";
    fs::write(&schedule, text).expect("writes");
    let split = || {
        let model = ["--model", "examples/gpt2/gpt2-tiny.pt2", "--data", &data, "--steps", "1", "--nproc", "2"];
        run(&[&["train", &schedule], &model[..]].concat())
    };
    for legal in [255, -100] {
        data_with_label(&data, legal);
        alone().expect(0);
    }
    split().expect(0);
    for illegal in [256, -1] {
        data_with_label(&data, illegal);
        let said = format!("error[S0910]: input `labels` is {illegal} in row 1 of the data");
        for beyond in [alone(), split()] {
            let beyond = beyond.expect(2);
            assert!(beyond.stderr.contains(&said) && beyond.stderr.contains("0 to 255, and -100"), "{}", beyond.stderr);
        }
    }
}

#[test]
fn files_that_cannot_be_written_are_errors() {
    let device = small(&["--steps", "1", "--save", "/dev/full"]).expect(2);
    assert!(device.stderr.contains("/dev/full"), "{}", device.stderr);
    let nowhere = small(&["--steps", "1", "--save", "/absent/w.safetensors"]).expect(2);
    assert!(nowhere.stderr.contains("/absent/w.safetensors"), "{}", nowhere.stderr);
    let log = small(&["--steps", "1", "--log", "/absent/log.jsonl"]).expect(2);
    assert!(log.stderr.contains("/absent/log.jsonl"), "{}", log.stderr);
    let full_log = small(&["--steps", "1", "--log", "/dev/full"]).expect(2);
    assert!(full_log.stdout.contains("peak memory"), "training went on: {}", full_log.stdout);
}

/// A limit on the size of files fails a write as a full disk does, and needs no rights.
#[test]
fn a_full_disk_leaves_no_half_of_a_file() {
    let folder = folder();
    let save = path(&folder, "w.safetensors");
    let slapoc = env!("CARGO_BIN_EXE_slapoc");
    let script = format!(
        "ulimit -f 64; exec '{slapoc}' train examples/gpt2/gpt2-tiny.pt2 --data {TEXT} --steps 1 {} --save '{save}'",
        SMALL.join(" ")
    );
    let output = Command::new("sh").arg("-c").arg(script).current_dir(support::root()).output().expect("starts");
    let run = Run::from(output).expect(3);
    assert!(run.stderr.contains("w.safetensors"), "{}", run.stderr);
    assert_eq!(fs::read_dir(folder.path()).expect("lists").count(), 0);
}

/// A training that would take very long, once its first step is done.
fn running(args: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let all = [&["train", "examples/gpt2/gpt2-tiny.pt2", "--data", TEXT], &SMALL[..], &LONG, args].concat();
    running::running(&all)
}

#[test]
fn a_killed_worker_is_told_with_its_signal() {
    let (child, mut lines) = running(&[]);
    let workers = children(child.id());
    assert_eq!(workers.len(), 1);
    signal("-KILL", workers[0]);
    let _ = lines.read_to_string(&mut String::new());
    let (code, stderr) = end(child);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("SIGKILL") && stderr.contains("of 1000000 steps done"), "{stderr}");
}

#[test]
fn an_interrupt_stops_the_worker_and_says_what_was_done() {
    for name in ["-INT", "-TERM"] {
        let (child, mut lines) = running(&[]);
        let worker = children(child.id())[0];
        signal(name, child.id());
        let _ = lines.read_to_string(&mut String::new());
        let (code, stderr) = end(child);
        assert_eq!(code, Some(130), "{stderr}");
        assert!(stderr.contains("interrupted") && stderr.contains("of 1000000 steps done"), "{stderr}");
        gone(&[worker]);
    }
}

#[test]
fn training_ends_when_nobody_reads_it() {
    let (child, lines) = running(&[]);
    drop(lines);
    let (code, stderr) = end(child);
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn training_goes_on_unread_where_it_writes_files() {
    let folder = folder();
    let save = path(&folder, "w.safetensors");
    let args =
        [&["train", "examples/gpt2/gpt2-tiny.pt2", "--data", TEXT], &SMALL[..], &["--steps", "20", "--save", &save]];
    let mut child =
        command(&args.concat()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("slapoc starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(Path::new(&save).exists());
}

#[test]
fn something_else_in_the_workers_place_is_told() {
    let output = command(&["train", "examples/gpt2/gpt2-tiny.pt2", "--data", TEXT])
        .env("SLAPO_WORKER", "/bin/echo")
        .output()
        .expect("starts");
    let run = Run::from(output).expect(3);
    assert!(run.stderr.contains("error[S0903]") || run.stderr.contains("error[S0902]"), "{}", run.stderr);
}
