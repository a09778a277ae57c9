//! Sums of reduced gradients as one reduction of the sum.
//!
//! `all_reduce(a) + b + all_reduce(c) = all_reduce(a + c) + b`, where nothing else reads the reduced values: queries, keys and
//! values that are computed from one input send its gradient once instead of three times; reduce-scatters likewise. Only
//! reductions over the same axis merge, to values that all axes hold alike, and only in backward: what recomputation copies
//! later is untouched.

use super::autodiff::Joint;
use super::prune::Copy;
use crate::ir::arg;
use crate::layout::{Layout, Sync, Typing};
use slapo_model::{Def, Graph, Node, NodeId, Op, Origin, Value, ValueId};

/// Reductions that became one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    pub axis: usize,
    /// Numbers of the syncs; the first is the one that is left.
    pub syncs: Vec<u32>,
}

/// Merges what can be merged in a graph whose layouts, `typings` by axis, were accepted.
pub fn merge(joint: Joint, syncs: &[(usize, Sync)], typings: &[Typing]) -> (Joint, Vec<Merged>) {
    let mut merge = Merge::new(&joint, syncs, typings);
    for (i, node) in joint.graph.nodes.iter().enumerate() {
        if !merge.sum(i) {
            merge.nodes.push((Some(i), node.clone()));
        }
    }
    let Merge { graph, nodes, dropped, merged, .. } = merge;
    if merged.is_empty() {
        return (joint, merged);
    }
    let mut copy = Copy::new(&graph);
    for (_, node) in nodes.iter().filter(|(old, _)| old.is_none_or(|i| !dropped[i])) {
        copy.node(node);
    }
    let gradients = joint.gradients.iter().map(|(p, v)| (*p, copy.map[v])).collect();
    let mutations = joint.mutations.iter().map(|v| copy.map[v]).collect();
    (Joint { graph: copy.finish(), forward: joint.forward, mutations, gradients, rerun: joint.rerun }, merged)
}

struct Merge<'a> {
    syncs: &'a [(usize, Sync)],
    typings: &'a [Typing],
    forward: usize,
    /// The old graph, and values for what is added up in another order.
    graph: Graph,
    /// By value of the old graph: how often it is read, and by which node last.
    uses: Vec<u32>,
    reader: Vec<Option<usize>>,
    /// The new nodes; those that are kept with their old number.
    nodes: Vec<(Option<usize>, Node)>,
    /// By old number: nothing reads the node any more.
    dropped: Vec<bool>,
    merged: Vec<Merged>,
}

/// The axis of a reduction, and how every axis holds what it gives.
type Held = (usize, Vec<Layout>);

/// A term of a sum that is an all-reduce or a reduce-scatter; which, its layout says.
#[derive(Clone, Copy)]
struct Reduction {
    sync: u32,
    node: usize,
    of: ValueId,
}

