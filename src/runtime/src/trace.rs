//! Values of one step as every rank has them, written down for comparing two programs.
//!
//! What belongs to which value of the model, and how ranks' parts make a whole, is the compiler's business: here they are
//! copied and named by rank. Read [`Tracer`] first.

use crate::error::{Error, Result};
use crate::executor::Executor;
use crate::libtorch;
use slapo_program::{Call, Trace, Value};
use std::collections::BTreeSet;
use tch::Tensor;

pub struct Tracer {
    values: BTreeSet<Value>,
    found: Vec<(String, Tensor)>,
}

impl Tracer {
    pub fn new(trace: &Trace) -> Tracer {
        Tracer { values: trace.values.iter().copied().collect(), found: Vec::new() }
    }

    /// Keeps the traced locals that instruction `i` of a call has just computed, on all ranks.
    pub fn after(&mut self, ranks: &[Executor], call: Call, i: usize) -> Result<()> {
        let outs = &ranks[0].program().functions[call.function as usize].body[i].outs;
        for value in outs.iter().flatten().filter(|value| self.values.contains(value)) {
            if let Value::Local(local) = value {
                let tensors = ranks.iter().map(|executor| executor.local(call.micro_batch, *local));
                keep(&mut self.found, *value, call.micro_batch, tensors)?;
            }
        }
        Ok(())
    }

    /// Keeps the traced globals too, and gives everything.
    pub fn finish(mut self, ranks: &[Executor]) -> Result<Vec<(String, Tensor)>> {
        for value in &self.values {
            if let Value::Global(global) = value {
                keep(&mut self.found, *value, 0, ranks.iter().map(|executor| executor.global(*global)))?;
            }
        }
        Ok(self.found)
    }
}

/// Copies: later instructions may write into what is there now.
fn keep<'t>(
    found: &mut Vec<(String, Tensor)>,
    value: Value,
    micro_batch: u32,
    tensors: impl Iterator<Item = Option<&'t Tensor>>,
) -> Result<()> {
    for (rank, tensor) in tensors.enumerate() {
        if let Some(tensor) = tensor {
            let copy = libtorch::dense_copy(&tensor.detach()).map_err(Error::run)?;
            found.push((Trace::name(value, rank, micro_batch), copy));
        }
    }
    Ok(())
}
