//! Files, blocks, definitions and statements.

use super::build::{Builder, parts};
use super::layout::{Group, Hug, Mark};
use crate::kind::SyntaxKind::*;
use crate::tree::{SyntaxElement, SyntaxNode};

impl<'t> Builder<'t> {
    pub fn file(&mut self, root: SyntaxNode<'t>) {
        self.statements(root);
        self.comments_above(root.end(), false);
    }

    /// Nodes on lines of their own.
    fn statements(&mut self, around: SyntaxNode<'t>) {
        for (index, statement) in around.children().enumerate() {
            self.push(Mark::Hard);
            self.lead(statement.start(), index == 0);
            self.node(statement, 1);
        }
    }

    /// Always on several lines, unless there is nothing in it.
    pub fn block(&mut self, block: SyntaxNode<'t>) {
        let is_empty = block.children().next().is_none();
        if let Some(open) = block.token(LBrace) {
            self.token(open);
        }
        self.push(Mark::In);
        self.statements(block);
        if let Some(close) = block.token(RBrace) {
            self.comments_above(close.start(), is_empty);
            self.push(Mark::Out);
            if !is_empty {
                self.push(Mark::Hard);
            }
            self.token(close);
        }
    }

    /// `let`, `knob`, `pattern`, `type`: a head, `=`, and a value that may have a line of its own.
    pub fn definition(&mut self, node: SyntaxNode<'t>) {
        let mut rest = parts(node).peekable();
        let head = std::iter::from_fn(|| rest.next_if(|part| part.kind() != Eq));
        self.inline(head, 1);
        let Some(equals) = rest.next().and_then(SyntaxElement::token) else { return };
        let value: Vec<_> = rest.collect();
        let beside = self.tokens.take_beside(equals.end());
        let is_commented =
            beside.is_some() || value.first().is_some_and(|part| self.tokens.has_comment_above(part.start()));
        let hug = if is_commented { Hug::Never } else { value.last().map_or(Hug::Never, |part| hug(*part)) };
        self.push(Mark::Space);
        self.token(equals);
        self.push(Mark::Open(Group::Value(hug)));
        self.beside(beside);
        self.inline(value.into_iter(), 0);
        self.push(Mark::Close);
    }

    /// `require condition, "message"`: the message may have a line of its own.
    pub fn require(&mut self, node: SyntaxNode<'t>) {
        self.push(Mark::Open(Group::Plain));
        let mut rest = parts(node).peekable();
        let head = std::iter::from_fn(|| rest.next_if(|part| part.kind() != Comma));
        self.inline(head, 1);
        if let Some(comma) = rest.next() {
            self.part(comma, 1);
            self.push(Mark::In);
            self.push(Mark::Line);
            self.inline(rest, 1);
            self.push(Mark::Out);
        }
        self.push(Mark::Close);
    }
}

/// Whether a value can stay behind the `=` with its brackets broken.
fn hug(value: SyntaxElement<'_>) -> Hug {
    let Some(node) = value.node() else { return Hug::Never };
    let list = if matches!(node.kind(), CallExpr | MethodCall) { node.child(ArgList) } else { Some(node) };
    if list.is_none_or(|list| list.children().next().is_none()) {
        return Hug::Never;
    }
    match node.kind() {
        ListExpr | RecordType => Hug::Always,
        CallExpr | MethodCall | ParenExpr | BraceExpr => Hug::Last,
        _ => Hug::Never,
    }
}
