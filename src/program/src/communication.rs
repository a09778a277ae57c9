//! What a rank communicates in one step, read off its program.
//!
//! The worker counts what it does in the same terms ([`CollectiveCount`]); the two must agree to the byte. Axes of one rank
//! communicate nothing. Read [`communications`] first.

use crate::{Collective, CollectiveCount, Function, FunctionKind, Instr, Op, Program, Role, TensorType, Value, piece};
use serde::Serialize;
use std::collections::BTreeMap;

/// One instruction that communicates, over all its calls in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Communication {
    pub function: FunctionKind,
    /// Dotted module path; empty for what no module owns.
    pub module: String,
    /// Index into [`Program::mesh`].
    pub axis: u32,
    pub kind: Collective,
    pub carries: Carries,
    pub calls: u64,
    /// Of the tensors that the rank brings, over all calls.
    pub bytes: u64,
}

/// What a collective is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Carries {
    /// A value on its way through forward or backward.
    Value,
    Loss,
    /// A sum over the step that depends on the inputs only: the number of valid tokens.
    Count,
    /// The gradients of the parameters of these names.
    Gradients(Vec<String>),
    /// The parameters of these names, behind an update that ranks share.
    Parameters(Vec<String>),
    /// The squared norm of the gradients that the axis splits.
    GradientNorm,
}

/// The collectives of one step in the order of the program's functions.
pub fn communications(program: &Program) -> Vec<Communication> {
    let mut found = Vec::new();
    for (number, function) in program.functions.iter().enumerate() {
        let calls = program.step.iter().filter(|call| call.function as usize == number).count() as u64;
        for (i, instr) in function.body.iter().enumerate() {
            let Op::Collective { axis, kind } = instr.op else { continue };
            if calls == 0 || program.mesh[axis as usize].size == 1 {
                continue;
            }
            let brought = brought(program, instr, kind, program.mesh[axis as usize].size);
            found.push(Communication {
                function: function.kind,
                module: program.origins.get(instr.origin as usize).map(|o| o.module.clone()).unwrap_or_default(),
                axis,
                kind,
                carries: carries(program, function, i),
                calls,
                bytes: calls * brought,
            });
        }
    }
    found
}

/// As the worker counts them: by axis, kind and function.
pub fn counts(program: &Program, communications: &[Communication]) -> Vec<CollectiveCount> {
    let mut sums: BTreeMap<(u32, &str, FunctionKind), (u64, u64)> = BTreeMap::new();
    for c in communications {
        let (calls, bytes) = sums.entry((c.axis, c.kind.name(), c.function)).or_default();
        *calls += c.calls;
        *bytes += c.bytes;
    }
    let count = |((axis, kind, function), (calls, bytes)): ((u32, &str, FunctionKind), (u64, u64))| {
        let axis = program.mesh[axis as usize].name.clone();
        CollectiveCount { axis, kind: kind.to_owned(), function: function.name().to_owned(), calls, bytes }
    };
    sums.into_iter().map(count).collect()
}

/// Bytes that a rank brings to one call. In a bucket pieces are as long as the longest rank's.
fn brought(program: &Program, instr: &Instr, kind: Collective, parts: i64) -> u64 {
    let largest = |value: Value, dim: usize, groups: i64| {
        let TensorType { dtype, mut shape } = program.ty(value).clone();
        if let Some(size) = shape.get_mut(dim) {
            *size = groups * piece(*size / groups.max(1), parts, 0).1;
        }
        TensorType::new(dtype, shape).bytes()
    };
    match kind {
        _ if instr.outs.len() == 1 => instr.reads().map(|value| program.ty(value).bytes()).sum(),
        Collective::AllGather { dim, groups } => {
            instr.outs.iter().flatten().map(|whole| largest(*whole, dim, groups)).sum()
        }
        Collective::ReduceScatter { dim, groups } => {
            parts as u64 * instr.reads().map(|whole| largest(whole, dim, groups)).sum::<u64>()
        }
        _ => instr.reads().map(|value| program.ty(value).bytes()).sum(),
    }
}

/// Follows a collective's result, through further collectives, to where it is added up.
fn carries(program: &Program, function: &Function, collective: usize) -> Carries {
    let instr = &function.body[collective];
    match function.kind {
        FunctionKind::Reduction => return Carries::Gradients(globals(program, instr.reads())),
        FunctionKind::Optimizer if matches!(instr.op, Op::Collective { kind: Collective::AllGather { .. }, .. }) => {
            return Carries::Parameters(globals(program, instr.outs.iter().copied().flatten()));
        }
        FunctionKind::Optimizer => return Carries::GradientNorm,
        _ => {}
    }
    if instr.outs.len() > 1 {
        let each = instr.outs.iter().map(|out| carried(program, function, collective, *out));
        let gradients = each.map(|carries| if let Carries::Gradients(names) = carries { names } else { Vec::new() });
        let gradients: Vec<String> = gradients.flatten().collect();
        return if gradients.is_empty() { Carries::Value } else { Carries::Gradients(gradients) };
    }
    carried(program, function, collective, first_out(instr))
}

/// As [`carries`], of one of its results.
fn carried(program: &Program, function: &Function, collective: usize, mut result: Option<Value>) -> Carries {
    for instr in &function.body[collective + 1..] {
        if result.is_none() || !instr.reads().any(|value| Some(value) == result) {
            continue;
        }
        match (&instr.op, first_out(instr)) {
            (Op::Collective { .. }, out) => result = out,
            (Op::Accumulate, Some(Value::Global(global))) => {
                let into = &program.globals[global as usize];
                return match into.role {
                    Role::Gradient => Carries::Gradients(vec![into.name.clone()]),
                    _ if global == program.loss => Carries::Loss,
                    _ => Carries::Count,
                };
            }
            _ => return Carries::Value,
        }
    }
    Carries::Value
}

/// The names of globals.
fn globals(program: &Program, values: impl Iterator<Item = Value>) -> Vec<String> {
    let name = |value| match value {
        Value::Global(global) => Some(program.globals[global as usize].name.clone()),
        Value::Local(_) => None,
    };
    values.filter_map(name).collect()
}

fn first_out(instr: &Instr) -> Option<Value> {
    instr.outs.first().copied().flatten()
}
