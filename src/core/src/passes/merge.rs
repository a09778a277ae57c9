//! Sums of all-reduced gradients as one all-reduce of the sum.
//!
//! `all_reduce(a) + all_reduce(b) = all_reduce(a + b)`, where nothing else reads the two: queries, keys and values that are
//! computed from one input send its gradient once instead of three times. Only reductions over the same axis merge, and only
//! in backward: what recomputation copies later is untouched.

use super::autodiff::Joint;
use super::prune::Copy;
use crate::layout::Sync;
use slapo_model::{Arg, Def, Graph, Node, NodeId, Op, Value, ValueId};
use std::collections::BTreeMap;

/// Reductions that became one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    pub axis: usize,
    /// Numbers of the syncs; the first is the one that is left.
    pub syncs: Vec<u32>,
}

/// Merges what can be merged; layouts must have been accepted.
pub fn merge(joint: Joint, syncs: &[(usize, Sync)]) -> (Joint, Vec<Merged>) {
    let mut merge = Merge::new(&joint, syncs);
    for (i, node) in joint.graph.nodes.iter().enumerate() {
        if i < joint.forward || !node.is_aten("add.Tensor") || !merge.add(node) {
            merge.push(node.clone());
        }
    }
    let Merge { graph, nodes, dropped, groups, .. } = merge;
    if groups.is_empty() {
        return (joint, Vec::new());
    }
    let mut copy = Copy::new(&graph);
    for (node, _) in nodes.iter().zip(&dropped).filter(|(_, dropped)| !**dropped) {
        copy.node(node);
    }
    let gradients = joint.gradients.iter().map(|(p, v)| (*p, copy.map[v])).collect();
    let mutations = joint.mutations.iter().map(|v| copy.map[v]).collect();
    let merged = Joint { graph: copy.finish(), forward: joint.forward, mutations, gradients, rerun: joint.rerun };
    (merged, groups.into_values().collect())
}

struct Merge<'s> {
    syncs: &'s [(usize, Sync)],
    /// The old graph with the values that are added; its nodes are the old ones.
    graph: Graph,
    /// The new nodes, over the values of `graph`, and which of them nothing reads any more.
    nodes: Vec<Node>,
    dropped: Vec<bool>,
    /// By value: the new node that makes it.
    made_by: BTreeMap<ValueId, usize>,
    uses: Vec<u32>,
    /// By the number of the sync that is left.
    groups: BTreeMap<u32, Merged>,
}

impl<'s> Merge<'s> {
    fn new(joint: &Joint, syncs: &'s [(usize, Sync)]) -> Merge<'s> {
        let graph = joint.graph.clone();
        let mut uses = vec![0; graph.values.len()];
        let reads = graph.nodes.iter().flat_map(Node::reads);
        reads.chain(graph.outputs.iter().copied()).chain([graph.loss]).for_each(|v| uses[v.0 as usize] += 1);
        Merge {
            syncs,
            graph,
            nodes: Vec::new(),
            dropped: Vec::new(),
            made_by: BTreeMap::new(),
            uses,
            groups: BTreeMap::new(),
        }
    }

    fn push(&mut self, node: Node) {
        let at = self.nodes.len();
        node.outs.iter().flatten().for_each(|v| {
            self.made_by.insert(*v, at);
        });
        self.nodes.push(node);
        self.dropped.push(false);
    }

    /// Rewrites a sum of two all-reduces, of each of which it is the only reader; whether it was one.
    fn add(&mut self, node: &Node) -> bool {
        let (Some(mut left), Some(mut right), Some(Some(sum))) =
            (node.tensor("self"), node.tensor("other"), node.outs.first().copied())
        else {
            return false;
        };
        // Reductions over several axes come off one by one, the outermost sync first.
        let mut stripped = Vec::new();
        while let (Some(a), Some(b)) = (self.all_reduce(left), self.all_reduce(right)) {
            if left == right || self.syncs[a.sync as usize].0 != self.syncs[b.sync as usize].0 {
                break;
            }
            self.dropped[a.node] = true;
            self.dropped[b.node] = true;
            (left, right) = (a.of, b.of);
            stripped.push((a, b.sync));
        }
        if stripped.is_empty() {
            return false;
        }
        let mut last = self.fresh(sum);
        let mut inner = node.clone();
        for (name, arg) in &mut inner.args {
            match name.as_str() {
                "self" => *arg = Arg::Value(left),
                "other" => *arg = Arg::Value(right),
                _ => {}
            }
        }
        inner.outs = vec![Some(last)];
        self.push(inner);
        while let Some((a, other)) = stripped.pop() {
            let out = if stripped.is_empty() { sum } else { self.fresh(sum) };
            let args = vec![("self".to_owned(), Arg::Value(last))];
            self.push(Node { op: Op::Sync { sync: a.sync }, args, outs: vec![Some(out)], origin: node.origin });
            last = out;
            self.join(a.sync, other);
        }
        true
    }

    /// The all-reduce that makes a value with one reader.
    fn all_reduce(&self, v: ValueId) -> Option<Reduction> {
        let node = *self.made_by.get(&v)?;
        let Op::Sync { sync } = self.nodes[node].op else { return None };
        let of = self.nodes[node].tensor("self")?;
        let fits = self.syncs[sync as usize].1 == Sync::AllReduce && self.uses[v.0 as usize] == 1;
        fits.then_some(Reduction { node, sync, of })
    }

    fn fresh(&mut self, like: ValueId) -> ValueId {
        let id = ValueId(self.graph.values.len() as u32);
        let ty = self.graph.ty(like).clone();
        // The copy that follows gives it its node.
        self.graph.values.push(Value { name: format!("sum.{}", id.0), ty, def: Def::Node(NodeId(0), 0) });
        self.uses.push(1);
        id
    }

    fn join(&mut self, left: u32, right: u32) {
        let axis = self.syncs[left as usize].0;
        let others = self.groups.remove(&right).map_or(vec![right], |group| group.syncs);
        let group = self.groups.entry(left).or_insert(Merged { axis, syncs: vec![left] });
        group.syncs.extend(others);
    }
}

struct Reduction {
    /// Position among the new nodes.
    node: usize,
    sync: u32,
    of: ValueId,
}
