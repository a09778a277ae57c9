//! Files that are missing, broken or something else.

use crate::schedules::{folder, run_on};
use crate::support::{command, root, run};
use insta::assert_snapshot;
use std::fs;

#[test]
fn a_schedule_must_be_a_text_file() {
    let missing = run(&["check", "absent.slapo"]).expect(2);
    assert_snapshot!("missing-schedule", missing.shown());
    let of_folder = run(&["check", "examples"]).expect(2);
    assert_snapshot!("folder-as-schedule", of_folder.shown());
    let latin = run_on(b"## na\xefve\nschedule main(m: Module) {}\n", &["check", "main.slapo"]).expect(2);
    assert_snapshot!("not-utf8", latin.shown());
}

#[test]
fn every_broken_archive_is_refused_with_advice() {
    for name in ["empty", "random", "truncated", "zip", "json", "schema", "noweights", "short", "inplace"] {
        let run = run(&["check", &format!("tests/data/bad/{name}.pt2")]).expect(2);
        assert_snapshot!(format!("archive-{name}"), run.shown());
    }
}

#[test]
fn an_input_that_the_model_ignores_is_told() {
    let run = run(&["check", "tests/data/bad/ignored.pt2"]);
    assert!(run.stderr.contains("input_ids"), "{}", run.shown());
}

#[test]
fn a_model_that_is_not_there_is_shown_where_it_is_named() {
    let text = "model \"absent.pt2\"\nschedule main(m: Module) { m.x.chekpoint() }\n";
    let run = run_on(text, &["check", "main.slapo"]).expect(2);
    assert!(run.stderr.contains("absent.pt2") && run.stderr.contains("main.slapo:1:7"), "{}", run.stderr);
    assert!(run.stderr.contains("chekpoint"), "the schedule's own mistakes are told too: {}", run.stderr);
}

#[test]
fn the_model_stands_relative_to_the_schedule() {
    let folder = folder("model \"model.pt2\"\ninput { batch = 2, seq = 8 }\nschedule main(m: Module) {}\n");
    let schedule = folder.path().join("main.slapo");
    run(&["check", schedule.to_str().expect("UTF-8")]).expect(0);
    let from_folder = command(&["-C", folder.path().to_str().expect("UTF-8"), "check", "main.slapo"]);
    let mut from_folder = from_folder;
    assert_eq!(from_folder.output().expect("starts").status.code(), Some(0));
}

#[test]
fn usage_errors_exit_with_two() {
    run(&["chekc"]).expect(2);
    run(&["check"]).expect(2);
    run(&["check", "a.slapo", "--batch", "0"]).expect(2);
    run(&["train", "a.slapo", "--data", "b", "--betas", "1"]).expect(2);
    run(&["-C", "absent", "doctor"]).expect(2);
}

#[test]
fn a_closed_pipe_is_no_error() {
    use std::process::Stdio;
    let mut child = command(&["apply", "examples/gpt2/plain.slapo", "--emit", "joint"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_full_disk_is_an_error() {
    let full = fs::File::options().write(true).open("/dev/full").expect("a device that is always full");
    let output = command(&["explain"]).stdout(full).output().expect("starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no space left on device"));
}

#[test]
fn without_a_worker_training_says_how_to_build_one() {
    let absent = root().join("target/no-such-worker");
    let output = command(&["train", "examples/gpt2/plain.slapo", "--data", "examples/gpt2/corpus.txt"])
        .env("SLAPO_WORKER", &absent)
        .output()
        .expect("starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("cargo build -p slapo-runtime"), "{stderr}");
}
