//! Collectives that stand side by side and say the same of different tensors, as one of all of them.

use slapo_program::{Collective, Instr, Op, Program, Value};

/// A bucket is full when it has so many bytes: few enough calls to hide their latency, small enough to be no burden to
/// memory. That of PyTorch's `DistributedDataParallel`.
const BUCKET: u64 = 25 << 20;

/// Joins neighbours among the instructions of a function, whose last uses are known.
pub fn joined(program: &Program, instrs: Vec<Instr>) -> Vec<Instr> {
    let mut joined: Vec<Instr> = Vec::with_capacity(instrs.len());
    for instr in instrs {
        match joined.last_mut() {
            Some(last) if takes(program, last, &instr) => {
                last.args.extend(instr.args);
                last.outs.extend(instr.outs);
                last.free.extend(instr.free);
            }
            _ => joined.push(instr),
        }
    }
    joined
}

fn takes(program: &Program, bucket: &Instr, next: &Instr) -> bool {
    let Op::Collective { kind, .. } = bucket.op else { return false };
    let travels = !matches!(kind, Collective::AllToAll { .. } | Collective::AllReduceMax);
    let own: Vec<Value> = bucket.reads().chain(bucket.outs.iter().flatten().copied()).collect();
    let is_apart = next.reads().all(|v| !bucket.outs.contains(&Some(v)));
    let types = || own.iter().copied().chain(next.reads()).map(|v| program.ty(v).dtype);
    let is_alike = types().all(|dtype| Some(dtype) == types().next());
    let bytes: u64 = bucket.reads().map(|v| program.ty(v).bytes()).sum();
    bucket.op == next.op && travels && is_apart && is_alike && bytes < BUCKET
}
