//! What every construct is written with: tokens, the comments around them, lists, and parts side by side.
//!
//! A node never holds the comments above its first token and beside its last: they are written around it, so that
//! groups inside stay on one line. Read [`Builder::node`] first.

use super::layout::{Group, Mark};
use super::trivia::Tokens;
use crate::kind::{SyntaxKind, SyntaxKind::*};
use crate::tree::{SyntaxElement, SyntaxNode, SyntaxToken};

pub(super) struct Builder<'t> {
    pub marks: Vec<Mark<'t>>,
    pub tokens: Tokens<'t>,
}

/// The children of a node without trivia.
pub(super) fn parts<'t>(node: SyntaxNode<'t>) -> impl DoubleEndedIterator<Item = SyntaxElement<'t>> {
    node.elements().filter(|part| !part.kind().is_trivia())
}

impl<'t> Builder<'t> {
    pub fn new(root: SyntaxNode<'t>) -> Self {
        Self { marks: Vec::new(), tokens: Tokens::new(root) }
    }

    pub fn push(&mut self, mark: Mark<'t>) {
        self.marks.push(mark);
    }

    /// A node with its comments. Lines of an expression behind its first are indented by `hang` levels.
    pub fn node(&mut self, node: SyntaxNode<'t>, hang: usize) {
        self.comments_above(node.start(), false);
        let beside = self.tokens.take_beside(node.end());
        self.bare(node, hang);
        self.beside(beside);
    }

    fn bare(&mut self, node: SyntaxNode<'t>, hang: usize) {
        match node.kind() {
            Block => self.block(node),
            LetStmt | KnobItem | PatternItem | TypeItem => self.definition(node),
            RequireStmt => self.require(node),
            ForStmt | IfBranch => self.inline(parts(node), 2),
            Entries | RecordType => self.list(parts(node), true),
            UseNames | ParamList | ArgList | ListExpr | BraceExpr => self.list(parts(node), false),
            ParenExpr | IndexExpr | SliceExpr | ListType => self.bracket(node),
            BinaryExpr => self.binary(node, hang),
            PrefixExpr => self.prefix(node),
            FieldExpr => self.field(node),
            RangeExpr => self.inline(parts(node), hang),
            _ => self.inline(parts(node), 1),
        }
    }

    pub fn part(&mut self, part: SyntaxElement<'t>, hang: usize) {
        match part {
            SyntaxElement::Node(node) => self.node(node, hang),
            SyntaxElement::Token(token) => self.token(token),
        }
    }

    pub fn token(&mut self, token: SyntaxToken<'t>) {
        self.comments_above(token.start(), false);
        self.push(Mark::Text(token.text()));
        let beside = self.tokens.take_beside(token.end());
        self.beside(beside);
    }

    /// Parts on one line, as far as they allow it.
    pub fn inline(&mut self, parts: impl Iterator<Item = SyntaxElement<'t>>, hang: usize) {
        let mut before = None;
        for part in parts {
            if before.is_some_and(|before| is_spaced(before, part.kind())) {
                self.push(Mark::Space);
            }
            self.part(part, hang);
            before = Some(part.kind());
        }
    }

    /// What stands before an opening bracket, then elements with commas, on one line or on one each. A `padded` list has
    /// spaces inside of its brackets.
    pub fn list(&mut self, parts: impl Iterator<Item = SyntaxElement<'t>>, padded: bool) {
        let mut parts = parts.peekable();
        while let Some(part) = parts.next_if(|part| !is_opening(part.kind())) {
            self.part(part, 1);
        }
        let edge = || if padded { Mark::Line } else { Mark::Soft };
        let mut is_empty = true;
        while let Some(part) = parts.next() {
            match part {
                SyntaxElement::Token(token) if is_opening(token.kind()) => {
                    self.push(Mark::Open(Group::Plain));
                    self.token(token);
                    self.push(Mark::In);
                }
                SyntaxElement::Token(token) if is_closing(token.kind()) => {
                    self.closing(token, (!is_empty).then(edge), is_empty);
                }
                element => {
                    self.push(if is_empty { edge() } else { Mark::Line });
                    let comma = parts.next_if(|part| part.kind() == Comma).and_then(SyntaxElement::token);
                    let is_last = parts.peek().is_none_or(|next| is_closing(next.kind()));
                    self.element(element, comma, is_empty, is_last);
                    is_empty = false;
                }
            }
        }
    }

    /// An element with its comma, and the comments of both behind it.
    fn element(&mut self, element: SyntaxElement<'t>, comma: Option<SyntaxToken<'t>>, is_first: bool, is_last: bool) {
        self.lead(element.start(), is_first);
        let beside = self.tokens.take_beside(element.span().end);
        self.part(element, 1);
        self.push(if is_last { Mark::Comma } else { Mark::Text(",") });
        self.beside(beside);
        if let Some(comma) = comma {
            self.comments_of(comma);
        }
    }

    /// A closing bracket: the comments above it belong inside, then its line begins.
    pub fn closing(&mut self, token: SyntaxToken<'t>, edge: Option<Mark<'t>>, is_empty: bool) {
        self.comments_above(token.start(), is_empty);
        self.push(Mark::Out);
        self.marks.extend(edge);
        self.token(token);
        self.push(Mark::Close);
    }

    /// What stands above an element or statement: its comments, and a blank line before it, except before the first.
    pub fn lead(&mut self, start: u32, is_first: bool) {
        if self.comments_above(start, is_first) {
            self.push(Mark::Blank);
        }
    }

    /// The comments above a token, with the blank lines between them. Says whether one is to follow.
    pub fn comments_above(&mut self, start: u32, is_first: bool) -> bool {
        let lead = self.tokens.take_lead(start);
        let mut is_first = is_first;
        for comment in lead.comments {
            if comment.blank && !is_first {
                self.push(Mark::Blank);
            }
            self.push(Mark::Above(comment.text));
            is_first = false;
        }
        lead.blank && !is_first
    }

    pub fn beside(&mut self, comment: Option<&'t str>) {
        self.marks.extend(comment.map(Mark::Beside));
    }

    /// The comments of a token that is already written.
    pub fn comments_of(&mut self, token: SyntaxToken<'t>) {
        self.comments_above(token.start(), false);
        let beside = self.tokens.take_beside(token.end());
        self.beside(beside);
    }
}

pub(super) fn is_opening(kind: SyntaxKind) -> bool {
    matches!(kind, LParen | LBracket | LBrace)
}

pub(super) fn is_closing(kind: SyntaxKind) -> bool {
    matches!(kind, RParen | RBracket | RBrace)
}

/// Whether a space stands between two neighbours.
fn is_spaced(before: SyntaxKind, next: SyntaxKind) -> bool {
    before.is_keyword()
        || matches!(before, Eq | Colon | Comma)
        || matches!(next, Eq | InKw | Block | Entries | IfBranch | ElseBranch)
}
