//! The program's validator.
//!
//! Checked: ids in range; a local is written once, read only after it was written and before it is freed, in the
//! order of `step` for every micro-batch; a local is freed once and never while a view of it lives on in an
//! instruction's arguments; dropout probabilities lie in [0, 1); placements split evenly, and the part that is here
//! exists; coordinates lie within the mesh, and collectives run over its axes. All faults are reported, not only the
//! first.

use crate::{Call, Collective, Function, Instr, Op, Part, Placement, Program, Split, Value};
use std::collections::BTreeMap;

/// One fault of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub function: String,
    pub instruction: Option<usize>,
    pub message: String,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Live,
    Freed,
}

/// All faults of `program`; empty means that the worker can run it without checking ids again.
pub fn validate(program: &Program) -> Vec<Fault> {
    let mut check = Check { program, faults: Vec::new(), frames: BTreeMap::new() };
    check.header();
    if check.faults.is_empty() {
        for call in program.setup.iter().chain(&program.step) {
            check.call(*call);
        }
    }
    check.faults
}

struct Check<'p> {
    program: &'p Program,
    faults: Vec<Fault>,
    /// Per micro-batch: state of the locals written so far.
    frames: BTreeMap<u32, BTreeMap<u32, State>>,
}

impl Check<'_> {
    fn fault(&mut self, function: &str, instruction: Option<usize>, message: String) {
        let fault = Fault { function: function.to_owned(), instruction, message };
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    fn header(&mut self) {
        let program = self.program;
        let globals = program.globals.len();
        for p in &program.parameters {
            if p.global as usize >= globals {
                self.fault("parameters", None, format!("@{} does not exist", p.global));
            }
        }
        let scalars = program.grad_norm.into_iter().chain([program.loss]);
        for g in scalars.chain(program.inputs.iter().map(|i| i.global)) {
            if g as usize >= globals {
                self.fault("header", None, format!("@{g} does not exist"));
            }
        }
        for (i, slot) in program.locals.iter().enumerate() {
            if slot.alias.is_some_and(|a| !self.exists(a)) {
                self.fault("locals", None, format!("%{i} is a view of a value that does not exist"));
            }
        }
        for call in program.setup.iter().chain(&program.step) {
            if call.function as usize >= program.functions.len() {
                self.fault("calls", None, format!("function {} does not exist", call.function));
            }
            if call.micro_batch >= program.micro_batches {
                self.fault("calls", None, format!("micro-batch {} does not exist", call.micro_batch));
            }
        }
        self.mesh();
        for p in &program.parameters {
            let name = p.names.first().map_or("parameters", String::as_str);
            self.placement(name, None, &p.placement);
        }
        for function in &program.functions {
            for (i, instr) in function.body.iter().enumerate() {
                self.ids(function, i, instr);
            }
        }
    }

    fn mesh(&mut self) {
        let Program { mesh, coordinates, .. } = self.program;
        for axis in mesh.iter().filter(|axis| axis.size < 1) {
            self.fault("mesh", None, format!("axis `{}` has size {}", axis.name, axis.size));
        }
        if coordinates.len() != mesh.len() {
            let message = format!("{} coordinates on a mesh of {} axes", coordinates.len(), mesh.len());
            self.fault("mesh", None, message);
        }
        for (axis, at) in mesh.iter().zip(coordinates) {
            if !(0..axis.size).contains(at) {
                self.fault("mesh", None, format!("coordinate {at} on axis `{}` of size {}", axis.name, axis.size));
            }
        }
    }

    fn collective(&mut self, function: &Function, i: usize, axis: u32, kind: Collective) {
        if axis as usize >= self.program.mesh.len() {
            self.fault(&function.name, Some(i), format!("axis {axis} does not exist"));
        }
        let groups = match kind {
            Collective::AllReduce | Collective::AllReduceMax => 1,
            Collective::AllGather { groups, .. }
            | Collective::ReduceScatter { groups, .. }
            | Collective::AllToAll { groups, .. } => groups,
        };
        if groups < 1 {
            self.fault(&function.name, Some(i), format!("{} in {groups} groups", kind.name()));
        }
    }

    fn exists(&self, value: Value) -> bool {
        match value {
            Value::Global(g) => (g as usize) < self.program.globals.len(),
            Value::Local(l) => (l as usize) < self.program.locals.len(),
        }
    }

    fn ids(&mut self, function: &Function, i: usize, instr: &Instr) {
        let freed = instr.free.iter().map(|l| Value::Local(*l));
        for value in instr.reads().chain(instr.outs.iter().copied().flatten()).chain(freed) {
            if !self.exists(value) {
                self.fault(&function.name, Some(i), format!("{value} does not exist"));
            }
        }
        if instr.origin as usize >= self.program.origins.len() {
            self.fault(&function.name, Some(i), format!("origin {} does not exist", instr.origin));
        }
        if let Op::Dropout { p, placement, .. } = &instr.op {
            if !(0.0..1.0).contains(p) {
                self.fault(&function.name, Some(i), format!("dropout probability {p} is not in [0, 1)"));
            }
            self.placement(&function.name, Some(i), placement);
        }
        if let Op::Collective { axis, kind } = instr.op {
            self.collective(function, i, axis, kind);
        }
        if let (Op::Part(split), Some(whole)) = (&instr.op, instr.reads().next()) {
            let global_shape = self.program.ty(whole).shape.clone();
            self.placement(&function.name, Some(i), &Placement { global_shape, splits: vec![*split] });
        }
    }

    fn placement(&mut self, function: &str, i: Option<usize>, placement: &Placement) {
        let mut shape = placement.global_shape.clone();
        for split in &placement.splits {
            let ways = split.groups.checked_mul(split.parts).filter(|n| *n >= 1 && split.parts >= 1);
            let fits = |size: i64, ways: i64| match split.sections.is_none() {
                true => size % ways == 0,
                false => split.groups == 1 && split.sections.divide(size, split.parts),
            };
            match (shape.get_mut(split.dim), ways) {
                (Some(size), Some(ways)) if fits(*size, ways) => *size /= split.parts,
                _ => self.fault(function, i, format!("a split of dimension {} is not even", split.dim)),
            }
            if let Split { part: Part::Rank(at), parts, .. } = *split
                && !(0..parts).contains(&at)
            {
                self.fault(function, i, format!("part {at} of {parts} along dimension {}", split.dim));
            }
        }
    }

    fn call(&mut self, call: Call) {
        let function = &self.program.functions[call.function as usize];
        let mut frame = self.frames.remove(&call.micro_batch).unwrap_or_default();
        for (i, instr) in function.body.iter().enumerate() {
            let locals = instr.reads().filter_map(|v| match v {
                Value::Local(l) => Some(l),
                Value::Global(_) => None,
            });
            for l in locals {
                match frame.get(&l) {
                    Some(State::Live) => {}
                    Some(State::Freed) => {
                        self.fault(&function.name, Some(i), format!("%{l} is read after its last use"))
                    }
                    None => self.fault(&function.name, Some(i), format!("%{l} is read before it is written")),
                }
            }
            for out in instr.outs.iter().flatten() {
                if let Value::Local(l) = out
                    && frame.insert(*l, State::Live).is_some()
                {
                    self.fault(&function.name, Some(i), format!("%{l} is written twice"));
                }
            }
            for l in &instr.free {
                if frame.insert(*l, State::Freed) != Some(State::Live) {
                    self.fault(&function.name, Some(i), format!("%{l} is freed while it is not live"));
                }
            }
        }
        self.frames.insert(call.micro_batch, frame);
    }
}
