//! Trainings that would take very long, and what becomes of them.

use crate::support;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// `slapoc` with these arguments, once the first step of its training is done.
pub fn running(args: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut child =
        support::command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("slapoc starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.trim_start().starts_with("1 ") {
        line.clear();
        if lines.read_line(&mut line).expect("reads") == 0 {
            let output = child.wait_with_output().expect("ends");
            panic!("no first step: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    (child, lines)
}

/// The processes that a process has started.
pub fn children(of: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).expect("/proc lists children");
    listed.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
}

pub fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status().expect("kill starts");
    assert!(sent.success());
}

/// Fails where one of the processes is still there after two seconds.
pub fn gone(processes: &[u32]) {
    let began = Instant::now();
    while processes.iter().any(|process| Path::new(&format!("/proc/{process}")).exists()) {
        assert!(began.elapsed() < Duration::from_secs(2), "of {processes:?} some go on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The exit code and standard error; fails where that takes longer than ten seconds.
pub fn end(mut child: Child) -> (Option<i32>, String) {
    let began = Instant::now();
    while child.try_wait().expect("waits").is_none() {
        assert!(began.elapsed() < Duration::from_secs(10), "slapoc goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("ended");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}
