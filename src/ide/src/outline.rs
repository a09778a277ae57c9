//! The outline of a file, and what of it can be folded.

use crate::Snapshot;
use slapo_syntax::ast::{self, AstNode, Item, Stmt};
use slapo_syntax::{Span, SyntaxKind, SyntaxToken};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub name: String,
    pub detail: String,
    pub kind: SymbolKind,
    /// All of it.
    pub span: Span,
    pub name_span: Span,
    pub children: Vec<Symbol>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolKind {
    Model,
    Input,
    Mesh,
    Axis,
    Knob,
    Value,
    Type,
    Pattern,
    Schedule,
}

/// The declarations of a file, in its order.
pub fn symbols(snapshot: &Snapshot) -> Vec<Symbol> {
    snapshot.parse.file().items().filter_map(item).collect()
}

fn item(item: Item<'_>) -> Option<Symbol> {
    let node = item.syntax();
    let plain = |name: &str, detail: String, kind, name_span| Symbol {
        name: name.to_owned(),
        detail,
        kind,
        span: node.span(),
        name_span,
        children: Vec::new(),
    };
    let word = || node.first_token().map_or(node.span(), |token| token.span());
    let named = |name: Option<SyntaxToken<'_>>, detail: &str, kind| {
        name.map(|name| plain(name.text(), one_line(detail), kind, name.span()))
    };
    let text = |expr: Option<ast::Expr<'_>>| expr.map_or(String::new(), |expr| expr.syntax().text().to_owned());
    match item {
        Item::Use(_) => None,
        Item::Model(model) => {
            let path = model.path().map_or(String::new(), ast::Str::value);
            Some(plain("model", path, SymbolKind::Model, word()))
        }
        Item::Input(_) => Some(plain("input", String::new(), SymbolKind::Input, word())),
        Item::Mesh(mesh) => {
            let axes = mesh.entries().filter_map(|entry| {
                let name = entry.name()?;
                Some(Symbol {
                    name: name.text().to_owned(),
                    detail: text(entry.value()),
                    kind: SymbolKind::Axis,
                    span: entry.span(),
                    name_span: name.span(),
                    children: Vec::new(),
                })
            });
            Some(Symbol { children: axes.collect(), ..plain("mesh", String::new(), SymbolKind::Mesh, word()) })
        }
        Item::Knob(knob) => named(knob.name(), &text(knob.default()), SymbolKind::Knob),
        Item::Let(bound) => named(bound.name(), &text(bound.value()), SymbolKind::Value),
        Item::Type(ty) => named(ty.name(), "", SymbolKind::Type),
        Item::Pattern(pattern) => named(pattern.name(), "", SymbolKind::Pattern),
        Item::Schedule(schedule) => {
            let params = schedule.params().map_or("", |params| params.syntax().text());
            let statements = schedule.body().into_iter().flat_map(ast::Block::statements);
            let lets = statements.filter_map(|statement| match statement {
                Stmt::Let(bound) => self::item(Item::Let(bound)),
                _ => None,
            });
            let symbol = named(schedule.name(), params, SymbolKind::Schedule)?;
            Some(Symbol { children: lets.collect(), ..symbol })
        }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fold {
    pub span: Span,
    pub is_comment: bool,
}

/// Blocks, lists and runs of comments that take more than one line.
pub fn folds(snapshot: &Snapshot) -> Vec<Fold> {
    let root = snapshot.parse.root();
    let line = |offset| snapshot.files.line_column(snapshot.file, offset).line;
    let is_long = |span: &Span| line(span.start) < line(span.end);
    let foldable = |kind| {
        matches!(
            kind,
            SyntaxKind::Block
                | SyntaxKind::Entries
                | SyntaxKind::ArgList
                | SyntaxKind::ParamList
                | SyntaxKind::RecordType
                | SyntaxKind::ListExpr
                | SyntaxKind::UseNames
        )
    };
    let nodes = root.descendants().filter(|node| foldable(node.kind())).map(|node| node.span()).filter(is_long);
    let mut folds: Vec<Fold> = nodes.map(|span| Fold { span, is_comment: false }).collect();
    let mut run: Option<Span> = None;
    let is_comment = |token: &SyntaxToken<'_>| matches!(token.kind(), SyntaxKind::Comment | SyntaxKind::DocComment);
    for comment in root.leaves().filter(is_comment) {
        run = match run {
            Some(before) if line(before.end) + 1 == line(comment.start()) => Some(before.to(comment.span())),
            before => {
                folds.extend(before.filter(is_long).map(|span| Fold { span, is_comment: true }));
                Some(comment.span())
            }
        };
    }
    folds.extend(run.filter(is_long).map(|span| Fold { span, is_comment: true }));
    folds
}
