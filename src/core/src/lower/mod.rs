//! From the joint graph to the Program of one rank.
//!
//! Sorts nodes into setup (constants), prologue (counts over the step), forward and backward; gives every value a slot
//! and a last use; accumulates gradients and the loss over micro-batches; appends reduction and optimizer. Read [`lower`] first.

mod body;
mod buckets;
mod optimizer;
mod reduction;

pub use optimizer::{Kind as OptimizerKind, Settings as OptimizerSettings};

use crate::ir::ops;
use crate::passes::autodiff::Joint;
use body::{Body, Frame};
use reduction::End;
use slapo_model::{Def, Graph, Model, Node, Op, ParameterId, Stored, Type, ValueId};
use slapo_program::{
    Arg, Axis, Call, Fingerprint, Function, FunctionKind, Global, GlobalId, Init, Input, Instr, LocalId, Parameter,
    Placement, Program, Role, Slot, Source, Split, TensorType, VERSION, Value,
};
use std::collections::{BTreeMap, BTreeSet};

/// What lowering needs beside the graph.
#[derive(Clone, Debug)]
pub struct Target {
    pub seed: u64,
    pub micro_batches: u32,
    pub optimizer: OptimizerSettings,
    /// Fingerprint of the schedule (hexadecimal).
    pub schedule: String,
    /// Per dropout site: how the micro-batch's tensor lies in the global one.
    pub placements: BTreeMap<u32, Placement>,
    /// Legal values of inputs that are ids or classes, by the input's number ([`limits`]).
    pub limits: BTreeMap<u32, Limit>,
    /// Axes of the mesh and this rank's coordinates; empty for one rank.
    pub mesh: Vec<Axis>,
    pub coordinates: Vec<i64>,
    /// Sharded parameters: the axes and how this rank's box lies in the whole.
    pub boxes: BTreeMap<ParameterId, Vec<(usize, Split)>>,
    /// Parameters of which ranks update a piece each.
    pub zero: BTreeMap<ParameterId, Scattered>,
}

/// How the ranks of an axis share the update of a parameter that each of them holds whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scattered {
    /// Of the mesh.
    pub axis: u32,
    /// This rank's, of the rank's box.
    pub piece: Split,
    /// Whether gradients are in pieces from the end of every micro-batch's backward, not only for the update.
    pub early: bool,
}

/// Writes the program.
pub fn lower(model: &Model, joint: &Joint, target: &Target) -> Program {
    let mut lower = Lower::new(model, joint, target);
    lower.leaves();
    let (setup, prologue) = (lower.setup(), lower.prologue());
    let loss = lower.scalar("loss", joint.graph.ty(joint.graph.loss));
    let (forward, backward) = lower.forward_and_backward(loss);
    let reduction = reduction::lower(&mut lower);
    let optimizer = optimizer::lower(&mut lower, &target.optimizer);
    lower.finish(loss, [setup, prologue, forward, backward], [reduction, optimizer])
}

/// Writes the program that lets libtorch's own autograd differentiate `graph`: what others are checked against. One rank,
/// one micro-batch.
pub fn lower_oracle(model: &Model, graph: Graph, trainable: &BTreeSet<ParameterId>, target: &Target) -> Program {
    let forward = graph.nodes.len();
    let mutations = graph.outputs.iter().skip(1).copied().collect();
    let joint = Joint { graph, forward, mutations, gradients: Vec::new(), rerun: BTreeMap::new() };
    let mut lower = Lower::new(model, &joint, target);
    lower.leaves();
    let setup = lower.setup();
    let loss = lower.scalar("loss", joint.graph.ty(joint.graph.loss));
    let (mut forward, mut backward) = lower.forward_and_backward(loss);
    forward.kind = FunctionKind::Recorded;
    let mut args = vec![Arg::Value(Value::Global(loss))];
    let mut outs = Vec::new();
    for p in trainable {
        let parameter = model.parameter(*p);
        let own = lower.program.parameters.iter_mut().find(|q| q.names == parameter.names);
        let Some(own) = own else { continue };
        own.trainable = true;
        let (own, ty) = (own.global, lower.program.globals[own.global as usize].ty.clone());
        let gradient = lower.global(&parameter.names[0], ty, Role::Gradient);
        let (axes, reduced_over) = (Vec::new(), Vec::new());
        lower.gradients.push(Gradient { parameter: own, sum: gradient, gradient, scattered: None, axes, reduced_over });
        args.push(Arg::Value(Value::Global(own)));
        outs.push(Some(Value::Global(gradient)));
    }
    backward.body.push(plain(slapo_program::Op::Autograd, args, outs));
    let optimizer = optimizer::lower(&mut lower, &target.optimizer);
    let prologue = Function { name: "prologue".to_owned(), kind: FunctionKind::Prologue, body: Vec::new() };
    let reduction = reduction::lower(&mut lower);
    lower.finish(loss, [setup, prologue, forward, backward], [reduction, optimizer])
}

