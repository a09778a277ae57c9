//! Workers: where the executable is, starting it on a job, its events, and how it ended.
//!
//! Knows nothing of what is trained. The worker stands in a process group of its own, so that Ctrl-C reaches slapoc alone,
//! which stops the worker and can say what was done. Read [`Worker`] first.

use crate::failure::{Context, Failure, Result};
use crate::load::reason;
use slapo_program::{Event, Job};
use slapo_syntax::Code;
use std::collections::VecDeque;
use std::env;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const NAME: &str = "slapo-worker";

pub const ONE_VERSION: &str = "slapoc and its worker must be of one version: build both again";

/// How long a worker may take to end after its last event.
const GRACE: Duration = Duration::from_secs(5);

/// Lines of the worker's standard error that are kept.
const KEPT_LINES: usize = 20;
/// Longer lines are cut.
const LONGEST_LINE: u64 = 2000;

/// Where a worker was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub path: PathBuf,
    pub by: &'static str,
}

/// `SLAPO_WORKER`, else beside slapoc (its own profile first), else on the `PATH`.
pub fn find() -> Result<Found> {
    if let Some(named) = env::var_os("SLAPO_WORKER").filter(|named| !named.is_empty()) {
        let path = PathBuf::from(named);
        if is_executable(&path) {
            return Ok(Found { path, by: "SLAPO_WORKER" });
        }
        let message = format!("`SLAPO_WORKER` is `{}`, which is not an executable file", path.display());
        return Err(with_recipe(Failure::not_done(Code::NoWorker, message)));
    }
    let beside = env::current_exe().ok().into_iter().flat_map(|own| beside(&own));
    let beside = beside.map(|path| Found { path, by: "beside slapoc" });
    let paths = env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> = env::split_paths(&paths).map(|folder| folder.join(NAME)).collect();
    let on_path = on_path.into_iter().map(|path| Found { path, by: "PATH" });
    let found = beside.chain(on_path).find(|found| is_executable(&found.path));
    found.ok_or_else(|| {
        with_recipe(Failure::not_done(Code::NoWorker, format!("no `{NAME}`, which runs what slapoc compiles")))
    })
}

fn with_recipe(failure: Box<Failure>) -> Box<Failure> {
    failure
        .help("build it in slapo's repository: `cargo xtask setup`, then `cargo build -p slapo-runtime`")
        .help(format!("or name one that is built: `SLAPO_WORKER=/path/to/{NAME}`"))
}

/// `target/debug/slapoc` looks into `target/debug`, then into `target/release`, and the other way round.
fn beside(own: &Path) -> Vec<PathBuf> {
    let Some(folder) = own.parent() else { return Vec::new() };
    let other = match folder.file_name().and_then(OsStr::to_str) {
        Some("debug") => Some("release"),
        Some("release") => Some("debug"),
        _ => None,
    };
    let other = other.map(|profile| folder.with_file_name(profile).join(NAME));
    [folder.join(NAME)].into_iter().chain(other).collect()
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// What the worker says of itself, one JSON object.
pub fn version(worker: &Path) -> Result<serde_json::Value> {
    let doing = format!("ask `{}` for its version", worker.display());
    let output = Command::new(worker).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(|e| reason(&e)).context(Code::NoWorker, &doing)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let failure = Failure::not_done(Code::NoWorker, format!("cannot {doing}: it {}", Ending(output.status)));
        return Err(said.lines().fold(failure, |failure, line| failure.note(line)));
    }
    serde_json::from_slice(&output.stdout).context(Code::NoWorker, doing)
}

/// A running worker. Dropping it stops it.
pub struct Worker {
    child: Arc<Mutex<Child>>,
    /// Where the job goes; closed behind it.
    job: Option<ChildStdin>,
    /// Until somebody else listens.
    events: Option<Events>,
    /// The last lines of its standard error, once that is closed.
    said: Option<JoinHandle<VecDeque<String>>>,
}

/// What a worker reports.
pub struct Events(BufReader<ChildStdout>);

/// How a process ended: `ended with exit code 3`, `was killed by SIGKILL`.
#[derive(Clone, Copy, Debug)]
pub struct Ending(pub ExitStatus);

