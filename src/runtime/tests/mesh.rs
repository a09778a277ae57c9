//! Simulated meshes: hand-written programs of every rank against the program of one rank that does it all.

mod common;

use common::{Build, aten, id, v};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use slapo_program::*;
use slapo_runtime::executor::Executor;
use slapo_runtime::mesh::Mesh;
use slapo_runtime::{Error, trainer};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tch::{Device, Kind, Tensor};
use tempfile::TempDir;

const ROWS: i64 = 12;
const INPUTS: i64 = 5;
const OUTPUTS: i64 = 3;
const DP: u32 = 0;
const TP: u32 = 1;
const ADAMW: [(&str, f64); 5] = [("lr", 0.05), ("beta1", 0.9), ("beta2", 0.99), ("weight_decay", 0.1), ("eps", 1e-8)];

/// `mean((tanh((x · scale) w1 + b1) w2 + b2 − y)²)` with AdamW: rows over `dp`, the hidden dimension over `tp`.
#[derive(Clone, Copy)]
struct Plan {
    dp: i64,
    tp: i64,
    hidden: i64,
    micro_batches: u32,
    /// Ranks of `dp` store a part each of `w1`, in 3 groups, and gather it for use.
    zero: bool,
    /// Write collectives at all; axes of size 1 have them, too.
    mesh: bool,
    /// The collective to leave out.
    without: &'static str,
}

impl Plan {
    fn new(dp: i64, tp: i64, hidden: i64) -> Plan {
        Plan { dp, tp, hidden, micro_batches: 2, zero: false, mesh: true, without: "" }
    }

    fn alone(self) -> Plan {
        Plan { dp: 1, tp: 1, zero: false, mesh: false, ..self }
    }

    /// The programs of all ranks.
    fn programs(self) -> Vec<Program> {
        let coordinates = (0..self.dp).flat_map(|d| (0..self.tp).map(move |t| [d, t]));
        coordinates.map(|at| Rank { plan: self, at, b: Build::new() }.program()).collect()
    }
}

/// One rank's program in the making.
struct Rank {
    plan: Plan,
    at: [i64; 2],
    b: Build,
}

struct Weights {
    value: Value,
    gradient: Value,
    shape: Vec<i64>,
}

impl Rank {
    fn split(&self, axis: u32, dim: usize, groups: i64) -> Split {
        let parts = [self.plan.dp, self.plan.tp][axis as usize];
        Split::even(dim, groups, parts, Part::Rank(self.at[axis as usize]))
    }

    fn weights(&mut self, name: &str, global_shape: &[i64], splits: &[Split]) -> Weights {
        let mut shape = global_shape.to_vec();
        splits.iter().for_each(|s| shape[s.dim] /= s.parts);
        let value = self.b.parameter(name, &shape);
        let gradient = self.b.global(name, Role::Gradient, DType::F64, &shape);
        let placement = Placement { global_shape: global_shape.to_vec(), splits: splits.to_vec() };
        self.b.program.parameters.last_mut().expect("just made").placement = placement;
        Weights { value, gradient, shape }
    }

    fn collective(&mut self, label: &str, axis: u32, kind: Collective, value: Value, shape: &[i64]) -> Value {
        if !self.plan.mesh || self.plan.without == label {
            return value;
        }
        let out = self.b.local(DType::F64, shape);
        self.b.instr(Op::Collective { axis, kind }, vec![v(value)], vec![Some(out)]);
        out
    }

    fn all_reduce(&mut self, label: &str, axis: u32, value: Value, shape: &[i64]) -> Value {
        self.collective(label, axis, Collective::AllReduce, value, shape)
    }

    /// This rank's rows of the running micro-batch.
    fn rows(&mut self, input: Value, width: i64) -> Value {
        let rows = ROWS / i64::from(self.plan.micro_batches);
        let micro = self.b.local(DType::F64, &[rows, width]);
        self.b.rows(input, micro);
        let own = self.b.local(DType::F64, &[rows / self.plan.dp, width]);
        self.b.instr(Op::Part(self.split(DP, 0, 1)), vec![v(micro)], vec![Some(own)]);
        own
    }

    fn accumulate(&mut self, label: &str, value: Value, weights: &Weights) {
        let value = self.all_reduce(label, DP, value, &weights.shape);
        self.b.instr(Op::Accumulate, vec![v(value)], vec![Some(weights.gradient)]);
    }