/// When a node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Setup,
    Forward,
    Backward,
}

/// A trained parameter's globals.
struct Gradient {
    parameter: GlobalId,
    /// What backward adds up.
    sum: GlobalId,
    /// What the update takes: the same, or a piece of it.
    gradient: GlobalId,
    /// Where the update takes a piece of the parameter.
    scattered: Option<Scattered>,
    /// Axes over which the gradient is split at the update.
    axes: Vec<usize>,
    /// Axes over whose ranks the gradient is summed up when backward has run, in order.
    reduced_over: Vec<u32>,
}

struct Lower<'a> {
    model: &'a Model,
    joint: &'a Joint,
    target: &'a Target,
    phases: Vec<Phase>,
    /// Values that live in globals: leaves and what setup makes for later phases.
    globals: BTreeMap<ValueId, GlobalId>,
    program: Program,
    origins: BTreeMap<slapo_program::Origin, u32>,
    gradients: Vec<Gradient>,
    grad_norm: Option<GlobalId>,
}

impl<'a> Lower<'a> {
    fn new(model: &'a Model, joint: &'a Joint, target: &'a Target) -> Lower<'a> {
        let fingerprint = Fingerprint { schedule: target.schedule.clone(), model: model.fingerprint.clone() };
        let program = Program {
            version: VERSION,
            fingerprint,
            seed: target.seed,
            micro_batches: target.micro_batches,
            mesh: target.mesh.clone(),
            coordinates: target.coordinates.clone(),
            // What no module owns is instruction origin 0.
            origins: vec![slapo_program::Origin::default()],
            globals: Vec::new(),
            locals: Vec::new(),
            parameters: Vec::new(),
            inputs: Vec::new(),
            functions: Vec::new(),
            setup: Vec::new(),
            step: Vec::new(),
            loss: 0,
            grad_norm: None,
        };
        Lower {
            model,
            joint,
            target,
            phases: phases(model, joint),
            globals: BTreeMap::new(),
            program,
            origins: BTreeMap::from([(slapo_program::Origin::default(), 0)]),
            gradients: Vec::new(),
            grad_norm: None,
        }
    }

    fn graph(&self) -> &'a Graph {
        &self.joint.graph
    }

    fn global(&mut self, name: impl Into<String>, ty: TensorType, role: Role) -> GlobalId {
        self.program.globals.push(Global { name: name.into(), ty, role });
        self.program.globals.len() as GlobalId - 1
    }

    /// A slot without a name; `alias` is what it looks into.
    fn local(&mut self, ty: TensorType, alias: Option<Value>) -> LocalId {
        self.program.locals.push(Slot { name: String::new(), ty, alias });
        self.program.locals.len() as LocalId - 1
    }

    fn scalar(&mut self, name: &str, ty: &Type) -> GlobalId {
        self.global(name, TensorType::scalar(ty.dtype), Role::Scalar)
    }

    /// Parameters in the model's order, read or not; buffers that are read, changed or saved; inputs.
    fn leaves(&mut self) {
        let graph = self.graph();
        let mutated: BTreeSet<_> = self.model.mutations.iter().map(|(buffer, _)| *buffer).collect();
        let read: BTreeSet<ValueId> = graph.nodes.iter().flat_map(Node::reads).collect();
        for (i, value) in graph.values.iter().enumerate() {
            let id = ValueId(i as u32);
            let ty = tensor_type(&value.ty);
            let global = match value.def {
                Def::Parameter(p) => {
                    let parameter = self.model.parameter(p);
                    let trainable = self.joint.gradients.iter().any(|(g, _)| *g == p);
                    let global = self.global(&parameter.names[0], ty.clone(), Role::Parameter);
                    let whole = TensorType::new(parameter.dtype, parameter.shape.clone());
                    let mut held = held(global, &parameter.names, whole, parameter.stored.as_ref());
                    let splits = self.target.boxes.get(&p).into_iter().flatten();
                    held.placement.splits.extend(splits.map(|(_, split)| *split));
                    held.piece = self.scattered(p, &ty).map(|scattered| scattered.piece);
                    self.program.parameters.push(Parameter { trainable, init: initializer(self.model, p), ..held });
                    global
                }
                Def::Buffer(b) => {
                    let buffer = &self.model.buffers[b.0 as usize];
                    if !buffer.persistent && !read.contains(&id) && !mutated.contains(&b) {
                        continue;
                    }
                    let global = self.global(&buffer.name, ty, Role::Buffer);
                    let whole = TensorType::new(buffer.dtype, buffer.shape.clone());
                    let held = held(global, std::slice::from_ref(&buffer.name), whole, buffer.stored.as_ref());
                    self.program.parameters.push(Parameter { saved: buffer.persistent, ..held });
                    global
                }
                Def::Input(i) => {
                    let name = self.model.inputs[i as usize].name.clone();
                    let global = self.global(&name, ty, Role::Input);
                    let limit = self.target.limits.get(&i);
                    let ignored = limit.and_then(|limit| limit.ignored);
                    self.program.inputs.push(Input { name, global, limit: limit.map(|limit| limit.below), ignored });
                    global
                }
                Def::Node(..) => continue,
            };
            self.globals.insert(id, global);
        }
    }

