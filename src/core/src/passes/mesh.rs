//! The layouts of a joint graph on the axes of a mesh.
//!
//! Parameters are held as they are sharded, inputs as `data_parallel` splits them; everything else follows from the rule
//! table, axis by axis. What must hold at the end: a gradient is held as its parameter, the loss is whole. `data_parallel`
//! brings the reductions that make it so, and of a parameter that rests in pieces the pieces; nothing else is added. Faults say where a partial sum arose and which step made it.

use crate::compile::{DataParallel, Effects, LayoutFault, LayoutProblem, Place, PointSync, Shard, SyncPoint};
use crate::ir::Builder;
use crate::layout::{self, Cause, Here, Layout, OnAxis, Refusal, Sync, Typing};
use crate::passes::autodiff::Joint;
use crate::passes::{describe, gather};
use slapo_model::{Def, Graph, Model, Node, Op, ParameterId, ValueId};
use slapo_program::{Part, Placement, Split};
use std::collections::{BTreeMap, BTreeSet};

/// A joint graph with the syncs of the mesh in it.
#[derive(Clone)]
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

/// Whether a schedule is held to its layouts. Everything but [`Check::Held`] is for tests that run what the check refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    Held,
    /// Go on with guesses, without one of the reductions that `data_parallel` brings.
    #[doc(hidden)]
    Bypassed {
        without: Option<End>,
    },
}

/// What `data_parallel` reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Loss,
    Gradient(ParameterId),
}

/// The layouts of a graph that [`reduced`] has accepted, one per axis; none where the schedule asks nothing of the mesh.
/// Recomputation between the two changes nothing: it copies nodes.
pub fn layouts(
    model: &Model,
    meshed: &Meshed,
    effects: &Effects,
    check: Check,
) -> Result<Vec<Typing>, Vec<LayoutFault>> {
    if is_idle(effects) {
        return Ok(Vec::new());
    }
    let mesh = Mesh { model, effects, check, joint: meshed.joint.clone(), syncs: meshed.syncs.clone() };
    (0..effects.axes.len()).map(|axis| mesh.typed(axis)).collect()
}

/// The joint graph of one rank, partitioned axis by axis, and how its dropout sites lie in the whole. Inner axes come first:
/// an outer one's pieces are as many groups of what is left, while an inner one's would be fewer. `layouts` are those of the
/// whole.
pub fn local(
    model: &Model,
    meshed: &Meshed,
    effects: &Effects,
    layouts: &[Typing],
    check: Check,
    coordinates: &[i64],
) -> Result<(Joint, BTreeMap<u32, Placement>), Vec<LayoutFault>> {
    let mut placements: BTreeMap<u32, Placement> = BTreeMap::new();
    for (site, v) in dropouts(&meshed.joint.graph) {
        placements.insert(site, Placement { global_shape: meshed.joint.graph.ty(v).shape.clone(), splits: Vec::new() });
    }
    let joint = partitioned(model, meshed, effects, layouts, check, coordinates, &mut |axis, joint, typing| {
        for (site, v) in dropouts(&joint.graph) {
            if let Layout::Split { dim, groups } = typing.of(v) {
                let split = Split::even(dim, groups, typing.parts, Part::Rank(coordinates[axis]));
                placements.entry(site).or_default().splits.push(split);
            }
        }
    })?;
    Ok((joint, placements))
}

