//! Expressions that are more than parts side by side or lists.

use super::build::{Builder, is_closing, is_opening, parts};
use super::layout::{Group, Mark};
use crate::ast::{AstNode, Binary, Expr};
use crate::kind::SyntaxKind::*;
use crate::precedence;
use crate::tree::{SyntaxElement, SyntaxNode, SyntaxToken};

impl<'t> Builder<'t> {
    /// Operands of one level of precedence: all on one line, or each on its own with the operators at the ends, where
    /// a statement goes on over the end of its line.
    pub fn binary(&mut self, node: SyntaxNode<'t>, hang: usize) {
        let Some((first, rest)) = chain(node) else { return self.inline(parts(node), 1) };
        self.push(Mark::Open(Group::Plain));
        let mut beside = self.tokens.take_beside(first.end());
        // Its own lines stand further in than those of the operands behind it.
        self.node(first, hang + 1);
        self.marks.extend((0..hang).map(|_| Mark::In));
        for (operator, operand) in rest {
            self.push(Mark::Space);
            self.push(Mark::Text(operator.text()));
            self.beside(beside);
            self.comments_of(operator);
            self.push(Mark::Line);
            // The last one's stands beside the whole expression, and is taken.
            beside = self.tokens.take_beside(operand.end());
            self.node(operand, 1);
        }
        self.marks.extend((0..hang).map(|_| Mark::Out));
        self.push(Mark::Close);
    }

    /// `-x`, `not x`; and `- -x`, which reads better than `--x`.
    pub fn prefix(&mut self, node: SyntaxNode<'t>) {
        let is_word = node.token(NotKw).is_some();
        for part in parts(node) {
            let operand = part.node().and_then(SyntaxNode::first_token);
            if operand.is_some_and(|first| is_word || first.kind() == Minus) {
                self.push(Mark::Space);
            }
            self.part(part, 1);
        }
    }

    /// An expression or a slice in brackets, behind what it is applied to.
    pub fn bracket(&mut self, node: SyntaxNode<'t>) {
        // A line of its own is no use to a single word.
        let is_word =
            node.children().last().is_some_and(|inner| matches!(inner.kind(), NameExpr | Literal | NamedType));
        let edge = || (!is_word).then_some(Mark::Soft);
        let mut before = None;
        let mut rest = parts(node).peekable();
        while let Some(part) = rest.next() {
            match part {
                SyntaxElement::Token(token) if is_opening(token.kind()) => {
                    self.push(Mark::Open(Group::Plain));
                    self.token(token);
                    self.push(Mark::In);
                    self.marks.extend(edge());
                }
                SyntaxElement::Token(token) if is_closing(token.kind()) => {
                    self.closing(token, edge(), false);
                }
                SyntaxElement::Token(dots) => {
                    self.token(dots);
                    // `[..n]`, but `[.. n / 2]`.
                    let is_compound = rest.peek().and_then(|next| next.node()).is_some_and(is_compound);
                    if before == Some(LBracket) && is_compound {
                        self.push(Mark::Space);
                    }
                }
                SyntaxElement::Node(inner) => self.node(inner, 0),
            }
            before = Some(part.kind());
        }
    }

    /// `m.h`; a number keeps its distance from a name of digits, which would become its fraction.
    pub fn field(&mut self, node: SyntaxNode<'t>) {
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
        let name = node.token(Word).map_or("", SyntaxToken::text);
        let is_number = node.child(Literal).is_some_and(|number| is_digits(number.text()));
        for part in parts(node) {
            if part.kind() == Dot && is_number && name.starts_with(|c: char| c.is_ascii_digit()) {
                self.push(Mark::Space);
            }
            self.part(part, 1);
        }
    }
}

type Operands<'t> = (SyntaxNode<'t>, Vec<(SyntaxToken<'t>, SyntaxNode<'t>)>);

/// The first operand, and the others with the operators before them, of `a + b - c`, which is `(a + b) - c` in the tree.
fn chain(node: SyntaxNode<'_>) -> Option<Operands<'_>> {
    let level = |binary: Binary<'_>| binary.op_token().and_then(|token| precedence::infix_level(token.kind()));
    let mut outer = Binary::cast(node)?;
    let mut rest = vec![(outer.op_token()?, outer.right()?.syntax())];
    let mut first = outer.left()?;
    while let Expr::Binary(inner) = first
        && level(inner) == level(outer)
    {
        rest.push((inner.op_token()?, inner.right()?.syntax()));
        (first, outer) = (inner.left()?, inner);
    }
    rest.reverse();
    Some((first.syntax(), rest))
}

/// Neither a name nor a number.
fn is_compound(node: SyntaxNode<'_>) -> bool {
    match node.kind() {
        NameExpr | Literal => false,
        PrefixExpr => node.children().any(is_compound),
        _ => true,
    }
}
