//! From a model, sizes and the effects of a schedule to the Program.
//!
//! The order of passes stands here and nowhere else. Every pass reports faults as data; what a fault means for a line of
//! the schedule is said where the lines are known.

use crate::layout::{self, Here, Layout, Refusal, Sync, Typing};
use crate::lower::{self, OptimizerSettings, Scattered, Target};
use crate::passes::autodiff::{self, Joint, NoDerivative};
use crate::passes::borders;
use crate::passes::canonical::{self, canonicalize};
use crate::passes::conversions::{Conversion, conversions};
use crate::passes::merge::{Merged, merge};
use crate::passes::mesh::{self, Check, Choice, Meshed};
use crate::passes::recompute::{Extent, Region, recompute};
use crate::passes::rewrite::{self, Rewrite};
use crate::passes::{describe, gather};
use slapo_model::{
    BindError, BufferId, Def, Graph, InputSizes, Model, ModuleId, Op, ParameterId, ScopeId, ValueId, bind, bind_graph,
};
use slapo_program::{Axis, Part, Placement, Program, Sections, Split};
use std::collections::{BTreeMap, BTreeSet};

#[doc(hidden)]
pub use crate::passes::mesh::End;

/// What a schedule asks of the compiler, resolved to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Effects {
    pub frozen: BTreeSet<ParameterId>,
    /// Modules to recompute in backward, with the step that asked for it.
    pub checkpoints: Vec<(ModuleId, u32)>,
    /// Nodes to recompute in backward, by what they compute, with the step that asked for it.
    pub recomputed: Vec<(Vec<ValueId>, u32)>,
    /// Values on borders inside of these modules that are kept instead, by the step that checkpoints.
    pub kept: Vec<(SyncPoint, u32)>,
    /// What stands in place of operators of the imported graph, in order.
    pub rewrites: Vec<Rewrite>,
    pub micro_batches: u32,
    /// Axes of the mesh, outermost first; [`Shard::axis`] and its kin index this.
    pub axes: Vec<MeshAxis>,
    pub shards: Vec<Shard>,
    /// Parameters of which a step says that they are not split.
    pub whole: Vec<Whole>,
    pub syncs: Vec<PointSync>,
    pub data_parallel: Vec<DataParallel>,
    pub zero: Vec<Zero>,
    pub denials: Vec<Denial>,
}

/// An axis as the schedule declares it, or one factor of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshAxis {
    /// `tp`; of a factor `tp[0]`.
    pub name: String,
    /// At least 1. An axis of size 1 keeps its splits and partial sums in the check, so that a schedule checks alike at
    /// every degree.
    pub size: i64,
}

/// `param.shard(dim, over, groups, uneven)`: the parameter is stored and used split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    pub parameter: ParameterId,
    pub dim: usize,
    pub groups: i64,
    /// Whether the pieces of one group may differ in size.
    pub uneven: bool,
    /// Sections of different sizes, each of which is split; `groups` is 1 then.
    pub sections: Sections,
    pub axis: usize,
    /// Where it is only stored split (ZeRO 3): the module for whose calls it is gathered, with what else is gathered for them.
    pub gathered: Option<ModuleId>,
    pub step: u32,
}

impl Shard {
    /// How the ranks of the axis hold the parameter.
    pub fn layout(&self) -> Layout {
        let Shard { dim, groups, sections, .. } = *self;
        match sections.is_none() {
            true => Layout::Split { dim, groups },
            false => Layout::Sections { dim, sections },
        }
    }
}

/// `param.layout(replicate, over)`: every rank of the axis has the whole parameter, on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    pub parameter: ParameterId,
    pub axis: usize,
    pub step: u32,
}

/// `point.sync(kind, over)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointSync {
    pub at: SyncPoint,
    pub sync: Sync,
    pub axis: usize,
    pub step: u32,
}

