//! The executor on hand-written programs, against libtorch's autograd.

mod common;

use common::{Build, assert_close, aten, id, step, v};
use slapo_program::*;
use slapo_runtime::executor::Executor;
use tch::{Device, Kind, Tensor};

/// `mean((x·w + b − y)²)` with gradients written out; one gradient global per parameter.
fn regression(micro_batches: u32, optimizer: impl FnOnce(&mut Build, [Value; 2], [Value; 2])) -> Program {
    let (rows, features) = (8, 3);
    let mut b = Build::new();
    b.program.micro_batches = micro_batches;
    let part = rows / i64::from(micro_batches);
    let loss = b.global("loss", Role::Scalar, DType::F64, &[]);
    b.program.loss = id(loss);
    let x = b.input("x", DType::F64, &[rows, features]);
    let y = b.input("y", DType::F64, &[rows, 1]);
    let w = b.parameter("w", &[features, 1]);
    let bias = b.parameter("b", &[1]);
    let dw = b.global("w.grad", Role::Gradient, DType::F64, &[features, 1]);
    let db = b.global("b.grad", Role::Gradient, DType::F64, &[1]);

    b.function("forward", FunctionKind::Forward);
    let xm = b.local(DType::F64, &[part, features]);
    b.rows(x, xm);
    let ym = b.local(DType::F64, &[part, 1]);
    b.rows(y, ym);
    let product = b.aten("aten::addmm", vec![v(bias), v(xm), v(w), Arg::Int(1), Arg::Int(1)], &[part, 1]);
    let difference = b.aten("aten::sub.Tensor", vec![v(product), v(ym), Arg::Int(1)], &[part, 1]);
    let square = b.aten("aten::mul.Tensor", vec![v(difference), v(difference)], &[part, 1]);
    let sum = b.aten("aten::sum", vec![v(square), Arg::None], &[]);
    let mean = b.aten("aten::div.Scalar", vec![v(sum), Arg::Int(rows)], &[]);
    b.instr(Op::Accumulate, vec![v(mean)], vec![Some(loss)]);

    b.function("backward", FunctionKind::Backward);
    let gradient = b.aten("aten::mul.Scalar", vec![v(difference), Arg::Float(2.0 / rows as f64)], &[part, 1]);
    let xt = b.aten("aten::t", vec![v(xm)], &[features, part]);
    let gw = b.aten("aten::mm", vec![v(xt), v(gradient)], &[features, 1]);
    b.instr(Op::Accumulate, vec![v(gw)], vec![Some(dw)]);
    let gb = b.aten("aten::sum.dim_IntList", vec![v(gradient), Arg::Int(0), Arg::Bool(false), Arg::None], &[1]);
    b.instr(Op::Accumulate, vec![v(gb)], vec![Some(db)]);

    b.function("optimizer", FunctionKind::Optimizer);
    optimizer(&mut b, [w, bias], [dw, db]);
    b.instr(Op::Release, vec![v(dw), v(db)], vec![]);
    b.finish()
}

fn data() -> (Tensor, Tensor) {
    tch::manual_seed(3);
    let options = (Kind::Double, Device::Cpu);
    (Tensor::randn([8, 3], options), Tensor::randn([8, 1], options))
}

fn start() -> [Tensor; 2] {
    [Tensor::from_slice(&[0.5, -1.0, 0.25]).view([3, 1]), Tensor::from_slice(&[0.1])]
}

/// The program's parameters after `steps`, and the same by autograd with `update(parameter, gradient, state)`.
fn run(program: Program, steps: u64) -> (Vec<f64>, [Tensor; 2]) {
    let (x, y) = data();
    let global = |name: &str| program.globals.iter().position(|g| g.name == name).expect("exists") as u32;
    let (w, b, xi, yi) = (global("w"), global("b"), global("x"), global("y"));
    let loss = program.loss;
    let mut executor = Executor::new(program).unwrap_or_else(|e| panic!("{e}"));
    let [w0, b0] = start();
    for (id, tensor) in [(xi, x), (yi, y), (w, w0), (b, b0)] {
        executor.set_global(id, tensor).expect("fits");
    }
    executor.setup().expect("runs");
    let mut losses = Vec::new();
    for number in 0..steps {
        step(&mut executor, number);
        losses.push(executor.global(loss).expect("set").double_value(&[]));
    }
    (losses, [w, b].map(|g| executor.global(g).expect("set").shallow_clone()))
}

