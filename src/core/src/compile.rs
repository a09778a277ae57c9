//! From a model, sizes and the effects of a schedule to the Program.
//!
//! The order of passes stands here and nowhere else. Every pass reports faults as data; what a fault means for a line of
//! the schedule is said where the lines are known.

use crate::layout::{self, Layout, Refusal};
use crate::lower::{self, OptimizerSettings, Target};
use crate::passes::autodiff::{self, Joint, NoDerivative};
use crate::passes::canonical::{self, canonicalize};
use crate::passes::recompute::{Region, recompute};
use slapo_model::{BindError, Def, Graph, InputSizes, Model, ModuleId, Op, ParameterId, ScopeId, bind};
use slapo_program::{Part, Placement, Program, Split};
use std::collections::{BTreeMap, BTreeSet};

/// What a schedule asks of the compiler, resolved to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Effects {
    pub frozen: BTreeSet<ParameterId>,
    /// Modules to recompute in backward, with the step that asked for it.
    pub checkpoints: Vec<(ModuleId, u32)>,
    pub micro_batches: u32,
}

impl Default for Effects {
    fn default() -> Effects {
        Effects { frozen: BTreeSet::new(), checkpoints: Vec::new(), micro_batches: 1 }
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
    pub program: Program,
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
        what: String,
        layout: Layout,
    },
    /// No parameter is trained.
    NothingToTrain,
}

/// Compiles for one rank.
pub fn compile(
    model: &Model,
    sizes: &InputSizes,
    effects: &Effects,
    options: &Options,
) -> Result<Compiled, Vec<Fault>> {
    let micro_batches = i64::from(effects.micro_batches);
    if micro_batches < 1 || sizes.batch % micro_batches != 0 {
        return Err(vec![Fault::Batch { batch: sizes.batch, micro_batches: effects.micro_batches }]);
    }
    let bound = bind(model, sizes).map_err(|e| vec![Fault::Bind(e)])?;
    let forward = canonicalize(model, &bound, options.model);
    let trainable = trainable(model, effects);
    let joint = autodiff::differentiate(forward, &trainable)
        .map_err(|faults| faults.into_iter().map(Fault::Derivative).collect::<Vec<_>>())?;
    if joint.gradients.is_empty() {
        return Err(vec![Fault::NothingToTrain]);
    }
    let joint = recompute(model, joint, &regions(model, effects));
    let (local, placements) = micro_batched(&joint, micro_batches)?;
    let target = Target {
        seed: options.seed,
        micro_batches: effects.micro_batches,
        optimizer: options.optimizer.clone(),
        schedule: options.schedule.clone(),
        placements,
    };
    let program = lower::lower(model, &local, &target);
    Ok(Compiled { bound, joint, program })
}

fn trainable(model: &Model, effects: &Effects) -> BTreeSet<ParameterId> {
    let all = model.parameters.iter().enumerate();
    all.filter(|(_, p)| p.trainable)
        .map(|(i, _)| ParameterId(i as u32))
        .filter(|p| !effects.frozen.contains(p))
        .collect()
}

/// Every call of the checkpointed modules.
fn regions(model: &Model, effects: &Effects) -> Vec<Region> {
    let mut regions = Vec::new();
    for (module, step) in &effects.checkpoints {
        for (i, scope) in model.scopes.iter().enumerate() {
            let scope_id = ScopeId(i as u32);
            if scope.module == *module && !regions.iter().any(|r: &Region| r.scope == scope_id) {
                regions.push(Region { scope: scope_id, keep: BTreeSet::new(), step: *step });
            }
        }
    }
    regions
}

/// The graph of one micro-batch: inputs are split along the batch; the loss and the gradients must be sums.
fn micro_batched(joint: &Joint, parts: i64) -> Result<(Joint, BTreeMap<u32, Placement>), Vec<Fault>> {
    if parts == 1 {
        return Ok((joint.clone(), BTreeMap::new()));
    }
    let graph = &joint.graph;
    let leaf = |def: Def| match def {
        Def::Input(_) => Layout::Split { dim: 0, groups: 1 },
        _ => Layout::Replicated,
    };
    let typing = layout::infer(graph, parts, leaf).map_err(|refusals| {
        let fault = |refusal: Refusal| {
            let node = graph.nodes[refusal.node].clone();
            Fault::NotSeparable { refusal, node }
        };
        refusals.into_iter().map(fault).collect::<Vec<_>>()
    })?;
    let sums = joint.gradients.iter().map(|(_, v)| *v).chain([graph.loss]);
    let wrong = sums.filter(|v| typing.of(*v) != Layout::Partial);
    let wrong = wrong.chain(joint.mutations.iter().copied().filter(|v| typing.of(*v) != Layout::Replicated));
    let fault = |v| Fault::NotASum { what: graph.value(v).name.clone(), layout: typing.of(v) };
    let faults: Vec<Fault> = wrong.map(fault).collect();
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut placements = BTreeMap::new();
    for node in &graph.nodes {
        if let (Op::Dropout { site, .. }, Some(x)) = (&node.op, node.tensor("self")) {
            let splits = match typing.of(x) {
                Layout::Split { dim, groups } => vec![Split { dim, groups, parts, part: Part::MicroBatch }],
                Layout::Replicated | Layout::Partial => Vec::new(),
            };
            placements.insert(*site, Placement { global_shape: graph.ty(x).shape.clone(), splits });
        }
    }
    let (local, forward) = layout::partition(graph, &typing, joint.forward);
    let mutations = local.outputs[1..=joint.mutations.len()].to_vec();
    let values = &local.outputs[1 + mutations.len()..];
    let gradients = joint.gradients.iter().zip(values).map(|((p, _), v)| (*p, *v)).collect();
    Ok((Joint { graph: local, forward, mutations, gradients, rerun: joint.rerun.clone() }, placements))
}
