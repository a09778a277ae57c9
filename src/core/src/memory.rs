//! Predicted memory of a Program, in five terms.
//!
//! Walks the calls of one step as the worker runs them: a local holds its bytes from its instruction to its last use; a view
//! holds the storage it looks into. The prediction is of tensors, rounded as the worker's allocator rounds; libraries'
//! own scratch memory is not in it.

use serde::Serialize;
use slapo_program::{Collective, Function, Instr, Op, Program, Role, Value};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Bytes per rank. The terms add up to `peak`: they are what is live at the moment of the peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    pub parameters: u64,
    pub gradients: u64,
    pub optimizer: u64,
    pub activations: u64,
    /// Buffers, inputs, constants and what single instructions need beside their results.
    pub buffers: u64,
}

impl Memory {
    pub fn peak(&self) -> u64 {
        self.parameters + self.gradients + self.optimizer + self.activations + self.buffers
    }
}

/// The largest activation that is live at the peak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Largest {
    /// Of the graph's value.
    pub name: String,
    pub shape: Vec<i64>,
    pub bytes: u64,
    /// It holds an entry for every class that the loss tells apart: logits, their probabilities, or a gradient of these.
    pub is_of_loss: bool,
}

/// The worker's allocator hands out multiples of this many bytes.
const ALIGN: u64 = 64;

fn rounded(bytes: u64) -> u64 {
    bytes.div_ceil(ALIGN) * ALIGN
}

/// Memory at the peak of one training step.
pub fn predict(program: &Program) -> Memory {
    walked(program, None).peak
}

/// What of it is the largest activation; none where nothing is computed.
pub fn largest(program: &Program) -> Option<Largest> {
    let at = walked(program, None).peak_at;
    let slot = &program.locals[walked(program, Some(at)).largest? as usize];
    let shape = slot.ty.shape.clone();
    let is_like = |value: Value| {
        let ty = program.ty(value);
        ty.shape.last() == shape.last() && ty.bytes() == slot.ty.bytes()
    };
    let takes_it = |instr: &Instr| {
        let is_softmax =
            matches!(&instr.op, Op::Aten(name) if name.contains("log_softmax") || name.contains("logsumexp"));
        is_softmax && instr.reads().chain(instr.outs.iter().flatten().copied()).any(is_like)
    };
    let is_of_loss = shape.len() > 1 && program.functions.iter().flat_map(|function| &function.body).any(takes_it);
    Some(Largest { name: slot.name.clone(), shape, bytes: rounded(slot.ty.bytes()), is_of_loss })
}

/// One step; at instruction `look_at`, counted from 1 over all calls, it looks for the largest activation.
fn walked(program: &Program, look_at: Option<usize>) -> Walk<'_> {
    let mut walk = Walk {
        program,
        gradients: BTreeMap::new(),
        frames: BTreeMap::new(),
        held: 0,
        peak: Memory::default(),
        clock: 0,
        peak_at: 0,
        look_at,
        largest: None,
    };
    let fixed = walk.fixed();
    for call in &program.step {
        walk.call(&program.functions[call.function as usize], call.micro_batch, &fixed);
    }
    walk
}

/// References to storages of one micro-batch's locals.
#[derive(Default)]
struct Frame {
    /// Local → the local that owns its storage (`None`: a global does).
    owner: BTreeMap<u32, Option<u32>>,
    /// Owner → living locals that look into it.
    references: BTreeMap<u32, u32>,
}

struct Walk<'p> {
    program: &'p Program,
    /// Bytes by gradient global that is allocated.
    gradients: BTreeMap<u32, u64>,
    frames: BTreeMap<u32, Frame>,
    /// Bytes of all living locals.
    held: u64,
    peak: Memory,
    /// Instructions so far.
    clock: usize,
    peak_at: usize,
    look_at: Option<usize>,
    largest: Option<u32>,
}