    /// Constants that later phases read, computed once.
    fn setup(&mut self) -> Function {
        let graph = self.graph();
        let mut exported = BTreeSet::new();
        for (node, phase) in graph.nodes.iter().zip(&self.phases) {
            if *phase != Phase::Setup {
                exported.extend(node.reads().filter(|v| self.phase_of(*v) == Some(Phase::Setup)));
            }
        }
        let mut body = Body::new(Frame::default());
        for node in self.in_phase(Phase::Setup) {
            body.node(self, node);
        }
        for v in exported {
            let value = body.frame.value(self, v);
            let global = self.global(&graph.value(v).name, tensor_type(graph.ty(v)), Role::Constant);
            body.store(value, global);
            self.globals.insert(v, global);
        }
        body.finish("setup", FunctionKind::Setup)
    }

    /// Counts over all micro-batches of a step.
    fn prologue(&mut self) -> Function {
        let graph = self.graph();
        let mut needed: BTreeSet<ValueId> = BTreeSet::new();
        let sums: Vec<&Node> = graph.nodes.iter().filter(|n| n.op == Op::StepSum).collect();
        needed.extend(sums.iter().flat_map(|n| n.reads()));
        let mut nodes = Vec::new();
        for node in graph.nodes.iter().rev() {
            if node.op != Op::StepSum && node.outs.iter().flatten().any(|v| needed.contains(v)) {
                let reads: Vec<ValueId> = node.reads().filter(|v| !self.globals.contains_key(v)).collect();
                needed.extend(reads);
                nodes.push(node);
            }
        }
        let mut body = Body::new(Frame::default());
        nodes.retain(|n| !n.outs.iter().flatten().any(|v| self.globals.contains_key(v)));
        for node in nodes.into_iter().rev() {
            body.node(self, node);
        }
        for node in sums {
            let (Some(Some(out)), Some(sum)) = (node.outs.first(), node.reads().next()) else { continue };
            let global = self.scalar(&graph.value(*out).name, graph.ty(*out));
            let value = body.frame.value(self, sum);
            body.accumulate(self, value, global, node);
            self.globals.insert(*out, global);
        }
        body.finish("prologue", FunctionKind::Prologue)
    }

