//! How ranks hold what people speak of: parameters, and the values on the borders of modules.

use super::{Layout, Typing};
use crate::compile::Compiled;
use crate::passes::borders::differentiable;
use serde::Serialize;
use slapo_model::regions::{Regions, calls};
use slapo_model::{Def, Graph, Model, ModuleId, Op, ParameterId, ValueId};
use slapo_program::{DType, piece};

/// One parameter, input or output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// `weight`, `input`, `output 1`
    pub what: String,
    pub dtype: DType,
    pub shape: Vec<i64>,
    /// Of the first rank.
    pub local: Vec<i64>,
    /// By axis of the mesh: `R`, `S(1, groups 3)`; `P → R` where a sync stands at the point.
    pub layouts: Vec<String>,
}

impl Held {
    /// Bytes that the first rank holds.
    pub fn bytes(&self) -> u64 {
        self.local.iter().product::<i64>() as u64 * self.dtype.bytes()
    }
}

/// The length of a dimension of `size` on the first of `parts` ranks that hold it as `layout`.
pub fn first_piece(layout: Layout, size: i64, parts: i64) -> i64 {
    match layout {
        Layout::Split { .. } => piece(size, parts, 0).1,
        Layout::Sections { sections, .. } => match sections.lengths(size) {
            Some(lengths) => lengths.into_iter().map(|length| piece(length, parts, 0).1).sum(),
            None => piece(size, parts, 0).1,
        },
        Layout::Replicated | Layout::Partial => size,
    }
}

/// Answers about one compilation. Layouts are empty where the schedule asks nothing of the mesh.
pub struct Holdings<'a> {
    model: &'a Model,
    compiled: &'a Compiled,
    /// Of forward.
    regions: Regions<'a, i64>,
    differentiable: Vec<bool>,
}

/// The forward part of a joint graph: what [`Holdings::new`] wants.
pub fn forward(compiled: &Compiled) -> Graph {
    let mut forward = compiled.joint.graph.clone();
    forward.nodes.truncate(compiled.joint.forward);
    forward
}

impl<'a> Holdings<'a> {
    pub fn new(model: &'a Model, compiled: &'a Compiled, forward: &'a Graph) -> Holdings<'a> {
        Holdings { model, compiled, regions: Regions::new(forward, model), differentiable: differentiable(forward) }
    }

    /// The parameters of a module, and what crosses its border; of the model itself, its inputs.
    pub fn module(&self, module: ModuleId) -> Vec<Held> {
        let mut held = Vec::new();
        for (name, parameter) in &self.model.module(module).parameters {
            held.extend(self.parameter(*parameter).map(|v| self.held(name.clone(), v)));
        }
        if module == ModuleId(0) {
            let inputs = self.graph().inputs.iter();
            held.extend(inputs.map(|v| self.held(format!("input {}", self.graph().value(*v).name), *v)));
            return held;
        }
        held.extend(self.border(module, true));
        held.extend(self.border(module, false));
        held
    }

    /// The values that a gradient flows through as they enter a module, or as they leave it. Of several calls the first: a
    /// module is held alike in all.
    pub fn border(&self, module: ModuleId, is_input: bool) -> Vec<Held> {
        let Some(scope) = calls(self.model, module).first().copied() else { return Vec::new() };
        let region = self.regions.call(scope);
        let (what, values) = if is_input { ("input", region.live_in) } else { ("output", region.live_out) };
        let crossing: Vec<ValueId> = values.into_iter().filter(|v| self.differentiable[v.0 as usize]).collect();
        let name = |port: usize| if crossing.len() == 1 { what.to_owned() } else { format!("{what} {port}") };
        crossing.iter().enumerate().map(|(port, v)| self.held(name(port), *v)).collect()
    }

    /// The gradient of a parameter, over all its uses; `None` where it is not trained.
    pub fn gradient(&self, parameter: ParameterId) -> Option<Held> {
        let found = self.compiled.joint.gradients.iter().find(|(of, _)| *of == parameter);
        found.map(|(_, v)| self.held("gradient".to_owned(), *v))
    }

    fn graph(&self) -> &Graph {
        &self.compiled.joint.graph
    }

    fn parameter(&self, parameter: ParameterId) -> Option<ValueId> {
        let is_it = |value: &slapo_model::Value| value.def == Def::Parameter(parameter);
        self.graph().values.iter().position(is_it).map(|i| ValueId(i as u32))
    }

    fn held(&self, what: String, v: ValueId) -> Held {
        let ty = self.graph().ty(v);
        let mut local = ty.shape.clone();
        let behind = self.behind_syncs(v);
        let layout = |typing: &Typing| {
            let (own, behind) = (typing.of(v), typing.of(behind));
            if let Some(dim) = own.split_dim() {
                local[dim] = first_piece(own, local[dim], typing.parts);
            }
            if own == behind { own.to_string() } else { format!("{own} → {behind}") }
        };
        let layouts = self.compiled.layouts.iter().map(layout).collect();
        Held { what, dtype: ty.dtype, shape: ty.shape.clone(), local, layouts }
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
