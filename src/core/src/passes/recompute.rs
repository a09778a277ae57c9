//! Activation checkpointing as a graph pass.
//!
//! In a checkpointed region, what the region's own backward reads of its forward is computed again, from the values that
//! enter the region, just before backward first needs it. A value that other parts of the graph keep anyway is not
//! computed again. The recomputed operators are copies of the forward's, dropout sites included, so results are bit-equal.

use crate::passes::autodiff::Joint;
use crate::passes::prune::Copy;
use slapo_model::{Def, Graph, Model, Node, ScopeId, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// What one region is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A call of a module, with the calls inside it.
    Call(ScopeId),
    /// The nodes of that group; those in a checkpointed call are recomputed with the call.
    Group(u32),
}

/// A checkpointed part of the forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub extent: Extent,
    /// Values that stay in memory.
    pub keep: BTreeSet<ValueId>,
    /// The schedule's step that asked for it.
    pub step: u32,
}

/// Recomputes `regions` in backward. Of nested regions the outermost counts.
pub fn recompute(model: &Model, joint: Joint, regions: &[Region]) -> Joint {
    if regions.is_empty() {
        return joint;
    }
    let plan = Plan::new(model, &joint, regions);
    let mut copy = Copy::new(&joint.graph);
    // Per region: old value → recomputed value.
    let mut again: BTreeMap<usize, BTreeMap<ValueId, ValueId>> = BTreeMap::new();
    for (i, node) in joint.graph.nodes.iter().enumerate() {
        let region = plan.region(node).filter(|_| i >= joint.forward);
        let Some(region) = region.filter(|r| node.reads().any(|v| plan.needed[*r].contains(&v))) else {
            copy.node(node);
            continue;
        };
        let recomputed = again.entry(region).or_insert_with(|| plan.emit(region, &mut copy));
        let inputs = node.reads().map(|v| (v, *recomputed.get(&v).unwrap_or(&copy.map[&v]))).collect();
        copy.named(node, &inputs);
    }
    let gradients = joint.gradients.iter().map(|(p, v)| (*p, copy.map[v])).collect();
    let mutations = joint.mutations.iter().map(|v| copy.map[v]).collect();
    Joint { graph: copy.finish(), forward: joint.forward, mutations, gradients, rerun: joint.rerun }
}

struct Plan<'j> {
    graph: &'j Graph,
    forward: usize,
    regions: &'j [Region],
    /// Scope → index of its outermost checkpointed region.
    scopes: Vec<Option<usize>>,
    /// Group → index of its region.
    groups: BTreeMap<u32, usize>,
    /// Per region: forward values that its own backward reads, to be computed again.
    needed: Vec<BTreeSet<ValueId>>,
    /// Forward values that stay in memory: where recomputation begins.
    kept: BTreeSet<ValueId>,
}

impl<'j> Plan<'j> {
    fn new(model: &Model, joint: &'j Joint, regions: &'j [Region]) -> Plan<'j> {
        let scopes = (0..model.scopes.len())
            .map(|s| {
                let chain = std::iter::successors(Some(ScopeId(s as u32)), |s| model.scopes[s.0 as usize].parent);
                chain.filter_map(|s| regions.iter().position(|r| r.extent == Extent::Call(s))).last()
            })
            .collect();
        let group = |(i, region): (usize, &Region)| match region.extent {
            Extent::Group(group) => Some((group, i)),
            Extent::Call(_) => None,
        };
        let mut plan = Plan {
            graph: &joint.graph,
            forward: joint.forward,
            regions,
            scopes,
            groups: regions.iter().enumerate().filter_map(group).collect(),
            needed: Vec::new(),
            kept: BTreeSet::new(),
        };
        let (mut used, mut kept) = (vec![BTreeSet::new(); regions.len()], BTreeSet::new());
        for node in &plan.graph.nodes[plan.forward..] {
            let own = plan.region(node);
            for v in node.reads() {
                match plan.made_in(v) {
                    Some(r) if own == Some(r) => {
                        used[r].insert(v);
                    }
                    _ => {
                        kept.insert(v);
                    }
                }
            }
        }
        for region in regions {
            kept.extend(&region.keep);
        }
        // What enters a region from another one is kept, or its recomputation would begin there.
        for node in &plan.graph.nodes[..plan.forward] {
            if let Some(r) = plan.region(node) {
                kept.extend(node.reads().filter(|v| plan.made_in(*v) != Some(r)));
            }
        }
        plan.needed = used.iter().map(|values| values.difference(&kept).copied().collect()).collect();
        plan.kept = kept;
        plan
    }

    fn region(&self, node: &Node) -> Option<usize> {
        let call = self.scopes[node.origin.scope.0 as usize];
        call.or_else(|| self.groups.get(&node.origin.group?).copied())
    }

    /// The region whose forward computes `value`.
    fn made_in(&self, value: ValueId) -> Option<usize> {
        match self.graph.value(value).def {
            Def::Node(node, _) if (node.0 as usize) < self.forward => self.region(self.graph.node(node)),
            _ => None,
        }
    }

    /// Writes the region's forward again, as far as it is needed.
    fn emit(&self, region: usize, copy: &mut Copy) -> BTreeMap<ValueId, ValueId> {
        let needed = &self.needed[region];
        let mut wanted: BTreeSet<ValueId> = needed.clone();
        let mut nodes = Vec::new();
        for node in self.graph.nodes[..self.forward].iter().rev() {
            if self.region(node) == Some(region) && node.outs.iter().flatten().any(|v| wanted.contains(v)) {
                wanted.extend(node.reads().filter(|v| self.made_in(*v) == Some(region) && !self.kept.contains(v)));
                nodes.push(node);
            }
        }
        let mut map = BTreeMap::new();
        for node in nodes.into_iter().rev() {
            let inputs: BTreeMap<ValueId, ValueId> =
                node.reads().map(|v| (v, *map.get(&v).unwrap_or(&copy.map[&v]))).collect();
            let mut again = node.clone();
            again.origin.step = Some(self.regions[region].step);
            let names = vec![None; node.outs.len()];
            for (old, new) in node.outs.iter().zip(copy.again(&again, &inputs, names)) {
                if let (Some(old), Some(new)) = (old, new) {
                    map.insert(*old, new);
                }
            }
        }
        map
    }
}