/// Where a sync stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncPoint {
    /// The value of that port as it enters every call of the module (ports as [`slapo_model::regions`] numbers them).
    Input { module: ModuleId, port: u32 },
    /// The value of that port as it leaves.
    Output { module: ModuleId, port: u32 },
    /// The gradient that leaves the module through the uses inside it.
    InputGradient { module: ModuleId, port: u32 },
    /// The gradient that comes from the uses outside.
    OutputGradient { module: ModuleId, port: u32 },
    /// The total gradient of a parameter, over all its uses.
    ParameterGradient(ParameterId),
}

impl SyncPoint {
    /// The module at whose border it is, or that owns the parameter.
    pub fn module(self, model: &Model) -> ModuleId {
        match self {
            SyncPoint::Input { module, .. }
            | SyncPoint::Output { module, .. }
            | SyncPoint::InputGradient { module, .. }
            | SyncPoint::OutputGradient { module, .. } => module,
            SyncPoint::ParameterGradient(parameter) => model.parameter(parameter).module,
        }
    }
}

/// `module.data_parallel(over)`: inputs are split along the batch; the loss and the gradients are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataParallel {
    pub axis: usize,
    pub step: u32,
}

/// `module.zero(stage, over)`, for one parameter: the ranks of the axis hold its optimizer state in pieces along dimension 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zero {
    pub parameter: ParameterId,
    /// 1: optimizer state; 2: what backward adds up of the gradient, too; 3: the parameter itself, between its uses.
    pub stage: u8,
    /// What the step was asked of.
    pub module: ModuleId,
    pub axis: usize,
    pub step: u32,
}

/// `module.deny(reshard)`: no conversion at a point of the module or below it moves more than `bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    pub module: ModuleId,
    pub bytes: i64,
    pub step: u32,
}

impl Effects {
    /// Behind all steps: parameters that rest in pieces (ZeRO 3) get the dimension that they are cut along, the first that
    /// nothing else splits and that has elements for every rank. What has none stays as stage 2 holds it.
    pub fn settle(&mut self, model: &Model) {
        let mut left = Vec::new();
        for zero in std::mem::take(&mut self.zero) {
            let Zero { parameter, axis, step, module, .. } = zero;
            let others: Vec<&Shard> = self.shards.iter().filter(|shard| shard.parameter == parameter).collect();
            let is_free = |dim: &usize| others.iter().all(|shard| shard.dim != *dim);
            let shape = &model.parameter(parameter).shape;
            let fits = |dim: &usize| shape[*dim] >= self.axes[axis].size;
            let is_split = others.iter().any(|shard| shard.axis == axis);
            match (0..shape.len()).filter(is_free).find(fits) {
                Some(dim) if zero.stage == 3 && !is_split => {
                    let (uneven, gathered, sections) = (true, Some(module), Sections::default());
                    self.shards.push(Shard { parameter, dim, groups: 1, uneven, sections, axis, gathered, step });
                }
                _ => left.push(zero),
            }
        }
        self.zero = left;
    }
}

impl Default for Effects {
    fn default() -> Effects {
        Effects {
            frozen: BTreeSet::new(),
            checkpoints: Vec::new(),
            recomputed: Vec::new(),
            kept: Vec::new(),
            rewrites: Vec::new(),
            micro_batches: 1,
            axes: Vec::new(),
            shards: Vec::new(),
            whole: Vec::new(),
            syncs: Vec::new(),
            data_parallel: Vec::new(),
            zero: Vec::new(),
            denials: Vec::new(),
        }
    }
}

/// Choices of a run that the schedule does not make.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub model: canonical::Options,
    pub optimizer: OptimizerSettings,
    pub seed: u64,
    /// Fingerprint of the schedule (hexadecimal).
    pub schedule: String,
}

/// Every stage of a compilation, for `apply --emit`.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The imported graph with concrete sizes.
    pub bound: Graph,
    /// Canonical forward, backward and recomputation, over global values.
    pub joint: Joint,
    /// How the ranks of each mesh axis hold the values of `joint`; empty where the schedule asks nothing of the mesh.
    pub layouts: Vec<Typing>,
    /// The syncs that [`Op::Sync`] nodes number: the axis, and the collective.
    pub syncs: Vec<(usize, Sync)>,
    /// By the same number: the position in [`Effects::syncs`] of what asked for it, `None` for what `data_parallel` brings.
    pub asked: Vec<Option<usize>>,
    /// What `point.layout(…)` came to.
    pub choices: Vec<Choice>,
    /// Reductions of gradients that became one.
    pub merged: Vec<Merged>,
    /// Positions in [`Effects::kept`] of points where the compiled forward has no value of its own.
    pub not_kept: Vec<usize>,
    /// What the ranks send each other.
    pub conversions: Vec<Conversion>,
    pub program: Program,
}

