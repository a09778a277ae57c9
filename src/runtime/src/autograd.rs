//! The oracle: a forward that libtorch's own autograd watches, and the gradients it gives.
//!
//! Functions of kind `Recorded` run with every operator under autograd; dropout is then a product with the same mask as ever.
//! `Op::Autograd` asks for the gradients and lets the graph go.

use crate::dropout;
use crate::geometry::Geometry;
use crate::libtorch::{self, message};
use crate::random::Stream;
use slapo_program::{Arg, GlobalId, Instr, Value};
use tch::Tensor;

/// Which global's gradients with respect to which, and where they go.
pub struct Plan {
    loss: GlobalId,
    parameters: Vec<GlobalId>,
    gradients: Vec<GlobalId>,
}

/// All operands and results are globals.
pub fn prepare(instr: &Instr) -> Result<Plan, String> {
    let global = |value: Option<Value>| match value {
        Some(Value::Global(g)) => Ok(g),
        _ => Err("takes and gives globals only".to_owned()),
    };
    let reads: Result<Vec<GlobalId>, String> = instr
        .args
        .iter()
        .map(|arg| match arg {
            Arg::Value(value) => global(Some(*value)),
            _ => global(None),
        })
        .collect();
    let gradients: Result<Vec<GlobalId>, String> = instr.outs.iter().map(|out| global(*out)).collect();
    let (reads, gradients) = (reads?, gradients?);
    match reads.split_first() {
        Some((loss, parameters)) if parameters.len() == gradients.len() => {
            Ok(Plan { loss: *loss, parameters: parameters.to_vec(), gradients })
        }
        _ => Err("takes the loss, then one parameter per gradient".to_owned()),
    }
}

impl Plan {
    /// Fills the gradients; parameters and the loss are ordinary tensors again afterwards.
    pub fn run(&self, globals: &mut [Option<Tensor>], written: &mut [bool]) -> Result<(), String> {
        let value = |g: &GlobalId| globals[*g as usize].as_ref().ok_or_else(|| format!("@{g} has no value"));
        let loss = value(&self.loss)?;
        let parameters: Vec<&Tensor> = self.parameters.iter().map(value).collect::<Result<_, String>>()?;
        let found = Tensor::f_run_backward(&[loss], &parameters, false, false).map_err(|e| message(&e))?;
        for parameter in parameters {
            watch(parameter, false)?;
        }
        let loss = loss.detach();
        globals[self.loss as usize] = Some(loss);
        for (gradient, tensor) in self.gradients.iter().zip(found) {
            globals[*gradient as usize] = Some(libtorch::dense_copy(&tensor.detach())?);
            written[*gradient as usize] = true;
        }
        Ok(())
    }
}

/// Sets whether autograd watches a tensor.
pub fn watch(tensor: &Tensor, watched: bool) -> Result<(), String> {
    // Another handle to the same tensor.
    tensor.shallow_clone().f_requires_grad_(watched).map(|_| ()).map_err(|e| message(&e))
}

/// `x · mask / (1 − p)` that autograd can see through; the mask is the one of [`dropout::dropout`].
pub fn dropout(x: &Tensor, p: f64, stream: Stream, geometry: &Geometry) -> Result<Tensor, String> {
    let mask = dropout::dropout(&x.detach().ones_like(), p, stream, geometry)?;
    x.f_mul(&mask).map_err(|e| message(&e))
}
