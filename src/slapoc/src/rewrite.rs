//! Schedules that slapoc changes: what would change, and a complete file in the place of the old one.

use similar::TextDiff;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// A unified diff.
pub fn diff(name: &str, before: &str, after: &str) -> String {
    TextDiff::from_lines(before, after).unified_diff().header(name, name).to_string()
}

/// Puts a complete file into the place of the one that `path` leads to, with the same permissions.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let target = fs::canonicalize(path)?;
    let permissions = fs::metadata(&target)?.permissions();
    if permissions.readonly() {
        return Err(io::Error::other("it may only be read"));
    }
    let folder = target.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".slapoc-").suffix(".tmp").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(permissions)?;
    file.as_file().sync_all()?;
    file.persist(&target)?;
    Ok(())
}
