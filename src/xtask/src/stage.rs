//! Named stages with their times, and the commands they run.

use crate::Result;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs stages one after the other and prints their times; a table of all of them at the end.
pub struct Stages {
    began: Instant,
    times: Vec<(&'static str, Duration)>,
}

impl Stages {
    pub fn new() -> Stages {
        Stages { began: Instant::now(), times: Vec::new() }
    }

    pub fn run<T>(&mut self, name: &'static str, body: impl FnOnce() -> Result<T>) -> Result<T> {
        eprintln!("==> {name}");
        let began = Instant::now();
        let result = body();
        let took = began.elapsed();
        let end = if result.is_ok() { "done" } else { "failed" };
        eprintln!("    {name} {end} after {}", seconds(took));
        self.times.push((name, took));
        result.map_err(|message| format!("{name}: {message}"))
    }

    pub fn finish(self) {
        eprintln!();
        for (name, time) in &self.times {
            eprintln!("    {name:<10} {:>9}", seconds(*time));
        }
        eprintln!("    {:<10} {:>9}", "total", seconds(self.began.elapsed()));
    }
}

pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// The root of the repository, wherever the command was called.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_owned()
}

/// `cargo` in the root, with libtorch where its crates look for it.
pub fn cargo(libtorch: &Path, arguments: &[&str]) -> Command {
    let mut command = bare_cargo(arguments);
    command.env("LIBTORCH", libtorch);
    command
}

/// `cargo` in the root, for what needs no libtorch.
pub fn bare_cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(root());
    command
}

/// Runs a command with the terminal as it is.
pub fn succeed(command: &mut Command) -> Result<()> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|e| format!("cannot start `{shown}`: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` ended with {status}")) }
}

/// Runs `cargo test` and adds up what its test binaries report: passed and failed.
pub fn count_tests(command: &mut Command) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| format!("cannot start cargo: {e}"))?;
    let (mut passed, mut failed) = (0, 0);
    for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
        let line = line.map_err(|e| format!("while reading cargo's output: {e}"))?;
        println!("{line}");
        if let Some((ok, wrong)) = test_result(&line) {
            passed += ok;
            failed += wrong;
        }
    }
    let status = child.wait().map_err(|e| format!("lost track of cargo: {e}"))?;
    println!("\n{passed} passed, {failed} failed");
    if status.success() { Ok(()) } else { Err(format!("cargo ended with {status}")) }
}

/// `test result: ok. 3 passed; 0 failed; …`
fn test_result(line: &str) -> Option<(u32, u32)> {
    let rest = line.strip_prefix("test result: ")?;
    let (_, counts) = rest.split_once(". ")?;
    let number = |what: &str| {
        let part = counts.split("; ").find(|part| part.ends_with(what))?;
        part.split(' ').next()?.parse().ok()
    };
    Some((number("passed")?, number("failed")?))
}

/// Where cargo puts what it builds.
pub fn target_directory() -> Result<PathBuf> {
    let output = bare_cargo(&["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .map_err(|e| format!("cannot start cargo: {e}"))?;
    let metadata = String::from_utf8_lossy(&output.stdout);
    let found = metadata.split_once("\"target_directory\":\"").and_then(|(_, rest)| rest.split_once('"'));
    found.map(|(path, _)| PathBuf::from(path)).ok_or_else(|| "cargo does not say where it builds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_a_test_binary() {
        let line = "test result: FAILED. 15 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.49s";
        assert_eq!(test_result(line), Some((15, 1)));
        assert_eq!(test_result("test results ... ok"), None);
    }
}
