//! Runs a program's functions: globals, one frame of locals per micro-batch, and the instructions between them.
//!
//! Every instruction is prepared once: operator found, constants converted, shapes of its own checked. Locals are
//! dropped at the instruction that names them in `free`. What a step consists of and where its data comes from is the
//! trainer's business. Read [`Executor::call`] first.

use crate::dropout::dropout;
use crate::error::{Error, Place, Result};
use crate::geometry::Geometry;
use crate::operator::{PreparedCall, owns_storage};
use crate::random::Stream;
use crate::{geometry, libtorch};
use slapo_program::{
    Arg, Call, Function, GlobalId, Instr, Op, Origin, Program, Role, Split, TensorType, Value, validate,
};
use tch::Tensor;

pub struct Executor {
    program: Program,
    /// One action per instruction of each function.
    actions: Vec<Vec<Action>>,
    globals: Vec<Option<Tensor>>,
    /// Globals that this step has already written: the next `Accumulate` adds.
    written: Vec<bool>,
    frames: Vec<Frame>,
    step: u64,
}

type Frame = Vec<Option<Tensor>>;

/// An instruction, ready to run.
enum Action {
    Aten(PreparedCall),
    /// The instruction reads one gradient where `gradients` says so, then the operator's tensors.
    Vjp {
        call: PreparedCall,
        wanted: Vec<bool>,
        gradients: Vec<bool>,
    },
    Part(Split),
    /// One geometry per micro-batch.
    Dropout {
        site: u32,
        p: f64,
        geometries: Vec<Geometry>,
    },
    Accumulate(GlobalId),
    Store(GlobalId),
    Release(Vec<GlobalId>),
}

