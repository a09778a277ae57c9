//! Where libtorch is: the folder that `LIBTORCH` names, or one per user that all checkouts share, filled on first use.
//!
//! A download goes into a folder beside its place and is renamed when it is complete, under a lock: what is in its place
//! is always whole. Read [`find`] first.

use crate::Result;
use crate::stage::{seconds, succeed};
use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The version that the `tch` of the workspace is made for.
pub const VERSION: &str = "2.11.0";

/// Marks folders of downloads on their way.
const PARTIAL: &str = "partial-";

/// The folder to give as `LIBTORCH`; downloads it where there is none.
pub fn find() -> Result<PathBuf> {
    if let Some(named) = env::var_os("LIBTORCH") {
        let named = PathBuf::from(named);
        check(&named).map_err(|e| {
            format!("`LIBTORCH` is `{}`: {e}; unset it to use a folder of slapo's own", named.display())
        })?;
        eprintln!("    libtorch {VERSION} at {} (LIBTORCH)", named.display());
        return Ok(named);
    }
    let place = cache()?.join(format!("torch-{VERSION}"));
    let libtorch = place.join("torch");
    if check(&libtorch).is_err() {
        install(&place)?;
    }
    sweep(&place);
    eprintln!("    libtorch {VERSION} at {}", libtorch.display());
    Ok(libtorch)
}

/// `SLAPO_CACHE`, else `slapo` in the user's cache folder.
fn cache() -> Result<PathBuf> {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || named("HOME").map(|home| home.join(".cache"));
    named("SLAPO_CACHE")
        .or_else(|| named("XDG_CACHE_HOME").or_else(home).map(|cache| cache.join("slapo")))
        .ok_or_else(|| "no folder to keep libtorch in: set `SLAPO_CACHE`".to_owned())
}

/// Whether a folder is a complete libtorch of the right version.
fn check(libtorch: &Path) -> Result<()> {
    for part in ["include/ATen", "lib/libtorch_cpu.so", "lib/libc10.so"] {
        if !libtorch.join(part).exists() {
            return Err(format!("it has no `{part}`"));
        }
    }
    let version = version(libtorch).ok_or("it does not say which version it is")?;
    if version.split('+').next() == Some(VERSION) {
        return Ok(());
    }
    Err(format!("it is libtorch {version}, slapo needs {VERSION}"))
}

/// From the file of a plain libtorch, or from that of a Python package.
fn version(libtorch: &Path) -> Option<String> {
    if let Ok(text) = fs::read_to_string(libtorch.join("build-version")) {
        return Some(text.trim().to_owned());
    }
    let text = fs::read_to_string(libtorch.join("version.py")).ok()?;
    let line = text.lines().find(|line| line.starts_with("__version__"))?;
    line.split('\'').nth(1).map(str::to_owned)
}

fn install(place: &Path) -> Result<()> {
    let folder = place.parent().ok_or("the cache folder has no parent")?;
    let shown = |e: std::io::Error| format!("cannot use `{}`: {e}", folder.display());
    fs::create_dir_all(folder).map_err(shown)?;
    let lock = File::create(beside(place, "lock")).map_err(shown)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!("    another setup is at work in {}: waiting", folder.display());
            lock.lock().map_err(shown)?;
        }
        Err(TryLockError::Error(e)) => return Err(shown(e)),
    }
    // Another setup may have finished meanwhile.
    if check(&place.join("torch")).is_ok() {
        return Ok(());
    }
    for left in leftovers(place).into_iter().chain(place.exists().then(|| place.to_owned())) {
        eprintln!("    removing {}, which is incomplete", left.display());
        fs::remove_dir_all(left).map_err(shown)?;
    }
    // A name of its own: a pip that outlived an earlier setup writes elsewhere.
    let partial = beside(place, &format!("{PARTIAL}{}", std::process::id()));
    let began = Instant::now();
    eprintln!("    downloading libtorch {VERSION} to {} (about 5 GB on disk)", place.display());
    download(&partial)?;
    check(&partial.join("torch")).map_err(|e| format!("the download is not usable: {e}"))?;
    loads(&partial.join("torch"))?;
    fs::rename(&partial, place).map_err(shown)?;
    eprintln!("    downloaded in {}", seconds(began.elapsed()));
    Ok(())
}

/// Removes what an interrupted setup has left behind, if no other one is at work.
fn sweep(place: &Path) {
    let left = leftovers(place);
    let Ok(lock) = File::create(beside(place, "lock")) else { return };
    if lock.try_lock().is_ok() {
        for folder in left {
            eprintln!("    removing {}, which is incomplete", folder.display());
            // Only space is lost if this fails.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Downloads that were not completed.
fn leftovers(place: &Path) -> Vec<PathBuf> {
    let beginning = beside(place, PARTIAL);
    let beginning = beginning.as_os_str().as_encoded_bytes();
    let entries = place.parent().and_then(|folder| fs::read_dir(folder).ok());
    let paths = entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.as_os_str().as_encoded_bytes().starts_with(beginning)).collect()
}

fn beside(place: &Path, what: &str) -> PathBuf {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    place.with_file_name(format!("{name}.{what}"))
}

/// Python packages in a folder of their own beside libtorch; installed where they are not yet.
pub fn packages(name: &str, wanted: &[&str]) -> Result<PathBuf> {
    let place = cache()?.join(format!("{name}-{}", wanted.join("-").replace(['=', ' '], "")));
    if !place.exists() {
        let partial = beside(&place, &format!("{PARTIAL}{}", std::process::id()));
        pip(&partial, wanted)?;
        fs::rename(&partial, &place).map_err(|e| format!("cannot use `{}`: {e}", place.display()))?;
    }
    Ok(place)
}

/// pip brings headers, libraries and what they need beside them.
fn download(to: &Path) -> Result<()> {
    pip(to, &[&format!("torch=={VERSION}")]).map_err(|message| {
        format!("{message}; install torch {VERSION} elsewhere and set `LIBTORCH` to its `torch` folder")
    })
}

fn pip(to: &Path, packages: &[&str]) -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--no-input", "--disable-pip-version-check"])
        .args(["--root-user-action", "ignore", "--target"])
        .arg(to)
        .args(packages)
        .stdin(Stdio::null());
    let began = Instant::now();
    let mut child = pip.spawn().map_err(|e| format!("cannot start python3, which runs pip: {e}"))?;
    let mut told = Duration::ZERO;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => thread::sleep(Duration::from_millis(200)),
            Err(e) => return Err(format!("lost track of pip: {e}")),
        }
        // pip is silent while it unpacks.
        if began.elapsed() - told > Duration::from_secs(20) {
            told = began.elapsed();
            eprintln!("    … {}", seconds(told));
        }
    };
    if status.success() { Ok(()) } else { Err(format!("pip could not install {} ({status})", packages.join(" "))) }
}

/// Whether the dynamic linker finds everything that libtorch needs.
fn loads(libtorch: &Path) -> Result<()> {
    let mut python = Command::new("python3");
    python.args(["-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])"]).arg(libtorch.join("lib/libtorch_cpu.so"));
    succeed(&mut python).map_err(|_| "the downloaded libtorch does not load on this machine".to_owned())
}
