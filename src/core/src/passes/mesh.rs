//! The layouts of a joint graph on the axes of a mesh.
//!
//! Parameters are held as they are sharded, inputs as `data_parallel` splits them; everything else follows from the rule
//! table, axis by axis. What must hold at the end: a gradient is held as its parameter, the loss is whole. `data_parallel`
//! brings the reductions that make it so; nothing else is added. Faults say where a partial sum arose and which step made it.

use crate::compile::{DataParallel, Effects, LayoutFault, LayoutProblem, Place, Shard, SyncPoint};
use crate::ir::Builder;
use crate::layout::{self, Cause, Here, Layout, OnAxis, Refusal, Sync, Typing};
use crate::passes::autodiff::Joint;
use slapo_model::{Def, Graph, Model, Node, Op, ParameterId, ValueId};
use slapo_program::{Part, Placement, Split};
use std::collections::BTreeMap;

/// A joint graph with the syncs of the mesh in it.
pub struct Meshed {
    pub joint: Joint,
    /// What its [`Op::Sync`] nodes number: the axis, and what is done on it.
    pub syncs: Vec<(usize, Sync)>,
    /// By the same number: the position in [`Effects::syncs`] of what the schedule asked for, `None` for a reduction that
    /// `data_parallel` brings.
    pub asked: Vec<Option<usize>>,
    /// Layouts that were asked for.
    pub choices: Vec<Choice>,
    /// The layouts of the graph, one per axis; none where the schedule asks nothing of the mesh.
    pub typings: Vec<Typing>,
}

/// What `point.layout(…)` came to, for one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Position in [`Effects::syncs`].
    pub asked: usize,
    pub found: Layout,
    /// `None` where the value was held so already.
    pub collective: Option<Sync>,
}

/// The layouts of a graph that [`reduced`] has accepted, one per axis; none where the schedule asks nothing of the mesh.
/// Recomputation between the two changes nothing: it copies nodes.
pub fn layouts(model: &Model, joint: &Joint, effects: &Effects, syncs: &[(usize, Sync)]) -> Vec<Typing> {
    if is_idle(effects) {
        return Vec::new();
    }
    let mesh = Mesh { model, effects, joint: joint.clone(), syncs: syncs.to_vec() };
    (0..effects.axes.len()).filter_map(|axis| mesh.infer(axis).ok()).collect()
}

/// The joint graph of one rank, partitioned axis by axis, and how its dropout sites lie in the whole. `typings` are those
/// of [`layouts`].
pub fn local(
    model: &Model,
    joint: &Joint,
    effects: &Effects,
    syncs: &[(usize, Sync)],
    typings: &[Typing],
    coordinates: &[i64],
) -> (Joint, BTreeMap<u32, Placement>) {
    let mut placements: BTreeMap<u32, Placement> = BTreeMap::new();
    for (site, v) in dropouts(&joint.graph) {
        placements.insert(site, Placement { global_shape: joint.graph.ty(v).shape.clone(), splits: Vec::new() });
    }
    let syncs = within_outer(&joint.graph, syncs, typings);
    let mut joint = joint.clone();
    for (axis, coordinate) in coordinates.iter().enumerate() {
        if effects.axes[axis].size == 1 {
            drop_syncs(&mut joint.graph, &syncs, axis);
            continue;
        }
        let mesh = Mesh { model, effects, joint, syncs: syncs.clone() };
        let typing = mesh.infer_within(axis).unwrap_or_else(|refusals| {
            unreachable!("what the whole mesh accepts is refused within the axes in front of {axis}: {refusals:?}")
        });
        joint = mesh.joint;
        for (site, v) in dropouts(&joint.graph) {
            if let Layout::Split { dim, groups } = typing.of(v) {
                let split = Split::even(dim, groups, typing.parts, Part::Rank(*coordinate));
                placements.entry(site).or_default().splits.push(split);
            }
        }
        let here = Here::Rank { axis, coordinate: *coordinate, syncs: &syncs };
        let (graph, forward) = layout::partition(&joint.graph, &typing, joint.forward, here);
        let mutations = graph.outputs[1..=joint.mutations.len()].to_vec();
        let values = &graph.outputs[1 + mutations.len()..];
        let gradients = joint.gradients.iter().zip(values).map(|((p, _), v)| (*p, *v)).collect();
        joint = Joint { forward, mutations, gradients, graph, rerun: joint.rerun };
    }
    (joint, placements)
}

