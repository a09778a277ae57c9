//! The tests of the VS Code extension, whose grammar runs in VS Code's own engine, and of the files for Vim.
//!
//! Whatever else lies in `editors` is tested by `cargo test`.

use crate::{Result, stage};
use std::path::Path;
use std::process::{Command, Stdio};

/// A Vim without anybody's settings; it runs the script and ends with 1 if that finds a fault.
const VIMS: &[(&str, &[&str])] = &[
    ("vim", &["-es", "-u", "NONE", "-i", "NONE", "-N", "-S"]),
    ("nvim", &["--headless", "-es", "-u", "NONE", "-i", "NONE", "-S"]),
];

/// Runs whatever there is a program for. Only npm has to be there, and only in CI.
pub fn test() -> Result<()> {
    for (vim, arguments) in VIMS {
        let mut command = Command::new(vim);
        command.args(*arguments).arg("editors/vim/test/run.vim").current_dir(stage::root()).stdin(Stdio::null());
        if is_installed(vim) {
            stage::succeed(&mut command)?;
        }
    }
    if !is_installed("npm") {
        return if std::env::var_os("CI").is_some() { Err("there is no npm".to_owned()) } else { Ok(()) };
    }
    let folder = stage::root().join("editors/vscode");
    for arguments in [&["ci", "--ignore-scripts"][..], &["run", "--silent", "build"], &["test", "--silent"]] {
        stage::succeed(&mut npm(&folder, arguments))?;
    }
    Ok(())
}

/// Says so where a program is missing.
fn is_installed(program: &str) -> bool {
    let mut version = Command::new(program);
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let found = version.status().is_ok_and(|status| status.success());
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
