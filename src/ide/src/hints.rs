//! Short remarks between the words: how much a selector selects, and what ranks hold of it.

use crate::Snapshot;
use crate::describe;
use crate::select::Extent;
use crate::view::View;
use slapo_core::schedule::{Place, Step};
use slapo_core::units;
use slapo_model::{Model, ParameterId};
use slapo_syntax::ast::{AstNode, Expr, Item};
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
    hints.extend(ranks(snapshot, model));
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

/// Behind the mesh: its ranks, and what each holds of the parameters.
fn ranks(snapshot: &Snapshot, model: &Model) -> Option<Hint> {
    let is_mesh = |item: &Item<'_>| matches!(item, Item::Mesh(_));
    let mesh = snapshot.parse.file().items().find(is_mesh)?;
    let (checked, ranks) = (&snapshot.checked, describe::world(&snapshot.checked));
    let all = (0..model.parameters.len()).map(|at| ParameterId(at as u32));
    let bytes = units::bytes(describe::local_bytes(model, checked, all));
    let text = format!("{ranks} ranks, {bytes} of parameters on each");
    (ranks > 1).then(|| Hint { offset: mesh.syntax().end(), text })
}

/// Behind every statement that splits parameters, its calls of the library included.
fn splits(snapshot: &Snapshot, model: &Model) -> Vec<Hint> {
    const SHOWN: usize = 3;
    let checked = &snapshot.checked;
    let mut found: BTreeMap<Span, (Vec<String>, Vec<ParameterId>)> = BTreeMap::new();
    for step in checked.steps.iter().filter(|step| step.primitive.name == "shard") {
        let Place::Parameter { id, module, slot } = step.target.place else { continue };
        let (shape, local) = (&model.parameter(id).shape, describe::local(model, checked, id));
        let Some(span) = statement(step, snapshot).filter(|_| local != *shape) else { continue };
        let name = model.module(module).parameters.get(slot as usize).map_or("", |(name, _)| name);
        let text = format!("{name} {shape:?} → {local:?}");
        let (texts, parameters) = found.entry(span).or_default();
        if !texts.contains(&text) {
            texts.push(text);
        }
        parameters.push(id);
    }
    let hint = |(span, (texts, parameters)): (Span, (Vec<String>, Vec<ParameterId>))| {
        let more = if texts.len() > SHOWN { ", …" } else { "" };
        let shown: Vec<String> = texts.into_iter().take(SHOWN).collect();
        let bytes = units::bytes(describe::local_bytes(model, checked, parameters));
        Hint { offset: span.end, text: format!("{}{more}: {bytes} on each rank", shown.join(", ")) }
    };
    found.into_iter().map(hint).collect()
}

/// The statement of the schedule that a step belongs to.
fn statement(step: &Step, snapshot: &Snapshot) -> Option<Span> {
    let own = std::iter::once(&step.site).chain(step.chain.frames().map(|frame| &frame.site));
    own.map(|site| site.span).find(|span| span.file == snapshot.file)
}
