//! Schedules compiled and run in this process: from text to loss, norm, gradients and parameters on a simulated mesh.
//!
//! Everything is float64, dropout is on, and every parameter is drawn at random, biases too: what is zero in a fresh model
//! hides what is counted twice. Read [`Case`] first.

#![allow(dead_code, clippy::allow_attributes, reason = "each test target uses a part of this")]

use slapo_core::compile::{self, Effects, Options};
use slapo_core::lower::OptimizerSettings;
use slapo_core::passes::canonical;
use slapo_core::schedule::{Modules, Overrides, check};
use slapo_model::{InputSizes, Model, import};
use slapo_program::{Call, DType, FunctionKind, Init, Op, Program, Value};
use slapo_runtime::mesh::Mesh;
use slapo_syntax::{SourceMap, parse};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tch::{Device, Kind, Tensor};

/// At most this is the order of sums, as for `slapoc verify`.
pub const BOUND: f64 = 1e-10;

/// A label that does not count.
const IGNORED: i64 = -100;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// An archive below the repository's root, imported once.
pub fn imported(path: &str) -> Arc<Model> {
    static KNOWN: Mutex<BTreeMap<String, Arc<Model>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let import = || {
        let bytes = std::fs::read(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        Arc::new(import(&bytes).unwrap_or_else(|e| panic!("{path}: {e:?}")))
    };
    known.entry(path.to_owned()).or_insert_with(import).clone()
}

/// A checked schedule on a model.
pub struct Case {
    pub archive: PathBuf,
    pub model: Arc<Model>,
    pub sizes: InputSizes,
    pub effects: Effects,
    pub options: Options,
}

impl Case {
    /// A whole schedule; the file that its `model` line names is not read, but `archive`.
    pub fn of(archive: &str, text: &str) -> Case {
        let model = imported(archive);
        let mut files = SourceMap::new();
        let file = files.add("test.slapo", text);
        let parsed = parse(file, text);
        let checked = check(&mut files, file, &parsed, &Modules::default(), Some(&model), &Overrides::default());
        assert!(checked.is_ok(), "{text}\n{:#?}", checked.diagnostics);
        let options = Options {
            model: canonical::Options { no_dropout: false, dtype: Some(DType::F64) },
            optimizer: OptimizerSettings { clip: Some(0.5), ..OptimizerSettings::default() },
            seed: 3,
            schedule: String::new(),
        };
        let sizes = checked.sizes.expect("the schedule says its sizes");
        Case { archive: root().join(archive), model, sizes, effects: checked.effects, options }
    }

    /// The body of `main` over a model `m` on a mesh.
    pub fn on(archive: &str, mesh: &str, body: &str) -> Case {
        let head = "use std.parallel.{column, row, column_gathered, vocab}\ninput { batch = 4, seq = 6 }\n";
        let mesh = if mesh.is_empty() { String::new() } else { format!("mesh {{ {mesh} }}\n") };
        Case::of(archive, &format!("{head}{mesh}schedule main(m: Module) {{\n{body}\n}}\n"))
    }

    /// The programs of all ranks of a schedule that is right.
    pub fn programs(&self) -> Vec<Program> {
        let Case { model, sizes, effects, options, .. } = self;
        let compiled = compile::compile(model, sizes, effects, options).unwrap_or_else(|e| panic!("{e:#?}"));
        compile::programs(model, &compiled, effects, options).unwrap_or_else(|e| panic!("{e:#?}"))
    }

    /// What the unscheduled model computes under libtorch's own autograd.
    pub fn oracle(&self) -> Outcome {
        let Case { model, sizes, effects, options, .. } = self;
        let plain = Effects { frozen: effects.frozen.clone(), ..Effects::default() };
        let compiled = compile::compile(model, sizes, &plain, options).unwrap_or_else(|e| panic!("{e:#?}"));
        let program = compile::oracle(model, &compiled, &plain, options);
        self.run(vec![program]).expect("the oracle runs")
    }

    /// One step of training. An error where the programs cannot run, or ranks disagree on what should be the same.
    pub fn run(&self, mut programs: Vec<Program>) -> Result<Outcome, String> {
        tch::set_num_threads(1);
        programs.iter_mut().for_each(randomise);
        let said = |e: slapo_runtime::Error| e.to_string();
        let mut mesh = Mesh::new(programs).map_err(said)?;
        mesh.load(Some(&self.archive), true).map_err(said)?;
        mesh.setup().map_err(said)?;
        for (global, tensor) in batch(mesh.program()) {
            mesh.set_global(global, &tensor).map_err(said)?;
        }
        mesh.begin_step(0).map_err(said)?;
        let calls = mesh.program().step.clone();
        let updates = |call: &Call| mesh.program().functions[call.function as usize].kind == FunctionKind::Optimizer;
        let (differentiate, update) = calls.split_at(calls.iter().position(updates).unwrap_or(calls.len()));
        differentiate.iter().try_for_each(|call| mesh.call(*call)).map_err(said)?;
        let loss = mesh.scalar(mesh.program().loss).map_err(said)?;
        let gradients = tensors(mesh.gradients().map_err(said)?);
        update.iter().try_for_each(|call| mesh.call(*call)).map_err(said)?;
        mesh.end_step();
        let norm = mesh.program().grad_norm.map(|g| mesh.scalar(g)).transpose().map_err(said)?;
        let parameters = tensors(mesh.parameters().map_err(said)?);
        Ok(Outcome { loss, norm: norm.unwrap_or(0.0), gradients, parameters })
    }
}

pub type Tensors = BTreeMap<String, Vec<f64>>;

/// What one step computes, whole.
pub struct Outcome {
    pub loss: f64,
    pub norm: f64,
    pub gradients: Tensors,
    pub parameters: Tensors,
}

impl Outcome {
    /// The largest difference, as `slapoc verify` measures it; infinite where something is missing or no number.
    pub fn apart(&self, other: &Outcome) -> f64 {
        let scalars = |o: &Outcome| [("loss", o.loss), ("norm", o.norm)].map(|(n, x)| (n.to_owned(), vec![x])).into();
        let pairs = [
            (&scalars(self), &scalars(other)),
            (&self.gradients, &other.gradients),
            (&self.parameters, &other.parameters),
        ];
        pairs.into_iter().map(|(a, b)| apart(a, b)).fold(0.0, f64::max)
    }
}

/// ‖a − b‖∞ over max(‖b‖∞, 10⁻³ of the largest of all).
fn apart(ours: &Tensors, theirs: &Tensors) -> f64 {
    let largest = |values: &[f64]| values.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    let floor = 1e-3 * theirs.values().map(|b| largest(b)).fold(0.0, f64::max);
    let mut most: f64 = if ours.keys().eq(theirs.keys()) { 0.0 } else { f64::INFINITY };
    for (name, b) in theirs {
        let Some(a) = ours.get(name).filter(|a| a.len() == b.len()) else { return f64::INFINITY };
        let difference = a.iter().zip(b).fold(0.0, |most: f64, (a, b)| match (a - b).is_nan() {
            true => f64::INFINITY,
            false => most.max((a - b).abs()),
        });
        most = most.max(if difference == 0.0 { 0.0 } else { difference / largest(b).max(floor) });
    }
    most
}

fn tensors(named: Vec<(String, Tensor)>) -> Tensors {
    let floats = named.into_iter().filter(|(_, tensor)| tensor.kind() == Kind::Double);
    floats.map(|(name, tensor)| (name, Vec::try_from(tensor.flatten(0, -1)).expect("numbers"))).collect()
}

/// Draws every parameter, keyed by its place among the names, which is the same in all programs of a model.
fn randomise(program: &mut Program) {
    let mut names: Vec<String> = program.parameters.iter().map(|p| p.names[0].clone()).collect();
    names.sort();
    for parameter in program.parameters.iter_mut().filter(|p| p.init != Init::Stored) {
        let site = names.iter().position(|name| *name == parameter.names[0]).expect("its own name") as u32;
        parameter.init = Init::Normal { std: 0.3, site };
    }
}

/// Random tokens; labels and masks are ragged, and rows differ in how many count.
pub fn batch(program: &Program) -> Vec<(u32, Tensor)> {
    let vocabulary = program.inputs.iter().filter_map(|input| input.limit).min().unwrap_or(2);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = |n: i64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % n as u64) as i64
    };
    let mut filled = |input: &slapo_program::Input| {
        let ty = program.ty(Value::Global(input.global));
        let row = ty.shape.iter().skip(1).product::<i64>().max(1);
        let value = |i: i64| match (input.limit, input.name.as_str()) {
            (Some(limit), _) => below(limit),
            (_, name) if name.contains("mask") => i64::from(i % row < row - i / row % 3),
            _ if i % row > 1 && i / row > below(4) => IGNORED,
            _ => below(vocabulary),
        };
        let values: Vec<i64> = (0..row * ty.shape[0]).map(value).collect();
        (input.global, Tensor::from_slice(&values).view(&ty.shape[..]).to_device(Device::Cpu))
    };
    program.inputs.iter().map(&mut filled).collect()
}

/// The program without its reductions of counts over the step.
pub fn uncounted(mut program: Program) -> Program {
    let prologues = program.functions.iter_mut().filter(|f| f.kind == FunctionKind::Prologue);
    for instr in prologues.flat_map(|f| &mut f.body).filter(|i| matches!(i.op, Op::Collective { .. })) {
        instr.op = Op::Aten("aten::clone".to_owned());
    }
    program
}