    fn forward_and_backward(&mut self, loss: GlobalId) -> (Function, Function) {
        let graph = self.graph();
        let mut gradients: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
        for ((p, _), End { value, axes: reduced_over }) in self.joint.gradients.iter().zip(reduction::ends(self.joint))
        {
            let parameter = self.model.parameter(*p);
            let ty = tensor_type(graph.ty(value));
            let scattered = self.scattered(*p, &ty);
            let piece =
                scattered.map(|scattered| self.global(&parameter.names[0], piece(&ty, &scattered), Role::Gradient));
            let whole = match (scattered, piece) {
                (Some(Scattered { early: true, .. }), Some(piece)) => piece,
                _ => self.global(&parameter.names[0], ty, Role::Gradient),
            };
            let own = self.program.parameters.iter().find(|q| q.names == parameter.names).map_or(0, |q| q.global);
            // An axis of one rank splits nothing, and sums are then taken in the order of the unsharded model.
            let axes = self.target.boxes.get(p).into_iter().flatten().map(|(axis, _)| *axis);
            let axes = axes.filter(|axis| self.target.mesh.get(*axis).is_some_and(|axis| axis.size > 1));
            let axes = axes.chain(scattered.map(|scattered| scattered.axis as usize)).collect();
            let gradient = piece.unwrap_or(whole);
            gradients.entry(value).or_default().push(self.gradients.len());
            self.gradients.push(Gradient { parameter: own, sum: whole, gradient, scattered, axes, reduced_over });
        }
        let mut forward = Body::new(Frame::default());
        for node in self.in_phase(Phase::Forward) {
            if node.op != Op::StepSum {
                forward.node(self, node);
            }
            if node.outs.contains(&Some(graph.loss)) {
                let value = forward.frame.value(self, graph.loss);
                forward.accumulate(self, value, loss, node);
            }
        }
        let forward_length = forward.instrs.len();
        let mut joint = forward;
        for node in self.in_phase(Phase::Backward) {
            joint.node(self, node);
            // A loss that ranks reduce is known only after that.
            if node.outs.contains(&Some(graph.loss)) {
                let value = joint.frame.value(self, graph.loss);
                joint.accumulate(self, value, loss, node);
            }
            for out in node.outs.iter().flatten() {
                for gradient in gradients.remove(out).unwrap_or_default() {
                    let value = joint.frame.value(self, *out);
                    reduction::add_up(self, &mut joint, value, gradient, node);
                }
            }
        }
        // A gradient that no backward node computes is a constant or a forward value.
        for (v, own) in gradients {
            for gradient in own {
                let value = joint.frame.value(self, v);
                reduction::add_up(self, &mut joint, value, gradient, &graph.nodes[0]);
            }
        }
        // Last of all: nothing may read the old value any more.
        for ((buffer, _), v) in self.model.mutations.iter().zip(&self.joint.mutations) {
            let old = graph.values.iter().position(|value| value.def == Def::Buffer(*buffer));
            if let Some(global) = old.and_then(|i| self.globals.get(&ValueId(i as u32)).copied()) {
                let value = joint.frame.value(self, *v);
                joint.store(value, global);
            }
        }
        joint.finish_at(forward_length)
    }

    /// How the update of a parameter is shared, if its box of type `ty` has rows for every rank.
    fn scattered(&self, parameter: ParameterId, ty: &TensorType) -> Option<Scattered> {
        let scattered = self.target.zero.get(&parameter).copied()?;
        ty.shape.first().is_some_and(|rows| *rows >= scattered.piece.parts).then_some(scattered)
    }

    fn in_phase(&self, phase: Phase) -> Vec<&'a Node> {
        let nodes = self.joint.graph.nodes.iter().zip(&self.phases);
        nodes.filter(|(_, p)| **p == phase).map(|(node, _)| node).collect()
    }

    fn phase_of(&self, value: ValueId) -> Option<Phase> {
        match self.graph().value(value).def {
            Def::Node(node, _) => Some(self.phases[node.0 as usize]),
            _ => None,
        }
    }

    fn origin(&mut self, node: &Node) -> u32 {
        let source = node.origin.source.map(|s| {
            let line = &self.model.sources[s.0 as usize];
            format!("{}:{}", line.file, line.line)
        });
        let module = self.model.scope_path(node.origin.scope).to_owned();
        let origin = slapo_program::Origin { module, source };
        let next = self.program.origins.len() as u32;
        let id = *self.origins.entry(origin.clone()).or_insert(next);
        if id == next {
            self.program.origins.push(origin);
        }
        id
    }

    fn finish(mut self, loss: GlobalId, functions: [Function; 4], ends: [Function; 2]) -> Program {
        let own = &self.program;
        let functions = functions.map(|f| Function { body: buckets::joined(own, f.body), ..f });
        let [setup, prologue, forward, backward] = functions;
        let micro_batches = self.program.micro_batches;
        let mut program = self.program;
        let mut add = |function: Function| {
            program.functions.push(function);
            program.functions.len() as u32 - 1
        };
        let (setup, has_setup) = (add(setup.clone()), !setup.body.is_empty());
        let (prologue, has_prologue) = (add(prologue.clone()), !prologue.body.is_empty());
        let (forward, backward) = (add(forward), add(backward));
        let [reduction, optimizer] = ends;
        let reduction = (!reduction.body.is_empty()).then(|| add(reduction));
        let optimizer = add(optimizer);
        if has_setup {
            program.setup.push(Call { function: setup, micro_batch: 0 });
        }
        if has_prologue {
            program.step.extend((0..micro_batches).map(|m| Call { function: prologue, micro_batch: m }));
        }
        for m in 0..micro_batches {
            program.step.extend([forward, backward].map(|function| Call { function, micro_batch: m }));
        }
        if let Some(reduction) = reduction {
            program.step.push(Call { function: reduction, micro_batch: 0 });
        }
        program.step.push(Call { function: optimizer, micro_batch: 0 });
        program.loss = loss;
        program.grad_norm = self.grad_norm.take();
        program
    }
}