impl<'a> Merge<'a> {
    fn new(joint: &Joint, syncs: &'a [(usize, Sync)], typings: &'a [Typing]) -> Merge<'a> {
        let graph = joint.graph.clone();
        let (mut uses, mut reader) = (vec![0; graph.values.len()], vec![None; graph.values.len()]);
        for (i, node) in graph.nodes.iter().enumerate() {
            for v in node.reads() {
                uses[v.0 as usize] += 1;
                reader[v.0 as usize] = Some(i);
            }
        }
        graph.outputs.iter().chain([&graph.loss]).for_each(|v| uses[v.0 as usize] += 1);
        let dropped = vec![false; graph.nodes.len()];
        Merge {
            syncs,
            typings,
            forward: joint.forward,
            graph,
            uses,
            reader,
            nodes: Vec::new(),
            dropped,
            merged: Vec::new(),
        }
    }

    /// Writes node `i` anew if it is a whole sum with reductions that merge; whether it was one.
    fn sum(&mut self, i: usize) -> bool {
        let Some((_, _, out)) = self.addition(i) else { return false };
        let is_term = self.uses[out.0 as usize] == 1
            && self.reader[out.0 as usize].is_some_and(|reader| self.addition(reader).is_some());
        if is_term {
            return false;
        }
        let (terms, inner) = self.terms(i);
        if !self.groups(&terms).iter().any(|group| group.len() > 1) {
            return false;
        }
        inner.into_iter().for_each(|node| self.dropped[node] = true);
        let origin = self.graph.nodes[i].origin;
        self.write(terms, out, origin);
        true
    }

    /// Operands and result of an addition of gradients of one type.
    fn addition(&self, i: usize) -> Option<(ValueId, ValueId, ValueId)> {
        let node = &self.graph.nodes[i];
        let is_plain = i >= self.forward && node.is_aten("add.Tensor") && node.args.len() == 2;
        let (left, right) = (node.tensor("self")?, node.tensor("other")?);
        let out = (*node.outs.first()?)?;
        let alike = [left, right].iter().all(|v| self.graph.ty(*v) == self.graph.ty(out));
        (is_plain && alike).then_some((left, right, out))
    }

    /// What a sum adds up, in order, with the additions in front of node `i` whose results nothing else reads.
    fn terms(&self, i: usize) -> (Vec<ValueId>, Vec<usize>) {
        let (mut terms, mut inner, mut open) = (Vec::new(), Vec::new(), vec![i]);
        let mut waiting: Vec<ValueId> = Vec::new();
        while let Some(at) = open.pop() {
            if let Some((left, right, _)) = self.addition(at) {
                waiting.extend([right, left]);
            }
            while let Some(v) = waiting.pop() {
                match self.graph.value(v).def {
                    Def::Node(NodeId(node), _)
                        if self.uses[v.0 as usize] == 1 && self.addition(node as usize).is_some() =>
                    {
                        inner.push(node as usize);
                        open.push(node as usize);
                        break;
                    }
                    _ => terms.push(v),
                }
            }
        }
        (terms, inner)
    }

    /// Positions of the terms that are one reduction, for every term that begins one.
    fn groups(&self, terms: &[ValueId]) -> Vec<Vec<usize>> {
        let mut groups: Vec<(Option<Held>, Vec<usize>)> = Vec::new();
        for (at, term) in terms.iter().enumerate() {
            let key = self.reduction(*term).map(|reduction| {
                let held = self.typings.iter().map(|typing| typing.of(*term)).collect();
                (self.syncs[reduction.sync as usize].0, held)
            });
            match groups.iter_mut().find(|(known, _)| known.is_some() && *known == key) {
                Some((_, group)) => group.push(at),
                None => groups.push((key, vec![at])),
            }
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// The reduction that makes a value which only the sum reads.
    fn reduction(&self, v: ValueId) -> Option<Reduction> {
        let Def::Node(NodeId(node), _) = self.graph.value(v).def else { return None };
        let (node, made) = (node as usize, &self.graph.nodes[node as usize]);
        let Op::Sync { sync } = made.op else { return None };
        let fits = node >= self.forward
            && matches!(self.syncs[sync as usize].1, Sync::AllReduce | Sync::ReduceScatter { .. })
            && self.uses.get(v.0 as usize) == Some(&1);
        fits.then_some(Reduction { sync, node, of: made.tensor("self")? })
    }

    /// Writes the sum of `terms` as `out`; behind one reduction may be another, over another axis.
    fn write(&mut self, terms: Vec<ValueId>, out: ValueId, origin: Origin) {
        let groups = self.groups(&terms);
        let is_last = |at: usize| groups.len() == 1 && at == 0;
        let mut parts = Vec::new();
        for (at, group) in groups.iter().enumerate() {
            let reductions: Vec<Reduction> = group.iter().filter_map(|at| self.reduction(terms[*at])).collect();
            let [first, _, ..] = reductions.as_slice() else {
                parts.push(terms[group[0]]);
                continue;
            };
            reductions.iter().for_each(|reduction| self.dropped[reduction.node] = true);
            let axis = self.syncs[first.sync as usize].0;
            self.merged.push(Merged { axis, syncs: reductions.iter().map(|reduction| reduction.sync).collect() });
            let (sum, reduced) = (self.fresh(out), if is_last(at) { out } else { self.fresh(out) });
            self.write(reductions.iter().map(|reduction| reduction.of).collect(), sum, origin);
            let op = Op::Sync { sync: first.sync };
            self.nodes.push((None, Node { op, args: vec![arg("self", sum)], outs: vec![Some(reduced)], origin }));
            parts.push(reduced);
        }
        let mut rest = parts.into_iter();
        let Some(mut sum) = rest.next() else { return };
        while let Some(part) = rest.next() {
            let total = if rest.len() == 0 { out } else { self.fresh(out) };
            let args = vec![arg("self", sum), arg("other", part)];
            let op = Op::Aten("add.Tensor".to_owned());
            self.nodes.push((None, Node { op, args, outs: vec![Some(total)], origin }));
            sum = total;
        }
    }

    fn fresh(&mut self, like: ValueId) -> ValueId {
        let id = ValueId(self.graph.values.len() as u32);
        let ty = self.graph.ty(like).clone();
        // The copy that follows gives it its node.
        let def = self.graph.value(like).def;
        self.graph.values.push(Value { name: format!("sum.{}", id.0), ty, def });
        id
    }
}