/// Syncs with the groups of the pieces that the axes in front have left: what lies inside these counts fewer.
fn within_outer(graph: &Graph, syncs: &[(usize, Sync)], typings: &[Typing]) -> Vec<(usize, Sync)> {
    let mut within = syncs.to_vec();
    for node in &graph.nodes {
        let (Op::Sync { sync }, Some(Some(out))) = (&node.op, node.outs.first()) else { continue };
        let (axis, kind) = &mut within[*sync as usize];
        let (Sync::ReduceScatter { dim, groups } | Sync::Slice { dim, groups }) = kind else { continue };
        // Copies that recomputation made have the number of their original, and its layouts.
        let (_, Sync::ReduceScatter { groups: whole, .. } | Sync::Slice { groups: whole, .. }) = syncs[*sync as usize]
        else {
            continue;
        };
        let outer = typings.iter().take(*axis).filter(|typing| match typing.of(*out) {
            Layout::Split { dim: own, groups: outer } => own == *dim && layout::encloses(outer, typing.parts, whole),
            _ => false,
        });
        *groups = whole / outer.map(|typing| typing.parts).product::<i64>();
    }
    within
}

/// An axis of one rank has nothing to convert.
fn drop_syncs(graph: &mut Graph, syncs: &[(usize, Sync)], axis: usize) {
    for node in &mut graph.nodes {
        if matches!(node.op, Op::Sync { sync } if syncs[sync as usize].0 == axis) {
            node.op = Op::Border { gradient: Vec::new() };
        }
    }
}

/// Sites with what they drop out of, the forward ones first.
fn dropouts(graph: &Graph) -> BTreeMap<u32, ValueId> {
    let mut found = BTreeMap::new();
    for node in &graph.nodes {
        if let (Op::Dropout { site, .. }, Some(x)) = (&node.op, node.tensor("self")) {
            found.entry(*site).or_insert(x);
        }
    }
    found
}

/// How a rank's boxes of the sharded parameters lie in the whole: an axis and a split each, outermost axis first.
pub fn boxes(effects: &Effects, coordinates: &[i64]) -> BTreeMap<ParameterId, Vec<(usize, Split)>> {
    let mut shards: Vec<&Shard> = effects.shards.iter().collect();
    shards.sort_by_key(|s| s.axis);
    let mut boxes: BTreeMap<ParameterId, Vec<(usize, Split)>> = BTreeMap::new();
    for s in shards {
        let (parts, part) = (effects.axes[s.axis].size, Part::Rank(coordinates[s.axis]));
        let split = Split { sections: s.sections, ..Split::even(s.dim, groups_within(effects, s), parts, part) };
        boxes.entry(s.parameter).or_default().push((s.axis, split));
    }
    boxes
}

/// The groups of a shard in the box that the axes in front leave of the parameter.
fn groups_within(effects: &Effects, shard: &Shard) -> i64 {
    let same = |s: &&Shard| s.parameter == shard.parameter && s.dim == shard.dim && s.axis < shard.axis;
    shard.groups / effects.shards.iter().filter(same).map(|s| effects.axes[s.axis].size).product::<i64>()
}

fn is_idle(effects: &Effects) -> bool {
    effects.shards.is_empty() && effects.syncs.is_empty() && effects.data_parallel.is_empty()
}

