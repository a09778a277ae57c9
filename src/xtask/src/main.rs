//! `cargo xtask`: the one task runner; the same commands here, on another machine and in CI.
//!
//! Owns what lies around `cargo`: where libtorch is, in which order things are built, and how long they took. Knows
//! nothing of what the crates do. Read [`COMMANDS`] first.

mod bench;
mod editors;
mod libtorch;
mod stage;

use stage::{Stages, cargo, root};
use std::process::ExitCode;

/// What failed, for people.
type Result<T> = std::result::Result<T, String>;

struct Command {
    name: &'static str,
    does: &'static str,
    run: fn(&[String]) -> Result<ExitCode>,
}

const COMMANDS: [Command; 6] = [
    Command { name: "setup", does: "find or download libtorch", run: setup },
    Command { name: "demo", does: "build everything and train the example", run: demo },
    Command { name: "test", does: "all checks, as CI runs them", run: test },
    Command { name: "bench", does: "measurements", run: bench },
    Command {
        name: "editors",
        does: "the checks of the VS Code extension and of the files for Vim and Neovim",
        run: test_editors,
    },
    Command {
        name: "codegen",
        does: "write the word lists of the editors' grammars and the tables of docs/language.md",
        run: codegen,
    },
];

/// What `demo` runs with `slapoc`, from the root of the repository.
const DEMO: [&str; 6] =
    ["train", "examples/gpt2/recompute.slapo", "--data", "examples/gpt2/corpus.txt", "--steps", "60"];

/// A bare `cargo test` leaves out what needs the worker.
const FEATURES: &str = "--features=slapoc/worker-tests";

const BENCHES: [Command; 5] = [
    Command { name: "check", does: "time and memory of `slapoc check` on large models", run: bench::check },
    Command {
        name: "train",
        does: "a training step beside one of eager PyTorch, in time and memory",
        run: bench::train,
    },
    Command { name: "editor", does: "how long a keystroke waits for the language server", run: bench::editor },
    Command {
        name: "language",
        does: "long and deeply nested schedules: parsed, formatted, checked",
        run: bench_language,
    },
    Command { name: "kernels", does: "the worker's own kernels beside libtorch's", run: bench_kernels },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    dispatch("cargo xtask", &COMMANDS, &arguments)
}

/// Runs the command that the first argument names; 2 where there is none of that name.
fn dispatch(called: &str, commands: &[Command], arguments: &[String]) -> ExitCode {
    let command = arguments.first().and_then(|name| commands.iter().find(|c| c.name == name));
    let Some(command) = command else {
        eprintln!("usage: {called} COMMAND\n");
        for command in commands {
            eprintln!("    {:<8} {}", command.name, command.does);
        }
        return ExitCode::from(2);
    };
    (command.run)(&arguments[1..]).unwrap_or_else(|message| {
        eprintln!("xtask: {message}");
        ExitCode::FAILURE
    })
}

fn setup(_: &[String]) -> Result<ExitCode> {
    let mut stages = Stages::new();
    stages.run("libtorch", libtorch::find)?;
    stages.finish();
    Ok(ExitCode::SUCCESS)
}

fn demo(_: &[String]) -> Result<ExitCode> {
    let mut stages = Stages::new();
    let libtorch = stages.run("libtorch", libtorch::find)?;
    stages.run("build", || {
        let mut build = cargo(&libtorch, &["build", "--release", "-p", "slapoc", "-p", "slapo-runtime"]);
        stage::succeed(&mut build)
    })?;
    let built = stage::target_directory()?.join("release");
    stages.run("train", || {
        let mut train = std::process::Command::new(built.join("slapoc"));
        train.args(DEMO).current_dir(root()).env("SLAPO_WORKER", built.join("slapo-worker"));
        eprintln!("slapoc {}", DEMO.join(" "));
        stage::succeed(&mut train)
    })?;
    stages.finish();
    Ok(ExitCode::SUCCESS)
}

/// One profile throughout and always the whole workspace, so that nothing is built twice.
fn test(_: &[String]) -> Result<ExitCode> {
    let mut stages = Stages::new();
    let libtorch = stages.run("libtorch", libtorch::find)?;
    let built = stage::target_directory()?.join("debug");
    let worker = built.join("slapo-worker");
    let with_worker = |arguments: &[&str]| {
        let mut command = cargo(&libtorch, arguments);
        command.env("SLAPO_WORKER", &worker);
        command
    };
    for (name, arguments) in [
        ("format", &["fmt", "--all", "--check"][..]),
        ("lint", &["clippy", "--workspace", "--all-targets", FEATURES, "--", "-D", "warnings"]),
        ("build", &["test", "--workspace", FEATURES, "--no-run"]),
    ] {
        stages.run(name, || stage::succeed(&mut with_worker(arguments)))?;
    }
    stages.run("editors", || editors::test(&built.join("slapoc")))?;
    let all = ["test", "--workspace", FEATURES, "--no-fail-fast"];
    stages.run("test", || stage::count_tests(&mut with_worker(&all)))?;
    stages.finish();
    Ok(ExitCode::SUCCESS)
}

fn test_editors(_: &[String]) -> Result<ExitCode> {
    stage::succeed(&mut stage::bare_cargo(&["build", "--quiet", "--package", "slapoc"]))?;
    editors::test(&stage::target_directory()?.join("debug/slapoc"))?;
    Ok(ExitCode::SUCCESS)
}

fn codegen(_: &[String]) -> Result<ExitCode> {
    for package in ["slapo-editors", "slapo-docs"] {
        stage::succeed(&mut stage::bare_cargo(&["run", "--quiet", "--package", package]))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn bench(arguments: &[String]) -> Result<ExitCode> {
    Ok(dispatch("cargo xtask bench", &BENCHES, arguments))
}

fn bench_kernels(_: &[String]) -> Result<ExitCode> {
    stage::succeed(&mut cargo(&libtorch::find()?, &["bench", "-p", "slapo-runtime"]))?;
    Ok(ExitCode::SUCCESS)
}

/// The tests that hold these times to bounds print them.
fn bench_language(_: &[String]) -> Result<ExitCode> {
    let tests =
        ["-p", "slapo-syntax", "-p", "slapo-core", "--test", "robust", "--test", "format", "--test", "schedules"];
    let build = [&["test", "--release", "--quiet"], &tests[..], &["--", "in_time", "--nocapture", "--test-threads=1"]];
    stage::succeed(&mut stage::bare_cargo(&build.concat()))?;
    Ok(ExitCode::SUCCESS)
}
