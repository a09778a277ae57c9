//! The lossless tree: every byte of the text is in exactly one leaf, in order.
//!
//! The tree is one arena of elements with absolute offsets; the children of a node lie next to each other, so parents
//! and siblings are index arithmetic, and views are two words that can be copied. Nothing here knows the grammar.
//! Read `SyntaxNode` first; `ast` has the typed views.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::green::{Green, GreenNode};
use crate::kind::SyntaxKind;
use crate::span::{FileId, Span};

/// A parsed text. Cheap to clone; the views borrow it.
#[derive(Clone, Debug)]
pub struct Tree {
    data: Arc<Data>,
}

#[derive(Debug)]
struct Data {
    file: FileId,
    text: Box<str>,
    elements: Vec<Element>,
}

#[derive(Clone, Copy, Debug)]
struct Element {
    kind: SyntaxKind,
    start: u32,
    end: u32,
    parent: u32,
    first_child: u32,
    children: u32,
}

impl Tree {
    pub(crate) fn new(file: FileId, text: &str, root: GreenNode) -> Self {
        let mut elements = vec![Element::new(root.kind, 0, 0)];
        let end = place(&mut elements, 0, root, 0);
        debug_assert_eq!(end as usize, text.len(), "the leaves do not cover the text");
        Self { data: Arc::new(Data { file, text: text.into(), elements }) }
    }

    pub fn root(&self) -> SyntaxNode<'_> {
        SyntaxNode { tree: self, index: 0 }
    }

    pub fn file(&self) -> FileId {
        self.data.file
    }

    pub fn text(&self) -> &str {
        &self.data.text
    }

    /// The token that holds the byte at `offset`; at the end of the text the last token.
    pub fn token_at(&self, offset: u32) -> Option<SyntaxToken<'_>> {
        let mut node = self.root();
        loop {
            let Element { first_child, children, .. } = *self.element(node.index);
            let siblings = &self.data.elements[first_child as usize..(first_child + children) as usize];
            let begun = siblings.partition_point(|child| child.start <= offset);
            let holds = siblings[..begun].iter().rposition(|child| child.start < child.end)?;
            match self.view(first_child + holds as u32) {
                SyntaxElement::Token(token) => return Some(token),
                SyntaxElement::Node(inner) => node = inner,
            }
        }
    }

    /// The innermost node around a byte.
    pub fn node_at(&self, offset: u32) -> SyntaxNode<'_> {
        self.token_at(offset).map_or(self.root(), SyntaxToken::parent)
    }

    /// The tree as indented text, for tests and for people.
    pub fn dump(&self) -> String {
        let mut out = String::new();
        dump(self.root(), 0, &mut out);
        out
    }

    fn element(&self, index: u32) -> &Element {
        &self.data.elements[index as usize]
    }

    fn span(&self, index: u32) -> Span {
        let element = self.element(index);
        Span::new(self.data.file, element.start, element.end)
    }

    fn slice(&self, index: u32) -> &str {
        &self.data.text[self.span(index).range()]
    }

    fn view(&self, index: u32) -> SyntaxElement<'_> {
        if self.element(index).kind.is_token() {
            SyntaxElement::Token(SyntaxToken { tree: self, index })
        } else {
            SyntaxElement::Node(SyntaxNode { tree: self, index })
        }
    }
}

impl Element {
    fn new(kind: SyntaxKind, start: u32, parent: u32) -> Self {
        Self { kind, start, end: start, parent, first_child: 0, children: 0 }
    }
}

/// Lays the children of a node side by side at the end of the arena, then fills them; gives the offset behind it.
fn place(elements: &mut Vec<Element>, index: usize, node: GreenNode, start: u32) -> u32 {
    let first = elements.len();
    elements[index].first_child = first as u32;
    elements[index].children = node.children.len() as u32;
    let parent = index as u32;
    elements.extend(node.children.iter().map(|child| Element::new(child.kind(), start, parent)));
    let mut at = start;
    for (offset, child) in node.children.into_iter().enumerate() {
        let child_index = first + offset;
        elements[child_index].start = at;
        at = match child {
            Green::Token(_, length) => at + length,
            Green::Node(inner) => place(elements, child_index, inner, at),
        };
        elements[child_index].end = at;
    }
    elements[index].end = at;
    at
}

/// A node of a tree.
#[derive(Clone, Copy)]
pub struct SyntaxNode<'t> {
    tree: &'t Tree,
    index: u32,
}

/// A leaf of a tree.
#[derive(Clone, Copy)]
pub struct SyntaxToken<'t> {
    tree: &'t Tree,
    index: u32,
}

/// A child: a node or a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyntaxElement<'t> {
    Node(SyntaxNode<'t>),
    Token(SyntaxToken<'t>),
}

macro_rules! views {
    ($($view:ident)*) => {$(
        impl<'t> $view<'t> {
            pub fn kind(self) -> SyntaxKind {
                self.tree.element(self.index).kind
            }

            pub fn span(self) -> Span {
                self.tree.span(self.index)
            }

            pub fn start(self) -> u32 {
                self.tree.element(self.index).start
            }

            pub fn end(self) -> u32 {
                self.tree.element(self.index).end
            }

            pub fn text(self) -> &'t str {
                self.tree.slice(self.index)
            }

            pub fn tree(self) -> &'t Tree {
                self.tree
            }

            /// The child of the same parent right after this one.
            pub fn next(self) -> Option<SyntaxElement<'t>> {
                let siblings = self.siblings();
                let next = self.index + 1;
                siblings.contains(&next).then(|| self.tree.view(next))
            }

            /// The child of the same parent right before this one.
            pub fn previous(self) -> Option<SyntaxElement<'t>> {
                let previous = self.index.checked_sub(1)?;
                self.siblings().contains(&previous).then(|| self.tree.view(previous))
            }

            fn siblings(self) -> std::ops::Range<u32> {
                if self.index == 0 {
                    return 0..0;
                }
                let parent = self.tree.element(self.tree.element(self.index).parent);
                parent.first_child..parent.first_child + parent.children
            }
        }

        impl PartialEq for $view<'_> {
            fn eq(&self, other: &Self) -> bool {
                self.index == other.index && Arc::ptr_eq(&self.tree.data, &other.tree.data)
            }
        }

        impl Eq for $view<'_> {}

        impl std::fmt::Debug for $view<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{:?}@{}..{}", self.kind(), self.start(), self.end())
            }
        }
    )*};
}

