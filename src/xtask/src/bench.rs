//! `cargo xtask bench train`: a training step of ours beside one of eager PyTorch, in time and in memory; `bench check`: what
//! the compiler takes on large models; `bench editor`: how long a keystroke waits for the language server.
//!
//! Fresh processes in alternation; the median step of each run; the geometric mean of the pairs' ratios, and of PyTorch
//! against itself beside it. A figure counts only where PyTorch agrees with itself within 5 %. Knows how to start the two
//! programs and read their lines. Read [`train`] first.

use crate::Result;
use crate::libtorch;
use crate::stage::{self, Stages, cargo, root};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Pairs of processes per shape.
const PAIRS: usize = 5;

/// Steps of one run; the first ones warm up.
const STEPS: usize = 8;
const WARM_UP: usize = 3;

const THREADS: &str = "2";

/// One shape: options of `export.py` for the model, batch and sequence length.
struct Shape {
    name: &'static str,
    model: &'static [&'static str],
    batch: &'static str,
    seq: &'static str,
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "small",
        model: &[
            "--layers",
            "3",
            "--width",
            "64",
            "--heads",
            "4",
            "--vocab",
            "256",
            "--positions",
            "128",
            "--dropout",
            "0.1",
        ],
        batch: "8",
        seq: "64",
    },
    Shape { name: "124M with 2 layers", model: &["--layers", "2"], batch: "4", seq: "256" },
];

const CORPUS: &str = "examples/gpt2/corpus.txt";

/// Models that are too large to be committed, with their schedules: GPT-2 as published, and one of many layers, as it is
/// and on a mesh of tp 8 × dp 16.
const LARGE: [(Shape, Option<&str>); 3] = [
    (Shape { name: "124M", model: &[], batch: "4", seq: "256" }, None),
    (Shape { name: "96 layers of width 64", model: DEEP, batch: "4", seq: "64" }, None),
    (Shape { name: "the same on 128 ranks", model: DEEP, batch: "64", seq: "128" }, Some("tests/bench/deep.slapo")),
];

const DEEP: &[&str] = &["--layers", "96", "--width", "64", "--heads", "8", "--vocab", "1024", "--positions", "128"];

/// Runs a command several times; prints the fastest run's seconds and the most memory that one held, in bytes.
const MEASURE: &str = "
import resource, subprocess, sys, time
best = 1e9
for _ in range(5):
    began = time.perf_counter()
    subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    best = min(best, time.perf_counter() - began)
print('{\"seconds\": %f, \"resident\": %d}' % (best, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024))
";

/// Prints one table row per large model and command.
pub fn check(_: &[String]) -> Result<ExitCode> {
    let mut stages = Stages::new();
    let libtorch = stages.run("libtorch", libtorch::find)?;
    let python = stages.run("python", || Python::find(&libtorch))?;
    stages.run("build", || stage::succeed(&mut cargo(&libtorch, &["build", "--release", "-p", "slapoc"])))?;
    let built = stage::target_directory()?;
    let mut rows = Vec::new();
    for (shape, schedule) in &LARGE {
        let archive = stages.run("export", || python.export(shape, &built.join("bench")))?;
        let program = built.join("bench/program");
        for (what, rest) in [("check", vec![]), ("apply", vec!["-o".as_ref(), program.as_os_str()])] {
            let mut command = Command::new("python3");
            command.args(["-c", MEASURE]).arg(built.join("release/slapoc")).args(["--quiet", what]);
            command.args(["--batch", shape.batch, "--seq", shape.seq]).args(rest);
            match schedule {
                Some(schedule) => command.arg(root().join(schedule)).arg("--model").arg(&archive),
                None => command.arg(&archive),
            };
            let lines = stages.run("measure", || lines(&mut command))?;
            let of = |key| lines.iter().find_map(|l| number(l, key)).ok_or("a measurement gave no numbers");
            let (seconds, bytes) = (of("seconds")?, of("resident")?);
            rows.push(format!("{:<22} {what:<6} {seconds:>8.3} s {:>8.1} MB", shape.name, bytes / 1e6));
        }
    }
    stages.finish();
    println!("{:<22} {:<6} {:>10} {:>11}", "model", "", "fastest", "resident");
    rows.iter().for_each(|row| println!("{row}"));
    Ok(ExitCode::SUCCESS)
}

