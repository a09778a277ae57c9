//! Axes that split one dimension: the pieces of one must lie inside those of the other.
//!
//! The number of groups says which: of `g₁` groups over `n₁` parts and `g₂` over `n₂` the second lie inside where `g₁·n₁`
//! divides `g₂`, and `g₂·n₂` the size. A rank's graph is made axis by axis, inner ones first, so one order must do for all
//! values.

use super::{Layout, Split, Typing};
use slapo_model::Graph;
use std::collections::BTreeMap;

/// Two axes, by their positions among the typings, that split a dimension of a node's operand or result across each other,
/// or one way here and the other way elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Number of the node.
    pub node: usize,
    pub dim: usize,
    pub axes: (usize, usize),
}

/// The axes, outermost first, so that pieces of later ones lie inside those of earlier ones wherever both split one
/// dimension, free slices of operands included. Otherwise the order of `typings` stays.
pub fn nesting(graph: &Graph, typings: &[Typing]) -> Result<Vec<usize>, Crossing> {
    // Inner and outer axis, with the first place where they are.
    let mut inside: BTreeMap<(usize, usize), Crossing> = BTreeMap::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        for v in node.reads().chain(node.outs.iter().copied().flatten()) {
            let held = |t: &Typing| t.slices.get(&(i, v)).copied().unwrap_or(t.of(v));
            let split = typings.iter().enumerate().filter_map(|(axis, t)| Some((axis, held(t).split_dim()?, held(t))));
            let split: Vec<(usize, usize, Layout)> = split.collect();
            for (k, a) in split.iter().enumerate() {
                for b in split[k + 1..].iter().filter(|b| b.1 == a.1) {
                    let crossing = Crossing { node: i, dim: a.1, axes: (a.0, b.0) };
                    let size = graph.ty(v).shape[a.1];
                    let (first, second) = ((a.2, typings[a.0].parts), (b.2, typings[b.0].parts));
                    let pair = match (lies_in(second, first, size), lies_in(first, second, size)) {
                        (true, true) => continue,
                        (true, false) => (b.0, a.0),
                        (false, true) => (a.0, b.0),
                        (false, false) => return Err(crossing),
                    };
                    inside.entry(pair).or_insert(crossing);
                }
            }
        }
    }
    let mut order: Vec<usize> = Vec::new();
    let mut left: Vec<usize> = (0..typings.len()).collect();
    while !left.is_empty() {
        let is_outermost = |axis: &usize| !left.iter().any(|outer| inside.contains_key(&(*axis, *outer)));
        match left.iter().position(is_outermost) {
            Some(at) => order.push(left.remove(at)),
            // Of axes in a circle, the place that was met last closes it.
            None => {
                let circle = inside.iter().filter(|((inner, outer), _)| left.contains(inner) && left.contains(outer));
                let last = circle.map(|(_, crossing)| *crossing).max_by_key(|crossing| crossing.node);
                return Err(last.unwrap_or(Crossing { node: 0, dim: 0, axes: (left[0], left[0]) }));
            }
        }
    }
    Ok(order)
}

/// Whether the pieces of one split lie in those of another, with the numbers of parts of their axes; none lie in sections of
/// different sizes.
fn lies_in(inner: (Layout, i64), outer: (Layout, i64), size: i64) -> bool {
    match (inner, outer) {
        ((Split { groups: within, .. }, parts), (Split { groups, .. }, others)) => {
            within % (groups * others) == 0 && size % (within * parts) == 0
        }
        _ => false,
    }
}