impl Executor {
    /// Validates the program, prepares all of it and makes optimizer state and scalars; other globals are empty.
    pub fn new(program: Program) -> Result<Executor> {
        let faults = validate(&program);
        if let Some(first) = faults.first() {
            let place = first.instruction.map(|i| format!(", instruction {i}")).unwrap_or_default();
            return Err(Error::run(format!(
                "the program is not valid: {} in `{}`{place} ({} faults in all)",
                first.message,
                first.function,
                faults.len()
            )));
        }
        let mut actions = Vec::new();
        for function in &program.functions {
            let prepared: Result<Vec<Action>> = (function.body.iter().enumerate())
                .map(|(i, instr)| {
                    let types = || instr.reads().map(|v| program.ty(v).to_string()).collect();
                    prepare(&program, instr)
                        .map_err(|message| Error::run(message).at(|| place(&program, function, i, types())))
                })
                .collect();
            actions.push(prepared?);
        }
        let mut globals = Vec::new();
        for global in &program.globals {
            globals.push(match global.role {
                Role::Optimizer | Role::Scalar => Some(libtorch::zeros(&global.ty).map_err(Error::run)?),
                _ => None,
            });
        }
        let written = vec![false; globals.len()];
        let frames = (0..program.micro_batches).map(|_| Frame::new()).collect();
        Ok(Executor { program, actions, globals, written, frames, step: 0 })
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// A global's present value.
    pub fn global(&self, id: GlobalId) -> Option<&Tensor> {
        self.globals.get(id as usize)?.as_ref()
    }

    /// Gives a global a value of its declared type.
    pub fn set_global(&mut self, id: GlobalId, tensor: Tensor) -> Result<()> {
        let global = &self.program.globals[id as usize];
        if !libtorch::is_of(&tensor, &global.ty) {
            return Err(Error::run(format!(
                "`{}` is {}, given {}",
                global.name,
                global.ty,
                libtorch::describe(&tensor)
            )));
        }
        self.globals[id as usize] = Some(tensor);
        Ok(())
    }

    /// Runs the setup functions, once, when parameters and buffers are there.
    pub fn setup(&mut self) -> Result<()> {
        for call in self.program.setup.clone() {
            self.call(call)?;
        }
        self.end_step();
        Ok(())
    }

    /// Training step `step`, from 0, begins: scalars become zero.
    pub fn begin_step(&mut self, step: u64) -> Result<()> {
        self.step = step;
        self.written.fill(false);
        for (global, value) in self.program.globals.iter().zip(&mut self.globals) {
            if global.role == Role::Scalar {
                *value = Some(libtorch::zeros(&global.ty).map_err(Error::run)?);
            }
        }
        Ok(())
    }

    /// Drops the frames and whatever is left in them.
    pub fn end_step(&mut self) {
        self.frames.iter_mut().for_each(|frame| *frame = Frame::new());
    }

    /// Runs one function for one micro-batch.
    pub fn call(&mut self, call: Call) -> Result<()> {
        let mut frame = std::mem::take(&mut self.frames[call.micro_batch as usize]);
        frame.resize_with(self.program.locals.len(), || None);
        let function = &self.program.functions[call.function as usize];
        let mut run = Run {
            program: &self.program,
            globals: &mut self.globals,
            written: &mut self.written,
            frame: &mut frame,
            micro_batch: call.micro_batch,
            step: self.step,
        };
        let actions = &self.actions[call.function as usize];
        for (i, (instr, action)) in function.body.iter().zip(actions).enumerate() {
            if let Err(message) = run.instruction(instr, action) {
                let place = || place(run.program, function, i, run.shapes(instr));
                return Err(Error::run(message).at(place));
            }
        }
        self.frames[call.micro_batch as usize] = frame;
        Ok(())
    }

    /// Bytes held by globals of a role; globals that share storage count once.
    pub fn bytes_of(&self, role: Role) -> u64 {
        let mut seen = Vec::new();
        let mut bytes = 0;
        for (global, value) in self.program.globals.iter().zip(&self.globals) {
            if let Some(tensor) = value
                && global.role == role
                && !seen.contains(&tensor.data_ptr())
            {
                seen.push(tensor.data_ptr());
                bytes += global.ty.bytes();
            }
        }
        bytes
    }
}

fn place(program: &Program, function: &Function, instruction: usize, shapes: Vec<String>) -> Place {
    let instr = &function.body[instruction];
    let Origin { module, source } = program.origins[instr.origin as usize].clone();
    Place {
        function: function.name.clone(),
        instruction,
        operator: match &instr.op {
            Op::Aten(name) => name.clone(),
            other => other.to_string(),
        },
        shapes,
        module: Some(module).filter(|m| !m.is_empty()),
        source,
    }
}

fn prepare(program: &Program, instr: &Instr) -> std::result::Result<Action, String> {
    let out = |n: usize| match instr.outs.as_slice() {
        [Some(value)] => Ok(*value),
        _ => Err(format!("has {n} result, the program keeps {}", instr.outs.len())),
    };
    let global_out = || match out(1)? {
        Value::Global(g) => Ok(g),
        Value::Local(_) => Err("writes a global, the program names a local".to_owned()),
    };
    match &instr.op {
        Op::Aten(name) => {
            let call = PreparedCall::new(name, &instr.args, &instr.named)?;
            match call.results {
                Some(n) if n != instr.outs.len() => {
                    Err(format!("has {n} results, the program keeps {}", instr.outs.len()))
                }
                _ => Ok(Action::Aten(call)),
            }
        }
        Op::Vjp { op, results } => prepare_vjp(op, *results as usize, instr),
        Op::Part(split) => {
            single_read(instr)?;
            out(1)?;
            Ok(Action::Part(*split))
        }
        Op::Dropout { site, p, placement } => {
            let local = &program.ty(single_read(instr)?).shape;
            let geometries: std::result::Result<Vec<Geometry>, String> =
                (0..program.micro_batches).map(|m| Geometry::new(placement, local, m)).collect();
            out(1)?;
            Ok(Action::Dropout { site: *site, p: *p, geometries: geometries? })
        }
        Op::Accumulate => single_read(instr).and_then(|_| Ok(Action::Accumulate(global_out()?))),
        Op::Store => single_read(instr).and_then(|_| Ok(Action::Store(global_out()?))),
        Op::Release => {
            let globals = instr.reads().map(|value| match value {
                Value::Global(g) => Ok(g),
                Value::Local(l) => Err(format!("%{l} is a local; only globals are released")),
            });
            Ok(Action::Release(globals.collect::<std::result::Result<_, _>>()?))
        }
    }
}

fn prepare_vjp(op: &str, results: usize, instr: &Instr) -> std::result::Result<Action, String> {
    let gradients = &instr.args;
    if gradients.len() != results || !gradients.iter().all(|g| matches!(g, Arg::None | Arg::Value(_))) {
        return Err(format!("takes one gradient for each of {results} results, a value or none"));
    }
    let call = PreparedCall::new(op, &[], &instr.named)?;
    let tensors: usize = instr.named.iter().map(|(_, arg)| tensors_in(arg)).sum();
    if tensors != instr.outs.len() {
        return Err(format!("has {tensors} tensor arguments, the program keeps {} gradients", instr.outs.len()));
    }
    let wanted = instr.outs.iter().map(Option::is_some).collect();
    let gradients = gradients.iter().map(|g| matches!(g, Arg::Value(_))).collect();
    Ok(Action::Vjp { call, wanted, gradients })
}

/// How many tensors an argument brings along.
fn tensors_in(arg: &Arg) -> usize {
    match arg {
        Arg::Value(_) => 1,
        Arg::Values(list) => list.iter().flatten().count(),
        _ => 0,
    }
}

/// One index of the middle factor of dimension `dim`, seen as groups × parts × rest. Contiguous, because some kernels
/// expect what they would get from another operator; so a view only along the first dimension.
fn piece(whole: &Tensor, split: &Split, micro_batch: u32) -> std::result::Result<Tensor, String> {
    let at = geometry::part(split, micro_batch);
    let size = whole.size().get(split.dim).copied().ok_or("has no such dimension")?;
    let rest = size / (split.groups * split.parts);
    let dim = split.dim as i64;
    let cut = match split.groups {
        1 => whole.f_narrow(dim, at * rest, rest),
        groups => whole
            .f_unflatten(dim, [groups, split.parts, rest])
            .and_then(|w| w.f_select(dim + 1, at))
            .and_then(|w| w.f_flatten(dim, dim + 1)),
    };
    cut.and_then(|piece| piece.f_contiguous()).map_err(|e| libtorch::message(&e))
}

fn single_read(instr: &Instr) -> std::result::Result<Value, String> {
    match instr.args.as_slice() {
        [Arg::Value(value)] => Ok(*value),
        _ => Err(format!("takes one tensor, given {} arguments", instr.args.len())),
    }
}

/// One function on its way through a frame.
struct Run<'a> {
    program: &'a Program,
    globals: &'a mut [Option<Tensor>],
    written: &'a mut [bool],
    frame: &'a mut Frame,
    micro_batch: u32,
    step: u64,
}

