//! What becomes of a node that the rules refuse when its parts run it nevertheless.
//!
//! A guess keeps sizes true: each part has a tensor of the guessed layout's local shape. Values may be wrong, which is the
//! point: tests run refused schedules to see that they are. Where no layout has the sizes there is no guess, and the
//! program cannot be built.

use super::rules::{self, Outcome};
use super::{Layout, OnAxis, Partial, Replicated, Split, Sync, Typing};
use slapo_model::{Graph, Node, Op};

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

/// A summand is computed with as if it were the whole; what comes out differs between the parts.
fn as_if_whole(graph: &Graph, node: &Node, typing: &Typing, sliceable: &[bool], on: OnAxis) -> Option<Outcome> {
    let mut whole = typing.clone();
    let mut differs = false;
    for v in node.reads() {
        if typing.of(v) == Partial {
            whole.values[v.0 as usize] = Replicated;
            differs = true;
        }
    }
    let mut outcome = rules::apply(graph, node, &whole, sliceable, on).ok()?;
    if differs {
        outcome.results.iter_mut().filter(|layout| **layout == Replicated).for_each(|layout| *layout = Partial);
    }
    Some(outcome)
}
