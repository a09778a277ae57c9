//! The zip directory: which entry lies where in the file.
//!
//! An archive of weights is used in place, so entries must be stored without compression. Nothing but the directory and
//! the local headers is read here.

use super::ImportError;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::Range;
use zip::{CompressionMethod, ZipArchive};

const MODEL: &str = "models/model.json";

/// Entries by their names without the folder that all of them lie in.
pub struct Archive<'a> {
    bytes: &'a [u8],
    entries: BTreeMap<String, Entry>,
}

struct Entry {
    /// In bytes of the file.
    range: Range<u64>,
    stored: bool,
}

impl<'a> Archive<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Archive<'a>, ImportError> {
        let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(|_| no_directory(bytes))?;
        let mut entries = BTreeMap::new();
        for index in 0..zip.len() {
            let file = zip.by_index_raw(index).map_err(|_| ImportError::Truncated)?;
            let name = String::from_utf8_lossy(file.name_raw()).into_owned();
            let start = file.data_start().ok_or(ImportError::Truncated)?;
            let end = start
                .checked_add(file.compressed_size())
                .filter(|end| *end <= bytes.len() as u64)
                .ok_or(ImportError::Truncated)?;
            let stored = file.compression() == CompressionMethod::Stored && !file.encrypted();
            let range = start..end;
            entries.insert(name, Entry { range, stored });
        }
        let entries = strip(entries)?;
        Ok(Archive { bytes, entries })
    }

    /// Where an entry's bytes lie in the file; `None` if there is no such entry.
    pub fn range(&self, name: &str) -> Result<Option<Range<u64>>, ImportError> {
        match self.entries.get(name) {
            None => Ok(None),
            Some(entry) if entry.stored => Ok(Some(entry.range.clone())),
            Some(_) => Err(ImportError::Compressed { entry: name.to_string() }),
        }
    }

    /// An entry's bytes; `None` if there is no such entry.
    pub fn read(&self, name: &str) -> Result<Option<&'a [u8]>, ImportError> {
        let range = self.range(name)?;
        Ok(range.and_then(|range| {
            let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
            self.bytes.get(range)
        }))
    }
}

/// Drops the folder in front of `models/model.json` from every name.
fn strip(entries: BTreeMap<String, Entry>) -> Result<BTreeMap<String, Entry>, ImportError> {
    let prefix = entries
        .keys()
        .filter_map(|name| name.strip_suffix(MODEL))
        .filter(|prefix| prefix.is_empty() || prefix.ends_with('/'))
        .min_by_key(|prefix| prefix.len())
        .map(str::to_string);
    let Some(prefix) = prefix else {
        return Err(ImportError::MissingEntry { entry: MODEL.to_string() });
    };
    Ok(entries.into_iter().filter_map(|(name, entry)| Some((name.strip_prefix(&prefix)?.to_string(), entry))).collect())
}

/// A zip file's directory is its end: one that only begins like a zip file was cut.
fn no_directory(bytes: &[u8]) -> ImportError {
    match bytes {
        [] => ImportError::Empty,
        [b'P', b'K', 3, 4, ..] => ImportError::Truncated,
        _ => ImportError::NotAnArchive,
    }
}
