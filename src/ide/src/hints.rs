//! Short remarks between the words: how much a selector selects, and what ranks hold after a split.

use crate::Snapshot;
use crate::describe;
use crate::select::Extent;
use crate::view::View;
use slapo_core::schedule::{Place, Step};
use slapo_model::Model;
use slapo_syntax::ast::{AstNode, Expr};
use slapo_syntax::{Span, SyntaxKind, SyntaxNode};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Behind what it is about.
    pub offset: u32,
    pub text: String,
}

/// The hints of a file, in its order.
pub fn hints(snapshot: &Snapshot) -> Vec<Hint> {
    let Some(model) = snapshot.model.as_deref() else { return Vec::new() };
    let mut hints = counts(&View::of(snapshot));
    hints.extend(splits(snapshot, model));
    hints.sort_by_key(|hint| hint.offset);
    hints
}

/// Behind every selector with a wildcard.
fn counts(view: &View<'_>) -> Vec<Hint> {
    let selects = |node: SyntaxNode<'_>| Expr::cast(node).and_then(|expr| view.select(expr));
    let is_wild = |node: &SyntaxNode<'_>| {
        matches!(node.kind(), SyntaxKind::StarExpr | SyntaxKind::GlobstarExpr | SyntaxKind::BraceExpr)
    };
    let mut hints: Vec<Hint> = Vec::new();
    for wild in view.parse.root().descendants().filter(is_wild) {
        let whole = wild.ancestors().take_while(|node| node.kind().is_expr() && selects(*node).is_some()).last();
        let Some((whole, selected)) = whole.and_then(|node| Some((node, selects(node)?))) else { continue };
        let is_known = hints.iter().any(|hint| hint.offset == whole.end());
        if selected.extent == Extent::All && !is_known {
            hints.push(Hint { offset: whole.end(), text: describe::counted(&selected.places) });
        }
    }
    hints
}

/// Behind every statement that splits parameters, its calls of the library included.
fn splits(snapshot: &Snapshot, model: &Model) -> Vec<Hint> {
    const SHOWN: usize = 3;
    let checked = &snapshot.checked;
    let mut found: BTreeMap<Span, Vec<String>> = BTreeMap::new();
    for step in checked.steps.iter().filter(|step| step.primitive.name == "shard") {
        let Place::Parameter { id, module, slot } = step.target.place else { continue };
        let (Some(span), Some(local)) = (statement(step, snapshot), describe::local(model, checked, id)) else {
            continue;
        };
        let name = model.module(module).parameters.get(slot as usize).map_or("", |(name, _)| name);
        let text = format!("{name} {:?} → {local:?}", model.parameter(id).shape);
        let texts = found.entry(span).or_default();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let hint = |(span, texts): (Span, Vec<String>)| {
        let more = if texts.len() > SHOWN { ", …" } else { "" };
        let shown: Vec<String> = texts.into_iter().take(SHOWN).collect();
        Hint { offset: span.end, text: shown.join(", ") + more }
    };
    found.into_iter().map(hint).collect()
}

/// The statement of the schedule that a step belongs to.
fn statement(step: &Step, snapshot: &Snapshot) -> Option<Span> {
    let own = std::iter::once(&step.site).chain(step.chain.frames().map(|frame| &frame.site));
    own.map(|site| site.span).find(|span| span.file == snapshot.file)
}