impl Walk<'_> {
    fn fixed(&self) -> Memory {
        let mut memory = Memory::default();
        for global in &self.program.globals {
            let bytes = rounded(global.ty.bytes());
            match global.role {
                Role::Parameter => memory.parameters += bytes,
                Role::Optimizer => memory.optimizer += bytes,
                Role::Gradient => {}
                Role::Buffer | Role::Input | Role::Constant | Role::Scalar => memory.buffers += bytes,
            }
        }
        memory
    }

    fn call(&mut self, function: &Function, micro_batch: u32, fixed: &Memory) {
        let mut frame = self.frames.remove(&micro_batch).unwrap_or_default();
        for instr in &function.body {
            self.instr(instr, &mut frame, fixed);
        }
        self.frames.insert(micro_batch, frame);
    }

    fn instr(&mut self, instr: &Instr, frame: &mut Frame, fixed: &Memory) {
        for out in instr.outs.iter().flatten() {
            if let Value::Local(l) = out {
                self.define(*l, frame);
            }
        }
        let workspace = self.workspace(instr);
        let adopted = self.accumulate(instr, frame);
        let now = Memory {
            gradients: self.gradients.values().sum(),
            activations: self.held - adopted,
            buffers: fixed.buffers + workspace,
            ..*fixed
        };
        self.clock += 1;
        if now.peak() > self.peak.peak() {
            (self.peak, self.peak_at) = (now, self.clock);
        }
        if self.look_at == Some(self.clock) {
            let living = self.frames.values().chain([&*frame]).flat_map(|frame| frame.references.keys().copied());
            self.largest = living.max_by_key(|l| (self.program.locals[*l as usize].ty.bytes(), Reverse(*l)));
        }
        for l in &instr.free {
            self.free(*l, frame);
        }
        if matches!(instr.op, Op::Collective { .. }) {
            for out in instr.outs.iter().flatten() {
                if let Value::Global(g) = out
                    && self.program.globals[*g as usize].role == Role::Gradient
                {
                    self.gradients.insert(*g, rounded(self.program.ty(*out).bytes()));
                }
            }
        }
        if instr.op == Op::Release {
            for value in instr.reads() {
                if let Value::Global(g) = value {
                    self.gradients.remove(&g);
                }
            }
        }
    }

    fn define(&mut self, l: u32, frame: &mut Frame) {
        let slot = &self.program.locals[l as usize];
        let owner = match slot.alias {
            None => Some(l),
            Some(Value::Global(_)) => None,
            Some(Value::Local(base)) => frame.owner.get(&base).copied().flatten(),
        };
        frame.owner.insert(l, owner);
        if let Some(owner) = owner {
            let count = frame.references.entry(owner).or_default();
            *count += 1;
            if *count == 1 {
                self.held += rounded(self.program.locals[owner as usize].ty.bytes());
            }
        }
    }

    fn free(&mut self, l: u32, frame: &mut Frame) {
        let Some(Some(owner)) = frame.owner.remove(&l) else { return };
        if let Some(count) = frame.references.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                frame.references.remove(&owner);
                self.held -= rounded(self.program.locals[owner as usize].ty.bytes());
            }
        }
    }

    /// The first write of a step makes the gradient; it takes over a local that it frees, which is then not counted
    /// twice.
    fn accumulate(&mut self, instr: &Instr, frame: &Frame) -> u64 {
        let (Op::Accumulate | Op::Store, Some(Some(Value::Global(g)))) = (&instr.op, instr.outs.first()) else {
            return 0;
        };
        if self.program.globals[*g as usize].role != Role::Gradient || self.gradients.contains_key(g) {
            return 0;
        }
        let bytes = rounded(self.program.globals[*g as usize].ty.bytes());
        self.gradients.insert(*g, bytes);
        let taken = instr.reads().any(|v| match v {
            Value::Local(l) => {
                let owner = frame.owner.get(&l).copied().flatten();
                instr.free.contains(&l) && owner == Some(l) && frame.references.get(&l) == Some(&1)
            }
            Value::Global(_) => false,
        });
        if taken { bytes } else { 0 }
    }

    /// Rerunning an operator computes its results once more; a collective has more than its operand and its result.
    fn workspace(&self, instr: &Instr) -> u64 {
        match instr.op {
            Op::Vjp { .. } => instr.reads().map(|v| rounded(self.program.ty(v).bytes())).max().unwrap_or(0),
            Op::Collective { axis, kind } => {
                self.of_collective(instr, kind, self.program.mesh[axis as usize].size as u64)
            }
            _ => 0,
        }
    }

    /// What the others send, and of several tensors the row that they travel in. Results that are globals stand beside what
    /// they replace until they are complete; gradients that are summed up in place leave when they are in the row.
    fn of_collective(&self, instr: &Instr, kind: Collective, parts: u64) -> u64 {
        if parts == 1 {
            return 0;
        }
        let bytes = |v: Value| self.program.ty(v).bytes();
        let given: u64 = instr.reads().map(bytes).sum();
        let got: u64 = instr.outs.iter().flatten().map(|v| bytes(*v)).sum();
        let is_global = matches!(instr.outs.first(), Some(Some(Value::Global(_))));
        let beside = if is_global { rounded(got) } else { 0 };
        match (kind, instr.outs.len()) {
            (Collective::AllGather { .. }, 1) => beside + rounded(given) * (parts - 1),
            (Collective::ReduceScatter { .. }, 1) => beside + rounded(given) / parts * (parts - 1),
            (Collective::AllGather { .. }, _) => beside + rounded(got),
            (Collective::ReduceScatter { .. }, _) => beside + rounded(given) / parts * (2 * parts - 1),
            _ => beside,
        }
    }
}
