//! Typed views of the tree: one type per construct, whose getters return `Option` because any part may be missing.
//!
//! Views are two words, copy freely and hold no data of their own. They do not judge: a view of a broken construct
//! gives what is there, and the diagnostics of the parse say what is wrong. Read `File` in `items.rs` first, then
//! `Stmt` and `Expr`.

mod exprs;
mod items;
mod literals;
mod stmts;

pub use exprs::{
    Arg, ArgList, Binary, BinaryOp, Brace, BraceName, Call, Expr, Field, Globstar, Index, List, Method, Name, Paren,
    Prefix, PrefixOp, Range, RoleIn, Slice, Star,
};
pub use items::{
    Entry, File, Input, Item, Knob, ListType, Mesh, Model, NamedType, Param, ParamList, Pattern, RecordField,
    RecordType, Schedule, TypeDef, TypeRef, Use,
};
pub use literals::{Literal, LiteralKind, Number, Str, Unit};
pub use stmts::{Block, ExprStmt, For, If, IfBranch, Let, Require, Stmt, Try};

use crate::kind::SyntaxKind;
use crate::span::Span;
use crate::tree::{SyntaxNode, SyntaxToken};

/// A typed view of a node.
pub trait AstNode<'t>: Copy {
    fn cast(node: SyntaxNode<'t>) -> Option<Self>;

    fn syntax(self) -> SyntaxNode<'t>;

    /// The text of the construct without the trivia around it.
    fn span(self) -> Span {
        self.syntax().span()
    }
}

/// Declares views of one node kind each.
macro_rules! nodes {
    ($($(#[$doc:meta])* $view:ident = $kind:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $view<'t>(pub(crate) crate::tree::SyntaxNode<'t>);

        impl<'t> crate::ast::AstNode<'t> for $view<'t> {
            fn cast(node: crate::tree::SyntaxNode<'t>) -> Option<Self> {
                (node.kind() == crate::kind::SyntaxKind::$kind).then_some(Self(node))
            }

            fn syntax(self) -> crate::tree::SyntaxNode<'t> {
                self.0
            }
        }
    )*};
}

/// Declares an enum of views.
macro_rules! choice {
    ($(#[$doc:meta])* $view:ident { $($variant:ident($inner:ident),)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $view<'t> {
            $($variant($inner<'t>),)*
        }

        impl<'t> crate::ast::AstNode<'t> for $view<'t> {
            fn cast(node: crate::tree::SyntaxNode<'t>) -> Option<Self> {
                None$(.or_else(|| $inner::cast(node).map(Self::$variant)))*
            }

            fn syntax(self) -> crate::tree::SyntaxNode<'t> {
                match self {
                    $(Self::$variant(inner) => inner.syntax(),)*
                }
            }
        }
    };
}

pub(crate) use {choice, nodes};

/// The first child with this view.
fn child<'t, T: AstNode<'t> + 't>(node: SyntaxNode<'t>) -> Option<T> {
    children(node).next()
}

fn children<'t, T: AstNode<'t> + 't>(node: SyntaxNode<'t>) -> impl DoubleEndedIterator<Item = T> {
    node.children().filter_map(T::cast)
}

/// The first child with this view behind the first token of the given kinds.
fn child_behind<'t, T: AstNode<'t> + 't>(node: SyntaxNode<'t>, kinds: &[SyntaxKind]) -> Option<T> {
    let mark = node.tokens().find(|token| kinds.contains(&token.kind()))?;
    children::<T>(node).find(|child| child.syntax().start() >= mark.end())
}

/// The first child with this view before the first token of the given kinds, or anywhere without such a token.
fn child_before<'t, T: AstNode<'t> + 't>(node: SyntaxNode<'t>, kinds: &[SyntaxKind]) -> Option<T> {
    let mark = node.tokens().find(|token| kinds.contains(&token.kind()));
    let end = mark.map_or(node.end(), |token| token.start());
    children::<T>(node).find(|child| child.syntax().end() <= end)
}

fn name(node: SyntaxNode<'_>) -> Option<SyntaxToken<'_>> {
    node.token(SyntaxKind::Word)
}

fn words<'t>(node: SyntaxNode<'t>) -> impl Iterator<Item = SyntaxToken<'t>> {
    node.tokens().filter(|token| token.kind() == SyntaxKind::Word)
}

/// The text of the `##` lines directly above a node, markers stripped.
fn docs_above(node: SyntaxNode<'_>) -> Option<String> {
    let mut lines = Vec::new();
    let mut at = node.start();
    while let Some(comment) = comment_above(node, at) {
        lines.push(doc_line(comment));
        at = comment.start();
    }
    lines.reverse();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// The documentation comment on the line right above the one that starts at `at`, if nothing else is there.
fn comment_above(node: SyntaxNode<'_>, at: u32) -> Option<SyntaxToken<'_>> {
    let siblings = node.parent()?.elements().rev().skip_while(|element| element.start() >= at);
    let mut siblings = siblings.filter(|element| element.kind() != SyntaxKind::Whitespace);
    siblings.next().filter(|element| element.kind() == SyntaxKind::Newline)?;
    let comment = siblings.next()?.token().filter(|token| token.kind() == SyntaxKind::DocComment)?;
    let stands_alone =
        siblings.next().is_none_or(|before| before.kind().is_trivia() && before.kind() != SyntaxKind::Comment);
    stands_alone.then_some(comment)
}

fn doc_line(comment: SyntaxToken<'_>) -> String {
    let text = comment.text().trim_start_matches("##");
    text.strip_prefix(' ').unwrap_or(text).trim_end().to_string()
}