impl Compiled {
    pub(crate) fn meshed(&self) -> Meshed {
        let Compiled { joint, syncs, asked, choices, layouts, .. } = self.clone();
        Meshed { joint, syncs, asked, choices, typings: layouts }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    Bind(BindError),
    Derivative(NoDerivative),
    /// The batch does not divide into the micro-batches.
    Batch {
        batch: i64,
        micro_batches: u32,
    },
    /// A node that cannot be computed by micro-batches.
    NotSeparable {
        refusal: Refusal,
        node: slapo_model::Node,
    },
    /// The loss, or a gradient, is not a sum over micro-batches, or a buffer's new value depends on the micro-batch.
    NotASum {
        what: Total,
        layout: Layout,
    },
    /// No parameter is trained.
    NothingToTrain,
    /// Layouts that do not fit each other on a mesh axis.
    Layout(Box<LayoutFault>),
    /// A conversion that moves more than a limit allows.
    Denied {
        denial: Denial,
        conversion: Box<Conversion>,
        /// The step that asked for it.
        step: u32,
    },
}

/// A place where the layouts of a schedule do not fit.
#[derive(Clone, Debug, PartialEq)]
pub struct LayoutFault {
    /// Index into [`Effects::axes`].
    pub axis: usize,
    pub problem: LayoutProblem,
    /// Where a value first became a partial sum, if that is the cause.
    pub origin: Option<Place>,
    /// Steps that have to do with it: the shard or sync that made the layouts what they are.
    pub steps: Vec<u32>,
    /// Axis sizes that would be legal, where that is known.
    pub legal: Vec<i64>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum LayoutProblem {
    /// A parameter's dimension does not divide into the parts.
    Uneven { parameter: ParameterId, dim: usize, size: i64, groups: i64, parts: i64 },
    /// An operator that does not take its operands as they are held.
    Operator { at: Place, operator: String, reason: String, operands: Vec<(String, Layout)> },
    /// A sync whose pieces do not divide the dimension.
    SyncUneven { at: Place, dim: usize, size: i64, groups: i64, step: u32 },
    /// A split that leaves no whole pieces where `whole` elements are seen as `size` heads, or as a dimension of that size.
    Cut { at: Place, whole: i64, size: i64, heads: Option<Heads> },
    /// A sync that does not fit the value.
    Sync { at: Place, sync: Sync, found: Layout, step: u32 },
    /// A sync at a point that carries no differentiable value.
    NoValue { at: SyncPoint, step: u32 },
    /// The loss is not whole at the end.
    Loss { found: Layout },
    /// A gradient is not held as its parameter is.
    Gradient { parameter: ParameterId, found: Layout, wanted: Layout },
    /// Two axes split one dimension of a value in a way that does not nest.
    Nesting { at: Place, dim: usize, other: usize },
}

/// What is added up over the micro-batches, or must be the same in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    Loss,
    Gradient(ParameterId),
    /// What a step writes into a buffer.
    Buffer(BufferId),
}

/// What the pieces of a cut dimension are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    All,
    /// Fewer than query heads, each of which serves several.
    KeyValue,
    /// Those of keys and values, out of one copy for every query head.
    Repeated,
}

/// A node of the model, in words.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Dotted path of the module.
    pub module: String,
    pub source: Option<slapo_model::SourceId>,
    pub operator: String,
    pub is_backward: bool,
}

impl Place {
    /// Whether the module of that path is the place's own or inside of it: a sync at the place's border does not reach it.
    pub fn encloses(&self, path: &str) -> bool {
        let inside = path.strip_prefix(self.module.as_str());
        inside.is_some_and(|rest| self.module.is_empty() || rest.is_empty() || rest.starts_with('.'))
    }
}

