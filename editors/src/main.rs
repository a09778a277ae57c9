//! Writes the files of [`slapo_editors::files`]: what `cargo xtask codegen` runs.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    for (path, text) in slapo_editors::files() {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        if let Err(error) = std::fs::write(&place, text) {
            eprintln!("{}: {error}", place.display());
            return ExitCode::FAILURE;
        }
        eprintln!("editors/{path}");
    }
    ExitCode::SUCCESS
}