/// Prints one table row per question of an editor, on GPT-2 as published.
pub fn editor(_: &[String]) -> Result<ExitCode> {
    let mut stages = Stages::new();
    let libtorch = stages.run("libtorch", libtorch::find)?;
    let python = stages.run("python", || Python::find(&libtorch))?;
    stages.run("build", || stage::succeed(&mut cargo(&libtorch, &["build", "--release", "-p", "slapoc"])))?;
    let built = stage::target_directory()?;
    let archive = stages.run("export", || python.export(&LARGE[0].0, &built.join("bench")))?;
    let mut command = Command::new("python3");
    command.arg("tests/bench/keystrokes.py").arg(built.join("release/slapoc")).arg(archive);
    let lines = stages.run("measure", || lines(&mut command))?;
    stages.finish();
    println!("{:<24} {:>9} {:>9} {:>9}", "keystroke, 500 lines, to", "median", "worst", "processor");
    for (line, what) in lines.iter().zip(["diagnostics", "completion"]) {
        let of = |key| number(line, key).map(|seconds| format!("{:.1} ms", seconds * 1e3)).unwrap_or_default();
        println!("{what:<24} {:>9} {:>9} {:>9}", of("median"), of("worst"), of("processor"));
    }
    Ok(ExitCode::SUCCESS)
}

/// What one run says: seconds of its median step, peak bytes.
struct Run {
    seconds: f64,
    bytes: f64,
}

/// Prints one table row per shape.
pub fn train(_: &[String]) -> Result<ExitCode> {
    let mut stages = Stages::new();
    let libtorch = stages.run("libtorch", libtorch::find)?;
    let python = stages.run("python", || Python::find(&libtorch))?;
    stages.run("build", || {
        stage::succeed(&mut cargo(&libtorch, &["build", "--release", "-p", "slapoc", "-p", "slapo-runtime"]))
    })?;
    let built = stage::target_directory()?;
    let mut rows = Vec::new();
    for shape in &SHAPES {
        let archive = stages.run("export", || python.export(shape, &built.join("bench")))?;
        rows.push(stages.run("measure", || measure(shape, &archive, &python, &built.join("release")))?);
    }
    stages.finish();
    println!(
        "{:<20} {:>10} {:>10} {:>7} {:>7} {:>11} {:>11}",
        "shape", "ours", "PyTorch", "ratio", "A/A", "our peak", "its peak"
    );
    for row in rows {
        println!("{row}");
    }
    println!();
    println!(
        "Seconds of a step, medians; {PAIRS} pairs of processes, {THREADS} threads. Our peak is what libtorch's allocator"
    );
    println!("handed out at most during a step; PyTorch's is what its process grew by while training.");
    Ok(ExitCode::SUCCESS)
}

fn measure(shape: &Shape, archive: &Path, python: &Python, built: &Path) -> Result<String> {
    let (mut ours, mut theirs, mut ratios, mut itself) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let (a, b, again) = (slapoc(shape, archive, built)?, python.eager(shape)?, python.eager(shape)?);
        eprintln!("    pair {}: {:.4} s, PyTorch {:.4} s and {:.4} s", pair + 1, a.seconds, b.seconds, again.seconds);
        ratios.push(a.seconds / b.seconds);
        itself.push(again.seconds / b.seconds);
        ours.push(a);
        theirs.push(b);
    }
    let middle = |runs: &[Run], of: fn(&Run) -> f64| median(runs.iter().map(of).collect());
    Ok(format!(
        "{:<20} {:>8.4} s {:>8.4} s {:>7.3} {:>7.3} {:>7.1} MiB {:>7.1} MiB",
        shape.name,
        middle(&ours, |r| r.seconds),
        middle(&theirs, |r| r.seconds),
        geometric_mean(&ratios),
        geometric_mean(&itself),
        middle(&ours, |r| r.bytes) / f64::from(1 << 20),
        middle(&theirs, |r| r.bytes) / f64::from(1 << 20),
    ))
}

