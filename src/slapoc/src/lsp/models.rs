//! Models, read once for as long as their files stay the same.

use crate::load;
use slapo_core::schedule::Imported;
use slapo_ide::Found;
use slapo_model::Model;
use slapo_syntax::{Diagnostic, Span};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Archives up to this size are copied, not mapped: a mapped file that is cut short while it is read, as by an export that
/// writes over it, ends the process, and the editor with its answers.
const MOST_COPIED: u64 = 64 << 20;

#[derive(Default)]
pub struct Models {
    known: HashMap<(PathBuf, String), Known>,
    /// Archives that replacements come from, likewise.
    replacements: HashMap<PathBuf, (Stamp, Imported)>,
}

struct Known {
    stamp: Stamp,
    /// The model, or why there is none.
    read: Result<Arc<Model>, Vec<Diagnostic>>,
    /// The last one that could be read.
    last: Option<Arc<Model>>,
}

/// Time of the last change and length; `None` where there is no file.
type Stamp = Option<(SystemTime, u64)>;

impl Models {
    /// The model at `path`, which a schedule calls `name` at `span`, or else the settings do.
    pub fn find(&mut self, path: &Path, name: &str, span: Option<Span>) -> Found {
        let stamp = stamp(path);
        let key = (path.to_owned(), name.to_owned());
        let known = self.known.remove(&key);
        let known = match known {
            Some(known) if known.stamp == stamp && stamp.is_some() => known,
            before => {
                let read = load::open(&key.0, name, MOST_COPIED).map(|archive| Arc::new(archive.model));
                let last = read.as_ref().ok().cloned().or(before.and_then(|before| before.last));
                Known { stamp, read, last }
            }
        };
        let found = Found {
            current: known.read.as_ref().ok().cloned(),
            last: known.last.clone(),
            broken: match (known.read.as_ref().err().cloned().unwrap_or_default(), span) {
                (broken, Some(span)) => load::labelled(broken, path, name, span),
                (broken, None) => broken,
            },
        };
        self.known.insert(key, known);
        found
    }

    /// The archive that `schedule` calls `name`.
    pub fn replacement(&mut self, schedule: &Path, name: &str) -> Imported {
        let path = load::model_path(schedule, name);
        let stamp = stamp(&path);
        if let Some((known, read)) = self.replacements.get(&path)
            && *known == stamp
            && stamp.is_some()
        {
            return read.clone();
        }
        let read = load::replacement(schedule, name, MOST_COPIED);
        self.replacements.insert(path, (stamp, read.clone()));
        read
    }
}

fn stamp(path: &Path) -> Stamp {
    fs::metadata(path).ok().and_then(|found| Some((found.modified().ok()?, found.len())))
}