impl Run<'_> {
    fn instruction(&mut self, instr: &Instr, action: &Action) -> std::result::Result<(), String> {
        match action {
            Action::Aten(call) => {
                let results = call.run(&self.tensors(instr)?)?;
                self.keep(instr, results)?;
            }
            Action::Vjp { call, wanted, gradients } => {
                let tensors = self.tensors(instr)?;
                let present = gradients.iter().filter(|g| **g).count();
                let (given, arguments) = tensors.split_at(present);
                let mut given = given.iter().copied();
                let seeds: Vec<Option<&Tensor>> =
                    gradients.iter().map(|present| if *present { given.next() } else { None }).collect();
                let found = call.vjp(arguments, wanted, &seeds)?;
                self.keep_wanted(instr, found)?;
            }
            Action::Part(split) => {
                let piece = piece(self.tensors(instr)?[0], split, self.micro_batch)?;
                self.keep(instr, vec![Some(piece)])?;
            }
            Action::Dropout { site, p, geometries } => {
                let x = self.tensors(instr)?[0];
                let stream = Stream::dropout(self.program.seed, *site, self.step);
                let out = dropout(x, *p, stream, &geometries[self.micro_batch as usize])?;
                self.keep(instr, vec![Some(out)])?;
            }
            Action::Accumulate(global) if self.written[*global as usize] => {
                let value = self.tensors(instr)?[0].shallow_clone();
                self.expect_type(Value::Global(*global), &value)?;
                let sum = self.globals[*global as usize].as_mut().ok_or("its global was released in this step")?;
                let _ = sum.f_add_(&value).map_err(|e| libtorch::message(&e))?;
            }
            Action::Accumulate(global) | Action::Store(global) => {
                let value = self.adopt(instr)?;
                self.expect_type(Value::Global(*global), &value)?;
                self.globals[*global as usize] = Some(value);
                self.written[*global as usize] = true;
            }
            Action::Release(globals) => {
                for global in globals {
                    self.globals[*global as usize] = None;
                }
            }
        }
        for local in &instr.free {
            self.frame[*local as usize] = None;
        }
        Ok(())
    }

    /// The tensors an instruction reads, in argument order, lists in line.
    fn tensors(&self, instr: &Instr) -> std::result::Result<Vec<&Tensor>, String> {
        instr.reads().map(|v| self.value(v).ok_or_else(|| self.missing(v))).collect()
    }

    fn value(&self, value: Value) -> Option<&Tensor> {
        match value {
            Value::Global(g) => self.globals[g as usize].as_ref(),
            Value::Local(l) => self.frame[l as usize].as_ref(),
        }
    }

    fn missing(&self, value: Value) -> String {
        match value {
            Value::Global(g) => {
                let global = &self.program.globals[g as usize];
                format!("@{g} (`{}`, {:?}) has no value yet", global.name, global.role)
            }
            Value::Local(l) => format!("%{l} has no value"),
        }
    }

    /// The argument's tensor to keep: itself where nobody else holds it, else a copy.
    fn adopt(&mut self, instr: &Instr) -> std::result::Result<Tensor, String> {
        let value = single_read(instr)?;
        if let Value::Local(l) = value
            && instr.free.contains(&l)
            && let Some(tensor) = self.frame[l as usize].take_if(|t| owns_storage(t))
        {
            return Ok(tensor);
        }
        let tensor = self.value(value).ok_or_else(|| self.missing(value))?;
        let mut copy =
            Tensor::f_empty(tensor.size(), (tensor.kind(), tensor.device())).map_err(|e| libtorch::message(&e))?;
        copy.f_copy_(tensor).map_err(|e| libtorch::message(&e))?;
        Ok(copy)
    }

    /// Stores all results of an operator where the program wants them.
    fn keep(&mut self, instr: &Instr, results: Vec<Option<Tensor>>) -> std::result::Result<(), String> {
        if results.len() != instr.outs.len() {
            return Err(format!("gave {} results, the program keeps {}", results.len(), instr.outs.len()));
        }
        for (i, (out, result)) in instr.outs.iter().zip(results).enumerate() {
            let Some(out) = *out else { continue };
            let result = result.ok_or_else(|| format!("result {i} is undefined"))?;
            self.expect_type(out, &result)?;
            match out {
                Value::Global(g) => {
                    self.globals[g as usize] = Some(result);
                    self.written[g as usize] = true;
                }
                Value::Local(l) => self.frame[l as usize] = Some(result),
            }
        }
        Ok(())
    }

    /// As [`Run::keep`], for results that exist only where they are wanted.
    fn keep_wanted(&mut self, instr: &Instr, results: Vec<Option<Tensor>>) -> std::result::Result<(), String> {
        let mut results = results.into_iter();
        let aligned = instr.outs.iter().map(|out| out.and_then(|_| results.next().flatten())).collect();
        self.keep(instr, aligned)
    }

    /// What the program declared is what there is: a compiler's mistake shows at its instruction.
    fn expect_type(&self, value: Value, tensor: &Tensor) -> std::result::Result<(), String> {
        let declared: &TensorType = self.program.ty(value);
        if libtorch::is_of(tensor, declared) {
            return Ok(());
        }
        Err(format!("{value} is declared {declared}, the result is {}", libtorch::describe(tensor)))
    }

    fn shapes(&self, instr: &Instr) -> Vec<String> {
        instr
            .reads()
            .map(|v| self.value(v).map_or_else(|| self.program.ty(v).to_string(), libtorch::describe))
            .collect()
    }
}
