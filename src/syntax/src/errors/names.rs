//! Names that a file gives to values: what a fix may write depends on whether a name is taken.

use crate::kind::SyntaxKind as K;
use crate::tree::Tree;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

/// Read from the tree when it is first asked.
pub(super) struct Names<'t> {
    tree: &'t Tree,
    known: OnceCell<Known<'t>>,
}

#[derive(Default)]
struct Known<'t> {
    bound: BTreeSet<&'t str>,
    /// How often each is assigned to.
    assigned: BTreeMap<&'t str, usize>,
}

impl<'t> Names<'t> {
    pub fn new(tree: &'t Tree) -> Self {
        Self { tree, known: OnceCell::new() }
    }

    /// Whether the file gives the name to a value anywhere.
    pub fn is_bound(&self, name: &str) -> bool {
        self.known().bound.contains(name)
    }

    /// Whether the name gets its only value from the one assignment to it.
    pub fn is_new(&self, name: &str) -> bool {
        !self.is_bound(name) && self.known().assigned.get(name) == Some(&1)
    }

    fn known(&self) -> &Known<'t> {
        self.known.get_or_init(|| {
            let mut known = Known::default();
            for node in self.tree.root().descendants() {
                if binds(node.kind()) {
                    known.bound.extend(node.token(K::Word).map(|word| word.text()));
                }
                if let (K::AssignStmt, Some(target)) = (node.kind(), node.children().next()) {
                    *known.assigned.entry(target.text()).or_default() += 1;
                }
            }
            known
        })
    }
}

/// Whether the word in a node of this kind is the name of a value.
pub(super) fn binds(kind: K) -> bool {
    matches!(kind, K::LetStmt | K::ForStmt | K::KnobItem | K::PatternItem | K::Param)
}