/// Partitions axis by axis, from the innermost. `seen` is shown each axis of several ranks with the graph that the axes
/// inside of it leave, and its layouts there.
pub fn partitioned(
    model: &Model,
    meshed: &Meshed,
    effects: &Effects,
    layouts: &[Typing],
    check: Check,
    coordinates: &[i64],
    seen: &mut dyn FnMut(usize, &Joint, &Typing),
) -> Result<Joint, Vec<LayoutFault>> {
    let mut joint = meshed.joint.clone();
    let syncs = &meshed.syncs;
    // Where the check is bypassed, axes may cross.
    let order = layout::nesting(&joint.graph, layouts).unwrap_or_else(|_| (0..layouts.len()).collect());
    for (i, axis) in order.into_iter().rev().enumerate() {
        if effects.axes[axis].size == 1 {
            drop_syncs(&mut joint.graph, syncs, axis);
            continue;
        }
        let mesh = Mesh { model, effects, check, joint, syncs: syncs.clone() };
        // The innermost axis sees the whole graph.
        let typing = if i == 0 { layouts[axis].clone() } else { mesh.typed(axis)? };
        joint = mesh.joint;
        seen(axis, &joint, &typing);
        let here = Here::Rank { axis, coordinate: coordinates[axis], syncs };
        let (graph, forward) = layout::partition(&joint.graph, &typing, joint.forward, here);
        let mutations = graph.outputs[1..=joint.mutations.len()].to_vec();
        let values = &graph.outputs[1 + mutations.len()..];
        let gradients = joint.gradients.iter().zip(values).map(|((p, _), v)| (*p, *v)).collect();
        joint = Joint { forward, mutations, gradients, graph, rerun: joint.rerun };
    }
    Ok(joint)
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

/// How a rank's boxes of the sharded parameters lie in the whole: an axis and a split each, innermost axis first.
pub fn boxes(effects: &Effects, coordinates: &[i64]) -> BTreeMap<ParameterId, Vec<(usize, Split)>> {
    let mut shards: Vec<&Shard> = effects.shards.iter().collect();
    // Of one dimension, inner pieces are in more groups.
    shards.sort_by_key(|s| std::cmp::Reverse((s.groups, s.axis)));
    let mut boxes: BTreeMap<ParameterId, Vec<(usize, Split)>> = BTreeMap::new();
    for s in shards {
        let (parts, part) = (effects.axes[s.axis].size, Part::Rank(coordinates[s.axis]));
        let split = Split { sections: s.sections, ..Split::even(s.dim, s.groups, parts, part) };
        boxes.entry(s.parameter).or_default().push((s.axis, split));
    }
    boxes
}

fn is_idle(effects: &Effects) -> bool {
    effects.shards.is_empty() && effects.syncs.is_empty() && effects.data_parallel.is_empty()
}

/// Types `joint` on every axis, puts in the reductions that `data_parallel` brings, and settles which collective every sync
/// is: each has a number of its own then. With what does not fit, which leaves the syncs as they were asked for.
pub fn reduced(model: &Model, joint: Joint, effects: &Effects, check: Check) -> (Meshed, Vec<LayoutFault>) {
    let asked = effects.syncs.iter().map(|s| (s.axis, s.sync));
    let syncs: Vec<(usize, Sync)> = asked.chain(gather::gathers(effects)).collect();
    let mut mesh = Mesh { model, effects, check, joint, syncs };
    if is_idle(effects) {
        return (mesh.unsettled(), Vec::new());
    }
    let uneven = uneven(model, effects);
    if !uneven.is_empty() {
        return (mesh.unsettled(), uneven);
    }
    let mut faults = mesh.sync_parameter_gradients();
    // What is scattered first is summed up over other axes in pieces.
    let mut axes: Vec<usize> = (0..effects.axes.len()).collect();
    axes.sort_by_key(|axis| !effects.shards.iter().any(|shard| shard.gathered.is_some() && shard.axis == *axis));
    for axis in axes {
        faults.extend(describe::once_per_module(mesh.axis(axis)));
    }
    if !faults.is_empty() {
        return (mesh.unsettled(), faults);
    }
    // Reductions that one axis brought are nodes that the others have not seen.
    let typings: Vec<Typing> = (0..effects.axes.len()).filter_map(|axis| mesh.infer(axis).ok()).collect();
    match mesh.nesting(&typings) {
        Some(fault) => (mesh.unsettled(), vec![fault]),
        None => (mesh.settled(typings), Vec::new()),
    }
}

/// Shards whose dimension does not divide, and must.
fn uneven(model: &Model, effects: &Effects) -> Vec<LayoutFault> {
    let mut faults = Vec::new();
    for shard in &effects.shards {
        let size = model.parameter(shard.parameter).shape.get(shard.dim).copied().unwrap_or(1);
        let parts = effects.axes[shard.axis].size;
        let fits = |parts: i64| match shard.sections.is_none() {
            true => size % (shard.groups * parts) == 0,
            false => shard.sections.divide(size, parts),
        };
        let may_differ = shard.uneven && shard.groups == 1 && shard.sections.is_none();
        if !may_differ && !fits(parts) {
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
    check: Check,
    joint: Joint,
    syncs: Vec<(usize, Sync)>,
}

impl Mesh<'_> {
    fn infer(&self, axis: usize) -> Result<Typing, Vec<Refusal>> {
        let (on, leaf) = self.axis_and_leaves(axis);
        layout::infer_on(&self.joint.graph, on, leaf)
    }

    /// The layouts to go on with: guesses where the check is bypassed.
    fn typed(&self, axis: usize) -> Result<Typing, Vec<LayoutFault>> {
        let (on, leaf) = self.axis_and_leaves(axis);
        let typing = match self.check {
            Check::Held => self.infer(axis),
            Check::Bypassed { .. } => layout::guess_on(&self.joint.graph, on, leaf),
        };
        typing.map_err(|refusals| refusals.into_iter().map(|r| self.refused(axis, r)).collect())
    }

    fn axis_and_leaves(&self, axis: usize) -> (OnAxis<'_>, impl Fn(Def) -> Layout) {
        let on = OnAxis { parts: self.effects.axes[axis].size, axis: Some(axis), syncs: &self.syncs };
        // Of several axes that split the batch, each divides what the outer ones leave.
        let outer = self.effects.data_parallel.iter().filter(|dp| dp.axis < axis);
        let groups = outer.map(|dp| self.effects.axes[dp.axis].size).product();
        // One row is not split: its dimension could not be told from one of size 1.
        let is_row = |v: &slapo_model::Value| matches!(v.def, Def::Input(_)) && v.ty.shape.first() == Some(&1);
        let data_parallel = self.data_parallel(axis).is_some() && !self.joint.graph.values.iter().any(is_row);
        let leaf = move |def| match def {
            Def::Parameter(p) => self.held(p, axis),
            Def::Input(_) if data_parallel => Layout::Split { dim: 0, groups },
            _ => Layout::Replicated,
        };
        (on, leaf)
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

    /// The syncs as the schedule has them.
    fn unsettled(self) -> Meshed {
        Meshed { joint: self.joint, syncs: self.syncs, asked: Vec::new(), choices: Vec::new(), typings: Vec::new() }
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

    /// `p.grad().sync(…)` acts on the total over all uses. A parameter that was frozen since has none.
    fn sync_parameter_gradients(&mut self) -> Vec<LayoutFault> {
        let mut faults = Vec::new();
        for (i, sync) in self.effects.syncs.iter().enumerate() {
            if let SyncPoint::ParameterGradient(parameter) = sync.at {
                let joint = &self.joint;
                let gradients = joint.gradients.iter().position(|(p, _)| *p == parameter);
                match gradients {
                    Some(at) => self.sync_output(1 + joint.mutations.len() + at, i as u32),
                    None => {
                        let PointSync { at, axis, step, .. } = *sync;
                        let problem = LayoutProblem::NoValue { at, step };
                        faults.push(LayoutFault { axis, problem, origin: None, steps: vec![step], legal: Vec::new() });
                    }
                }
            }
        }
        faults
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
        let gathers = self.effects.shards.iter().any(|shard| shard.gathered.is_some() && shard.axis == axis);
        if (gathers || self.data_parallel(axis).is_some())
            && let Ok(typing) = self.typed(axis)
        {
            self.reduce_ends(axis, &typing);
        }
        match self.infer(axis) {
            Ok(typing) => self.ends(axis, &typing),
            Err(refusals) => refusals.into_iter().map(|r| self.refused(axis, r)).collect(),
        }
    }

    fn reduce_ends(&mut self, axis: usize, typing: &Typing) {
        let is_reduced = self.data_parallel(axis).is_some();
        let first = 1 + self.joint.mutations.len();
        let ends: Vec<usize> = std::iter::once(0).chain(first..self.joint.graph.outputs.len()).collect();
        for at in ends {
            let end = at.checked_sub(first).map_or(End::Loss, |g| End::Gradient(self.joint.gradients[g].0));
            if self.check == (Check::Bypassed { without: Some(end) }) {
                continue;
            }
            let gathered = match end {
                End::Gradient(parameter) => self.shard(parameter, axis).filter(|shard| shard.gathered.is_some()),
                End::Loss => None,
            };
            let sync = match (typing.of(self.joint.graph.outputs[at]), gathered) {
                (Layout::Partial, None) if is_reduced => Sync::AllReduce,
                (Layout::Partial, Some(shard)) if is_reduced => {
                    Sync::ReduceScatter { dim: shard.dim, groups: shard.groups }
                }
                (Layout::Replicated, Some(shard)) => Sync::Slice { dim: shard.dim, groups: shard.groups },
                _ => continue,
            };
            let number = self.syncs.len() as u32;
            self.syncs.push((axis, sync));
            self.sync_output(at, number);
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
                let mut fault = self.at_value(axis, typing, *v, problem);
                // A weight and a bias that lack their reductions lack them for one reason.
                let module = |p: ParameterId| self.model.parameter(p).module;
                let with_it = faults.iter().find(|f| {
                    matches!(f.problem, LayoutProblem::Gradient { parameter: p, found: f, .. }
                        if module(p) == module(*parameter) && f == found)
                });
                if let Some(known) = with_it {
                    fault.steps.clone_from(&known.steps);
                }
                // One missing sync makes many gradients partial: it is one mistake, except around the parameter's own module.
                let own = self.model.module(self.model.parameter(*parameter).module).path.as_str();
                let elsewhere = |f: &LayoutFault| {
                    f.origin.as_ref().is_some_and(|origin| !origin.encloses(own)) && f.origin == fault.origin
                };
                // Of what makes the loss partial, the head's gradients are too.
                let of_loss = |f: &LayoutFault| {
                    matches!(f.problem, LayoutProblem::Loss { .. }) && !f.steps.is_empty() && f.steps == fault.steps
                };
                if !faults.iter().any(|f| elsewhere(f) || of_loss(f)) {
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
        let asked = match node.op {
            Op::Sync { sync } => self.effects.syncs.get(sync as usize).filter(|s| s.axis == axis),
            _ => None,
        };
        let found = refusal.operands.first().map_or(Layout::Replicated, |(_, layout)| *layout);
        let read = node.tensor("self").map_or(&[][..], |v| &self.joint.graph.ty(v).shape);
        let whole = refusal.operands.iter().filter(|(_, layout)| *layout == Layout::Replicated);
        let whole: BTreeSet<ValueId> = whole.filter_map(|(name, _)| node.tensor(name)).collect();
        let problem = match asked {
            Some(sync) => match self.uneven_sync(axis, sync.sync, found, read) {
                Some((dim, groups)) => LayoutProblem::SyncUneven { at, dim, size: read[dim], groups, step: sync.step },
                None => LayoutProblem::Sync { at, sync: sync.sync, found, step: sync.step },
            },
            None => match describe::cut(&self.joint.graph, node, &at, found, &refusal.legal) {
                Some(cut) => cut,
                None => LayoutProblem::Operator {
                    at,
                    operator: operator(node),
                    reason: refusal.reason,
                    operands: describe::operands(self.model, &self.joint, node, refusal.operands),
                },
            },
        };
        // A parameter's gradient is a sum of much; what made one term of it so is no news.
        let is_total = asked.is_some_and(|s| matches!(s.at, SyncPoint::ParameterGradient(_)));
        let causes = refusal.causes.iter().filter(|_| !is_total).flat_map(|cause| self.steps(axis, *cause));
        let mut steps: Vec<u32> = asked.map(|s| s.step).into_iter().chain(causes).collect();
        if refusal.origin.is_none() && !is_total {
            steps.extend(self.made_whole(axis, refusal.node, whole, asked.is_some()));
        }
        steps.dedup();
        let origin = refusal.origin.map(|node| self.place(node));
        LayoutFault { axis, problem, origin, steps, legal: refusal.legal }
    }

    /// The step of the sync that gave `values`, which node `at` reads, to every rank of the axis; `far` with other
    /// operators between.
    fn made_whole(&self, axis: usize, at: usize, mut values: BTreeSet<ValueId>, far: bool) -> Vec<u32> {
        for node in self.joint.graph.nodes[..at].iter().rev() {
            if node.outs.iter().flatten().any(|v| values.contains(v)) {
                match node.op {
                    Op::Sync { sync } if self.syncs[sync as usize].0 == axis => {
                        return self.steps(axis, Cause::Sync(sync));
                    }
                    Op::Sync { .. } | Op::Border { .. } => values.extend(node.reads()),
                    _ if far => values.extend(node.reads()),
                    _ => {}
                }
            }
        }
        Vec::new()
    }

    /// The dimension, and its groups, that a sync which fits but for the sizes would cut into uneven pieces.
    fn uneven_sync(&self, axis: usize, sync: Sync, from: Layout, shape: &[i64]) -> Option<(usize, i64)> {
        let parts = self.effects.axes[axis].size;
        [Some(from), sync.apply(from)].into_iter().flatten().find_map(|layout| match layout {
            Layout::Split { dim, groups } if shape[dim] % groups.saturating_mul(parts) != 0 => Some((dim, groups)),
            _ => None,
        })
    }

    fn steps(&self, axis: usize, cause: Cause) -> Vec<u32> {
        let effects = self.effects;
        match cause {
            // Another axis that splits the same dimension has its part in the groups of this one.
            Cause::Leaf(Def::Parameter(p)) => {
                let of_parameter = || effects.shards.iter().filter(move |s| s.parameter == p);
                let own: Vec<&Shard> = of_parameter().filter(|s| s.axis == axis).collect();
                let others = of_parameter().filter(|s| s.axis != axis && own.iter().any(|o| o.dim == s.dim));
                own.iter().copied().chain(others).map(|s| s.step).collect()
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
        let layout::Crossing { node, dim, axes: (axis, other) } = layout::nesting(&self.joint.graph, typings).err()?;
        let problem = LayoutProblem::Nesting { at: self.place(node), dim, other };
        Some(LayoutFault { axis, problem, origin: None, steps: Vec::new(), legal: Vec::new() })
    }
}

fn operator(node: &Node) -> String {
    node.name().to_owned()
}
