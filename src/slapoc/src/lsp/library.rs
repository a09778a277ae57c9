//! The standard library as files that an editor can open: written to the cache when they are first asked for.

use super::places;
use crate::commands::doctor::cache_folder;
use lsp_types::Uri;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder for every version, so that what is there need not be compared with other releases.
fn folder() -> Option<PathBuf> {
    Some(cache_folder()?.join(concat!("std-", env!("CARGO_PKG_VERSION"))))
}

/// Whether the file at `path` is part of the library.
pub fn holds(path: &Path) -> bool {
    folder().is_some_and(|folder| path.starts_with(folder))
}

/// The address of a library file by its name in messages: `std/parallel.slapo`.
pub fn uri(name: &str) -> Option<Uri> {
    let file = name.strip_prefix("std/")?;
    let text = slapo_stdlib::module(file.strip_suffix(".slapo")?)?;
    let path = folder()?.join(file);
    if fs::read_to_string(&path).ok().as_deref() != Some(text) {
        fs::create_dir_all(path.parent()?).ok()?;
        fs::write(&path, text).ok()?;
    }
    places::uri(&path)
}
