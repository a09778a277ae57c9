//! Writes the generated parts of the documentation: what `cargo xtask codegen` runs.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    for page in slapo_docs::PAGES {
        if let Err(error) = update(&Path::new(env!("CARGO_MANIFEST_DIR")).join(page)) {
            eprintln!("docs/{page}: {error}");
            return ExitCode::FAILURE;
        }
        eprintln!("docs/{page}");
    }
    ExitCode::SUCCESS
}

fn update(path: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    std::fs::write(path, slapo_docs::filled(&text)?).map_err(|error| error.to_string())
}
