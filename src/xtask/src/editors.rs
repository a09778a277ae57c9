//! The tests of the VS Code extension: its grammar runs in VS Code's own engine, which npm brings.
//!
//! Whatever else lies in `editors` is tested by `cargo test`.

use crate::{Result, stage};
use std::process::{Command, Stdio};

/// Installs what the extension needs, bundles its client and runs its tests. Without npm nothing is done, except in CI,
/// where it is an error.
pub fn test() -> Result<()> {
    if !has_npm() {
        if std::env::var_os("CI").is_some() {
            return Err("there is no npm".to_owned());
        }
        eprintln!("    there is no npm: the VS Code extension is not tested");
        return Ok(());
    }
    for arguments in [&["ci", "--ignore-scripts"][..], &["run", "--silent", "build"], &["test", "--silent"]] {
        stage::succeed(&mut npm(arguments))?;
    }
    Ok(())
}

fn has_npm() -> bool {
    npm(&["--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn npm(arguments: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(arguments).current_dir(stage::root().join("editors/vscode"));
    command
}
