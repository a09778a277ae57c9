//! The worker's process: arguments, events, exit codes.

mod common;

use common::language::model;
use slapo_program::*;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

fn worker() -> Command {
    Command::new(env!("CARGO_BIN_EXE_slapo-worker"))
}

fn job(folder: &Path, steps: u64) -> Job {
    fs::write(folder.join("corpus.txt"), "the quick brown fox jumps over the lazy dog. ".repeat(20)).expect("writes");
    Job {
        program: model(false),
        simulated: Vec::new(),
        peers: None,
        archive: None,
        data: folder.join("corpus.txt"),
        steps,
        init: true,
        threads: Some(1),
        deterministic: false,
        dump_gradients: None,
        save: Some(folder.join("model.safetensors")),
        trace: None,
    }
}

fn feed(mut command: Command, input: &str) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("reads its input");
    child.wait_with_output().expect("ends")
}

fn events(output: &Output) -> Vec<Event> {
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

fn failure(output: &Output) -> (FailureKind, String) {
    match events(output).pop() {
        Some(Event::Failed { kind, message, .. }) => (kind, message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_from_standard_input_or_a_file_gives_events_and_nothing_else() {
    let folder = TempDir::new().expect("a folder");
    let text = serde_json::to_string(&job(folder.path(), 3)).expect("serialises");
    let path = folder.path().join("job.json");
    fs::write(&path, &text).expect("writes");
    let mut from_file = worker();
    from_file.arg(&path);
    for output in [feed(worker(), &text), feed(from_file, "")] {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let events = events(&output);
        assert!(matches!(events[0], Event::Ready { .. }));
        assert_eq!(events.iter().filter(|e| matches!(e, Event::Step { .. })).count(), 3);
        let Event::Step { memory, .. } = &events[2] else { panic!("{:?}", events[2]) };
        // Gradients are released, inputs are kept, at the end of a step.
        let inputs = 2 * 4 * 8 * 8;
        assert!((0..64).contains(&(memory.current - memory.parameters - inputs)), "{memory:?}");
        assert!(memory.peak > memory.current + memory.gradients, "{memory:?}");
        assert!(matches!(events[4], Event::Wrote { .. }) && matches!(events[5], Event::Done { .. }));
    }
}

#[test]
fn the_version_is_one_json_object() {
    let output = worker().arg("--version").output().expect("starts");
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(version["program"], VERSION);
    assert_eq!(version["features"]["libtorch"], "2.11.0");
    assert!(version["features"]["threads"].as_u64().is_some_and(|n| n >= 1));
}

#[test]
fn the_exit_code_says_who_is_to_blame() {
    let folder = TempDir::new().expect("a folder");
    let with = |change: &dyn Fn(&mut Job)| {
        let mut job = job(folder.path(), 3);
        change(&mut job);
        feed(worker(), &serde_json::to_string(&job).expect("serialises"))
    };
    let missing = with(&|job| job.data = folder.path().join("absent"));
    assert_eq!((missing.status.code(), failure(&missing).0), (Some(2), FailureKind::Input));
    let other = with(&|job| job.program.version = VERSION + 1);
    assert_eq!(other.status.code(), Some(2));
    assert!(failure(&other).1.contains("compile it again"), "{:?}", failure(&other));
    let wrong = with(&|job| job.program.functions[0].body[3].op = Op::Aten("aten::bmm".to_owned()));
    assert_eq!((wrong.status.code(), failure(&wrong).0), (Some(3), FailureKind::Run));
    let garbage = feed(worker(), "{");
    assert_eq!(garbage.status.code(), Some(2));
}

#[test]
fn a_full_disk_is_an_error_and_leaves_the_old_file() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("model.safetensors");
    let job = job(folder.path(), 1);
    fs::write(&path, "old").expect("writes");
    let mut limited = worker();
    // A limit on the size of files fails a write as a full disk does, and needs no rights.
    // SAFETY: `setrlimit` may be called between fork and exec.
    unsafe {
        limited.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
            match libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let output = feed(limited, &serde_json::to_string(&job).expect("serialises"));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let message = failure(&output).1;
    assert!(message.contains("File too large") && message.ends_with("the file is as it was"), "{message}");
    assert_eq!(fs::read(&path).expect("exists"), b"old");
    assert_eq!(fs::read_dir(folder.path()).expect("lists").count(), 2, "no temporary files");
}
