//! `slapoc doctor`: what slapoc finds on this machine. Meant to be pasted into a bug report.

use crate::args::Doctor;
use crate::failure::{Context, Exit, Result};
use crate::launch;
use crate::output::Output;
use crate::units::bytes;
use serde::Serialize;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

#[derive(Serialize)]
struct Health {
    slapoc: &'static str,
    /// Version of the programs that it compiles.
    program: u32,
    profile: &'static str,
    executable: Option<PathBuf>,
    worker: Worker,
    machine: Machine,
    cache: Option<Cache>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Worker {
    Found {
        path: PathBuf,
        by: &'static str,
        about: serde_json::Value,
    },
    /// There, but it does not run here.
    Broken {
        path: PathBuf,
        by: &'static str,
        reason: String,
        notes: Vec<String>,
    },
    Missing {
        reason: String,
        helps: Vec<String>,
    },
}

#[derive(Serialize)]
struct Machine {
    system: String,
    cores: usize,
    memory: Option<u64>,
    available_memory: Option<u64>,
    processor: Option<String>,
    /// Instruction sets that matter to kernels.
    features: Vec<&'static str>,
}

/// Where `cargo xtask setup` keeps libtorch.
#[derive(Serialize)]
struct Cache {
    path: PathBuf,
    exists: bool,
}

pub fn run(args: &Doctor, out: &Output) -> Result<Exit> {
    let health = Health {
        slapoc: env!("CARGO_PKG_VERSION"),
        program: slapo_program::VERSION,
        profile: if cfg!(debug_assertions) { "debug" } else { "release" },
        executable: env::current_exe().ok(),
        worker: worker(),
        machine: machine(),
        cache: cache(),
    };
    if out.is_json() {
        out.record("doctor", &health)?;
    } else if args.json {
        let json = serde_json::to_string_pretty(&health).unexpected("write JSON")?;
        out.result(&format!("{json}\n"))?;
    } else {
        out.result(&text(&health))?;
    }
    Ok(if matches!(health.worker, Worker::Found { .. }) { Exit::Done } else { Exit::NotDone })
}

fn worker() -> Worker {
    let found = match launch::find() {
        Ok(found) => found,
        Err(failure) => return Worker::Missing { reason: failure.message, helps: failure.helps },
    };
    match launch::version(&found.path) {
        Ok(about) => Worker::Found { path: found.path, by: found.by, about },
        Err(e) => Worker::Broken { path: found.path, by: found.by, reason: e.message, notes: e.notes },
    }
}

fn machine() -> Machine {
    let system = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Machine {
        system: format!("{} {} {}", env::consts::OS, system.trim(), env::consts::ARCH),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        memory: memory("MemTotal"),
        available_memory: memory("MemAvailable"),
        processor: processor(),
        features: features(),
    }
}

/// A line of `/proc/meminfo`, in bytes.
fn memory(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    // Older compilers' detection does not know AMX; the kernel's list does.
    let kernel = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = kernel.lines().find(|line| line.starts_with("flags")).unwrap_or("").to_owned();
    let known = ["avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16"];
    known.into_iter().filter(|name| flags.split_whitespace().any(|flag| flag == *name)).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<&'static str> {
    Vec::new()
}

fn cache() -> Option<Cache> {
    let path = cache_folder()?;
    Some(Cache { exists: path.is_dir(), path })
}

/// Where slapoc keeps what it could make again.
pub fn cache_folder() -> Option<PathBuf> {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || named("HOME").map(|home| home.join(".cache"));
    named("SLAPO_CACHE").or_else(|| named("XDG_CACHE_HOME").or_else(home).map(|c| c.join("slapo")))
}

fn text(health: &Health) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let mut row = |name: &str, value: &str| writeln!(text, "{name:<12}{value}").unwrap_or_default();
    row("slapoc", &format!("{} ({}), program version {}", health.slapoc, health.profile, health.program));
    if let Some(path) = &health.executable {
        row("", &path.display().to_string());
    }
    match &health.worker {
        Worker::Found { path, by, about } => {
            row("worker", &format!("{} ({by})", path.display()));
            row("", &about.to_string());
            let version = &about["features"]["libtorch"];
            row("libtorch", version.as_str().unwrap_or("unknown"));
        }
        Worker::Broken { path, by, reason, notes } => {
            row("worker", &format!("{} ({by}), broken: {reason}", path.display()));
            notes.iter().for_each(|note| row("", note));
        }
        Worker::Missing { reason, helps } => {
            row("worker", reason);
            helps.iter().for_each(|help| row("", help));
        }
    }
    let machine = &health.machine;
    row("system", &machine.system);
    row("processor", machine.processor.as_deref().unwrap_or("unknown"));
    row("", &machine.features.join(" "));
    row("cores", &machine.cores.to_string());
    if let (Some(all), Some(free)) = (machine.memory, machine.available_memory) {
        row("memory", &format!("{}, {} of it available", bytes(all), bytes(free)));
    }
    if let Some(cache) = &health.cache {
        let absent = if cache.exists { "" } else { " (does not exist)" };
        row("cache", &format!("{}{absent}", cache.path.display()));
    }
    text
}