views!(SyntaxNode SyntaxToken);

impl<'t> SyntaxNode<'t> {
    /// The node around this one; the file has none.
    pub fn parent(self) -> Option<SyntaxNode<'t>> {
        (self.index != 0).then(|| SyntaxNode { tree: self.tree, index: self.tree.element(self.index).parent })
    }

    /// This node, its parent, and so on up to the file.
    pub fn ancestors(self) -> impl Iterator<Item = SyntaxNode<'t>> {
        std::iter::successors(Some(self), |node| node.parent())
    }

    /// Nodes and tokens, trivia included.
    pub fn elements(self) -> impl DoubleEndedIterator<Item = SyntaxElement<'t>> {
        let element = self.tree.element(self.index);
        (element.first_child..element.first_child + element.children).map(move |index| self.tree.view(index))
    }

    pub fn children(self) -> impl DoubleEndedIterator<Item = SyntaxNode<'t>> {
        self.elements().filter_map(SyntaxElement::node)
    }

    /// The leaves that are direct children, without trivia.
    pub fn tokens(self) -> impl DoubleEndedIterator<Item = SyntaxToken<'t>> {
        self.elements().filter_map(SyntaxElement::token).filter(|token| !token.kind().is_trivia())
    }

    pub fn child(self, kind: SyntaxKind) -> Option<SyntaxNode<'t>> {
        self.children().find(|child| child.kind() == kind)
    }

    pub fn token(self, kind: SyntaxKind) -> Option<SyntaxToken<'t>> {
        self.tokens().find(|token| token.kind() == kind)
    }

    /// This node and everything below, parents first.
    pub fn descendants(self) -> impl Iterator<Item = SyntaxNode<'t>> {
        let mut stack = vec![self];
        std::iter::from_fn(move || {
            let node = stack.pop()?;
            stack.extend(node.children().rev());
            Some(node)
        })
    }

    /// All leaves below, in order, trivia included.
    pub fn leaves(self) -> impl Iterator<Item = SyntaxToken<'t>> {
        let mut stack = vec![SyntaxElement::Node(self)];
        std::iter::from_fn(move || {
            loop {
                match stack.pop()? {
                    SyntaxElement::Token(token) => return Some(token),
                    SyntaxElement::Node(node) => stack.extend(node.elements().rev()),
                }
            }
        })
    }

    /// The first leaf below that is not trivia.
    pub fn first_token(self) -> Option<SyntaxToken<'t>> {
        self.leaves().find(|token| !token.kind().is_trivia())
    }
}

impl<'t> SyntaxToken<'t> {
    pub fn parent(self) -> SyntaxNode<'t> {
        SyntaxNode { tree: self.tree, index: self.tree.element(self.index).parent }
    }
}

impl<'t> SyntaxElement<'t> {
    pub fn node(self) -> Option<SyntaxNode<'t>> {
        match self {
            SyntaxElement::Node(node) => Some(node),
            SyntaxElement::Token(_) => None,
        }
    }

    pub fn token(self) -> Option<SyntaxToken<'t>> {
        match self {
            SyntaxElement::Token(token) => Some(token),
            SyntaxElement::Node(_) => None,
        }
    }

    pub fn kind(self) -> SyntaxKind {
        match self {
            SyntaxElement::Node(node) => node.kind(),
            SyntaxElement::Token(token) => token.kind(),
        }
    }

    pub fn span(self) -> Span {
        match self {
            SyntaxElement::Node(node) => node.span(),
            SyntaxElement::Token(token) => token.span(),
        }
    }

    /// The child of the same parent right before this one.
    pub fn previous(self) -> Option<SyntaxElement<'t>> {
        match self {
            SyntaxElement::Node(node) => node.previous(),
            SyntaxElement::Token(token) => token.previous(),
        }
    }

    /// The child of the same parent right after this one.
    pub fn next(self) -> Option<SyntaxElement<'t>> {
        match self {
            SyntaxElement::Node(node) => node.next(),
            SyntaxElement::Token(token) => token.next(),
        }
    }

    pub fn start(self) -> u32 {
        self.span().start
    }

    pub fn is_empty(self) -> bool {
        self.span().is_empty()
    }
}

fn dump(node: SyntaxNode<'_>, indent: usize, out: &mut String) {
    let _ = writeln!(out, "{:indent$}{:?} {}..{}", "", node.kind(), node.start(), node.end());
    for element in node.elements() {
        match element {
            SyntaxElement::Node(inner) => dump(inner, indent + 2, out),
            SyntaxElement::Token(token) => {
                let pad = indent + 2;
                let _ = writeln!(out, "{:pad$}{:?} {:?}", "", token.kind(), token.text());
            }
        }
    }
}