/// Compiles. The program is that of the mesh's first rank; layouts are those of the whole mesh.
pub fn compile(
    model: &Model,
    sizes: &InputSizes,
    effects: &Effects,
    options: &Options,
) -> Result<Compiled, Vec<Fault>> {
    let (bound, joint) = differentiated(model, sizes, effects, options)?;
    let (meshed, faults) = mesh::reduced(model, joint, effects, Check::Held);
    if !faults.is_empty() {
        return Err(layout_faults(faults));
    }
    let (joint, merged) = merge(meshed.joint, &meshed.syncs, &meshed.typings);
    let kept = kept(model, &joint, effects);
    let not_kept = (0..effects.kept.len()).filter(|at| kept.iter().all(|(point, ..)| point != at)).collect();
    let joint = gather::again(recompute(model, joint, &regions(model, effects, &kept)), effects);
    let meshed = Meshed { joint, ..meshed };
    let layouts = mesh::layouts(model, &meshed, effects, Check::Held).map_err(layout_faults)?;
    let conversions = conversions(model, &meshed.joint, effects, (&meshed.syncs, &meshed.asked), &layouts);
    let denied = denied(model, effects, &conversions);
    if !denied.is_empty() {
        return Err(denied);
    }
    let program = match world(effects) {
        1 => {
            let (local, placements) = micro_batched(model, &meshed.joint, i64::from(effects.micro_batches))?;
            lower::lower(model, &local, &target(effects, options, &meshed.joint.graph, placements))
        }
        _ => Ranks { model, meshed: &meshed, layouts: &layouts, effects, options, check: Check::Held }.program(0)?,
    };
    let Meshed { joint, syncs, asked, choices, .. } = meshed;
    Ok(Compiled { bound, joint, layouts, syncs, asked, choices, merged, not_kept, conversions, program })
}

/// A schedule compiled for its ranks whether it is right or not.
#[doc(hidden)]
pub struct Unchecked {
    /// What [`compile`] says of it.
    pub faults: Vec<Fault>,
    /// The programs of all ranks, or why there are none: sizes that do not fit.
    pub programs: Result<Vec<Program>, Vec<Fault>>,
}

/// Compiles without the check of layouts, literally what the schedule says, and without one of the reductions that
/// `data_parallel` brings. For the tests that run what [`compile`] refuses, to see that it is wrong.
#[doc(hidden)]
pub fn unchecked(
    model: &Model,
    sizes: &InputSizes,
    effects: &Effects,
    options: &Options,
    without: Option<End>,
) -> Result<Unchecked, Vec<Fault>> {
    let check = Check::Bypassed { without };
    let (_, joint) = differentiated(model, sizes, effects, options)?;
    let (meshed, faults) = mesh::reduced(model, joint, effects, check);
    let regions = regions(model, effects, &kept(model, &meshed.joint, effects));
    let meshed = Meshed { joint: gather::again(recompute(model, meshed.joint, &regions), effects), ..meshed };
    let layouts = mesh::layouts(model, &meshed, effects, check).map_err(layout_faults);
    let programs = layouts.and_then(|layouts| {
        let ranks = Ranks { model, meshed: &meshed, layouts: &layouts, effects, options, check };
        (0..world(effects)).map(|rank| ranks.program(rank)).collect()
    });
    Ok(Unchecked { faults: layout_faults(faults), programs })
}