fn autograd(steps: u64, mut update: impl FnMut(u64, &mut [Tensor; 2], [Tensor; 2])) -> (Vec<f64>, [Tensor; 2]) {
    let (x, y) = data();
    let mut parameters = start();
    let mut losses = Vec::new();
    for number in 0..steps {
        let leaves = [0, 1].map(|i: usize| parameters[i].detach().set_requires_grad(true));
        let loss = (x.matmul(&leaves[0]) + &leaves[1] - &y).square().mean(Kind::Double);
        losses.push(loss.double_value(&[]));
        let gradients = Tensor::run_backward(&[loss], &leaves, false, false);
        let [dw, db] = gradients.try_into().expect("two gradients");
        update(number, &mut parameters, [dw, db]);
    }
    (losses, parameters)
}

fn assert_same(got: (Vec<f64>, [Tensor; 2]), expected: (Vec<f64>, [Tensor; 2])) {
    for (got, expected) in got.0.iter().zip(&expected.0) {
        assert!((got - expected).abs() <= 1e-12 * expected.abs(), "loss {got}, expected {expected}");
    }
    for (got, expected) in got.1.iter().zip(&expected.1) {
        assert_close(got, expected, 1e-12);
    }
}

fn lists(parameters: [Value; 2], gradients: [Value; 2]) -> [Arg; 2] {
    [parameters, gradients].map(|list| Arg::Values(list.map(Some).to_vec()))
}

fn numbers(named: &[(&str, f64)], flags: &[&str]) -> Vec<(String, Arg)> {
    let numbers = named.iter().map(|(name, x)| ((*name).to_owned(), Arg::Float(*x)));
    numbers.chain(flags.iter().map(|name| ((*name).to_owned(), Arg::Bool(false)))).collect()
}

#[test]
fn fused_sgd_follows_autograd_over_any_number_of_micro_batches() {
    for micro_batches in [1, 2, 4] {
        let program = regression(micro_batches, |b, parameters, gradients| {
            let [parameters, gradients] = lists(parameters, gradients);
            let args = vec![parameters, gradients, Arg::Values(vec![])];
            let settings = [("lr", 0.1), ("weight_decay", 0.0), ("momentum", 0.0), ("dampening", 0.0)];
            let flags = ["nesterov", "maximize", "is_first_step"];
            b.named(aten("_fused_sgd_"), args, numbers(&settings, &flags), vec![]);
        });
        let expected = autograd(5, |_, parameters, gradients| {
            for (parameter, gradient) in parameters.iter_mut().zip(gradients) {
                let _ = parameter.g_sub_(&(gradient * 0.1));
            }
        });
        assert_same(run(program, 5), expected);
    }
}

const ADAMW: [(&str, f64); 5] = [("lr", 0.05), ("beta1", 0.9), ("beta2", 0.99), ("weight_decay", 0.1), ("eps", 1e-8)];
const CLIP: f64 = 0.3;

/// Clipping as `torch.nn.utils.clip_grad_norm_` has it, then AdamW.
fn clipped_adamw(b: &mut Build, parameters: [Value; 2], gradients: [Value; 2]) {
    let two = Arg::Int(2);
    let norms = gradients.map(|g| Some(b.aten("aten::linalg_vector_norm", vec![v(g), two.clone()], &[])));
    let stacked = b.aten("aten::stack", vec![Arg::Values(norms.to_vec())], &[2]);
    let norm = b.aten("aten::linalg_vector_norm", vec![v(stacked), two], &[]);
    let shifted = b.aten("aten::add.Scalar", vec![v(norm), Arg::Float(1e-6)], &[]);
    let inverse = b.aten("aten::reciprocal", vec![v(shifted)], &[]);
    let factor = b.aten("aten::mul.Scalar", vec![v(inverse), Arg::Float(CLIP)], &[]);
    let factor = b.aten("aten::clamp", vec![v(factor), Arg::None, Arg::Float(1.0)], &[]);
    for gradient in gradients {
        b.instr(aten("mul_.Tensor"), vec![v(gradient), v(factor)], vec![None]);
    }
    let state = |b: &mut Build, name: &str| {
        let shapes = [&[3, 1][..], &[1]];
        let globals = shapes.map(|shape| Some(b.global(name, Role::Optimizer, DType::F64, shape)));
        Arg::Values(globals.to_vec())
    };
    let (mean, square) = (state(b, "mean"), state(b, "square"));
    let step = b.global("step", Role::Optimizer, DType::F32, &[]);
    b.instr(aten("add_.Scalar"), vec![v(step), Arg::Int(1)], vec![None]);
    let [parameters, gradients] = lists(parameters, gradients);
    let steps = Arg::Values(vec![Some(step); 2]);
    let args = vec![parameters, gradients, mean, square, Arg::Values(vec![]), steps];
    b.named(aten("_fused_adamw_"), args, numbers(&ADAMW, &["amsgrad", "maximize"]), vec![]);
}

