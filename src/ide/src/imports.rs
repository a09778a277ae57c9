//! `use`: the texts of other modules, those of the library and files beside the schedule, and what they declare.

use crate::scope::Space;
use crate::signatures::Signature;
use slapo_core::schedule::{LIBRARY, Modules, import_parts};
use slapo_syntax::ast::{self, Item};
use slapo_syntax::{FileId, SyntaxToken, parse};

/// A module that a schedule uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source<'s> {
    /// What messages call its file: `std/parallel.slapo`, or a path.
    pub name: String,
    pub text: &'s str,
}

/// The module that a `use` reads from.
pub fn source<'s>(modules: &'s Modules, used: ast::Use<'_>) -> Option<Source<'s>> {
    let (path, _) = import_parts(used);
    match path.as_slice() {
        [first, module] if first.text() == LIBRARY => {
            let name = format!("{LIBRARY}/{}.slapo", module.text());
            slapo_stdlib::module(module.text()).map(|text| Source { name, text })
        }
        _ => modules.of(used).map(|(name, text)| Source { name: name.to_owned(), text }),
    }
}

/// The names that a `use` brings, once for every space in which they mean something; a schedule where nothing is known.
pub fn names<'t>(modules: &Modules, used: ast::Use<'t>) -> Vec<(SyntaxToken<'t>, Space)> {
    let (_, names) = import_parts(used);
    let parsed = source(modules, used).map(|source| parse(FileId(0), source.text));
    let spaces = |name: &str| {
        let items = parsed.iter().flat_map(|parse| parse.file().items());
        let mut spaces: Vec<Space> = items.filter(|item| is_named(*item, name)).filter_map(space).collect();
        spaces.dedup();
        if spaces.is_empty() { vec![Space::Callable] } else { spaces }
    };
    names.into_iter().flat_map(|name| spaces(name.text()).into_iter().map(move |space| (name, space))).collect()
}

/// Does something with what a module's text declares under a name.
pub fn with_item<T>(text: &str, name: &str, of: Space, work: impl FnOnce(Item<'_>) -> T) -> Option<T> {
    let parse = parse(FileId(0), text);
    let found = parse.file().items().find(|item| space(*item) == Some(of) && is_named(*item, name));
    found.map(work)
}

/// The signature of a schedule of a library module.
pub fn schedule(module: &str, name: &str) -> Option<Signature> {
    let found = with_item(slapo_stdlib::module(module)?, name, Space::Callable, |item| match item {
        Item::Schedule(schedule) => Some(Signature::of_schedule(schedule)),
        _ => None,
    });
    found.flatten()
}

/// What can be imported has a name and a space.
pub fn space(item: Item<'_>) -> Option<Space> {
    match item {
        Item::Schedule(_) => Some(Space::Callable),
        Item::Knob(_) | Item::Let(_) | Item::Pattern(_) => Some(Space::Value),
        Item::Type(_) => Some(Space::Type),
        Item::Use(_) | Item::Model(_) | Item::Input(_) | Item::Mesh(_) => None,
    }
}

fn is_named(item: Item<'_>, wanted: &str) -> bool {
    item.name().is_some_and(|name| name.text() == wanted)
}
