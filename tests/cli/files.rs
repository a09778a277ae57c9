//! Files that are missing, broken or something else.

use crate::schedules::{folder, run_on};
use crate::support::{Run, block, command, root, run, stand_in, try_page};
use insta::assert_snapshot;
use slapo_syntax::Code;
use std::fs;

#[test]
fn a_schedule_must_be_a_text_file() {
    let missing = run(&["check", "absent.slapo"]).expect(2);
    assert_snapshot!("missing-schedule", missing.shown());
    let of_folder = run(&["apply", "examples"]).expect(2);
    assert_snapshot!("folder-as-schedule", of_folder.shown());
    let archive = fs::read(root().join("examples/gpt2/gpt2-tiny.pt2")).expect("reads");
    let archive = run_on(&archive, &["check", "main.slapo"]).expect(2);
    assert_snapshot!("archive-as-schedule", archive.shown());
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
    assert_snapshot!("ignored-input", run(&["check", "tests/data/bad/ignored.pt2"]).expect(0).shown());
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
    run(&["apply"]).expect(2);
    run(&["train", "a.slapo", "--data", "b", "--threads", "0"]).expect(2);
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
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.starts_with("error[S1013]: ") && stderr.contains("no space left on device"), "{stderr}");
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

/// Trains with a script in the worker's place.
fn train_with(script: &str, args: &[&str]) -> Run {
    let train = ["train", "examples/gpt2/plain.slapo", "--data", "examples/gpt2/corpus.txt", "--steps", "3"];
    command(&[&train, args].concat())
        .env("SLAPO_WORKER", stand_in())
        .env("SAY", script)
        .output()
        .expect("starts")
        .into()
}

/// A last event.
fn failed(kind: &str, message: &str, more: &str) -> String {
    format!(
        "cat > /dev/null; echo last words >&2\necho '{{\"event\":\"failed\",\"kind\":\"{kind}\",\"message\":\"{message}\",\
         \"function\":null,\"instruction\":null,\"operator\":{more}'"
    )
}

#[test]
fn every_end_of_a_worker_has_its_code() {
    let nowhere = "null,\"shapes\":[],\"module\":null,\"source\":null}";
    let operator = "\"aten::mm\",\"shapes\":[\"f32[2, 3]\"],\"module\":\"lm_head\",\"source\":\"model.py:7\"}";
    let cases = [
        ("operator", 3, failed("run", "Too large.", operator)),
        ("signal", 3, "kill -9 $$".to_owned()),
        ("silence", 3, "cat > /dev/null".to_owned()),
        ("no-event", 3, "cat > /dev/null; echo hello".to_owned()),
        ("version", 2, failed("input", "cannot run the job from standard input: program version 9", nowhere)),
        ("run", 3, failed("run", "`loss` has no value", nowhere)),
        ("data", 2, failed("input", "the file is too short", nowhere)),
        ("disk", 3, failed("run", "cannot write `/a`: No space left on device (os error 28)", nowhere)),
    ];
    for (name, code, script) in cases {
        assert_snapshot!(format!("worker-{name}"), train_with(&script, &["-q"]).expect(code).shown());
    }
}

#[test]
fn initial_values_are_told_by_class() {
    let done = "cat > /dev/null; echo '{\"event\":\"done\",\"steps\":3,\"seconds\":1}'";
    let run = train_with(done, &["--init"]).expect(0);
    let rows: Vec<&str> =
        run.stderr.lines().skip_while(|l| !l.starts_with("initial")).take_while(|l| !l.starts_with("memory")).collect();
    assert_snapshot!("initial-values", rows.join("\n"));
}

#[test]
fn places_of_output_files_are_looked_at_first() {
    let never = "echo started >&2";
    for option in ["--save", "--dump-gradients", "--log"] {
        for place in ["absent/w.safetensors", "examples"] {
            let run = train_with(never, &[option, place]).expect(2);
            let named = format!("error[S1013]: cannot write `{place}`: ");
            assert!(run.stderr.contains(&named) && !run.stderr.contains("training"), "{option}: {}", run.stderr);
        }
    }
}

/// Examples of pages that are commands. Those that need a worker that looks at the data run with the real one.
#[test]
fn pages_of_files_say_the_truth() {
    let done = "cat > /dev/null; echo '{\"event\":\"done\",\"steps\":1,\"seconds\":1}'";
    let mut tried = 0;
    for code in Code::ALL.iter().filter(|code| **code != Code::UnfitData && block(code.page(), "sh,fail").is_some()) {
        try_page(*code, Some(done));
        tried += 1;
    }
    assert!(tried >= 6, "{tried}");
}
