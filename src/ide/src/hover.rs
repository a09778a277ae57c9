//! What the word under the cursor is, as Markdown.

use crate::Snapshot;
use crate::describe;
use crate::scope::{By, Declaration};
use crate::select::Selected;
use crate::signatures::{Param, Signature};
use crate::view::View;
use crate::words;
use slapo_core::schedule::{Axis, Query, WORDS};
use slapo_syntax::ast::{self, AstNode, Expr, Item};
use slapo_syntax::{Span, SyntaxKind, SyntaxNode, SyntaxToken};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hover {
    pub span: Span,
    /// Markdown.
    pub text: String,
}

pub fn hover(snapshot: &Snapshot, offset: u32) -> Option<Hover> {
    let view = View::of(snapshot);
    let token = snapshot.parse.tree.token_at(offset);
    let wildcard = token.filter(|token| matches!(token.kind(), SyntaxKind::Star | SyntaxKind::StarStar));
    let (span, text) = match wildcard.filter(|token| token.parent().kind() != SyntaxKind::BinaryExpr) {
        Some(star) => (star.span(), path(&view, star.parent())?),
        None => {
            let word = view.word(offset)?;
            (word.span(), word_text(&view, word)?)
        }
    };
    Some(Hover { span, text })
}

fn word_text<'v>(view: &'v View<'_>, word: SyntaxToken<'v>) -> Option<String> {
    let parent = word.parent();
    match parent.kind() {
        SyntaxKind::FieldExpr | SyntaxKind::BraceName => {
            Some(describe::selected(view.model?, view.checked, &view.places(word)?))
        }
        SyntaxKind::MethodCall => {
            let parts = [view.signature(word).map(|found| signature(&found)), point(view, parent)];
            Some(parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n")).filter(|text| !text.is_empty())
        }
        SyntaxKind::CallExpr => view.signature(word).map(|found| signature(&found)),
        SyntaxKind::Arg => label(view, parent, word),
        SyntaxKind::RoleIn => Some(language_word("in")?),
        _ => match view.scope.of(word) {
            Some(found) => declaration(view, found),
            None => language_word(word.text()).or_else(|| class(view, word)),
        },
    }
}

/// What a path leads to.
fn path<'v>(view: &'v View<'_>, node: SyntaxNode<'v>) -> Option<String> {
    let selected = view.select(Expr::cast(node)?)?;
    Some(describe::selected(view.model?, view.checked, &selected))
}

/// How ranks hold what a point names, once the schedule compiles.
fn point<'v>(view: &'v View<'_>, node: SyntaxNode<'v>) -> Option<String> {
    let method = ast::Method::cast(node)?;
    let query = Query::find(method.name()?.text())?;
    let selected = view.select(method.receiver()?)?;
    describe::points(view.model?, view.checked, view.compiled?, &selected, query)
}

fn signature(signature: &Signature) -> String {
    let code = format!("```slapo\n{}\n```", signature.label);
    let params = signature.params.iter().filter(|param| !param.docs.is_empty());
    let params: Vec<String> = params.map(|param| format!("* `{}`: {}", param.name, param.docs)).collect();
    let parts = [code, params.join("\n"), signature.docs.clone()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

fn label(view: &View<'_>, arg: SyntaxNode<'_>, word: SyntaxToken<'_>) -> Option<String> {
    let called = arg.parent()?.parent()?.token(SyntaxKind::Word)?;
    let found = view.signature(called)?;
    let Param { label, docs, .. } = found.params.iter().find(|param| param.name == word.text())?;
    Some(format!("```slapo\n{label}\n```\n\n{docs}").trim_end().to_owned())
}

fn language_word(name: &str) -> Option<String> {
    let word = WORDS.iter().find(|word| word.name == name)?;
    Some(format!("`{name}`, {}\n\n{}", words::noun(word.kind), words::word(name, word.kind)))
}

/// A class of the model: how many modules are of it.
fn class(view: &View<'_>, word: SyntaxToken<'_>) -> Option<String> {
    let of_class = view.model?.modules.iter().filter(|module| module.short_class() == word.text());
    let qualified: Vec<&str> = of_class.map(|module| module.class.as_str()).collect();
    let first = qualified.first()?;
    Some(format!("`{first}`\n\n{} of the model's modules", qualified.len()))
}

fn declaration<'v>(view: &'v View<'_>, declaration: &Declaration<'v>) -> Option<String> {
    if let Some(found) = view.declared(declaration) {
        return Some(signature(&found));
    }
    let head = match declaration.by {
        By::For(turn) => format!("for {} in {}", declaration.name.text(), turn.domain()?.syntax().text()),
        By::Let(bound) => bound.syntax().text().to_owned(),
        By::Param(_, param) | By::Operand(param) => param.syntax().text().to_owned(),
        By::Knob(knob) => knob.syntax().text().to_owned(),
        By::Axis(entry) => entry.syntax().text().to_owned(),
        By::Type(item) => item.syntax().text().to_owned(),
        By::Pattern(item) => item.syntax().text().to_owned(),
        By::Import(..) => {
            let text = |item: Item<'_>| (item.syntax().text().to_owned(), item.docs().unwrap_or_default());
            let (text, docs) = view.imported(declaration, text)?;
            return Some(format!("```slapo\n{text}\n```\n\n{docs}").trim_end().to_owned());
        }
        By::Schedule(_) => declaration.name.text().to_owned(),
    };
    let axis = view.checked.mesh.axes.iter().find(|axis| axis.name == declaration.name.text());
    let more = match declaration.by {
        By::Axis(_) => axis.map(axis_text),
        By::Let(bound) => bound.value().and_then(|value| view.select(value)).map(|found| shown(view, &found)),
        By::For(_) | By::Param(..) => of_uses(view, declaration),
        _ => None,
    };
    let parts = [Some(format!("```slapo\n{head}\n```")), declaration.by.docs(), more];
    Some(parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n"))
}

fn axis_text(axis: &Axis) -> String {
    let factors: Vec<String> = axis.factors.iter().map(i64::to_string).collect();
    match factors.is_empty() {
        true => format!("{} ranks", axis.size),
        false => format!("{} ranks: {}", axis.size, factors.join(" × ")),
    }
}

/// What a variable or parameter stands for, where it is used.
fn of_uses<'v>(view: &'v View<'_>, declaration: &Declaration<'v>) -> Option<String> {
    let uses = view.scope.uses(view.parse, declaration);
    let name = uses.into_iter().find_map(|word| ast::Name::cast(word.parent()))?;
    Some(shown(view, &view.select(Expr::Name(name))?))
}

fn shown(view: &View<'_>, selected: &Selected) -> String {
    view.model.map(|model| describe::selected(model, view.checked, selected)).unwrap_or_default()
}