fn slapoc(shape: &Shape, archive: &Path, built: &Path) -> Result<Run> {
    let mut command = Command::new(built.join("slapoc"));
    command
        .args(["train", "--message-format", "json", "--threads", THREADS, "--steps", &STEPS.to_string()])
        .args(["--data", CORPUS, "--batch", shape.batch, "--seq", shape.seq])
        .arg(archive)
        .env("SLAPO_WORKER", built.join("slapo-worker"));
    let lines = lines(&mut command)?;
    let steps: Vec<&String> = lines.iter().filter(|l| l.contains("\"loss\"") && l.contains("\"seconds\"")).collect();
    let peaks = steps.iter().filter_map(|l| number(l, "peak"));
    Ok(Run { seconds: median_step(steps.iter().copied())?, bytes: peaks.fold(0.0, f64::max) })
}

/// A Python with PyTorch and what the exporter needs.
struct Python {
    path: String,
}

impl Python {
    /// PyTorch is the one of the set-up; the exporter's other requirements lie beside it.
    fn find(libtorch: &Path) -> Result<Python> {
        let packages = libtorch.parent().ok_or("libtorch has no folder around it")?;
        let examples = root().join("examples/gpt2");
        let requirements = std::fs::read_to_string(examples.join("requirements.txt"))
            .map_err(|e| format!("examples/gpt2/requirements.txt: {e}"))?;
        let wanted: Vec<&str> = requirements
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("torch="))
            .collect();
        let extra = libtorch::packages("exporter", &wanted)?;
        let path = [examples.as_path(), extra.as_path(), packages].map(|p| p.display().to_string()).join(":");
        Ok(Python { path })
    }

    fn run(&self, script: &str) -> Command {
        let mut command = Command::new("python3");
        command.arg(root().join(script)).current_dir(root()).env("PYTHONPATH", &self.path);
        command
    }

    fn export(&self, shape: &Shape, folder: &Path) -> Result<PathBuf> {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        // By its options, for shapes share models.
        let archive = folder.join(format!("gpt2{}.pt2", shape.model.concat().replace("--", "-")));
        if !archive.exists() {
            let partial = archive.with_extension("partial.pt2");
            stage::succeed(self.run("examples/gpt2/export.py").args(shape.model).arg("-o").arg(&partial))?;
            std::fs::rename(&partial, &archive).map_err(|e| format!("{}: {e}", archive.display()))?;
        }
        Ok(archive)
    }

    fn eager(&self, shape: &Shape) -> Result<Run> {
        let mut command = self.run("tests/bench/eager.py");
        command
            .args(["--data", CORPUS, "--steps", &STEPS.to_string(), "--threads", THREADS])
            .args(["--batch", shape.batch, "--seq", shape.seq])
            .args(shape.model);
        let lines = lines(&mut command)?;
        let bytes = lines.iter().find_map(|l| number(l, "training_resident")).ok_or("eager.py gave no memory")?;
        Ok(Run { seconds: median_step(lines.iter())?, bytes })
    }
}

/// Standard output of a command that must succeed.
fn lines(command: &mut Command) -> Result<Vec<String>> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let output = command.current_dir(root()).output().map_err(|e| format!("cannot start `{shown}`: {e}"))?;
    if !output.status.success() {
        return Err(format!("`{shown}` ended with {}:\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

fn median_step<'a>(lines: impl Iterator<Item = &'a String>) -> Result<f64> {
    let steps: Vec<f64> = lines.filter_map(|l| number(l, "seconds")).skip(WARM_UP).collect();
    if steps.is_empty() { Err("a run gave no steps".to_owned()) } else { Ok(median(steps)) }
}

/// The number under `key` in a line of JSON that has it once.
fn number(line: &str, key: &str) -> Option<f64> {
    let (_, rest) = line.split_once(&format!("\"{key}\":"))?;
    let end = rest.find([',', '}']).unwrap_or(rest.len());
    rest[..end].trim().parse().ok()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|x| x.ln()).sum::<f64>() / values.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_lines_of_json() {
        let line = r#"{"event":"step","seconds": 0.25,"memory":{"peak":12}}"#;
        assert_eq!(number(line, "seconds"), Some(0.25));
        assert_eq!(number(line, "peak"), Some(12.0));
        assert_eq!(number(line, "loss"), None);
    }

    #[test]
    fn means() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!((geometric_mean(&[0.5, 2.0]) - 1.0).abs() < 1e-12);
    }
}