#[test]
fn clipped_fused_adamw_follows_autograd() {
    let [lr, beta1, beta2, decay, eps] = ADAMW.map(|(_, x)| x);
    let mut state = [(); 4].map(|()| Tensor::from(0.0));
    let expected = autograd(7, |number, parameters, gradients| {
        let norm = gradients.iter().map(|g| g.square().sum(Kind::Double).double_value(&[])).sum::<f64>().sqrt();
        let factor = (CLIP / (norm + 1e-6)).min(1.0);
        let t = number as i32 + 1;
        for (i, (parameter, gradient)) in parameters.iter_mut().zip(gradients).enumerate() {
            let gradient = gradient * factor;
            state[i] = &state[i] * beta1 + &gradient * (1.0 - beta1);
            state[2 + i] = &state[2 + i] * beta2 + gradient.square() * (1.0 - beta2);
            let denominator = (&state[2 + i] / (1.0 - beta2.powi(t))).sqrt() + eps;
            let update = &state[i] / (1.0 - beta1.powi(t)) / denominator * lr;
            *parameter = &*parameter * (1.0 - lr * decay) - update;
        }
    });
    assert_same(run(regression(2, clipped_adamw), 7), expected);
}

/// One function with the given instruction on inputs `x` [2, 3] and `y` [4].
fn failing(op: Op, shape: &[i64]) -> Event {
    let mut b = Build::new();
    let loss = b.global("loss", Role::Scalar, DType::F64, &[]);
    b.program.loss = id(loss);
    let x = b.input("x", DType::F64, &[2, 3]);
    let y = b.input("y", DType::F64, &[4]);
    b.function("forward", FunctionKind::Forward);
    let first = b.aten("aten::relu", vec![v(x)], &[2, 3]);
    let out = b.local(DType::F64, shape);
    b.instr(op, vec![v(first), v(y)], vec![Some(out)]);
    let program = b.finish();
    let run = || {
        let mut executor = Executor::new(program.clone())?;
        executor.set_global(id(x), Tensor::zeros([2, 3], (Kind::Double, Device::Cpu)))?;
        executor.set_global(id(y), Tensor::zeros([4], (Kind::Double, Device::Cpu)))?;
        executor.begin_step(0)?;
        executor.call(program.step[0])
    };
    run().expect_err("fails").event()
}

#[test]
fn a_failure_names_instruction_operator_shapes_and_origin() {
    let Event::Failed { kind, message, function, instruction, operator, shapes, module, source } =
        failing(aten("mul.Tensor"), &[2, 3])
    else {
        panic!("another event")
    };
    assert_eq!(kind, FailureKind::Run);
    assert!(message.contains("must match the size of tensor b (4)"), "{message}");
    assert_eq!(function.as_deref(), Some("forward"));
    assert_eq!(instruction, Some(1));
    assert_eq!(operator.as_deref(), Some("aten::mul.Tensor"));
    assert_eq!(shapes, ["f64[2, 3]", "f64[4]"]);
    assert_eq!(module.as_deref(), Some("net.layer"));
    assert_eq!(source.as_deref(), Some("net.py:12"));
}

