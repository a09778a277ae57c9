//! The tests of the VS Code extension, whose grammar runs in VS Code's own engine, and of the files for Vim and Neovim, the
//! latter beside the language server.
//!
//! Whatever else lies in `editors` is tested by `cargo test`. Neovim is installed where it is missing and that is allowed.
//! Read [`test`] first.

use crate::{Result, stage};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// A Vim without anybody's settings; it runs the script and ends with 1 if that finds a fault.
const VIMS: &[(&str, &[&str])] = &[
    ("vim", &["-es", "-u", "NONE", "-i", "NONE", "-N", "-S"]),
    ("nvim", &["--headless", "-es", "-u", "NONE", "-i", "NONE", "-S"]),
];

/// A Neovim that presses another one's keys.
const NEOVIM: &[&str] = &["--headless", "-u", "NONE", "-i", "NONE", "-n", "-c", "luafile editors/vim/test/server.lua"];

/// Runs whatever there is a program for; `slapoc` is the one that Neovim starts. npm and Neovim have to be there, but only
/// in CI.
pub fn test(slapoc: &Path) -> Result<()> {
    let is_ci = std::env::var_os("CI").is_some();
    let neovim = install("nvim", "neovim");
    for (vim, arguments) in VIMS {
        let mut command = Command::new(vim);
        command.args(*arguments).arg("editors/vim/test/run.vim").current_dir(stage::root()).stdin(Stdio::null());
        if is_installed(vim) {
            stage::succeed(&mut command)?;
        }
    }
    match neovim {
        Ok(()) => {
            let began = Instant::now();
            let mut command = Command::new("nvim");
            command.args(NEOVIM).current_dir(stage::root()).env("SLAPOC", slapoc).stdin(Stdio::null());
            stage::succeed(&mut command)?;
            eprintln!("    Neovim with the language server: {}", stage::seconds(began.elapsed()));
        }
        Err(reason) if is_ci => return Err(reason),
        Err(reason) => eprintln!("    {reason}: its tests are left out"),
    }
    if !is_installed("npm") {
        return if is_ci { Err("there is no npm".to_owned()) } else { Ok(()) };
    }
    let folder = stage::root().join("editors/vscode");
    for arguments in [&["ci", "--ignore-scripts"][..], &["run", "--silent", "build"], &["test", "--silent"]] {
        stage::succeed(&mut npm(&folder, arguments))?;
    }
    Ok(())
}

/// Installs a Debian package for a program that is missing, as root; why that cannot be, else.
fn install(program: &str, package: &str) -> Result<()> {
    if runs(program) {
        return Ok(());
    }
    let user = Command::new("id").arg("-u").output().map(|id| id.stdout).unwrap_or_default();
    if user.trim_ascii() != b"0" {
        return Err(format!("there is no {program}, and only root can install {package}"));
    }
    if !runs("apt-get") {
        return Err(format!("there is no {program}, and no apt-get to install {package}"));
    }
    eprintln!("    there is no {program}: installing {package}");
    let apt = |arguments: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.args(["-qq", "-o", "Dpkg::Use-Pty=0"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        stage::succeed(apt.stdin(Stdio::null()).stdout(Stdio::null()))
    };
    let install = || apt(&["install", "--yes", "--no-install-recommends", package]);
    // The lists of packages may be old, or not there.
    let installed = install().or_else(|_| apt(&["update"]).and_then(|()| install()));
    installed.map_err(|message| format!("there is no {program}, and {package} cannot be installed: {message}"))
}

fn runs(program: &str) -> bool {
    let mut version = Command::new(program);
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// Says so where a program is missing.
fn is_installed(program: &str) -> bool {
    let found = runs(program);
    if !found {
        eprintln!("    there is no {program}: its tests are left out");
    }
    found
}

fn npm(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(arguments).current_dir(folder);
    command
}