/// Types `joint` on every axis, puts in the reductions that `data_parallel` brings, and settles which collective every sync
/// is: each has a number of its own then.
pub fn reduced(model: &Model, joint: Joint, effects: &Effects) -> Result<Meshed, Vec<LayoutFault>> {
    let syncs: Vec<(usize, Sync)> = effects.syncs.iter().map(|s| (s.axis, s.sync)).collect();
    if is_idle(effects) {
        return Ok(Meshed { joint, syncs, asked: Vec::new(), choices: Vec::new(), typings: Vec::new() });
    }
    let uneven = uneven(model, effects);
    if !uneven.is_empty() {
        return Err(uneven);
    }
    let mut mesh = Mesh { model, effects, joint, syncs };
    mesh.sync_parameter_gradients();
    let mut faults = Vec::new();
    for axis in 0..effects.axes.len() {
        faults.extend(mesh.axis(axis));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    // Reductions that one axis brought are nodes that the others have not seen.
    let typings: Vec<Typing> = (0..effects.axes.len()).filter_map(|axis| mesh.infer(axis).ok()).collect();
    match mesh.nesting(&typings) {
        Some(fault) => Err(vec![fault]),
        None => Ok(mesh.settled(typings)),
    }
}

/// Shards whose dimension does not divide.
fn uneven(model: &Model, effects: &Effects) -> Vec<LayoutFault> {
    let mut faults = Vec::new();
    for shard in &effects.shards {
        let size = model.parameter(shard.parameter).shape.get(shard.dim).copied().unwrap_or(1);
        let parts = effects.axes[shard.axis].size;
        let fits = |parts: i64| match shard.sections.is_none() {
            true => size % (shard.groups * parts) == 0,
            false => shard.sections.divide(size, parts),
        };
        if !fits(parts) {
            let problem =
                LayoutProblem::Uneven { parameter: shard.parameter, dim: shard.dim, size, groups: shard.groups, parts };
            let legal = (1..=size).filter(|parts| fits(*parts)).collect();
            faults.push(LayoutFault { axis: shard.axis, problem, origin: None, steps: vec![shard.step], legal });
        }
    }
    faults
}

struct Mesh<'a> {
    model: &'a Model,
    effects: &'a Effects,
    joint: Joint,
    syncs: Vec<(usize, Sync)>,
}