/// The bound graph, and the joint one with the schedule's points in it.
fn differentiated(
    model: &Model,
    sizes: &InputSizes,
    effects: &Effects,
    options: &Options,
) -> Result<(Graph, Joint), Vec<Fault>> {
    let micro_batches = i64::from(effects.micro_batches);
    if micro_batches < 1 || sizes.batch % micro_batches != 0 {
        return Err(vec![Fault::Batch { batch: sizes.batch, micro_batches: effects.micro_batches }]);
    }
    let bound = bind(model, sizes).map_err(|e| vec![Fault::Bind(e)])?;
    let rewritten = match effects.rewrites.as_slice() {
        [] => bound.clone(),
        rewrites => {
            let written = |graph, rewrite: &Rewrite| rewrite::rewrite(model, &graph, rewrite);
            let graph = rewrites.iter().fold(model.graph.clone(), written);
            bind_graph(model, &graph, sizes).map_err(|e| vec![Fault::Bind(e)])?
        }
    };
    let grouped = grouped(rewritten, &effects.recomputed);
    let pointed = borders::insert(model, grouped, &effects.syncs).map_err(layout_faults)?;
    let forward = gather::insert(model, canonicalize(model, &pointed, options.model), effects);
    let trainable = trainable(model, effects);
    let joint = autodiff::differentiate(forward, &trainable)
        .map_err(|faults| faults.into_iter().map(Fault::Derivative).collect::<Vec<_>>())?;
    if joint.gradients.is_empty() {
        return Err(vec![Fault::NothingToTrain]);
    }
    Ok((bound, joint))
}

/// The graph with the nodes of each group marked.
fn grouped(mut graph: Graph, groups: &[(Vec<ValueId>, u32)]) -> Graph {
    for (group, (values, _)) in groups.iter().enumerate() {
        for value in values {
            // What a rewrite took away has no node any more.
            if let Def::Node(id, result) = graph.value(*value).def
                && let Some(node) = graph.nodes.get_mut(id.0 as usize)
                && node.outs.get(result as usize) == Some(&Some(*value))
            {
                node.origin.group = Some(group as u32);
            }
        }
    }
    graph
}

fn layout_faults(faults: Vec<LayoutFault>) -> Vec<Fault> {
    faults.into_iter().map(|fault| Fault::Layout(Box::new(fault))).collect()
}

/// Conversions beyond the tightest limit around their point.
fn denied(model: &Model, effects: &Effects, conversions: &[Conversion]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for conversion in conversions {
        let Some(sync) = conversion.asked.and_then(|asked| effects.syncs.get(asked)) else { continue };
        let around = |module: ModuleId| std::iter::successors(Some(module), |id| model.module(*id).parent);
        let module = sync.at.module(model);
        let holds = |denial: &&Denial| around(module).any(|id| id == denial.module);
        let tightest = effects.denials.iter().filter(holds).min_by_key(|denial| denial.bytes);
        if let Some(denial) = tightest.filter(|denial| conversion.bytes > denial.bytes) {
            faults.push(Fault::Denied { denial: *denial, conversion: Box::new(conversion.clone()), step: sync.step });
        }
    }
    faults
}

fn trainable(model: &Model, effects: &Effects) -> BTreeSet<ParameterId> {
    let all = model.parameters.iter().enumerate();
    all.filter(|(_, p)| p.trainable)
        .map(|(i, _)| ParameterId(i as u32))
        .filter(|p| !effects.frozen.contains(p))
        .collect()
}

/// Values by positions in [`Effects::kept`], in every call.
type Kept = [(usize, ScopeId, ValueId)];

fn kept(model: &Model, joint: &Joint, effects: &Effects) -> Vec<(usize, ScopeId, ValueId)> {
    let points: Vec<SyncPoint> = effects.kept.iter().map(|(point, _)| *point).collect();
    borders::values(model, joint, &points)
}

/// Every call of the checkpointed modules, with what is kept in it, and the groups of nodes.
fn regions(model: &Model, effects: &Effects, kept: &Kept) -> Vec<Region> {
    let mut regions = Vec::new();
    for (module, step) in &effects.checkpoints {
        for (i, scope) in model.scopes.iter().enumerate() {
            let scope_id = ScopeId(i as u32);
            let extent = Extent::Call(scope_id);
            if scope.module == *module && !regions.iter().any(|r: &Region| r.extent == extent) {
                let is_own = |at: usize, inner| effects.kept[at].1 == *step && model.is_inside(inner, scope_id);
                let own = kept.iter().filter(|(at, inner, _)| is_own(*at, *inner));
                let keep = own.map(|(.., value)| *value).collect();
                regions.push(Region { extent, keep, step: *step });
            }
        }
    }
    for (group, (_, step)) in effects.recomputed.iter().enumerate() {
        regions.push(Region { extent: Extent::Group(group as u32), keep: BTreeSet::new(), step: *step });
    }
    regions
}

