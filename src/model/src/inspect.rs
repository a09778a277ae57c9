//! What a model is, as data for `slapoc inspect`: the module tree with classes, parameters, ties and ports, inputs with
//! their legal sizes, outputs, operators. How it looks as text is in `render`.
//!
//! Sizes are shown by what they are: the symbols of the inputs' first two dimensions read `batch` and `seq`.

mod render;

pub use render::{render, render_ports};

use crate::bind::legal_sizes;
use crate::graph::{Value, ValueId};
use crate::model::{Buffer, BufferId, Model, Module, ModuleId, Parameter, ParameterId};
use crate::regions::{Regions, calls};
use crate::sym::{Size, Symbol};
use serde::Serialize;
use slapo_program::DType;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspect {
    pub fingerprint: String,
    pub root: ModuleInfo,
    pub totals: Totals,
    /// Names that are one parameter; the first owns it.
    pub ties: Vec<Vec<String>>,
    /// Legal sizes, such as `1..=128`.
    pub batch: String,
    pub seq: String,
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    pub loss: String,
    /// Operators by how often they occur, then by name.
    pub operators: Vec<OperatorCount>,
    /// Buffers that a step changes.
    pub mutations: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Totals {
    pub modules: usize,
    /// Ties count once, here and below.
    pub parameters: usize,
    pub elements: u64,
    pub trainable_elements: u64,
    pub bytes: u64,
    pub buffers: usize,
    pub nodes: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModuleInfo {
    pub name: String,
    pub path: String,
    /// Qualified; empty for containers and modules that never run.
    pub class: String,
    /// Elements of all parameters below, ties once.
    pub elements: u64,
    pub parameters: Vec<TensorInfo>,
    pub buffers: Vec<TensorInfo>,
    pub calls: Vec<CallInfo>,
    pub children: Vec<ModuleInfo>,
}

/// A parameter or a buffer by its local name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorInfo {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<i64>,
    pub trainable: bool,
    /// Saved with the model's weights.
    pub persistent: bool,
    /// The name that owns the tensor, where this one does not.
    pub tied_to: Option<String>,
    /// Other names of the tensor, where this one owns it.
    pub aliases: Vec<String>,
}

/// One call of a module: its ports in the order that `input(n)` and `output(n)` count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallInfo {
    pub nodes: usize,
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
}