    fn program(mut self) -> Program {
        let Plan { dp, tp, hidden, micro_batches, zero, .. } = self.plan;
        if self.plan.mesh {
            let axes = [("dp", dp), ("tp", tp)];
            self.b.program.mesh = axes.map(|(name, size)| Axis { name: name.to_owned(), size }).to_vec();
            self.b.program.coordinates = self.at.to_vec();
        }
        self.b.program.micro_batches = micro_batches;
        let rows = ROWS / i64::from(micro_batches) / dp;
        let part = hidden / tp;
        let loss = self.b.global("loss", Role::Scalar, DType::F64, &[]);
        self.b.program.loss = id(loss);
        let norm = self.b.global("norm", Role::Scalar, DType::F64, &[]);
        self.b.program.grad_norm = Some(id(norm));
        let x = self.b.input("x", DType::F64, &[ROWS, INPUTS]);
        let y = self.b.input("y", DType::F64, &[ROWS, OUTPUTS]);
        let scale = self.weights("scale", &[INPUTS], &[]);
        let mut columns = vec![self.split(TP, 1, 1)];
        columns.extend(zero.then(|| self.split(DP, 1, 3)));
        let w1 = self.weights("w1", &[INPUTS, hidden], &columns);
        let b1 = self.weights("b1", &[hidden], &[self.split(TP, 0, 1)]);
        let w2 = self.weights("w2", &[hidden, OUTPUTS], &[self.split(TP, 0, 1)]);
        let b2 = self.weights("b2", &[OUTPUTS], &[]);
        // Stored transposed behind 64 bytes of something else.
        self.b.program.parameters[1].source =
            Some(Source { offset: 64, dtype: DType::F64, shape: vec![INPUTS, hidden], strides: vec![1, INPUTS] });

        self.b.function("forward", FunctionKind::Forward);
        let x = self.rows(x, INPUTS);
        let y = self.rows(y, OUTPUTS);
        let scaled = self.b.aten("aten::mul.Tensor", vec![v(x), v(scale.value)], &[rows, INPUTS]);
        let mut first = w1.value;
        if zero {
            let gather = Collective::AllGather { dim: 1, groups: 3 };
            first = self.collective("gather", DP, gather, first, &[INPUTS, part]);
        }
        let z = self.b.aten("aten::addmm", vec![v(b1.value), v(scaled), v(first)], &[rows, part]);
        let a = self.b.aten("aten::tanh", vec![v(z)], &[rows, part]);
        let partial = self.b.aten("aten::mm", vec![v(a), v(w2.value)], &[rows, OUTPUTS]);
        let product = self.all_reduce("output", TP, partial, &[rows, OUTPUTS]);
        let out = self.b.aten("aten::add.Tensor", vec![v(product), v(b2.value)], &[rows, OUTPUTS]);
        let difference = self.b.aten("aten::sub.Tensor", vec![v(out), v(y)], &[rows, OUTPUTS]);
        let square = self.b.aten("aten::mul.Tensor", vec![v(difference), v(difference)], &[rows, OUTPUTS]);
        let sum = self.b.aten("aten::sum", vec![v(square), Arg::None], &[]);
        let sum = self.all_reduce("loss", DP, sum, &[]);
        let mean = self.b.aten("aten::div.Scalar", vec![v(sum), Arg::Int(ROWS * OUTPUTS)], &[]);
        self.b.instr(Op::Accumulate, vec![v(mean)], vec![Some(loss)]);

        self.b.function("backward", FunctionKind::Backward);
        let factor = Arg::Float(2.0 / (ROWS * OUTPUTS) as f64);
        let g = self.b.aten("aten::mul.Scalar", vec![v(difference), factor], &[rows, OUTPUTS]);
        let over_rows = |b: &mut Build, value: Value, shape: &[i64]| {
            b.aten("aten::sum.dim_IntList", vec![v(value), Arg::Int(0), Arg::Bool(false), Arg::None], shape)
        };
        let db2 = over_rows(&mut self.b, g, &[OUTPUTS]);
        self.accumulate("gradient of b2", db2, &b2);
        let at = self.b.aten("aten::t", vec![v(a)], &[part, rows]);
        let dw2 = self.b.aten("aten::mm", vec![v(at), v(g)], &[part, OUTPUTS]);
        self.accumulate("gradient of w2", dw2, &w2);
        let w2t = self.b.aten("aten::t", vec![v(w2.value)], &[OUTPUTS, part]);
        let da = self.b.aten("aten::mm", vec![v(g), v(w2t)], &[rows, part]);
        let dz = self.b.aten("aten::tanh_backward", vec![v(da), v(a)], &[rows, part]);
        let db1 = over_rows(&mut self.b, dz, &[part]);
        self.accumulate("gradient of b1", db1, &b1);
        let xt = self.b.aten("aten::t", vec![v(scaled)], &[INPUTS, rows]);
        let dw1 = self.b.aten("aten::mm", vec![v(xt), v(dz)], &[INPUTS, part]);
        if zero {
            let scatter = Collective::ReduceScatter { dim: 1, groups: 3 };
            let own = self.collective("scatter", DP, scatter, dw1, &w1.shape);
            self.b.instr(Op::Accumulate, vec![v(own)], vec![Some(w1.gradient)]);
        } else {
            self.accumulate("gradient of w1", dw1, &w1);
        }
        let w1t = self.b.aten("aten::t", vec![v(first)], &[part, INPUTS]);
        let dx = self.b.aten("aten::mm", vec![v(dz), v(w1t)], &[rows, INPUTS]);
        let dx = self.all_reduce("input gradient", TP, dx, &[rows, INPUTS]);
        let product = self.b.aten("aten::mul.Tensor", vec![v(dx), v(x)], &[rows, INPUTS]);
        let dscale = over_rows(&mut self.b, product, &[INPUTS]);
        self.accumulate("gradient of scale", dscale, &scale);

        self.b.function("optimizer", FunctionKind::Optimizer);
        self.norm(norm, [&scale, &w1, &b1, &w2, &b2]);
        self.adamw([&scale, &w1, &b1, &w2, &b2]);
        self.b.finish()
    }

