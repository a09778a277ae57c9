//! The worker's process: reads a job, prints events, one JSON document a line, and nothing else on standard output.
//!
//!     slapo-worker [JOB.json]     # without a path, from standard input
//!     slapo-worker --version      # one JSON object: the worker, its program version, libtorch and its features
//!
//! Exit codes: 0 done, 2 the job's files do not fit, 3 failed while running. It ends with the process that started it.

use slapo_program::{Event, FailureKind, Job, VERSION};
use slapo_runtime::{Error, Result, libtorch, trainer};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitCode;

fn main() -> ExitCode {
    end_with_parent();
    let mut events = match claim_standard_output() {
        Ok(events) => events,
        Err(e) => {
            eprintln!("slapo-worker: no standard output: {e}");
            return ExitCode::from(3);
        }
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--version"] => print(&mut events, &version()),
        [] => read_job(std::io::stdin(), "standard input").and_then(|job| train(job, &mut events)),
        [path] => File::open(path)
            .map_err(|e| Error::input(format!("cannot read `{path}`: {e}")))
            .and_then(|file| read_job(file, path))
            .and_then(|job| train(job, &mut events)),
        _ => Err(Error::input("usage: slapo-worker [JOB.json | --version]")),
    };
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    if let Err(e) = send(&mut events, &error.event()) {
        eprintln!("slapo-worker: {error}\nslapo-worker: {e}");
    }
    match error.kind() {
        FailureKind::Input => ExitCode::from(2),
        FailureKind::Run | FailureKind::Ranks | FailureKind::Peer => ExitCode::from(3),
    }
}

fn train(job: Job, events: &mut File) -> Result<()> {
    trainer::run(job, &mut |event| send(events, event))
}

fn send(events: &mut File, event: &Event) -> Result<()> {
    let line = serde_json::to_string(event).map_err(|e| Error::run(format!("cannot report: {e}")))?;
    print(events, &line)
}

fn print(events: &mut File, line: &str) -> Result<()> {
    writeln!(events, "{line}").map_err(|e| Error::run(format!("nobody listens on standard output: {e}")))
}

fn read_job(mut from: impl Read, name: &str) -> Result<Job> {
    let mut text = String::new();
    from.read_to_string(&mut text).map_err(|e| Error::input(format!("cannot read the job from {name}: {e}")))?;
    Job::from_json(&text).map_err(|e| Error::input(format!("cannot run the job from {name}: {e}")))
}

fn version() -> String {
    format!(
        "{{\"worker\":\"{}\",\"program\":{VERSION},\"features\":{}}}",
        env!("CARGO_PKG_VERSION"),
        libtorch::features()
    )
}

/// Asks the kernel to end this process with its parent, and ends at once if that is already gone. A write beyond a file
/// size limit becomes an error instead of a signal.
fn end_with_parent() {
    // SAFETY: plain system calls before any thread exists.
    unsafe {
        let parent = libc::getppid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(3);
        }
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Takes standard output for events; what any library prints goes to standard error.
fn claim_standard_output() -> std::io::Result<File> {
    // SAFETY: `dup` returns a new descriptor that nobody else owns.
    unsafe {
        let own = libc::fcntl(1, libc::F_DUPFD_CLOEXEC, 3);
        if own < 0 || libc::dup2(2, 1) < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(File::from(OwnedFd::from_raw_fd(own)))
    }
}