/// A tensor of the archive as one rank holds it whole: saved, not trained, filled with the archive's own values.
fn held(global: GlobalId, names: &[String], whole: TensorType, stored: Option<&Stored>) -> Parameter {
    let source = stored.map(|s| Source {
        offset: s.offset,
        dtype: whole.dtype,
        shape: whole.shape.clone(),
        strides: s.strides.clone(),
    });
    Parameter {
        global,
        names: names.to_vec(),
        trainable: false,
        saved: true,
        source,
        init: Init::Stored,
        placement: Placement { global_shape: whole.shape, splits: Vec::new() },
        piece: None,
    }
}

/// The type of this rank's piece.
fn piece(ty: &TensorType, scattered: &Scattered) -> TensorType {
    let split = &scattered.piece;
    let mut shape = ty.shape.clone();
    shape[split.dim] = split.length(shape[split.dim]).unwrap_or(shape[split.dim]);
    TensorType::new(ty.dtype, shape)
}

/// Setup is what depends on no parameter, no input and no random numbers.
fn phases(model: &Model, joint: &Joint) -> Vec<Phase> {
    let graph = &joint.graph;
    let mutated: BTreeSet<_> = model.mutations.iter().map(|(buffer, _)| *buffer).collect();
    let mut phases: Vec<Phase> = Vec::with_capacity(graph.nodes.len());
    for (i, node) in graph.nodes.iter().enumerate() {
        let constant = matches!(node.op, Op::Aten(_) | Op::Border { .. } | Op::Sync { .. })
            && node.reads().all(|v| match graph.value(v).def {
                Def::Node(n, _) => phases[n.0 as usize] == Phase::Setup,
                Def::Buffer(b) => !mutated.contains(&b),
                Def::Parameter(_) | Def::Input(_) => false,
            });
        phases.push(match constant {
            true => Phase::Setup,
            false if i < joint.forward => Phase::Forward,
            false => Phase::Backward,
        });
    }
    phases
}

fn tensor_type(ty: &Type) -> TensorType {
    TensorType::new(ty.dtype, ty.shape.clone())
}

/// Legal values of an input: 0 and above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub below: i64,
    /// One more legal value.
    pub ignored: Option<i64>,
}

/// By input: the number of rows of the embedding that it indexes, or of classes of the loss that takes it, seen through
/// views. Of a graph over global values: a rank may have only some of the rows, and would ignore the classes of others.
pub fn limits(graph: &Graph) -> BTreeMap<u32, Limit> {
    let limit = |input: &ValueId| match graph.value(*input).def {
        Def::Input(i) => Some((i, limit_of(graph, *input)?)),
        _ => None,
    };
    graph.inputs.iter().filter_map(limit).collect()
}

fn limit_of(graph: &Graph, input: ValueId) -> Option<Limit> {
    if graph.ty(input).dtype.is_float() {
        return None;
    }
    let mut same = BTreeSet::from([input]);
    for node in &graph.nodes {
        let reads = |name: &str| node.tensor(name).is_some_and(|v| same.contains(&v));
        let size = |name: &str, dim: usize| graph.ty(node.tensor(name)?).shape.get(dim).copied();
        match node.name() {
            "embedding" if reads("indices") => return Some(Limit { below: size("weight", 0)?, ignored: None }),
            "nll_loss_forward" | "cross_entropy_loss" if reads("target") => {
                let ignored = ops::Call { graph, node }.int("ignore_index").unwrap_or(-100);
                return Some(Limit { below: size("self", 1).or(size("self", 0))?, ignored: Some(ignored) });
            }
            _ => {}
        }
        let moves = ["clone", "pad", "part", "reshape", "slice.Tensor", "unsqueeze", "view"].contains(&node.name());
        if moves && reads("self") {
            same.extend(node.outs.iter().flatten());
        }
    }
    None
}

/// `--init` by class: normal 0.02, biases 0, norm weights 1.
fn initializer(model: &Model, id: ParameterId) -> Init {
    let parameter = model.parameter(id);
    let class = model.module(parameter.module).short_class();
    let name = parameter.names[0].rsplit('.').next().unwrap_or_default();
    match (name, class.contains("Norm")) {
        ("bias", _) => Init::Constant(0.0),
        (_, true) => Init::Constant(1.0),
        _ => Init::Normal { std: 0.02, site: id.0 },
    }
}

/// Instruction arguments that are values.
fn values(values: &[Value]) -> Arg {
    Arg::Values(values.iter().copied().map(Some).collect())
}

/// An instruction outside any module.
fn plain(op: slapo_program::Op, args: Vec<Arg>, outs: Vec<Option<Value>>) -> Instr {
    Instr { op, args, named: Vec::new(), outs, free: Vec::new(), origin: 0 }
}