fn message(event: Event) -> String {
    match event {
        Event::Failed { message, instruction: Some(1), .. } => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn operators_and_results_are_checked() {
    let unknown = message(failing(aten("mul.Tensr"), &[2, 3]));
    assert!(unknown.starts_with("libtorch has no operator `aten::mul.Tensr`; overloads of `aten::mul`:"), "{unknown}");
    let arguments = message(failing(aten("relu"), &[2, 3]));
    assert_eq!(arguments, "takes 1 arguments, given more");
    let missing = message(failing(aten("baddbmm"), &[2, 3]));
    assert_eq!(missing, "argument `batch2` is missing");
    let declared = message(failing(aten("outer"), &[2, 3]));
    assert!(declared.contains("1-D"), "{declared}");
}

#[test]
fn a_result_of_another_type_than_declared_is_an_error() {
    let mut b = Build::new();
    let loss = b.global("loss", Role::Scalar, DType::F64, &[]);
    b.program.loss = id(loss);
    b.function("forward", FunctionKind::Forward);
    b.aten("aten::exp", vec![v(loss)], &[1]);
    let program = b.finish();
    let mut executor = Executor::new(program.clone()).expect("prepares");
    executor.begin_step(0).expect("begins");
    let error = executor.call(program.step[0]).expect_err("fails");
    assert_eq!(
        error.to_string(),
        "%0 is declared f64[1], the result is f64[] (`aten::exp` on f64[], instruction 0 of `forward`)"
    );
}

#[test]
fn an_invalid_program_is_refused_before_it_runs() {
    let mut program = regression(1, |_, _, _| {});
    program.functions[0].body[2].free = vec![0];
    program.functions[0].body[3].args[0] = Arg::Value(Value::Local(0));
    let error = Executor::new(program).err().expect("refused");
    assert!(error.to_string().contains("%0 is read after its last use in `forward`, instruction 3"), "{error}");
}

#[test]
fn dropout_is_its_own_derivative_in_every_micro_batch() {
    let mut b = Build::new();
    b.program.micro_batches = 2;
    let loss = b.global("loss", Role::Scalar, DType::F64, &[]);
    b.program.loss = id(loss);
    let x = b.input("x", DType::F64, &[6, 50]);
    let forward = b.global("forward", Role::Gradient, DType::F64, &[3, 50]);
    let backward = b.global("backward", Role::Gradient, DType::F64, &[3, 50]);
    let split = Split::even(0, 1, 2, Part::MicroBatch);
    let placement = Placement { global_shape: vec![6, 50], splits: vec![split] };
    for (name, kind, global) in
        [("forward", FunctionKind::Forward, forward), ("backward", FunctionKind::Backward, backward)]
    {
        b.function(name, kind);
        let part = b.local(DType::F64, &[3, 50]);
        b.rows(x, part);
        let out = b.local(DType::F64, &[3, 50]);
        let op = Op::Dropout { site: 4, p: 0.5, placement: placement.clone() };
        b.instr(op, vec![v(part)], vec![Some(out)]);
        b.instr(Op::Accumulate, vec![v(out)], vec![Some(global)]);
    }
    let mut executor = Executor::new(b.finish()).expect("prepares");
    executor.set_global(id(x), Tensor::ones([6, 50], (Kind::Double, Device::Cpu))).expect("fits");
    let mut sums = Vec::new();
    for number in 0..2 {
        step(&mut executor, number);
        let [forward, backward] = [forward, backward].map(|g| executor.global(id(g)).expect("set").copy());
        assert!(forward.equal(&backward));
        sums.push(forward);
    }
    // Both micro-batches have a mask of their own: sums of 0, 2 and 4 all occur. Another step has another mask.
    for value in [0.0, 2.0, 4.0] {
        assert!(sums[0].eq(value).any().int64_value(&[]) == 1, "no {value}");
    }
    assert!(!sums[0].equal(&sums[1]));
}

#[test]
fn vjp_runs_as_an_instruction() {
    let mut b = Build::new();
    let loss = b.global("loss", Role::Scalar, DType::F64, &[]);
    b.program.loss = id(loss);
    let x = b.input("x", DType::F64, &[3, 4]);
    let dx = b.global("dx", Role::Gradient, DType::F64, &[3, 4]);
    b.function("forward", FunctionKind::Forward);
    let y = b.aten("aten::logsumexp", vec![v(x), Arg::Int(1)], &[3]);
    let total = b.aten("aten::sum", vec![v(y)], &[]);
    b.instr(Op::Store, vec![v(total)], vec![Some(loss)]);
    b.function("backward", FunctionKind::Backward);
    let seed = b.aten("aten::ones_like", vec![v(y)], &[3]);
    let gradient = b.local(DType::F64, &[3, 4]);
    let op = Op::Vjp { op: "aten::logsumexp".to_owned(), results: 1 };
    let named = vec![("self".to_owned(), v(x)), ("dim".to_owned(), Arg::Int(1))];
    b.named(op, vec![v(seed)], named, vec![Some(gradient)]);
    b.instr(Op::Accumulate, vec![v(gradient)], vec![Some(dx)]);
    let mut executor = Executor::new(b.finish()).expect("prepares");
    let value = Tensor::randn([3, 4], (Kind::Double, Device::Cpu));
    executor.set_global(id(x), value.copy()).expect("fits");
    step(&mut executor, 0);
    assert_close(executor.global(id(dx)).expect("set"), &value.softmax(1, Kind::Double), 1e-12);
}
