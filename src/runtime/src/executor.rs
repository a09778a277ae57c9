//! Runs a program's functions: globals, one frame of locals per micro-batch, and the instructions between them.
//!
//! Every instruction is prepared once: operator found, constants converted, shapes of its own checked. Locals are
//! dropped at the instruction that names them in `free`. What a step consists of and where its data comes from is the
//! trainer's business. Read [`Executor::call`] first.

use crate::autograd;
use crate::bucket::Bucket;
use crate::collectives::piece;
use crate::dropout::dropout;
use crate::error::{Error, Place, Result};
use crate::geometry::Geometry;
use crate::operator::{PreparedCall, owns_storage};
use crate::random::Stream;
use crate::{geometry, libtorch};
use slapo_program::{
    Arg, Axis, Call, Collective, Function, FunctionKind, GlobalId, Instr, LocalId, Op, Origin, Program, Role, Split,
    TensorType, Value, validate,
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
    /// Communication along an axis of several ranks.
    Collective {
        axis: Axis,
        kind: Collective,
    },
    /// Communication of a rank with itself.
    Same,
    /// One geometry per micro-batch.
    Dropout {
        site: u32,
        p: f64,
        geometries: Vec<Geometry>,
    },
    Autograd(autograd::Plan),
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

    /// A local's present value in the frame of a micro-batch.
    pub fn local(&self, micro_batch: u32, id: LocalId) -> Option<&Tensor> {
        self.frames.get(micro_batch as usize)?.get(id as usize)?.as_ref()
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
        self.watch_parameters().map_err(Error::run)?;
        for (global, value) in self.program.globals.iter().zip(&mut self.globals) {
            if global.role == Role::Scalar {
                *value = Some(libtorch::zeros(&global.ty).map_err(Error::run)?);
            }
        }
        Ok(())
    }

    /// Where a function of the program is recorded, autograd watches what is trained.
    fn watch_parameters(&mut self) -> std::result::Result<(), String> {
        if !self.program.functions.iter().any(|f| f.kind == FunctionKind::Recorded) {
            return Ok(());
        }
        for parameter in self.program.parameters.iter().filter(|p| p.trainable) {
            if let Some(tensor) = &self.globals[parameter.global as usize] {
                autograd::watch(tensor, true)?;
            }
        }
        Ok(())
    }

    /// Drops the frames and whatever is left in them.
    pub fn end_step(&mut self) {
        self.frames.iter_mut().for_each(|frame| *frame = Frame::new());
    }

    /// Runs one function for one micro-batch, this rank alone.
    pub fn call(&mut self, call: Call) -> Result<()> {
        let length = self.program.functions[call.function as usize].body.len();
        (0..length).try_for_each(|i| self.instruction(call, i))
    }

    /// Runs instruction `i` of a call; a call's instructions run in order.
    pub fn instruction(&mut self, call: Call, i: usize) -> Result<()> {
        self.at(call, i, |run, instr, action| run.instruction(instr, action))
    }

    /// The collective that instruction `i` of a function is, unless this rank is alone on its axis. All ranks of the
    /// axis then run it together: [`Executor::contribution`] of each, [`Executor::receive`] for each. Several tensors travel in a
    /// row.
    pub fn collective(&self, function: u32, i: usize) -> Option<(u32, Collective)> {
        let instr = &self.program.functions[function as usize].body[i];
        match (&self.actions[function as usize][i], &instr.op) {
            (Action::Collective { .. }, Op::Collective { axis, kind }) => {
                Some((*axis, if instr.outs.len() == 1 { *kind } else { Bucket::of_rows(*kind) }))
            }
            _ => None,
        }
    }

    /// What this rank brings to a collective. Several globals that their results replace are gone then.
    pub fn contribution(&mut self, call: Call, i: usize) -> Result<Tensor> {
        self.at(call, i, |run, instr, _| {
            let row = match (run.tensors(instr)?.as_slice(), bucket(run.program, instr)) {
                ([one], _) => return Ok(one.shallow_clone()),
                (several, Some((bucket, _))) => bucket.brought(several)?,
                (_, None) => return Err("is no collective".to_owned()),
            };
            for value in instr.reads().filter(|value| instr.outs.contains(&Some(*value))) {
                if let Value::Global(global) = value {
                    run.globals[global as usize] = None;
                }
            }
            Ok(row)
        })
    }

    /// What a collective gives this rank; completes the instruction.
    pub fn receive(&mut self, call: Call, i: usize, result: Tensor) -> Result<()> {
        self.at(call, i, |run, instr, _| {
            let results = match bucket(run.program, instr).filter(|_| instr.outs.len() > 1) {
                Some((bucket, rank)) => bucket.taken(&result, rank)?,
                None => vec![result],
            };
            run.keep(instr, results.into_iter().map(Some).collect())?;
            run.free(instr);
            Ok(())
        })
    }

    /// The shape of what a rank gets of the collective at instruction `i`.
    pub fn result_shape(&self, function: u32, i: usize) -> Vec<i64> {
        let instr = &self.program.functions[function as usize].body[i];
        match (instr.outs.as_slice(), bucket(&self.program, instr)) {
            ([Some(one)], _) => self.program.ty(*one).shape.clone(),
            (_, Some((bucket, _))) => vec![bucket.length()],
            (_, None) => Vec::new(),
        }
    }

    /// Says of a failed instruction where it is.
    pub fn failed(&mut self, call: Call, i: usize, error: Error) -> Error {
        match self.at(call, i, |run, instr, _| Ok(run.shapes(instr))) {
            Ok(shapes) => error.at(|| place(&self.program, &self.program.functions[call.function as usize], i, shapes)),
            Err(other) => other,
        }
    }

    fn at<R>(
        &mut self,
        call: Call,
        i: usize,
        body: impl FnOnce(&mut Run<'_>, &Instr, &Action) -> std::result::Result<R, String>,
    ) -> Result<R> {
        let frame = &mut self.frames[call.micro_batch as usize];
        frame.resize_with(self.program.locals.len(), || None);
        let function = &self.program.functions[call.function as usize];
        let (instr, action) = (&function.body[i], &self.actions[call.function as usize][i]);
        let mut run = Run {
            program: &self.program,
            globals: &mut self.globals,
            written: &mut self.written,
            frame,
            micro_batch: call.micro_batch,
            step: self.step,
            recorded: function.kind == FunctionKind::Recorded,
        };
        body(&mut run, instr, action)
            .map_err(|message| Error::run(message).at(|| place(run.program, function, i, run.shapes(instr))))
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

/// The tensors of a collective, and where this rank is among those that run it.
fn bucket<'p>(program: &'p Program, instr: &'p Instr) -> Option<(Bucket<'p>, i64)> {
    let Op::Collective { axis, kind } = instr.op else { return None };
    let wholes: Vec<Value> = match kind {
        Collective::AllGather { .. } => instr.outs.iter().flatten().copied().collect(),
        _ => instr.reads().collect(),
    };
    let wholes = wholes.into_iter().map(|value| &program.ty(value).shape[..]).collect();
    let parts = program.mesh.get(axis as usize)?.size;
    Some((Bucket { kind, parts, wholes }, program.coordinates.get(axis as usize).copied()?))
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
        Op::Autograd => autograd::prepare(instr).map(Action::Autograd),
        Op::Vjp { op, results } => prepare_vjp(op, *results as usize, instr),
        Op::Part(split) => {
            single_read(instr)?;
            out(1)?;
            Ok(Action::Part(*split))
        }
        Op::Collective { axis, kind } => {
            if instr.reads().count() != instr.outs.len() {
                return Err(format!("gives {} tensors for {}", instr.outs.len(), instr.reads().count()));
            }
            let axis = &program.mesh[*axis as usize];
            Ok(if axis.size == 1 { Action::Same } else { Action::Collective { axis: axis.clone(), kind: *kind } })
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
    /// Whether libtorch's autograd looks on.
    recorded: bool,
}

impl Run<'_> {
    fn instruction(&mut self, instr: &Instr, action: &Action) -> std::result::Result<(), String> {
        match action {
            Action::Aten(call) => {
                let results = call.run(&self.tensors(instr)?, self.recorded)?;
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
                let Split { dim, groups, parts, .. } = *split;
                let at = geometry::part(split, self.micro_batch);
                let piece = piece(self.tensors(instr)?[0], dim, groups, parts, at)?;
                self.keep(instr, vec![Some(piece)])?;
            }
            Action::Collective { axis, kind } => {
                return Err(format!(
                    "{} needs all {} ranks of axis `{}`, and this rank runs alone",
                    kind.name(),
                    axis.size,
                    axis.name
                ));
            }
            Action::Same => {
                let values = instr.reads().map(|v| self.adopt(instr, v).map(Some));
                let values = values.collect::<std::result::Result<_, _>>()?;
                self.keep(instr, values)?;
            }
            Action::Dropout { site, p, geometries } => {
                let x = self.tensors(instr)?[0];
                let stream = Stream::dropout(self.program.seed, *site, self.step);
                let geometry = &geometries[self.micro_batch as usize];
                let out = match self.recorded {
                    false => dropout(x, *p, stream, geometry)?,
                    true => autograd::dropout(x, *p, stream, geometry)?,
                };
                self.keep(instr, vec![Some(out)])?;
            }
            Action::Accumulate(global) if self.written[*global as usize] => {
                let value = self.tensors(instr)?[0].shallow_clone();
                self.expect_type(Value::Global(*global), &value)?;
                let sum = self.globals[*global as usize].as_mut().ok_or("its global was released in this step")?;
                let _ = sum.f_add_(&value).map_err(|e| libtorch::message(&e))?;
            }
            Action::Accumulate(global) | Action::Store(global) => {
                let value = self.adopt(instr, single_read(instr)?)?;
                self.expect_type(Value::Global(*global), &value)?;
                self.globals[*global as usize] = Some(value);
                self.written[*global as usize] = true;
            }
            Action::Autograd(plan) => plan.run(self.globals, self.written)?,
            Action::Release(globals) => {
                for global in globals {
                    self.globals[*global as usize] = None;
                }
            }
        }
        self.free(instr);
        Ok(())
    }

    fn free(&mut self, instr: &Instr) {
        for local in &instr.free {
            self.frame[*local as usize] = None;
        }
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

    /// An argument's tensor to keep: itself where nobody else holds it, else a copy.
    fn adopt(&mut self, instr: &Instr, value: Value) -> std::result::Result<Tensor, String> {
        if let Value::Local(l) = value
            && instr.free.contains(&l)
            && let Some(tensor) = self.frame[l as usize].take_if(|t| owns_storage(t))
        {
            return Ok(tensor);
        }
        let tensor = self.value(value).ok_or_else(|| self.missing(value))?;
        libtorch::dense_copy(tensor)
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
