//! How ranks hold the parameters, inputs and outputs of the modules that the schedule puts on the mesh.

use super::patterns::{patterns, shape};
use serde::Serialize;
use slapo_core::compile::{Compiled, Effects, SyncPoint};
use slapo_core::layout::Layout;
use slapo_core::passes::borders::differentiable;
use slapo_model::regions::{Regions, calls};
use slapo_model::{Graph, Model, ModuleId, Op, ParameterId, ValueId};
use slapo_program::piece;
use std::collections::BTreeSet;

/// Modules that are held alike.
#[derive(Debug, Serialize)]
pub struct ModuleLayouts {
    /// Such as `transformer.h[0..6].mlp.c_fc`; empty for the model itself.
    pub pattern: String,
    pub class: String,
    pub count: usize,
    pub values: Vec<Held>,
}

/// One parameter, input or output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// `weight`, `input`, `output 1`
    pub what: String,
    pub dtype: &'static str,
    pub shape: Vec<i64>,
    /// Of the first rank.
    pub local: Vec<i64>,
    /// By axis of the mesh: `R`, `S(1, groups 3)`; `P → R` where a sync stands at the point.
    pub layouts: Vec<String>,
}

/// In the order of the model's tree; nothing where the schedule asks nothing of the mesh.
pub fn layouts(model: &Model, compiled: &Compiled, effects: &Effects) -> Vec<ModuleLayouts> {
    if compiled.layouts.is_empty() {
        return Vec::new();
    }
    let mut forward = compiled.joint.graph.clone();
    forward.nodes.truncate(compiled.joint.forward);
    let view =
        View { model, compiled, regions: Regions::new(&forward, model), differentiable: differentiable(&forward) };
    let mut found: Vec<(Vec<String>, ModuleLayouts)> = Vec::new();
    for module in touched(model, effects) {
        let (path, values) = (&model.module(module).path, view.module(module));
        let alike = |(paths, known): &&mut (Vec<String>, ModuleLayouts)| {
            shape(&paths[0]) == shape(path) && known.values == values
        };
        match found.iter_mut().find(alike) {
            Some((paths, known)) => {
                paths.push(path.clone());
                known.count += 1;
            }
            None => {
                let class = model.module(module).short_class().to_owned();
                let layouts = ModuleLayouts { pattern: String::new(), class, count: 1, values };
                found.push((vec![path.clone()], layouts));
            }
        }
    }
    found
        .into_iter()
        .map(|(paths, layouts)| ModuleLayouts { pattern: patterns(&paths).join(", "), ..layouts })
        .collect()
}

/// Modules of which a step shards a parameter or syncs a point, and the model where its inputs are split.
fn touched(model: &Model, effects: &Effects) -> BTreeSet<ModuleId> {
    let shards = effects.shards.iter().map(|shard| model.parameter(shard.parameter).module);
    let syncs = effects.syncs.iter().map(|sync| match sync.at {
        SyncPoint::Input { module, .. }
        | SyncPoint::Output { module, .. }
        | SyncPoint::InputGradient { module, .. }
        | SyncPoint::OutputGradient { module, .. } => module,
        SyncPoint::ParameterGradient(parameter) => model.parameter(parameter).module,
    });
    let whole = effects.data_parallel.first().map(|_| ModuleId(0));
    shards.chain(syncs).chain(whole).collect()
}

struct View<'a> {
    model: &'a Model,
    compiled: &'a Compiled,
    /// Of forward.
    regions: Regions<'a, i64>,
    differentiable: Vec<bool>,
}

impl View<'_> {
    fn graph(&self) -> &Graph {
        &self.compiled.joint.graph
    }

    fn module(&self, module: ModuleId) -> Vec<Held> {
        let mut held = Vec::new();
        for (name, parameter) in &self.model.module(module).parameters {
            held.extend(self.parameter(*parameter).map(|v| self.held(name.clone(), v)));
        }
        if module == ModuleId(0) {
            held.extend(
                self.graph().inputs.iter().map(|v| self.held(format!("input {}", self.graph().value(*v).name), *v)),
            );
            return held;
        }
        // Of several calls the first: a module is held alike in all.
        let Some(scope) = calls(self.model, module).first().copied() else { return held };
        let region = self.regions.call(scope);
        for (what, values) in [("input", region.live_in), ("output", region.live_out)] {
            let crossing: Vec<ValueId> = values.into_iter().filter(|v| self.differentiable[v.0 as usize]).collect();
            for (port, v) in crossing.iter().enumerate() {
                let what = if crossing.len() == 1 { what.to_owned() } else { format!("{what} {port}") };
                held.push(self.held(what, *v));
            }
        }
        held
    }

    fn parameter(&self, parameter: ParameterId) -> Option<ValueId> {
        let is_it = |value: &slapo_model::Value| value.def == slapo_model::Def::Parameter(parameter);
        self.graph().values.iter().position(is_it).map(|i| ValueId(i as u32))
    }

    fn held(&self, what: String, v: ValueId) -> Held {
        let ty = self.graph().ty(v);
        let mut local = ty.shape.clone();
        let behind = self.behind_syncs(v);
        let mut layouts = Vec::new();
        for typing in &self.compiled.layouts {
            let (own, behind) = (typing.of(v), typing.of(behind));
            if let Layout::Split { dim, .. } = own {
                local[dim] = piece(local[dim], typing.parts, 0).1;
            }
            layouts.push(if own == behind { own.to_string() } else { format!("{own} → {behind}") });
        }
        Held { what, dtype: ty.dtype.name(), shape: ty.shape.clone(), local, layouts }
    }

    /// What the syncs that stand right behind a value make of it.
    fn behind_syncs(&self, v: ValueId) -> ValueId {
        let nodes = &self.graph().nodes[..self.compiled.joint.forward];
        nodes.iter().fold(v, |last, node| match (&node.op, node.tensor("self"), node.outs.first()) {
            (Op::Border { .. } | Op::Sync { .. }, Some(from), Some(Some(out))) if from == last => *out,
            _ => last,
        })
    }
}
