//! Archives of modules that a schedule puts in place of the model's: `m.mlp.replace("fused_mlp.pt2")`.
//!
//! Nothing is read here: the caller of [`Archives::gather`] does, and says what it found. A path is relative to the folder
//! of the checked schedule, as the model's is.

use super::modules::Modules;
use slapo_model::Model;
use slapo_syntax::ast::{AstNode, Literal, LiteralKind};
use slapo_syntax::{Diagnostic, FileId, Parse};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How the name of an archive ends.
pub(super) const ENDING: &str = ".pt2";

/// What was read of an archive, or what is wrong with it; that has no place yet.
pub type Imported = Result<Arc<Model>, Vec<Diagnostic>>;

/// The archives that a schedule may name, by the path as it is written.
#[derive(Clone, Debug, Default)]
pub struct Archives {
    found: BTreeMap<String, Imported>,
}

impl Archives {
    /// Every archive that a string of the schedule `parse` or of its modules names, or one of `others`: the model apart. `read`
    /// is asked once for each, by its path.
    pub fn gather<'s>(
        parse: &Parse,
        modules: &Modules,
        others: impl Iterator<Item = &'s str>,
        mut read: impl FnMut(&str) -> Imported,
    ) -> Archives {
        let mut named = strings(parse);
        for (_, text) in modules.texts() {
            named.extend(strings(&slapo_syntax::parse(FileId(u32::MAX), text)));
        }
        named.extend(others.map(str::to_string));
        named.retain(|path| path.ends_with(ENDING));
        named.sort();
        named.dedup();
        let mut archives = Archives::default();
        for path in named {
            archives.insert(&path, read(&path));
        }
        archives
    }

    /// Adds what was read at a path.
    pub fn insert(&mut self, path: &str, imported: Imported) {
        self.found.insert(path.to_string(), imported);
    }

    /// What was read, in the order of the paths.
    pub fn models(&self) -> impl Iterator<Item = (&str, &Model)> {
        self.found.iter().filter_map(|(path, imported)| Some((path.as_str(), &**imported.as_ref().ok()?)))
    }

    pub(crate) fn get(&self, path: &str) -> Option<&Imported> {
        self.found.get(path)
    }
}

/// Strings that are values; the path of a `model` item is none.
fn strings(parse: &Parse) -> Vec<String> {
    let literals = parse.file().syntax().descendants().filter_map(Literal::cast);
    let text = |literal: Literal<'_>| match literal.kind()? {
        LiteralKind::Str(text) => Some(text.value()),
        _ => None,
    };
    literals.filter_map(text).collect()
}