/// The programs of every rank of the mesh, row-major over its axes; `compiled` must come of the same arguments.
pub fn programs(
    model: &Model,
    compiled: &Compiled,
    effects: &Effects,
    options: &Options,
) -> Result<Vec<Program>, Vec<Fault>> {
    (0..world(effects)).map(|rank| program_of(model, compiled, effects, options, rank)).collect()
}

/// The program of one rank of the mesh; `compiled` must come of the same arguments.
pub fn program_of(
    model: &Model,
    compiled: &Compiled,
    effects: &Effects,
    options: &Options,
    rank: i64,
) -> Result<Program, Vec<Fault>> {
    let meshed = compiled.meshed();
    Ranks { model, meshed: &meshed, layouts: &compiled.layouts, effects, options, check: Check::Held }.program(rank)
}

fn world(effects: &Effects) -> i64 {
    effects.axes.iter().map(|axis| axis.size).product()
}

/// Where a rank stands on each axis.
pub fn coordinates(effects: &Effects, rank: i64) -> Vec<i64> {
    let mut rest = rank;
    let mut coordinates: Vec<i64> = Vec::new();
    for axis in effects.axes.iter().rev() {
        coordinates.insert(0, rest % axis.size);
        rest /= axis.size;
    }
    coordinates
}

/// What the programs of all ranks are made of.
struct Ranks<'a> {
    model: &'a Model,
    meshed: &'a Meshed,
    layouts: &'a [Typing],
    effects: &'a Effects,
    options: &'a Options,
    check: Check,
}

impl Ranks<'_> {
    fn program(&self, rank: i64) -> Result<Program, Vec<Fault>> {
        let Ranks { model, meshed, layouts, effects, options, check } = *self;
        let coordinates = coordinates(effects, rank);
        let (local, mut placements) =
            mesh::local(model, meshed, effects, layouts, check, &coordinates).map_err(layout_faults)?;
        let (local, micro) = micro_batched(model, &local, i64::from(effects.micro_batches))?;
        for (site, placement) in micro {
            placements.entry(site).or_default().splits.extend(placement.splits);
        }
        let target = Target {
            mesh: effects.axes.iter().map(|a| Axis { name: a.name.clone(), size: a.size }).collect(),
            boxes: mesh::boxes(effects, &coordinates),
            zero: zero(effects, &coordinates),
            coordinates,
            ..target(effects, options, &meshed.joint.graph, placements)
        };
        Ok(lower::lower(model, &local, &target))
    }
}

/// The program of the unscheduled model under libtorch's own autograd: the oracle. What the schedule changes of training
/// itself, frozen parameters, holds for it too.
pub fn oracle(model: &Model, compiled: &Compiled, effects: &Effects, options: &Options) -> Program {
    let graph = canonical::oracle(model, &compiled.bound, options.model);
    let trained: BTreeSet<ParameterId> = compiled.joint.gradients.iter().map(|(p, _)| *p).collect();
    let effects = Effects { micro_batches: 1, ..effects.clone() };
    let target = target(&effects, options, &graph, BTreeMap::new());
    lower::lower_oracle(model, graph, &trained, &target)
}

/// The pieces that the rank updates of the parameters that it holds whole over an axis of several ranks.
fn zero(effects: &Effects, coordinates: &[i64]) -> BTreeMap<ParameterId, Scattered> {
    let is_split = |zero: &Zero| effects.shards.iter().any(|s| s.parameter == zero.parameter && s.axis == zero.axis);
    let scattered = |zero: &Zero| {
        let piece = Split::even(0, 1, effects.axes[zero.axis].size, Part::Rank(coordinates[zero.axis]));
        (zero.parameter, Scattered { axis: zero.axis as u32, piece, early: zero.stage >= 2 })
    };
    effects.zero.iter().filter(|zero| effects.axes[zero.axis].size > 1 && !is_split(zero)).map(scattered).collect()
}