impl Worker {
    /// Starts it; it waits for its [job](Worker::give).
    pub fn start(worker: &Path) -> Result<Worker> {
        let doing = format!("start `{}`", worker.display());
        // libtorch's warnings on connections come before an error of ours that says the same.
        let log_level = env::var_os("TORCH_CPP_LOG_LEVEL").unwrap_or_else(|| "ERROR".into());
        let mut child = Command::new(worker)
            .env("TORCH_CPP_LOG_LEVEL", log_level)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| reason(&e))
            .context(Code::NoWorker, doing)?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(Failure::usage("the worker's pipes are gone"));
        };
        let said = Some(thread::spawn(move || last_lines(stderr)));
        let child = Arc::new(Mutex::new(child));
        Ok(Worker { child, job: Some(stdin), events: Some(Events(BufReader::new(stdout))), said })
    }

    /// Hands over the job.
    pub fn give(&mut self, job: &Job) -> Result<()> {
        let job = serde_json::to_vec(job).unexpected("write the job")?;
        // A worker that does not read its job to the end says why, or how it ended does.
        let _ = self.job.take().map(|mut stdin| stdin.write_all(&job));
        Ok(())
    }

    /// Its events, for another thread to wait for.
    pub fn events(&mut self) -> Option<Events> {
        self.events.take()
    }

    /// The next event; `None` once the worker has closed its output.
    pub fn next(&mut self) -> Result<Option<Event>> {
        self.events.as_mut().map_or(Ok(None), Events::next)
    }

    /// Waits for the end, and returns how it came and the last lines of standard error.
    pub fn finish(mut self) -> Result<(Ending, Vec<String>)> {
        let ending = self.wait()?;
        Ok((ending, self.last_words()))
    }

    /// Waits for the end; a worker that does not come to it is stopped.
    pub fn wait(&self) -> Result<Ending> {
        let began = Instant::now();
        loop {
            // The lock is free between the looks, for an interrupt.
            if let Some(status) = lock(&self.child).try_wait().unexpected("wait for the worker")? {
                return Ok(Ending(status));
            }
            if began.elapsed() > GRACE {
                self.kill();
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The last lines of standard error of a worker that has ended.
    pub fn last_words(&mut self) -> Vec<String> {
        self.said.take().and_then(|thread| thread.join().ok()).unwrap_or_default().into()
    }

    /// Whether somebody has stopped the process, as `kill -STOP` does; what a debugger does to it is no stop.
    pub fn is_stopped(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", lock(&self.child).id()));
        status.is_ok_and(|text| text.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T')))
    }

    /// Does nothing to a worker that has ended.
    pub fn kill(&self) {
        kill(&self.child);
    }
}

impl Events {
    /// The next event; `None` once the worker has closed its output.
    pub fn next(&mut self) -> Result<Option<Event>> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line);
        // A line without its end is what a killed worker left.
        if read.is_err() || !line.ends_with('\n') {
            return Ok(None);
        }
        let event = serde_json::from_str(&line).map_err(|e| {
            let shown: String = line.trim_end().chars().take(200).collect();
            Failure::worker(Code::NoWorker, "the worker said something that is no event")
                .note(format!("it said `{shown}`: {e}"))
                .help(ONE_VERSION)
        })?;
        Ok(Some(event))
    }
}

/// Stops workers when the user asks for it, by Ctrl-C or by ending slapoc; the flag says that this happened. Once per
/// process.
pub fn stop_on_interrupt(workers: &[Worker]) -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    let children: Vec<Arc<Mutex<Child>>> = workers.iter().map(|worker| worker.child.clone()).collect();
    let stop = move || {
        flag.store(true, Ordering::SeqCst);
        children.iter().for_each(|child| kill(child));
    };
    ctrlc::set_handler(stop).unexpected("watch for interrupts")?;
    Ok(interrupted)
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
        let _ = lock(&self.child).wait();
    }
}

fn lock(child: &Mutex<Child>) -> std::sync::MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kill(child: &Mutex<Child>) {
    let _ = lock(child).kill();
}

fn last_lines(from: impl Read) -> VecDeque<String> {
    let mut from = BufReader::new(from);
    let mut lines = VecDeque::new();
    let mut line = Vec::new();
    while (&mut from).take(LONGEST_LINE).read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if !text.is_empty() {
            lines.push_back(text);
        }
        if lines.len() > KEPT_LINES {
            lines.pop_front();
        }
        line.clear();
    }
    lines
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0.code(), self.0.signal()) {
            (Some(code), _) => write!(f, "ended with exit code {code}"),
            (None, Some(signal)) => match SIGNALS.iter().find(|(number, _)| *number == signal) {
                Some((_, name)) => write!(f, "was killed by {name}"),
                None => write!(f, "was killed by signal {signal}"),
            },
            (None, None) => f.write_str("is gone"),
        }
    }
}

impl Ending {
    /// What a kill from outside most often means.
    pub fn hint(self) -> Option<&'static str> {
        match self.0.signal()? {
            SIGKILL => Some("the system kills a process that takes too much memory: the kernel's log says so"),
            SIGBUS => Some("a mapped file was cut short while it was read: the model or the data"),
            _ => None,
        }
    }
}

const SIGBUS: i32 = 7;
const SIGKILL: i32 = 9;

/// Linux's numbers of the signals that end a process, where it is not on purpose.
const SIGNALS: [(i32, &str); 11] = [
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (4, "SIGILL"),
    (6, "SIGABRT"),
    (SIGBUS, "SIGBUS"),
    (8, "SIGFPE"),
    (SIGKILL, "SIGKILL"),
    (11, "SIGSEGV"),
    (15, "SIGTERM"),
    (24, "SIGXCPU"),
    (31, "SIGSYS"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_profile_comes_first() {
        let places = |own: &str| beside(Path::new(own)).iter().map(|p| p.display().to_string()).collect::<Vec<_>>();
        assert_eq!(places("/t/debug/slapoc"), ["/t/debug/slapo-worker", "/t/release/slapo-worker"]);
        assert_eq!(places("/t/release/slapoc"), ["/t/release/slapo-worker", "/t/debug/slapo-worker"]);
        assert_eq!(places("/usr/bin/slapoc"), ["/usr/bin/slapo-worker"]);
    }

    #[test]
    fn a_flood_of_messages_is_cut() {
        let flood = format!("{}\n{}", "x".repeat(1 << 20), "line\n".repeat(1000));
        let kept = last_lines(flood.as_bytes());
        assert_eq!(kept.len(), KEPT_LINES);
        assert!(kept.iter().all(|line| line == "line"));
    }

    #[test]
    fn endings_are_named() {
        let shown = |raw: i32| Ending(ExitStatus::from_raw(raw)).to_string();
        assert_eq!(shown(9), "was killed by SIGKILL");
        assert_eq!(shown(3 << 8), "ended with exit code 3");
    }
}