    fn square(&mut self, weights: &Weights) -> Value {
        let square = self.b.aten("aten::mul.Tensor", vec![v(weights.gradient), v(weights.gradient)], &weights.shape);
        self.b.aten("aten::sum", vec![v(square), Arg::None], &[])
    }

    fn norm(&mut self, norm: Value, [scale, w1, b1, w2, b2]: [&Weights; 5]) {
        let add = |b: &mut Build, x: Value, y: Value| b.aten("aten::add.Tensor", vec![v(x), v(y)], &[]);
        let mut split = self.square(w1);
        if self.plan.zero {
            split = self.all_reduce("norm over dp", DP, split, &[]);
        }
        for weights in [b1, w2] {
            let square = self.square(weights);
            split = add(&mut self.b, split, square);
        }
        let mut total = self.all_reduce("norm", TP, split, &[]);
        for weights in [scale, b2] {
            let square = self.square(weights);
            total = add(&mut self.b, total, square);
        }
        let root = self.b.aten("aten::sqrt", vec![v(total)], &[]);
        self.b.instr(Op::Store, vec![v(root)], vec![Some(norm)]);
    }

    fn adamw(&mut self, all: [&Weights; 5]) {
        let b = &mut self.b;
        let list = |values: Vec<Value>| Arg::Values(values.into_iter().map(Some).collect());
        let mut state =
            |name: &str| list(all.iter().map(|w| b.global(name, Role::Optimizer, DType::F64, &w.shape)).collect());
        let (mean, square) = (state("mean"), state("square"));
        let step = b.global("step", Role::Optimizer, DType::F32, &[]);
        b.instr(aten("add_.Scalar"), vec![v(step), Arg::Int(1)], vec![None]);
        let parameters = list(all.iter().map(|w| w.value).collect());
        let gradients = list(all.iter().map(|w| w.gradient).collect());
        let args = vec![parameters, gradients, mean, square, list(vec![]), list(vec![step; 5])];
        let numbers = ADAMW.iter().map(|(name, x)| ((*name).to_owned(), Arg::Float(*x)));
        let flags = ["amsgrad", "maximize"].map(|name| (name.to_owned(), Arg::Bool(false)));
        b.named(aten("_fused_adamw_"), args, numbers.chain(flags).collect(), vec![]);
        b.instr(Op::Release, all.iter().map(|w| v(w.gradient)).collect(), vec![]);
    }
}

type Tensors = BTreeMap<String, (Vec<usize>, Vec<f64>)>;

struct Outcome {
    scalars: Vec<f64>,
    gradients: Tensors,
    parameters: Tensors,
    collectives: Vec<CollectiveCount>,
}

fn bytes(numbers: impl Iterator<Item = f64>) -> Vec<u8> {
    numbers.flat_map(f64::to_le_bytes).collect()
}

fn load(path: &Path) -> Tensors {
    let content = fs::read(path).expect("exists");
    let file = SafeTensors::deserialize(&content).expect("parses");
    let numbers =
        |data: &[u8]| data.chunks_exact(8).map(|c| f64::from_le_bytes(c.try_into().expect("eight"))).collect();
    file.iter().map(|(name, t)| (name.to_owned(), (t.shape().to_vec(), numbers(t.data())))).collect()
}