/// The target of a single rank; `whole` is the graph over global values.
fn target(effects: &Effects, options: &Options, whole: &Graph, placements: BTreeMap<u32, Placement>) -> Target {
    Target {
        seed: options.seed,
        micro_batches: effects.micro_batches,
        optimizer: options.optimizer.clone(),
        schedule: options.schedule.clone(),
        placements,
        limits: lower::limits(whole),
        mesh: Vec::new(),
        coordinates: Vec::new(),
        boxes: BTreeMap::new(),
        zero: BTreeMap::new(),
    }
}

/// The graph of one micro-batch: inputs are split along the batch; the loss and the gradients must be sums.
fn micro_batched(model: &Model, joint: &Joint, parts: i64) -> Result<(Joint, BTreeMap<u32, Placement>), Vec<Fault>> {
    if parts == 1 {
        return Ok((joint.clone(), BTreeMap::new()));
    }
    let graph = &joint.graph;
    let typing = micro_typing(joint, parts).map_err(|refusals| {
        let fault = |mut refusal: Refusal| {
            let node = graph.nodes[refusal.node].clone();
            refusal.operands = describe::operands(model, joint, &node, refusal.operands);
            Fault::NotSeparable { refusal, node }
        };
        refusals.into_iter().map(fault).collect::<Vec<_>>()
    })?;
    let is_sum = |v: ValueId| typing.of(v) == Layout::Partial;
    let gradients = joint.gradients.iter().map(|(parameter, v)| (Total::Gradient(*parameter), *v));
    // Gradients of a loss that is no sum are none either.
    let gradients = gradients.filter(|(_, v)| is_sum(graph.loss) && !is_sum(*v));
    let buffers = model.mutations.iter().zip(&joint.mutations).map(|((buffer, _), v)| (Total::Buffer(*buffer), *v));
    let buffers = buffers.filter(|(_, v)| typing.of(*v) != Layout::Replicated);
    let loss = (!is_sum(graph.loss)).then_some((Total::Loss, graph.loss));
    let wrong = loss.into_iter().chain(gradients).chain(buffers);
    let faults: Vec<Fault> = wrong.map(|(what, v)| Fault::NotASum { what, layout: typing.of(v) }).collect();
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut placements = BTreeMap::new();
    for node in &graph.nodes {
        if let (Op::Dropout { site, .. }, Some(x)) = (&node.op, node.tensor("self")) {
            let splits = match typing.of(x) {
                Layout::Split { dim, groups } => vec![Split::even(dim, groups, parts, Part::MicroBatch)],
                Layout::Replicated | Layout::Partial | Layout::Sections { .. } => Vec::new(),
            };
            placements.insert(*site, Placement { global_shape: graph.ty(x).shape.clone(), splits });
        }
    }
    let (local, forward) = layout::partition(graph, &typing, joint.forward, Here::MicroBatch);
    let mutations = local.outputs[1..=joint.mutations.len()].to_vec();
    let values = &local.outputs[1 + mutations.len()..];
    let gradients = joint.gradients.iter().zip(values).map(|((p, _), v)| (*p, *v)).collect();
    Ok((Joint { graph: local, forward, mutations, gradients, rerun: joint.rerun.clone() }, placements))
}

/// How the micro-batches hold the values of a rank's graph.
pub(crate) fn micro_typing(joint: &Joint, parts: i64) -> Result<Typing, Vec<Refusal>> {
    let graph = &joint.graph;
    // Where ranks take their rows of the inputs, it is these rows that are divided.
    let cut = |v: slapo_model::ValueId| matches!(graph.value(v).def, Def::Input(_));
    let is_cut = graph.nodes.iter().any(|n| matches!(n.op, Op::Part { .. }) && n.reads().any(cut));
    let leaf = |def: Def| match def {
        Def::Input(_) if !is_cut => Layout::Split { dim: 0, groups: 1 },
        _ => Layout::Replicated,
    };
    layout::infer(graph, parts, leaf)
}
