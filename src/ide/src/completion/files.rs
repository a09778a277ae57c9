//! What names other files: models, modules of the library and beside the schedule, and what these declare.

use super::{Completion, CompletionKind, List};
use crate::Snapshot;
use crate::imports;
use crate::scope::Space;
use crate::signatures::Signature;
use crate::view::View;
use slapo_core::schedule::import_parts;
use slapo_syntax::ast::{self, AstNode, Item};
use slapo_syntax::{Edit, FileId, Span, SyntaxKind, SyntaxToken, parse};
use std::ops::Range;

/// What is typed so far of the path of a `model`.
pub(super) fn model_path(before: &str) -> Option<&str> {
    let line = before.rsplit('\n').next()?;
    let path = line.trim_start().strip_prefix("model")?.trim_start().strip_prefix('"')?;
    (!path.contains('"')).then_some(path)
}

/// The models that a schedule can name; the whole path is replaced, up to its quote.
pub(super) fn archives(snapshot: &Snapshot, typed: Range<u32>) -> Vec<Completion> {
    let rest = &snapshot.text()[typed.end as usize..];
    let end = typed.end + rest.find(['"', '\n']).unwrap_or(rest.len()) as u32;
    let replaced = Span::new(snapshot.file, typed.start, end);
    let archive = |name: &String| Completion {
        label: name.clone(),
        kind: CompletionKind::Library,
        detail: "a model".to_owned(),
        docs: String::new(),
        insert: name.clone(),
        replaced,
        also: Vec::new(),
    };
    snapshot.beside.archives.iter().map(archive).collect()
}

impl List<'_> {
    pub(super) fn library(&mut self, view: &View<'_>, word: SyntaxToken<'_>) {
        let Some(used) = word.parent().ancestors().find_map(ast::Use::cast) else { return };
        let segments: Vec<&str> = used.segments().map(|segment| segment.text()).collect();
        let in_braces = word.parent().kind() == SyntaxKind::UseNames;
        let at = used.segments().position(|segment| segment == word);
        match (in_braces, at) {
            (false, Some(0)) => {
                self.push_as("std", CompletionKind::Library, "the standard library", "", "std.$0".into());
                for name in self.beside {
                    self.push_as(
                        name,
                        CompletionKind::Library,
                        "schedules of this folder",
                        "",
                        format!("{name}.{{$0}}"),
                    );
                }
            }
            (false, Some(1)) if segments[0] == "std" => {
                for name in slapo_stdlib::names() {
                    let docs = slapo_stdlib::module(name).map(|text| parse(FileId(0), text));
                    let docs = docs.and_then(|parse| parse.file().docs()).unwrap_or_default();
                    self.push_as(name, CompletionKind::Library, "library module", &docs, format!("{name}.{{$0}}"));
                }
            }
            _ => {
                let Some(source) = view.source(used) else { return };
                let known: Vec<&str> = import_parts(used).1.iter().map(|name| name.text()).collect();
                for item in parse(FileId(0), source.text).file().items() {
                    let (Some(name), Some(space)) = (item.name(), imports::space(item)) else { continue };
                    if !known.contains(&name.text()) {
                        self.importable(item, name.text(), space);
                    }
                }
            }
        }
    }

    fn importable(&mut self, item: Item<'_>, name: &str, space: Space) {
        let docs = item.docs().unwrap_or_default();
        let first_line = item.syntax().text().lines().next().unwrap_or_default();
        match (item, space) {
            (Item::Schedule(schedule), _) if name != "main" => {
                let signature = Signature::of_schedule(schedule);
                self.push(name, CompletionKind::Function, &signature.label, &signature.docs);
            }
            (Item::Schedule(_), _) => {}
            (_, Space::Type) => self.push(name, CompletionKind::Type, first_line, &docs),
            _ => self.push(name, CompletionKind::Value, first_line, &docs),
        }
    }

    /// Schedules of the library that are not imported yet, each with its import.
    pub(super) fn library_schedules(&mut self, view: &View<'_>) {
        let first = view.parse.file().items().next().map_or(0, |item| item.syntax().start());
        let at = Span::new(self.replaced.file, first, first);
        for module in slapo_stdlib::names() {
            let parse = parse(FileId(0), slapo_stdlib::module(module).unwrap_or_default());
            for schedule in parse.file().schedules() {
                let signature = Signature::of_schedule(schedule);
                let known = self.items.len();
                self.call(CompletionKind::Function, &signature);
                if let Some(added) = self.items.get_mut(known) {
                    let import = format!("use std.{module}.{}\n", signature.name);
                    added.detail = format!("{} of std.{module}", signature.label);
                    added.also = vec![Edit { span: at, replacement: import }];
                }
            }
        }
    }
}