fn job(programs: Vec<Program>, folder: &Path) -> Job {
    let mut programs = programs.into_iter();
    let program = programs.next().expect("a rank");
    let wave = |n: i64, frequency: f64| bytes((0..n).map(move |i| (i as f64 * frequency).sin()));
    let (x, y) = (wave(2 * ROWS * INPUTS, 0.7), wave(2 * ROWS * OUTPUTS, 1.3));
    let view = |data, width| TensorView::new(Dtype::F64, vec![2 * ROWS as usize, width as usize], data).expect("fits");
    let data = safetensors::serialize([("x", view(&x, INPUTS)), ("y", view(&y, OUTPUTS))], None).expect("serialises");
    fs::write(folder.join("data.safetensors"), data).expect("writes");
    fs::write(folder.join("archive"), [vec![0; 64], wave(INPUTS * 64, 2.1)].concat()).expect("writes");
    Job {
        program,
        simulated: programs.collect(),
        peers: None,
        archive: Some(folder.join("archive")),
        data: folder.join("data.safetensors"),
        steps: 2,
        init: false,
        threads: Some(1),
        deterministic: false,
        dump_gradients: Some(folder.join("gradients.safetensors")),
        save: Some(folder.join("model.safetensors")),
        trace: None,
    }
}

fn run_in(folder: &Path, job: Job) -> Result<Outcome, Error> {
    let (mut scalars, mut counts) = (Vec::new(), Vec::new());
    trainer::run(job, &mut |event| {
        match event {
            Event::Step { loss, grad_norm, .. } => scalars.extend(std::iter::once(*loss).chain(*grad_norm)),
            Event::Done { collectives, .. } => counts.clone_from(collectives),
            _ => {}
        }
        Ok(())
    })?;
    let [gradients, parameters] = ["gradients", "model"].map(|name| load(&folder.join(format!("{name}.safetensors"))));
    Ok(Outcome { scalars, gradients, parameters, collectives: counts })
}

fn run(programs: Vec<Program>) -> Result<Outcome, Error> {
    let folder = TempDir::new().expect("a folder");
    run_in(folder.path(), job(programs, folder.path()))
}

fn refused(programs: Vec<Program>) -> String {
    run(programs).err().expect("refused").to_string()
}

fn assert_same(got: &[f64], expected: &[f64], name: &str) {
    assert_eq!(got.len(), expected.len(), "{name}");
    let scale = expected.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() <= 1e-12 * scale, "{name}: {got}, expected {expected}");
    }
}

