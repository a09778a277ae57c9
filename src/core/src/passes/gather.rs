//! Parameters that rest in pieces and are whole where they are used (ZeRO 3), as nodes.
//!
//! In forward all-gathers stand before the first node that needs one in every call of a unit, in backward again before the first
//! node that needs one there: in between, and behind the last use, no rank has the whole. What one call needs is gathered
//! together. The gather is the identity on global
//! values, so the gradient that comes back through it is of the whole parameter; that it is then held as the parameter is, in
//! pieces, is one of the end conditions of [`super::mesh`].

use super::autodiff::Joint;
use super::prune::Copy;
use crate::compile::{Effects, Shard};
use crate::layout::Sync;
use slapo_model::{Def, Graph, Model, ModuleId, Node, NodeId, Op, Origin, ParameterId, ScopeId, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// The gathers of a schedule: the axis, and what is done on it. Their numbers are those behind its own syncs.
pub fn gathers(effects: &Effects) -> impl Iterator<Item = (usize, Sync)> {
    numbered(effects).map(|(_, shard)| (shard.axis, Sync::AllGather { dim: Some(shard.dim) }))
}

fn numbered(effects: &Effects) -> impl Iterator<Item = (u32, &Shard)> {
    let gathered = effects.shards.iter().filter(|shard| shard.gathered.is_some());
    (effects.syncs.len() as u32..).zip(gathered)
}

/// Puts the gathers into a forward graph.
pub fn insert(model: &Model, graph: Graph, effects: &Effects) -> Graph {
    let mut gathered: BTreeMap<ParameterId, Vec<(u32, &Shard)>> = BTreeMap::new();
    for (number, shard) in numbered(effects) {
        gathered.entry(shard.parameter).or_default().push((number, shard));
    }
    if gathered.is_empty() {
        return graph;
    }
    let of = |v: ValueId| match graph.value(v).def {
        Def::Parameter(parameter) => gathered.get(&parameter),
        _ => None,
    };
    let unit = |node: &Node, shards: &[(u32, &Shard)]| unit(model, node.origin.scope, shards);
    // What every call reads, in order.
    let mut reads: BTreeMap<ScopeId, Vec<ValueId>> = BTreeMap::new();
    for node in &graph.nodes {
        for v in node.reads() {
            let Some(shards) = of(v) else { continue };
            let own = reads.entry(unit(node, shards)).or_default();
            if !own.contains(&v) {
                own.push(v);
            }
        }
    }
    let mut copy = Copy::new(&graph);
    let mut whole: BTreeMap<(ScopeId, ValueId), ValueId> = BTreeMap::new();
    for node in &graph.nodes {
        let mut inputs = BTreeMap::new();
        for v in node.reads() {
            let Some(shards) = of(v) else {
                inputs.insert(v, copy.map[&v]);
                continue;
            };
            let call = unit(node, shards);
            for v in reads.remove(&call).unwrap_or_default() {
                copy.b.origin = Origin { scope: call, group: None, ..node.origin };
                let part = copy.map[&v];
                let last = of(v).into_iter().flatten().fold(part, |part, (number, _)| copy.b.sync(part, *number));
                whole.insert((call, v), last);
            }
            inputs.insert(v, whole[&(call, v)]);
        }
        copy.named(node, &inputs);
    }
    copy.finish()
}

/// The call for which a node's parameter is gathered: that of the unit around the node, or the node's own.
fn unit(model: &Model, scope: ScopeId, shards: &[(u32, &Shard)]) -> ScopeId {
    let around = |id: &ScopeId| model.scopes[id.0 as usize].parent;
    let is_unit = |id: &ScopeId| {
        let module = model.scopes[id.0 as usize].module;
        module != ModuleId(0) && shards.iter().any(|(_, shard)| shard.gathered == Some(module))
    };
    std::iter::successors(Some(scope), around).find(is_unit).unwrap_or(scope)
}

/// Gathers again in backward what backward reads of forward's gathers, and has gradients in pieces as soon as they are whole.
pub fn again(joint: Joint, effects: &Effects) -> Joint {
    if numbered(effects).next().is_none() {
        return joint;
    }
    let graph = &joint.graph;
    let mut calls: BTreeMap<ScopeId, Vec<ValueId>> = BTreeMap::new();
    for v in graph.nodes[joint.forward..].iter().flat_map(Node::reads) {
        if let Some(last) = chain(&joint, v).first() {
            let own = calls.entry(last.origin.scope).or_default();
            if !own.contains(&v) {
                own.push(v);
            }
        }
    }
    let mut copy = Copy::new(graph);
    let mut whole: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let ends = ends(&joint);
    let moved: BTreeSet<usize> = ends.values().copied().collect();
    for (i, node) in graph.nodes.iter().enumerate().filter(|(i, _)| !moved.contains(i)) {
        let gathers = node.reads().filter_map(|v| chain(&joint, v).first().map(|gather| gather.origin.scope));
        for call in gathers.filter(|_| i >= joint.forward).collect::<Vec<_>>() {
            for v in calls.remove(&call).unwrap_or_default() {
                let gathers = chain(&joint, v);
                copy.b.origin = Origin { step: node.origin.step, ..gathers[0].origin };
                let part = gathers.last().and_then(|first| first.tensor("self")).unwrap_or(v);
                let last = gathers.iter().rev().fold(copy.map[&part], |part, gather| match gather.op {
                    Op::Sync { sync } => copy.b.sync(part, sync),
                    _ => part,
                });
                whole.insert(v, last);
            }
        }
        let again = |v: ValueId| whole.get(&v).filter(|_| i >= joint.forward).copied();
        let inputs = node.reads().map(|v| (v, again(v).unwrap_or_else(|| copy.map[&v]))).collect();
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
