//! Parameters that rest in pieces and are whole where they are used (ZeRO 3), as nodes.
//!
//! In forward an all-gather stands before the first use of a parameter in every module call, in backward another one before
//! the first use there: in between, and behind the last use, no rank has the whole. The gather is the identity on global
//! values, so the gradient that comes back through it is of the whole parameter; that it is then held as the parameter is, in
//! pieces, is one of the end conditions of [`super::mesh`].

use super::autodiff::Joint;
use super::prune::Copy;
use crate::compile::Effects;
use crate::layout::Sync;
use slapo_model::{Def, Graph, Node, NodeId, Op, ParameterId, ScopeId, ValueId};
use std::collections::BTreeMap;

/// The gathers of a schedule, which have the numbers behind its own syncs: the parameter, the axis, and what is done on it.
pub fn gathers(effects: &Effects) -> Vec<(ParameterId, usize, Sync)> {
    let gathered = effects.shards.iter().filter(|shard| shard.gathered);
    gathered.map(|s| (s.parameter, s.axis, Sync::AllGather { dim: Some(s.dim) })).collect()
}

/// Puts the gathers into a forward graph.
pub fn insert(graph: Graph, effects: &Effects) -> Graph {
    let mut numbers: BTreeMap<ParameterId, Vec<u32>> = BTreeMap::new();
    for (i, (parameter, ..)) in gathers(effects).into_iter().enumerate() {
        numbers.entry(parameter).or_default().push((effects.syncs.len() + i) as u32);
    }
    if numbers.is_empty() {
        return graph;
    }
    let mut copy = Copy::new(&graph);
    let mut whole: BTreeMap<(ScopeId, ValueId), ValueId> = BTreeMap::new();
    for node in &graph.nodes {
        let mut inputs = BTreeMap::new();
        for v in node.reads() {
            let read = match graph.value(v).def {
                Def::Parameter(parameter) => match numbers.get(&parameter) {
                    Some(numbers) => *whole.entry((node.origin.scope, v)).or_insert_with(|| {
                        copy.b.origin = node.origin;
                        numbers.iter().fold(copy.map[&v], |part, number| copy.b.sync(part, *number))
                    }),
                    None => copy.map[&v],
                },
                _ => copy.map[&v],
            };
            inputs.insert(v, read);
        }
        copy.named(node, &inputs);
    }
    copy.finish()
}

/// Gathers again in backward what backward reads of forward's gathers, and has gradients in pieces as soon as they are whole.
pub fn again(joint: Joint, effects: &Effects) -> Joint {
    if !effects.shards.iter().any(|shard| shard.gathered) {
        return joint;
    }
    let graph = &joint.graph;
    let mut copy = Copy::new(graph);
    let mut whole: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let ends = ends(&joint);
    let is_end = |i: usize| ends.values().any(|end| *end == i);
    for (i, node) in graph.nodes.iter().enumerate().filter(|(i, _)| !is_end(*i)) {
        let mut inputs = BTreeMap::new();
        for v in node.reads() {
            let gathers = if i >= joint.forward { chain(&joint, v) } else { Vec::new() };
            let read = match gathers.last() {
                None => copy.map[&v],
                Some(first) => *whole.entry(v).or_insert_with(|| {
                    let part = first.reads().next().map_or(v, |part| part);
                    gathers.iter().rev().fold(copy.map[&part], |part, gather| {
                        copy.b.origin = node.origin;
                        match gather.op {
                            Op::Sync { sync } => copy.b.sync(part, sync),
                            _ => part,
                        }
                    })
                }),
            };
            inputs.insert(v, read);
        }
        copy.named(node, &inputs);
        for mut made in node.outs.iter().copied().flatten() {
            while let Some(end) = ends.get(&made).map(|end| &graph.nodes[*end]) {
                copy.node(end);
                made = end.outs.first().copied().flatten().unwrap_or(made);
            }
        }
    }
    let gradients = joint.gradients.iter().map(|(p, v)| (*p, copy.map[v])).collect();
    let mutations = joint.mutations.iter().map(|v| copy.map[v]).collect();
    Joint { graph: copy.finish(), forward: joint.forward, mutations, gradients, rerun: joint.rerun.clone() }
}

/// By what they take: the syncs of backward that end in a gradient, or in another of them.
fn ends(joint: &Joint) -> BTreeMap<ValueId, usize> {
    let graph = &joint.graph;
    let mut ends = BTreeMap::new();
    for (_, gradient) in &joint.gradients {
        let mut value = *gradient;
        while let Def::Node(NodeId(node), _) = graph.value(value).def
            && let (Op::Sync { .. }, Some(read)) =
                (&graph.node(NodeId(node)).op, graph.node(NodeId(node)).tensor("self"))
            && matches!(graph.value(read).def, Def::Node(NodeId(before), _) if before as usize >= joint.forward)
        {
            ends.insert(read, node as usize);
            value = read;
        }
    }
    ends
}

/// The gathers of forward that make `value` of a parameter, the last first; none if something else does.
fn chain(joint: &Joint, mut value: ValueId) -> Vec<&Node> {
    let mut gathers = Vec::new();
    loop {
        match joint.graph.value(value).def {
            Def::Parameter(_) => return gathers,
            Def::Node(node, _) if (node.0 as usize) < joint.forward => match joint.graph.node(node) {
                gather @ Node { op: Op::Sync { .. }, .. } => {
                    gathers.push(gather);
                    let Some(read) = gather.tensor("self") else { return Vec::new() };
                    value = read;
                }
                _ => return Vec::new(),
            },
            _ => return Vec::new(),
        }
    }
}
