//! Files that schedules use: `use blocks.tp.column` is `column` of `blocks/tp.slapo`, beside the file that says so.
//!
//! Nothing is read here: the caller of [`Modules::gather`] does, and says what it found. A module is known by its path from
//! the folder of the checked schedule, without the ending.

use super::archives::{Archives, Imported};
use slapo_syntax::ast::{Item, Use};
use slapo_syntax::{FileId, Parse, SyntaxToken};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The library that comes with the compiler.
pub const LIBRARY: &str = "std";

/// The files that a schedule uses, directly or through others.
#[derive(Clone, Debug, Default)]
pub struct Modules {
    /// The module that the checked schedule itself would be.
    own: Option<String>,
    found: BTreeMap<String, Found>,
    archives: Archives,
}

/// What was found where a module should be.
#[derive(Clone, Debug)]
pub enum Found {
    /// A text, under the name that messages show.
    Text { name: String, text: Arc<str> },
    /// Nothing that can be read.
    Nothing {
        /// Why, unless there is no such file.
        reason: Option<String>,
        /// The modules that are in the folder.
        beside: Vec<String>,
    },
}

impl Modules {
    /// Everything that the schedule `parse`, in a file of the name `own` without its ending, uses. `read` is asked once for
    /// every module, by its path without the ending: `blocks/tp`.
    pub fn gather(own: Option<&str>, parse: &Parse, mut read: impl FnMut(&str) -> Found) -> Modules {
        let mut modules = Modules { own: own.map(str::to_string), ..Modules::default() };
        let mut open = used(parse, "");
        while let Some(path) = open.pop() {
            if modules.own.as_ref() == Some(&path) || modules.found.contains_key(&path) {
                continue;
            }
            let found = read(&path);
            if let Found::Text { text, .. } = &found {
                open.extend(used(&slapo_syntax::parse(FileId(u32::MAX), text), folder(&path)));
            }
            modules.found.insert(path, found);
        }
        modules
    }

    /// With the archives that the schedule and these modules name, and `others`; see [`Archives::gather`].
    pub fn with_archives<'s>(
        mut self,
        parse: &Parse,
        others: impl Iterator<Item = &'s str>,
        read: impl FnMut(&str) -> Imported,
    ) -> Modules {
        self.archives = Archives::gather(parse, &self, others, read);
        self
    }

    /// What replacements may come from.
    pub fn archives(&self) -> &Archives {
        &self.archives
    }

    /// The texts that were found, in the order of their paths.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.found.iter().filter_map(|(path, found)| match found {
            Found::Text { text, .. } => Some((path.as_str(), &**text)),
            Found::Nothing { .. } => None,
        })
    }

    /// The name in messages and the text of the file that a `use` of the checked schedule reads from, if it was found.
    pub fn of(&self, item: Use<'_>) -> Option<(&str, &str)> {
        match self.get(&path_of("", &parts(item).0))? {
            Found::Text { name, text } => Some((name, text)),
            Found::Nothing { .. } => None,
        }
    }

    pub(super) fn own(&self) -> Option<&str> {
        self.own.as_deref()
    }

    /// Whether a file of that path was read.
    pub(super) fn has(&self, path: &str) -> bool {
        matches!(self.found.get(path), Some(Found::Text { .. }))
    }

    pub(super) fn get(&self, path: &str) -> Option<&Found> {
        self.found.get(path)
    }
}

/// The module that a `use` reads from, and the names it takes: `use std.memory.every` names one thing,
/// `use std.memory.{a, b}` several.
pub fn parts<'t>(item: Use<'t>) -> (Vec<SyntaxToken<'t>>, Vec<SyntaxToken<'t>>) {
    let mut path: Vec<SyntaxToken> = item.segments().collect();
    // A module of the library has two words, a file at least one.
    let least = if path.first().is_some_and(|first| first.text() == LIBRARY) { 2 } else { 1 };
    let names = match item.names() {
        Some(names) => names.collect(),
        None if path.len() > least => path.pop().into_iter().collect(),
        None => Vec::new(),
    };
    (path, names)
}

/// The path of a module that is named in a file of `folder`.
pub(super) fn path_of(folder: &str, segments: &[SyntaxToken<'_>]) -> String {
    let segments = segments.iter().map(|segment| segment.text());
    let all: Vec<&str> = std::iter::once(folder).filter(|folder| !folder.is_empty()).chain(segments).collect();
    all.join("/")
}

/// The folder of a module: empty for that of the checked schedule.
pub(super) fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The modules that a file of `folder` names, the library's left out; a path without braces may by mistake be one itself.
fn used(parse: &Parse, folder: &str) -> Vec<String> {
    let uses = parse.file().items().filter_map(|item| if let Item::Use(item) = item { Some(item) } else { None });
    let paths = uses.flat_map(|item| [parts(item).0, item.segments().collect()]);
    let files = paths.filter(|path| path.first().is_some_and(|first| first.text() != LIBRARY));
    files.map(|path| path_of(folder, &path)).collect()
}
