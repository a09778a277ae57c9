//! Nodes under construction: kinds and lengths, no places yet.
//!
//! The parser builds these bottom-up, `Tree::new` lays them out. Read `Green` first.

use crate::kind::SyntaxKind;

/// What the parser hands over: a node with its children, owned, lengths only.
#[derive(Debug)]
pub(crate) enum Green {
    Token(SyntaxKind, u32),
    Node(GreenNode),
}

#[derive(Debug)]
pub(crate) struct GreenNode {
    pub kind: SyntaxKind,
    pub children: Vec<Green>,
    /// How many expressions lie inside each other here.
    pub depth: u32,
}

impl Green {
    pub fn kind(&self) -> SyntaxKind {
        match self {
            Green::Token(kind, _) => *kind,
            Green::Node(node) => node.kind,
        }
    }

    pub fn is_trivia(&self) -> bool {
        self.kind().is_trivia()
    }
}

impl GreenNode {
    pub fn new(kind: SyntaxKind, children: Vec<Green>) -> Self {
        let inner = children.iter().map(|child| match child {
            Green::Token(..) => 0,
            Green::Node(node) => node.depth,
        });
        let depth = inner.max().unwrap_or(0) + u32::from(kind.is_expr());
        Self { kind, children, depth }
    }
}
