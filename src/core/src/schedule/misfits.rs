//! Dimensions that the size of an axis does not divide. The size is one mistake, however many statements show it: where one
//! other size would do for all of them, they are one error.

use super::mesh::Mesh;
use crate::primitives::joined;
use slapo_syntax::{Diagnostic, Span};

/// Other places that an error shows.
const SHOWN: usize = 4;

/// A dimension that an axis does not divide.
#[derive(Debug)]
pub struct Misfit {
    /// As the statement names it: `tp`, `tp[0]`, `[dp, tp]`.
    pub axis: String,
    /// Sizes of the axis that would do, in ascending order.
    pub legal: Vec<i64>,
    /// What is said of it alone, but for the legal sizes.
    pub diagnostic: Diagnostic,
}

/// Misfits that one size of their axis would settle.
struct Group {
    axis: String,
    legal: Vec<i64>,
    diagnostics: Vec<Diagnostic>,
}

/// What is said of all of them.
pub fn told(misfits: Vec<Misfit>, mesh: &Mesh) -> Vec<Diagnostic> {
    let mut groups: Vec<Group> = Vec::new();
    for Misfit { axis, legal, diagnostic } in misfits {
        let common =
            |group: &Group| -> Vec<i64> { group.legal.iter().copied().filter(|size| legal.contains(size)).collect() };
        // Size 1 would do everywhere: what has only that in common is several mistakes.
        let joins = |group: &&mut Group| group.axis == axis && (group.legal == legal || common(group).len() > 1);
        match groups.iter_mut().find(joins) {
            Some(group) => {
                group.legal = common(group);
                group.diagnostics.push(diagnostic);
            }
            None => groups.push(Group { axis, legal, diagnostics: vec![diagnostic] }),
        }
    }
    groups.into_iter().flat_map(|group| group.told(mesh)).collect()
}

impl Group {
    fn told(self, mesh: &Mesh) -> Vec<Diagnostic> {
        let Group { axis, legal, diagnostics } = &self;
        let help = |of: &str| format!("legal sizes of `{axis}` {of}: {}", joined(legal));
        let places = |diagnostic: &Diagnostic| -> Vec<Span> {
            diagnostic.primary.iter().chain(&diagnostic.secondary).map(|label| label.span).collect()
        };
        let mut distinct: Vec<&Diagnostic> = Vec::new();
        for diagnostic in diagnostics {
            if distinct.iter().all(|known| places(known) != places(diagnostic)) {
                distinct.push(diagnostic);
            }
        }
        let [first, others @ ..] = distinct.as_slice() else { return Vec::new() };
        if others.is_empty() {
            let alone = |mut diagnostic: Diagnostic| {
                diagnostic.helps.insert(0, help("here"));
                diagnostic
            };
            return diagnostics.iter().cloned().map(alone).collect();
        }
        let mut one = (*first).clone();
        // The turns of a loop that the first one stands in say nothing of the others.
        one.notes.clear();
        for other in others.iter().take(SHOWN) {
            let what = other.message.split(" over `").next().unwrap_or_default();
            if let Some(primary) = &other.primary {
                one = one.secondary(primary.span, what.replacen("cannot split", "nor", 1));
            }
        }
        if let Some(more) = others.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            one = one.note(format!("the same holds in {more} more statements"));
        }
        if let Some(axis) = mesh.axis(axis) {
            one = one.secondary(axis.span, "the size of the axis");
        }
        // What would help each of them.
        one.helps.retain(|help| others.iter().all(|other| other.helps.contains(help)));
        one.helps.insert(0, help("for all of these"));
        vec![one]
    }
}
