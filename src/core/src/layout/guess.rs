//! What becomes of a node that the rules refuse when its parts run it nevertheless.
//!
//! A guess keeps sizes true: each part has a tensor of the guessed layout's local shape. Values may be wrong, which is the
//! point: tests run refused schedules to see that they are. Where no layout has the sizes there is no guess, and the
//! program cannot be built.

use super::rules::{self, Outcome};
use super::{Layout, OnAxis, Partial, Replicated, Split, Sync, Typing};
use slapo_model::{Graph, Node, Op};
use std::ops::RangeInclusive;

/// Numbers of groups that are tried.
const GROUPS: RangeInclusive<i64> = 1..=16;

/// The outcome of running `node` on operands that its rule refuses, if the parts' tensors have sizes of some layout.
pub fn outcome(graph: &Graph, node: &Node, typing: &Typing, sliceable: &[bool], on: OnAxis) -> Option<Outcome> {
    match node.op {
        Op::Sync { sync } => {
            let (_, sync) = on.syncs.get(sync as usize)?;
            let from = node.tensor("self").map(|v| typing.of(v))?;
            synced(*sync, from).map(|to| Outcome { results: vec![to], ..Outcome::default() })
        }
        _ => as_if_whole(graph, node, typing, sliceable, on),
    }
}

/// Communication that a value does not need: every part's tensor takes part as it is.
fn synced(sync: Sync, from: Layout) -> Option<Layout> {
    match (sync, from) {
        (Sync::AllReduce, held) => Some(held),
        (Sync::ReduceScatter { dim, groups }, Replicated) | (Sync::Slice { dim, groups }, Partial) => {
            Some(Split { dim, groups })
        }
        _ => None,
    }
}

/// A summand is computed with as if it were the whole; what comes out differs between the parts. Pieces of one size count
/// as pieces of the same groups.
fn as_if_whole(graph: &Graph, node: &Node, typing: &Typing, sliceable: &[bool], on: OnAxis) -> Option<Outcome> {
    let differs = node.reads().any(|v| typing.of(v) == Partial);
    let mut held = typing.clone();
    node.reads().filter(|v| typing.of(*v) == Partial).for_each(|v| held.values[v.0 as usize] = Replicated);
    let mut outcome = rules::apply(graph, node, &held, sliceable, on).ok().or_else(|| {
        GROUPS.into_iter().find_map(|groups| {
            let alike = with_groups(graph, node, &held, groups)?;
            rules::apply(graph, node, &alike, sliceable, on).ok()
        })
    })?;
    if differs {
        outcome.results.iter_mut().filter(|layout| **layout == Replicated).for_each(|layout| *layout = Partial);
    }
    Some(outcome)
}

/// The operands' splits with this number of groups, where it divides them all.
fn with_groups(graph: &Graph, node: &Node, held: &Typing, groups: i64) -> Option<Typing> {
    let mut alike = held.clone();
    for v in node.reads() {
        if let Split { dim, .. } = held.of(v) {
            if graph.ty(v).shape[dim] % (groups * held.parts) != 0 {
                return None;
            }
            alike.values[v.0 as usize] = Split { dim, groups };
        }
    }
    Some(alike)
}