fn assert_same_training(plan: Plan) -> Outcome {
    let expected = run(plan.alone().programs()).unwrap_or_else(|e| panic!("{e}"));
    let got = run(plan.programs()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(expected.collectives, []);
    assert_eq!(expected.scalars.len(), 4, "a loss and a norm for each of two steps");
    assert_same(&got.scalars, &expected.scalars, "losses and norms");
    for (got, expected) in [(&got.gradients, &expected.gradients), (&got.parameters, &expected.parameters)] {
        assert_eq!(expected.keys().collect::<Vec<_>>(), ["b1", "b2", "scale", "w1", "w2"]);
        for (name, (shape, numbers)) in expected {
            assert_eq!(&got[name].0, shape);
            assert_same(&got[name].1, numbers, name);
        }
    }
    got
}

#[test]
fn the_single_rank_program_follows_autograd() {
    let folder = TempDir::new().expect("a folder");
    let plan = Plan::new(1, 1, 7).alone();
    let mut start = job(plan.programs(), folder.path());
    start.steps = 0;
    let start = untrained(folder.path(), start);
    let got = run(plan.programs()).unwrap_or_else(|e| panic!("{e}"));
    let leaf = |name: &str| {
        let (shape, numbers) = &start[name];
        let shape: Vec<i64> = shape.iter().map(|n| *n as i64).collect();
        Tensor::from_slice(numbers).view(&shape[..]).set_requires_grad(true)
    };
    let leaves = ["b1", "b2", "scale", "w1", "w2"].map(leaf);
    let [b1, b2, scale, w1, w2] = &leaves;
    let wave = |n: i64, frequency: f64| (Tensor::arange(n, (Kind::Double, Device::Cpu)) * frequency).sin();
    let x = wave(ROWS * INPUTS, 0.7).view([ROWS, INPUTS]);
    let y = wave(ROWS * OUTPUTS, 1.3).view([ROWS, OUTPUTS]);
    let out = ((x * scale).matmul(w1) + b1).tanh().matmul(w2) + b2;
    let loss = (out - y).square().mean(Kind::Double);
    assert_same(&got.scalars[..1], &[loss.double_value(&[])], "loss");
    let gradients = Tensor::run_backward(&[loss], &leaves, false, false);
    for (gradient, (name, (_, numbers))) in gradients.iter().zip(&got.gradients) {
        assert_same(numbers, &common::values(gradient), name);
    }
}

/// Parameters as a run without steps saves them.
fn untrained(folder: &Path, mut job: Job) -> Tensors {
    job.dump_gradients = None;
    trainer::run(job, &mut |_| Ok(())).unwrap_or_else(|e| panic!("{e}"));
    load(&folder.join("model.safetensors"))
}

#[test]
fn every_mesh_trains_as_one_rank_does() {
    for (dp, tp, hidden) in [(1, 2, 14), (1, 3, 15), (2, 1, 7), (3, 1, 7), (2, 2, 10), (2, 3, 9), (2, 4, 20), (6, 2, 6)]
    {
        assert_same_training(Plan::new(dp, tp, hidden));
    }
    assert_same_training(Plan { micro_batches: 1, ..Plan::new(2, 2, 10) });
    assert_same_training(Plan { micro_batches: 1, ..Plan::new(4, 16, 16) });
}

#[test]
fn a_parameter_stored_in_parts_is_gathered_and_its_gradient_scattered_in_groups() {
    for (dp, tp, hidden) in [(2, 1, 12), (3, 1, 9), (2, 2, 12), (2, 4, 24)] {
        assert_same_training(Plan { zero: true, ..Plan::new(dp, tp, hidden) });
    }
}

#[test]
fn collectives_of_one_rank_are_the_identity() {
    let plan = Plan { zero: true, ..Plan::new(1, 1, 9) };
    assert_eq!(assert_same_training(plan).collectives, []);
    // In the plain executor, too.
    let mut b = Build::new();
    let loss = b.global("loss", Role::Scalar, DType::F64, &[]);
    b.program.loss = id(loss);
    b.program.mesh = vec![Axis { name: "tp".to_owned(), size: 1 }];
    b.program.coordinates = vec![0];
    let x = b.input("x", DType::F64, &[2, 3]);
    let kept = b.global("kept", Role::Gradient, DType::F64, &[2, 3]);
    b.function("forward", FunctionKind::Forward);
    let same = b.local(DType::F64, &[2, 3]);
    let kind = Collective::AllToAll { from: 0, groups: 2, to: 1 };
    b.instr(Op::Collective { axis: 0, kind }, vec![v(x)], vec![Some(same)]);
    b.instr(aten("mul_.Scalar"), vec![v(same), Arg::Int(2)], vec![None]);
    b.instr(Op::Accumulate, vec![v(same)], vec![Some(kept)]);
    let mut executor = Executor::new(b.finish()).expect("prepares");
    let input = Tensor::arange(6, (Kind::Double, Device::Cpu)).view([2, 3]);
    executor.set_global(id(x), input.copy()).expect("fits");
    common::step(&mut executor, 0);
    assert!(executor.global(id(kept)).expect("set").equal(&(&input * 2)));
    assert!(executor.global(id(x)).expect("set").equal(&input), "the input is untouched");
}

#[test]
fn a_removed_collective_is_noticed() {
    let without = |dp, tp, without| Plan { without, ..Plan::new(dp, tp, 6) }.programs();
    for (dp, tp, label) in [(1, 2, "output"), (2, 1, "loss"), (3, 2, "loss")] {
        let message = refused(without(dp, tp, label));
        assert!(message.starts_with("`loss` differs between ranks: "), "{message}");
    }
    let message = refused(without(2, 2, "norm"));
    assert!(message.starts_with("`norm` differs between ranks: "), "{message}");
    let differs = "which should hold the same values";
    assert_eq!(
        refused(without(2, 2, "input gradient")),
        format!("gradient of `scale` differs between ranks 0 and 1, {differs}")
    );
    let labels =
        ["gradient of scale", "gradient of w1", "gradient of b1", "gradient of w2", "gradient of b2"].into_iter();
    for (label, name) in labels.filter_map(|label| Some((label, label.strip_prefix("gradient of ")?))) {
        // Ranks 0 and 2 hold the same box where `tp` splits it.
        let message = refused(without(2, 2, label));
        assert_eq!(message, format!("gradient of `{name}` differs between ranks 0 and 2, {differs}"));
    }
    // Without gradients written, the saved parameters tell.
    let folder = TempDir::new().expect("a folder");
    let mut job = job(without(1, 2, "input gradient"), folder.path());
    (job.dump_gradients, job.steps) = (None, 1);
    job.simulated.iter_mut().chain([&mut job.program]).for_each(|program| program.grad_norm = None);
    let error = run_in(folder.path(), job).err().expect("refused").to_string();
    assert_eq!(error, format!("`scale` differs between ranks 0 and 1, {differs}"));
    assert!(!folder.path().join("model.safetensors").exists());
}

/// A trace is there even where ranks turn out to disagree: that is what it is for.
#[test]
fn a_trace_holds_the_first_step_of_every_rank_and_micro_batch() {
    let plan = Plan { without: "gradient of scale", ..Plan::new(2, 2, 6) };
    let programs = plan.programs();
    let program = &programs[0];
    let forward = program.functions.iter().find(|f| f.kind == FunctionKind::Forward).expect("forward");
    let tanh = forward.body.iter().find(|instr| instr.op == aten("tanh")).and_then(|instr| instr.outs[0]);
    let is_gradient = |g: &Global| g.role == Role::Gradient && g.name == "scale";
    let gradient = Value::Global(program.globals.iter().position(is_gradient).expect("a gradient") as u32);
    let tanh = tanh.expect("is kept");
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("trace.safetensors");
    let trace = Some(Trace { path: path.clone(), values: vec![tanh, gradient] });
    let error = run_in(folder.path(), Job { trace, ..job(programs, folder.path()) }).err().expect("refused");
    assert_eq!(error.kind(), FailureKind::Ranks);
    let traced = load(&path);
    let of = |value, rank, micro_batch| traced.get(&Trace::name(value, rank, micro_batch)).expect("is written");
    for rank in 0..4 {
        assert_eq!(of(gradient, rank, 0).0, [INPUTS as usize]);
        for micro_batch in 0..2 {
            assert_eq!(of(tanh, rank, micro_batch).0, [3, 3], "half of the rows, and of the hidden dimension");
        }
    }
    assert_eq!(traced.len(), 4 + 4 * 2);
    assert_ne!(of(gradient, 0, 0).1, of(gradient, 2, 0).1, "each rank's own");
    assert_eq!(of(gradient, 0, 0).1, of(gradient, 1, 0).1);
    assert_ne!(of(tanh, 0, 0).1, of(tanh, 0, 1).1);
}

#[test]
fn collectives_are_counted_by_axis_kind_and_function() {
    let count = |axis: &str, kind: &str, function: &str, calls, bytes| CollectiveCount {
        axis: axis.to_owned(),
        kind: kind.to_owned(),
        function: function.to_owned(),
        calls,
        bytes,
    };
    // 2 micro-batches of 3 rows a rank; 5 of 10 hidden features a rank.
    let gradients = 8 * (3 + 5 * 3 + 5 + 5 * 5 + 5);
    assert_eq!(
        assert_same_training(Plan::new(2, 2, 10)).collectives,
        [
            count("dp", "all_reduce", "forward", 2, 2 * 8),
            count("dp", "all_reduce", "backward", 2 * 5, 2 * gradients),
            count("tp", "all_reduce", "forward", 2, 2 * 8 * 3 * 3),
            count("tp", "all_reduce", "backward", 2, 2 * 8 * 3 * 5),
            count("tp", "all_reduce", "optimizer", 1, 8),
        ]
    );
    // The local payload: a gather brings the part, a scatter the whole.
    let zero = assert_same_training(Plan { zero: true, ..Plan::new(2, 1, 12) }).collectives;
    assert_eq!(zero[0], count("dp", "all_gather", "forward", 2, 2 * 8 * 5 * 6));
    assert_eq!(zero.last(), Some(&count("dp", "reduce_scatter", "backward", 2, 2 * 8 * 5 * 12)));
}

/// Three axes of two: a tensor split over all of them is gathered, scattered and exchanged.
fn exchange(at: [i64; 3]) -> (Program, [Value; 4]) {
    let mut b = Build::new();
    b.program.loss = id(b.global("loss", Role::Scalar, DType::F64, &[]));
    b.program.mesh = ["a", "b", "c"].map(|name| Axis { name: name.to_owned(), size: 2 }).to_vec();
    b.program.coordinates = at.to_vec();
    let x = b.input("x", DType::F64, &[2, 4, 6, 8]);
    let kept = |b: &mut Build, name: &str, shape: &[i64]| b.global(name, Role::Gradient, DType::F64, shape);
    let whole = kept(&mut b, "whole", &[2, 4, 6, 8]);
    let turned = kept(&mut b, "turned", &[1, 2, 6, 4]);
    let scattered = kept(&mut b, "scattered", &[2, 2, 6, 8]);
    b.function("forward", FunctionKind::Forward);
    let mut shape = vec![2, 4, 6, 8];
    let mut value = x;
    let groups = [1, 2, 3];
    for axis in 0..3 {
        shape[axis] /= 2;
        let split = Split::even(axis, groups[axis], 2, Part::Rank(at[axis]));
        let part = b.local(DType::F64, &shape);
        b.instr(Op::Part(split), vec![v(value)], vec![Some(part)]);
        value = part;
    }
    let collective = |b: &mut Build, axis, kind, value, shape: &[i64]| {
        let out = b.local(DType::F64, shape);
        b.instr(Op::Collective { axis, kind }, vec![v(value)], vec![Some(out)]);
        out
    };
    let out = collective(&mut b, 2, Collective::AllToAll { from: 2, groups: 3, to: 3 }, value, &[1, 2, 6, 4]);
    b.instr(Op::Accumulate, vec![v(out)], vec![Some(turned)]);
    for axis in [1, 0, 2] {
        shape[axis] *= 2;
        let kind = Collective::AllGather { dim: axis, groups: groups[axis] };
        value = collective(&mut b, axis as u32, kind, value, &shape);
    }
    b.instr(Op::Accumulate, vec![v(value)], vec![Some(whole)]);
    let out = collective(&mut b, 1, Collective::ReduceScatter { dim: 1, groups: 2 }, value, &[2, 2, 6, 8]);
    b.instr(Op::Accumulate, vec![v(out)], vec![Some(scattered)]);
    (b.finish(), [x, whole, turned, scattered])
}

#[test]
fn eight_ranks_exchange_along_each_of_three_axes() {
    let coordinates = |rank: i64| [rank / 4, rank / 2 % 2, rank % 2];
    let programs: Vec<Program> = (0..8).map(|rank| exchange(coordinates(rank)).0).collect();
    let [x, whole, turned, scattered] = exchange([0, 0, 0]).1;
    let mut mesh = Mesh::new(programs).unwrap_or_else(|e| panic!("{e}"));
    let input = Tensor::arange(2 * 4 * 6 * 8, (Kind::Double, Device::Cpu)).view([2, 4, 6, 8]);
    mesh.set_global(id(x), &input).expect("fits");
    mesh.setup().expect("runs");
    mesh.begin_step(0).expect("begins");
    for call in mesh.program().step.clone() {
        mesh.call(call).unwrap_or_else(|e| panic!("{e}"));
    }
    mesh.end_step();
    for (rank, executor) in mesh.ranks().iter().enumerate() {
        let [a, b, c] = coordinates(rank as i64);
        let got = |value| executor.global(id(value)).expect("set");
        assert!(got(whole).equal(&input), "rank {rank}");
        let second = input.view([2, 2, 2, 1, 6, 8]).select(2, b).flatten(1, 2);
        assert!(got(scattered).equal(&(&second * 2)), "rank {rank}");
        assert!(got(turned).equal(&second.narrow(0, a, 1).narrow(3, c * 4, 4)), "rank {rank}");
    }
}

#[test]
fn a_rank_alone_cannot_communicate() {
    let programs = Plan::new(1, 2, 6).programs();
    assert_eq!(refused(programs[..1].to_vec()), "a mesh of dp = 1, tp = 2 has 2 ranks, the job brings programs of 1");
    let program = exchange([0, 0, 0]).0;
    let mut executor = Executor::new(program.clone()).expect("prepares");
    executor.set_global(1, Tensor::zeros([2, 4, 6, 8], (Kind::Double, Device::Cpu))).expect("fits");
    executor.begin_step(0).expect("begins");
    let error = executor.call(program.step[0]).expect_err("fails");
    assert_eq!(
        error.to_string(),
        "all_to_all needs all 2 ranks of axis `c`, and this rank runs alone (`all_to_all[dim 2 to 3, groups 3] \
         over axis 2` on f64[1, 2, 3, 8], instruction 3 of `forward`)"
    );
}

#[test]
fn programs_that_do_not_fit_together_are_refused_by_rank_and_instruction() {
    let plan = Plan::new(2, 2, 6);
    let with = |change: &dyn Fn(&mut Vec<Program>)| {
        let mut programs = plan.programs();
        change(&mut programs);
        Mesh::new(programs).err().expect("refused").to_string()
    };
    assert_eq!(with(&|p| p.swap(1, 2)), "rank 1: its coordinates are [1, 0], and those of this rank [0, 1]");
    assert_eq!(with(&|p| p[3].mesh[0].name = "pp".to_owned()), "rank 3: its mesh is not that of rank 0");
    assert_eq!(with(&|p| drop(p.pop())), "a mesh of dp = 2, tp = 2 has 4 ranks, the job brings programs of 3");
    let other = Plan { without: "output", ..plan }.programs();
    assert_eq!(
        with(&|p| p[2] = other[2].clone()),
        "rank 2: instruction 8 of `forward` is `add.Tensor` where rank 0 has `all_reduce over axis 1`"
    );
    assert_eq!(
        with(&|p| drop(p[1].functions[2].body.pop())),
        format!(
            "rank 1: `optimizer` has {} instructions, on rank 0 it has {}",
            plan.programs()[0].functions[2].body.len() - 1,
            plan.programs()[0].functions[2].body.len()
        )
    );
    assert_eq!(with(&|p| p[1].seed = 8), "rank 1: its seed, micro-batches or order of calls are not those of rank 0");
    let broken = with(&|p| p.iter_mut().for_each(|p| p.functions[0].body[4].op = aten("tan.h")));
    assert!(broken.starts_with("rank 0: libtorch has no operator `aten::tan.h`"), "{broken}");
    let large = Plan { micro_batches: 1, ..Plan::new(6, 11, 66) };
    assert_eq!(
        Mesh::new(large.programs()).err().expect("refused").to_string(),
        "66 ranks are simulated at most 64 at a time"
    );
}

#[test]
fn a_failure_says_on_which_rank() {
    let mut programs = Plan::new(1, 2, 6).programs();
    // Rank 1 brings another shape than rank 0 does.
    let Some(Value::Local(out)) = programs[1].functions[0].body[7].outs[0] else { panic!("a local") };
    programs[1].locals[out as usize].ty.shape = vec![6, 4];
    let message = refused(programs);
    assert!(
        message.starts_with(&format!("rank 1: %{out} is declared f64[6, 4], the result is f64[6, 3]")),
        "{message}"
    );
}

#[test]
fn the_validator_knows_the_mesh() {
    let program = Plan::new(2, 2, 6).programs().swap_remove(1);
    let faults = |change: &dyn Fn(&mut Program)| {
        let mut program = program.clone();
        change(&mut program);
        validate(&program).into_iter().map(|f| f.message).collect::<Vec<_>>()
    };
    assert!(faults(&|_| {}).is_empty());
    assert_eq!(faults(&|p| p.coordinates[1] = 2), ["coordinate 2 on axis `tp` of size 2"]);
    assert_eq!(faults(&|p| p.coordinates.truncate(1)), ["1 coordinates on a mesh of 2 axes"]);
    assert_eq!(faults(&|p| p.mesh[1].size = 0), ["axis `tp` has size 0", "coordinate 1 on axis `tp` of size 0"]);
    let set = |p: &mut Program, axis, kind| p.functions[0].body[8].op = Op::Collective { axis, kind };
    assert_eq!(faults(&|p| set(p, 2, Collective::AllReduce)), ["axis 2 does not exist"]);
    assert_eq!(faults(&|p| set(p, 0, Collective::AllGather { dim: 0, groups: 0 })), ["all_gather in 0 groups"]);
    let part = |p: &mut Program, at| p.parameters[1].placement.splits[0].part = Part::Rank(at);
    assert_eq!(faults(&|p| part(p, 2)), ["part 2 of 2 along dimension 1"]);
    let split = |p: &mut Program, groups, part| {
        p.parameters[1].placement.splits[0] = Split::even(1, groups, 4, part);
    };
    assert!(faults(&|p| split(p, 1, Part::Rank(1))).is_empty(), "6 columns on 4 ranks");
    for (groups, part) in [(3, Part::Rank(1)), (1, Part::MicroBatch)] {
        assert_eq!(faults(&|p| split(p, groups, part)), ["a split of dimension 1 is not even"]);
    }
}

#[test]
fn jobs_and_events_carry_the_mesh_and_do_without() {
    let folder = TempDir::new().expect("a folder");
    let job = job(Plan::new(1, 2, 6).programs(), folder.path());
    let mut text = serde_json::to_value(&job).expect("serialises");
    assert_eq!(Job::from_json(&text.to_string()).expect("parses").simulated, job.simulated);
    text["simulated"][0]["version"] = (VERSION + 1).into();
    assert!(Job::from_json(&text.to_string()).expect_err("refused").contains("compile it again"));
    text.as_object_mut().expect("an object").remove("simulated");
    assert_eq!(Job::from_json(&text.to_string()).expect("parses").simulated, []);
    let old = r#"{"event": "done", "steps": 2, "seconds": 0.5}"#;
    assert!(matches!(serde_json::from_str(old), Ok(Event::Done { collectives, .. }) if collectives.is_empty()));
}