impl Mesh<'_> {
    fn infer(&self, axis: usize) -> Result<Typing, Vec<Refusal>> {
        self.infer_with(axis, |shard| shard.groups)
    }

    /// On a graph that is partitioned on the axes in front.
    fn infer_within(&self, axis: usize) -> Result<Typing, Vec<Refusal>> {
        self.infer_with(axis, |shard| groups_within(self.effects, shard))
    }

    fn infer_with(&self, axis: usize, groups_of: impl Fn(&Shard) -> i64) -> Result<Typing, Vec<Refusal>> {
        let on = OnAxis { parts: self.effects.axes[axis].size, axis: Some(axis), syncs: &self.syncs };
        // Of several axes that split the batch, each divides what the outer ones leave.
        let outer = self.effects.data_parallel.iter().filter(|dp| dp.axis < axis);
        let groups = outer.map(|dp| self.effects.axes[dp.axis].size).product();
        let data_parallel = self.data_parallel(axis).is_some();
        layout::infer_on(&self.joint.graph, on, |def| match def {
            Def::Parameter(p) => match self.shard(p, axis) {
                Some(shard) => Shard { groups: groups_of(shard), ..shard.clone() }.layout(),
                None => Layout::Replicated,
            },
            Def::Input(_) if data_parallel => Layout::Split { dim: 0, groups },
            _ => Layout::Replicated,
        })
    }

    fn data_parallel(&self, axis: usize) -> Option<&DataParallel> {
        self.effects.data_parallel.iter().find(|dp| dp.axis == axis)
    }

    fn shard(&self, parameter: ParameterId, axis: usize) -> Option<&Shard> {
        self.effects.shards.iter().find(|s| s.parameter == parameter && s.axis == axis)
    }

    fn held(&self, parameter: ParameterId, axis: usize) -> Layout {
        self.shard(parameter, axis).map_or(Layout::Replicated, Shard::layout)
    }

    /// Gives every sync node a number of its own, and the layouts that were asked for the collectives that lead to them.
    fn settled(mut self, typings: Vec<Typing>) -> Meshed {
        let (mut syncs, mut asked, mut choices) = (Vec::new(), Vec::new(), Vec::new());
        for node in &mut self.joint.graph.nodes {
            let (Op::Sync { sync: number }, Some(read)) = (&node.op, node.tensor("self")) else { continue };
            let number = *number as usize;
            let (axis, sync) = self.syncs[number];
            let found = typings[axis].of(read);
            let source = (number < self.effects.syncs.len()).then_some(number);
            let collective = sync.chosen(found);
            if let (Sync::Become(_), Some(asked)) = (sync, source) {
                choices.push(Choice { asked, found, collective });
            }
            node.op = match collective {
                Some(collective) => {
                    syncs.push((axis, collective));
                    asked.push(source);
                    Op::Sync { sync: syncs.len() as u32 - 1 }
                }
                None => Op::Border { gradient: Vec::new() },
            };
        }
        Meshed { joint: self.joint, syncs, asked, choices, typings }
    }

    /// `p.grad().sync(…)` acts on the total over all uses.
    fn sync_parameter_gradients(&mut self) {
        for (i, sync) in self.effects.syncs.iter().enumerate() {
            if let SyncPoint::ParameterGradient(parameter) = sync.at {
                let joint = &self.joint;
                let gradients = joint.gradients.iter().position(|(p, _)| *p == parameter);
                if let Some(at) = gradients {
                    self.sync_output(1 + joint.mutations.len() + at, i as u32);
                }
            }
        }
    }

    /// Puts a sync before output number `at` of the joint graph.
    fn sync_output(&mut self, at: usize, sync: u32) {
        let joint = &mut self.joint;
        let old = joint.graph.outputs[at];
        let mut b = Builder::resume(std::mem::take(&mut joint.graph));
        b.origin = b.graph.definition(old).map(|n| n.origin).unwrap_or_default();
        let new = b.sync(old, sync);
        joint.graph = b.graph;
        joint.graph.outputs[at] = new;
        match at {
            0 => joint.graph.loss = new,
            _ if at <= joint.mutations.len() => joint.mutations[at - 1] = new,
            _ => joint.gradients[at - 1 - joint.mutations.len()].1 = new,
        }
    }

    /// Types one axis and adds the reductions of `data_parallel`; all faults of the axis.
    fn axis(&mut self, axis: usize) -> Vec<LayoutFault> {
        let typing = match self.infer(axis) {
            Ok(typing) => typing,
            Err(refusals) => return refusals.into_iter().map(|r| self.refused(axis, r)).collect(),
        };
        if self.data_parallel(axis).is_some() {
            self.reduce_ends(axis, &typing);
        }
        match self.infer(axis) {
            Ok(typing) => self.ends(axis, &typing),
            Err(refusals) => refusals.into_iter().map(|r| self.refused(axis, r)).collect(),
        }
    }

    fn reduce_ends(&mut self, axis: usize, typing: &Typing) {
        let first = 1 + self.joint.mutations.len();
        let ends: Vec<usize> = std::iter::once(0).chain(first..self.joint.graph.outputs.len()).collect();
        for at in ends {
            if typing.of(self.joint.graph.outputs[at]) == Layout::Partial {
                let number = self.syncs.len() as u32;
                self.syncs.push((axis, Sync::AllReduce));
                self.sync_output(at, number);
            }
        }
    }

    /// The loss is whole, and every gradient is held as its parameter.
    fn ends(&self, axis: usize, typing: &Typing) -> Vec<LayoutFault> {
        let joint = &self.joint;
        let mut faults: Vec<LayoutFault> = Vec::new();
        let loss = typing.of(joint.graph.loss);
        if loss != Layout::Replicated {
            faults.push(self.at_value(axis, typing, joint.graph.loss, LayoutProblem::Loss { found: loss }));
        }
        for (parameter, v) in &joint.gradients {
            let (found, wanted) = (typing.of(*v), self.held(*parameter, axis));
            if found != wanted {
                let problem = LayoutProblem::Gradient { parameter: *parameter, found, wanted };
                let fault = self.at_value(axis, typing, *v, problem);
                // One missing sync makes many gradients partial: it is one mistake, except at the parameter's own module.
                let own = self.model.module(self.model.parameter(*parameter).module).path.as_str();
                let elsewhere = |f: &LayoutFault| {
                    f.origin.as_ref().is_some_and(|origin| origin.module != own) && f.origin == fault.origin
                };
                if !faults.iter().any(elsewhere) {
                    faults.push(fault);
                }
            }
        }
        faults
    }

    fn at_value(&self, axis: usize, typing: &Typing, v: ValueId, problem: LayoutProblem) -> LayoutFault {
        let origin = typing.origins[v.0 as usize].map(|node| self.place(node));
        let steps = typing.causes[v.0 as usize].into_iter().flat_map(|cause| self.steps(axis, cause)).collect();
        LayoutFault { axis, problem, origin, steps, legal: Vec::new() }
    }

    fn refused(&self, axis: usize, refusal: Refusal) -> LayoutFault {
        let node = &self.joint.graph.nodes[refusal.node];
        let at = self.place(refusal.node);
        let schedule = match node.op {
            Op::Sync { sync } => self.effects.syncs.get(sync as usize).filter(|s| s.axis == axis),
            _ => None,
        };
        let found = refusal.operands.first().map_or(Layout::Replicated, |(_, layout)| *layout);
        let read = node.tensor("self").map_or(&[][..], |v| &self.joint.graph.ty(v).shape);
        let problem = match schedule {
            Some(sync) => match sync.sync.apply(found) {
                Some(Layout::Split { dim, groups }) => {
                    LayoutProblem::SyncUneven { at, dim, size: read[dim], groups, step: sync.step }
                }
                _ => LayoutProblem::Sync { at, sync: sync.sync, found, step: sync.step },
            },
            None => LayoutProblem::Operator {
                at,
                operator: operator(node),
                reason: refusal.reason,
                operands: refusal.operands,
            },
        };
        let mut steps: Vec<u32> = refusal.causes.iter().flat_map(|cause| self.steps(axis, *cause)).collect();
        steps.dedup();
        let origin = refusal.origin.map(|node| self.place(node));
        LayoutFault { axis, problem, origin, steps, legal: refusal.legal }
    }

    fn steps(&self, axis: usize, cause: Cause) -> Vec<u32> {
        let effects = self.effects;
        match cause {
            Cause::Leaf(Def::Parameter(p)) => {
                effects.shards.iter().filter(|s| s.parameter == p && s.axis == axis).map(|s| s.step).collect()
            }
            Cause::Leaf(_) => self.data_parallel(axis).map(|dp| dp.step).into_iter().collect(),
            Cause::Sync(number) => effects.syncs.get(number as usize).map(|s| s.step).into_iter().collect(),
        }
    }

    fn place(&self, node: usize) -> Place {
        let joint = &self.joint;
        let found = &joint.graph.nodes[node];
        Place {
            module: self.model.scope_path(found.origin.scope).to_owned(),
            source: found.origin.source,
            operator: operator(found),
            is_backward: node >= joint.forward,
        }
    }

    fn nesting(&self, typings: &[Typing]) -> Option<LayoutFault> {
        let (node, dim, axis, other) = layout::joint_fault(&self.joint.graph, typings)?;
        let problem = LayoutProblem::Nesting { at: self.place(node), dim, other };
        Some(LayoutFault { axis, problem, origin: None, steps: Vec::new(), legal: Vec::new() })
    }
}

fn operator(node: &Node) -> String {
    node.name().to_owned()
}