/// A value at a border.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Port {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<Dim>,
    /// Whether anything reads it.
    pub used: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Dim {
    Fixed(i64),
    Dynamic(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperatorCount {
    pub operator: String,
    pub count: usize,
}

/// What there is to show of values.
pub fn ports(model: &Model, ids: &[ValueId]) -> Vec<Port> {
    Inspector::new(model).ports(ids)
}

impl Port {
    /// `f32[batch, seq, 64]`
    pub fn ty(&self) -> String {
        let dims: Vec<String> = self
            .shape
            .iter()
            .map(|dim| match dim {
                Dim::Fixed(size) => size.to_string(),
                Dim::Dynamic(size) => size.clone(),
            })
            .collect();
        format!("{}[{}]", self.dtype, dims.join(", "))
    }
}

/// Everything that there is to show of `model`.
pub fn inspect(model: &Model) -> Inspect {
    let inspector = Inspector::new(model);
    let legal = legal_sizes(model);
    let buffer = |id: BufferId| model.buffers[id.0 as usize].name.clone();
    Inspect {
        fingerprint: model.fingerprint.clone(),
        root: inspector.module(ModuleId(0)),
        totals: totals(model),
        ties: ties(model),
        batch: legal.batch.to_string(),
        seq: legal.seq.to_string(),
        inputs: inspector.ports(&model.graph.inputs),
        outputs: inspector.ports(&model.graph.outputs),
        loss: model.graph.value(model.graph.loss).name.clone(),
        operators: operators(model),
        mutations: model.mutations.iter().map(|(id, _)| buffer(*id)).collect(),
    }
}

struct Inspector<'a> {
    model: &'a Model,
    names: BTreeMap<Symbol, Symbol>,
    used: Vec<bool>,
    regions: Regions<'a, Size>,
}

impl<'a> Inspector<'a> {
    fn new(model: &'a Model) -> Inspector<'a> {
        let (names, used) = (size_names(model), model.used_values());
        Inspector { model, names, used, regions: Regions::new(&model.graph, model) }
    }

    fn module(&self, id: ModuleId) -> ModuleInfo {
        let module = self.model.module(id);
        let buffer = |(name, id): &(String, BufferId)| buffer_info(name, &self.model.buffers[id.0 as usize]);
        ModuleInfo {
            name: module.name.clone(),
            path: module.path.clone(),
            class: module.class.clone(),
            elements: self.elements(module),
            parameters: module
                .parameters
                .iter()
                .map(|(name, id)| parameter_info(name, module, self.model.parameter(*id)))
                .collect(),
            buffers: module.buffers.iter().map(buffer).collect(),
            calls: self.calls(id),
            children: module.children.iter().map(|id| self.module(*id)).collect(),
        }
    }

    fn elements(&self, module: &Module) -> u64 {
        let mut below = BTreeSet::new();
        collect(self.model, module, &mut below);
        below.into_iter().map(|id| elements(&self.model.parameter(id).shape)).fold(0, u64::saturating_add)
    }

    fn calls(&self, module: ModuleId) -> Vec<CallInfo> {
        calls(self.model, module)
            .into_iter()
            .map(|scope| self.regions.call(scope))
            .map(|region| CallInfo {
                nodes: region.nodes.len(),
                inputs: self.ports(&region.live_in),
                outputs: self.ports(&region.live_out),
            })
            .collect()
    }

    fn ports(&self, ids: &[ValueId]) -> Vec<Port> {
        ids.iter().map(|id| self.port(*id)).collect()
    }

    fn port(&self, id: ValueId) -> Port {
        let Value { name, ty, .. } = self.model.graph.value(id);
        let dim = |size: &Size| match size.constant() {
            Some(size) => Dim::Fixed(size),
            None => Dim::Dynamic(size.rename(&self.names).to_string()),
        };
        Port {
            name: name.clone(),
            dtype: ty.dtype,
            shape: ty.shape.iter().map(dim).collect(),
            used: self.used[id.0 as usize],
        }
    }
}

/// The inputs' symbols by what they mean.
fn size_names(model: &Model) -> BTreeMap<Symbol, Symbol> {
    let mut names = BTreeMap::new();
    for input in &model.inputs {
        for (size, meaning) in input.shape.iter().zip(["batch", "seq"]) {
            if let Size::Symbol(symbol) = size {
                names.entry(symbol.clone()).or_insert_with(|| Symbol(meaning.to_string()));
            }
        }
    }
    names
}

fn parameter_info(name: &str, module: &Module, parameter: &Parameter) -> TensorInfo {
    let full = join(&module.path, name);
    let owner = &parameter.names[0];
    TensorInfo {
        name: name.to_string(),
        dtype: parameter.dtype,
        shape: parameter.shape.clone(),
        trainable: parameter.trainable,
        persistent: true,
        tied_to: (*owner != full).then(|| owner.clone()),
        aliases: match *owner == full {
            true => parameter.names[1..].to_vec(),
            false => Vec::new(),
        },
    }
}

fn buffer_info(name: &str, buffer: &Buffer) -> TensorInfo {
    TensorInfo {
        name: name.to_string(),
        dtype: buffer.dtype,
        shape: buffer.shape.clone(),
        trainable: false,
        persistent: buffer.persistent,
        tied_to: None,
        aliases: Vec::new(),
    }
}

fn totals(model: &Model) -> Totals {
    let sum = |trainable: bool| {
        let parameters = model.parameters.iter();
        let counted = parameters.filter(|p| p.trainable || !trainable);
        counted.map(|p| elements(&p.shape)).fold(0, u64::saturating_add)
    };
    Totals {
        modules: model.modules.len(),
        parameters: model.parameters.len(),
        elements: sum(false),
        trainable_elements: sum(true),
        bytes: model
            .parameters
            .iter()
            .map(|p| elements(&p.shape).saturating_mul(p.dtype.bytes()))
            .fold(0, u64::saturating_add),
        buffers: model.buffers.len(),
        nodes: model.graph.nodes.len(),
    }
}

fn ties(model: &Model) -> Vec<Vec<String>> {
    let tied = model.parameters.iter().filter(|p| p.names.len() > 1);
    tied.map(|p| p.names.clone()).collect()
}

fn operators(model: &Model) -> Vec<OperatorCount> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for node in &model.graph.nodes {
        *counts.entry(node.name()).or_default() += 1;
    }
    let mut counts: Vec<OperatorCount> =
        counts.into_iter().map(|(operator, count)| OperatorCount { operator: operator.to_string(), count }).collect();
    // Stable: equal counts stay in order of names.
    counts.sort_by_key(|entry| std::cmp::Reverse(entry.count));
    counts
}

fn collect(model: &Model, module: &Module, below: &mut BTreeSet<ParameterId>) {
    below.extend(module.parameters.iter().map(|(_, id)| *id));
    for child in &module.children {
        collect(model, model.module(*child), below);
    }
}

fn elements(shape: &[i64]) -> u64 {
    let sizes = shape.iter().map(|size| size.unsigned_abs());
    sizes.fold(1, u64::saturating_mul)
}

fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_string(),
        path => format!("{path}.{name}"),
    }
}
