//! Builds small programs by hand. Read [`Build`] first.

#![allow(dead_code, clippy::allow_attributes, reason = "each test target uses a part of this")]

pub mod language;

use slapo_program::*;
use slapo_runtime::executor::Executor;
use tch::Tensor;

/// A program in the making: values are declared where they are written, `free` lists are computed at the end.
pub struct Build {
    pub program: Program,
}

impl Build {
    pub fn new() -> Build {
        let program = Program {
            version: VERSION,
            fingerprint: Fingerprint::default(),
            seed: 7,
            micro_batches: 1,
            mesh: Vec::new(),
            coordinates: Vec::new(),
            origins: vec![Origin { module: "net.layer".to_owned(), source: Some("net.py:12".to_owned()) }],
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
        Build { program }
    }

    pub fn global(&mut self, name: &str, role: Role, dtype: DType, shape: &[i64]) -> Value {
        self.program.globals.push(Global { name: name.to_owned(), ty: TensorType::new(dtype, shape), role });
        Value::Global(self.program.globals.len() as u32 - 1)
    }

    pub fn local(&mut self, dtype: DType, shape: &[i64]) -> Value {
        self.program.locals.push(Slot { name: String::new(), ty: TensorType::new(dtype, shape), alias: None });
        Value::Local(self.program.locals.len() as u32 - 1)
    }

    /// Begins a function that each step calls for every micro-batch.
    pub fn function(&mut self, name: &str, kind: FunctionKind) {
        self.program.functions.push(Function { name: name.to_owned(), kind, body: Vec::new() });
    }

    /// The running micro-batch's rows of an input.
    pub fn rows(&mut self, whole: Value, part: Value) {
        let parts = i64::from(self.program.micro_batches);
        let split = Split::even(0, 1, parts, Part::MicroBatch);
        self.instr(Op::Part(split), vec![v(whole)], vec![Some(part)]);
    }

    pub fn instr(&mut self, op: Op, args: Vec<Arg>, outs: Vec<Option<Value>>) {
        self.push(Instr { op, args, named: Vec::new(), outs, free: Vec::new(), origin: 0 });
    }

    /// An instruction with arguments by name.
    pub fn named(&mut self, op: Op, args: Vec<Arg>, named: Vec<(String, Arg)>, outs: Vec<Option<Value>>) {
        self.push(Instr { op, args, named, outs, free: Vec::new(), origin: 0 });
    }

    fn push(&mut self, instr: Instr) {
        self.program.functions.last_mut().expect("a function has begun").body.push(instr);
    }

    /// An operator with one f64 result of the given shape.
    pub fn aten(&mut self, name: &str, args: Vec<Arg>, shape: &[i64]) -> Value {
        let out = self.local(DType::F64, shape);
        self.instr(Op::Aten(name.to_owned()), args, vec![Some(out)]);
        out
    }

    pub fn parameter(&mut self, name: &str, shape: &[i64]) -> Value {
        let value = self.global(name, Role::Parameter, DType::F64, shape);
        let Value::Global(global) = value else { unreachable!("just made") };
        self.program.parameters.push(Parameter {
            global,
            names: vec![name.to_owned()],
            trainable: true,
            saved: true,
            source: None,
            init: Init::Normal { std: 0.5, site: global },
            placement: Placement::default(),
            piece: None,
        });
        value
    }

    pub fn input(&mut self, name: &str, dtype: DType, shape: &[i64]) -> Value {
        let value = self.global(name, Role::Input, dtype, shape);
        let Value::Global(global) = value else { unreachable!("just made") };
        self.program.inputs.push(Input { name: name.to_owned(), global, limit: None, ignored: None });
        value
    }

    /// Orders the calls of a step (all functions but setup, micro-batches inside) and computes `free` lists.
    pub fn finish(mut self) -> Program {
        let program = &mut self.program;
        for (i, function) in program.functions.iter().enumerate() {
            let function_number = i as u32;
            let call = |micro_batch| Call { function: function_number, micro_batch };
            match function.kind {
                FunctionKind::Setup => program.setup.push(call(0)),
                FunctionKind::Optimizer => program.step.push(call(0)),
                _ => program.step.extend((0..program.micro_batches).map(call)),
            }
        }
        for local in 0..program.locals.len() as u32 {
            let touches = |instr: &Instr| {
                let value = Value::Local(local);
                instr.outs.contains(&Some(value)) || instr.reads().any(|v| v == value)
            };
            let last = program.functions.iter_mut().flat_map(|f| &mut f.body).rfind(|i| touches(i));
            last.expect("declared where it is written").free.push(local);
        }
        self.program
    }
}

pub fn aten(name: &str) -> Op {
    Op::Aten(format!("aten::{name}"))
}

pub fn v(value: Value) -> Arg {
    Arg::Value(value)
}

pub fn id(value: Value) -> u32 {
    match value {
        Value::Global(g) | Value::Local(g) => g,
    }
}

/// Runs one step of a program whose globals are set.
pub fn step(executor: &mut Executor, number: u64) {
    executor.begin_step(number).expect("begins");
    for call in executor.program().step.clone() {
        executor.call(call).unwrap_or_else(|e| panic!("{e}"));
    }
    executor.end_step();
}

/// The values of a tensor in row-major order.
pub fn values(tensor: &Tensor) -> Vec<f64> {
    Vec::<f64>::try_from(tensor.to_kind(tch::Kind::Double).flatten(0, -1)).expect("numbers")
}

/// Asserts that two tensors agree to a relative error of the largest element.
pub fn assert_close(got: &Tensor, expected: &Tensor, tolerance: f64) {
    assert_eq!(got.size(), expected.size());
    let error = (got - expected).abs().max().double_value(&[]);
    let scale = expected.abs().max().double_value(&[]).max(1e-300);
    assert!(error <= tolerance * scale, "off by {error} where the largest is {scale}");
}
