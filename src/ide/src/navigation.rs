//! From a name to its declaration and to all its uses, and renaming.

use crate::Snapshot;
use crate::imports;
use crate::origin;
use crate::scope::{By, Declaration, Space};
use crate::view::View;
use slapo_core::schedule::{Function, WORDS, import_parts};
use slapo_model::SourceLine;
use slapo_syntax::ast::{self, AstNode};
use slapo_syntax::{Edit, FileId, Span, SyntaxKind, is_reserved, parse};

/// Where something is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    /// In the schedule, or in a module among the snapshot's files.
    Schedule(Span),
    /// In the model's own source.
    Model(SourceLine),
}

/// Where what the name at `offset` stands for is declared.
pub fn definition(snapshot: &Snapshot, offset: u32) -> Option<Definition> {
    let view = View::of(snapshot);
    let word = view.word(offset)?;
    if let Some(used) = ast::Use::cast(word.parent())
        && import_parts(used).0.last() == Some(&word)
    {
        return Some(Definition::Schedule(Span::new(source_file(&view, snapshot, used)?, 0, 0)));
    }
    let Some(declaration) = view.scope.of(word) else {
        let place = view.places(word)?.places.first().copied()?;
        return origin::line(view.model?, place).cloned().map(Definition::Model);
    };
    let span = match declaration.by {
        By::Import(used, space) => {
            let file = source_file(&view, snapshot, used)?;
            let parse = parse(file, snapshot.files.text(file));
            let mut items = parse.file().items().filter(|item| imports::space(*item) == Some(space));
            items.find_map(|item| item.name().filter(|name| name.text() == declaration.name.text()))?.span()
        }
        _ => declaration.name.span(),
    };
    Some(Definition::Schedule(span))
}

fn source_file(view: &View<'_>, snapshot: &Snapshot, used: ast::Use<'_>) -> Option<FileId> {
    let source = view.source(used)?;
    snapshot.files.files().find(|file| *file != snapshot.file && snapshot.files.name(*file) == source.name)
}

/// Every use of the name at `offset`, its declaration included.
pub fn references(snapshot: &Snapshot, offset: u32) -> Vec<Span> {
    let view = View::of(snapshot);
    let declaration = view.word(offset).and_then(|word| view.scope.of(word));
    let uses = declaration.map(|declaration| view.scope.uses(&snapshot.parse, declaration)).unwrap_or_default();
    uses.into_iter().map(|word| word.span()).collect()
}

/// The word at `offset`, if it can have another name.
pub fn renamable(snapshot: &Snapshot, offset: u32) -> Option<Span> {
    let view = View::of(snapshot);
    let word = view.word(offset)?;
    view.scope.of(word).filter(|declaration| fixed(declaration).is_none()).map(|_| word.span())
}

/// The edits that give the name at `offset` another one, or why it cannot have that.
pub fn rename(snapshot: &Snapshot, offset: u32, new: &str) -> Result<Vec<Edit>, String> {
    let view = View::of(snapshot);
    let declaration = view.word(offset).and_then(|word| view.scope.of(word));
    let declaration = declaration.ok_or("only what this file declares can be renamed")?;
    if let Some(reason) = fixed(declaration) {
        return Err(reason);
    }
    let starts_well = new.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts_well || !new.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!("`{new}` is not a name: letters, digits and `_`, no digit first"));
    }
    let space = declaration.by.space();
    let is_taken = match space {
        Space::Value => WORDS.iter().any(|word| word.name == new),
        Space::Callable => Function::find(new).is_some(),
        Space::Type => false,
    };
    if is_reserved(new) || is_taken {
        return Err(format!("`{new}` is a word of the language"));
    }
    let overlaps = |other: &&Declaration<'_>| {
        let (a, b) = (&other.visible, &declaration.visible);
        other.by.space() == space && other.name.text() == new && a.start < b.end && b.start < a.end
    };
    if let Some(other) = view.scope.declarations.iter().find(overlaps).filter(|other| other.name != declaration.name) {
        let line = snapshot.files.line_column(snapshot.file, other.name.start()).line;
        return Err(format!("`{new}` has a meaning here already: line {line}"));
    }
    let uses = view.scope.uses(&snapshot.parse, declaration);
    Ok(uses.into_iter().map(|word| Edit { span: word.span(), replacement: new.to_owned() }).collect())
}

/// Why a declaration must keep its name.
fn fixed(declaration: &Declaration<'_>) -> Option<String> {
    let name = declaration.name.text();
    match declaration.by {
        By::Import(..) => Some(format!("`{name}` belongs to another file")),
        By::Schedule(_) if name == "main" => Some("a schedule starts at `main`".to_owned()),
        _ => None,
    }
}

/// What a selection grows to: the nodes around `offset`, innermost first.
pub fn around(snapshot: &Snapshot, offset: u32) -> Vec<Span> {
    let tree = &snapshot.parse.tree;
    let token = tree.token_at(offset).filter(|token| !token.kind().is_trivia()).map(|token| token.span());
    let nodes = tree.node_at(offset).ancestors().filter(|node| node.kind() != SyntaxKind::File).map(|node| node.span());
    let mut spans: Vec<Span> = token.into_iter().chain(nodes).collect();
    spans.dedup();
    spans
}
