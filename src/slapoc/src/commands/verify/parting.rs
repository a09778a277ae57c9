//! Where a run parts from the unscheduled model: the first value of the first step that is another one.
//!
//! Forward first, in the order of its instructions, then the gradients of parameters in the order in which backward
//! completes them. Both programs run once more and write their values down; a second pass, so that a run which is right
//! pays nothing. Read [`first`] first.

use super::runs::Bench;
use crate::compare::{BOUND, distance};
use crate::failure::Result;
use serde::Serialize;
use slapo_core::trace::{Array, Traced, assemble};
use slapo_program::{Program, Trace, Value};
use std::collections::BTreeMap;

/// More bytes of values are not written down: then only the last of each module's run of operators are.
const MOST_BYTES: u64 = 2 << 30;

/// Values below this are not told apart more closely than it allows: relative errors mean nothing near zero.
const SMALLEST_SCALE: f64 = 1e-3;

/// The first value that is another one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parting {
    /// `forward` or `backward`.
    pub phase: &'static str,
    /// Dotted path; empty for the model itself.
    pub module: String,
    pub operator: String,
    /// The model's own name of the value, or of the parameter whose gradient it is.
    pub value: String,
    #[serde(flatten)]
    pub how: How,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum How {
    /// Ranks of the axis, or micro-batches, should hold the same and do not.
    BetweenRanks { axis: Option<String> },
    /// The whole value differs, by this much of its largest element.
    Value { distance: f64 },
    /// It has another shape.
    Shape,
}

/// Runs both programs once more and finds the first of `traced` that differs; nothing where all of them agree.
pub fn first(bench: &Bench, traced: &[Traced], ours: &[Program], theirs: &Program) -> Result<Option<Parting>> {
    let Some(program) = ours.first() else { return Ok(None) };
    let traced = within_memory(traced, program, ours.len());
    let values = |of: fn(&Traced) -> Value| traced.iter().map(|t| of(t)).collect::<Vec<_>>();
    let own = bench.trace("schedule", ours.to_vec(), values(|t| t.ours))?;
    let known = bench.trace("oracle", vec![theirs.clone()], values(|t| t.theirs))?;
    let parting = |t: &&Traced| {
        let parts = parts(t, ours.len(), program.micro_batches, &own)?;
        let whole = known.get(&Trace::name(t.theirs, 0, 0))?;
        Some(Parting {
            phase: if t.is_gradient { "backward" } else { "forward" },
            module: t.module.clone(),
            operator: t.operator.clone(),
            value: t.name.clone(),
            how: apart(t, parts, whole)?,
        })
    };
    Ok(traced.iter().find_map(parting))
}

fn within_memory<'t>(traced: &'t [Traced], program: &Program, ranks: usize) -> Vec<&'t Traced> {
    let copies = ranks as u64 * u64::from(program.micro_batches) + 1;
    let bytes: u64 = traced.iter().map(|t| program.ty(t.ours).bytes() * copies).sum();
    if bytes <= MOST_BYTES {
        return traced.iter().collect();
    }
    let is_last = |i: usize| traced.get(i + 1).is_none_or(|next| next.module != traced[i].module);
    (0..traced.len()).filter(|i| traced[*i].is_gradient || is_last(*i)).map(|i| &traced[i]).collect()
}

/// Every rank's and micro-batch's part of a value; nothing where one was not computed.
fn parts(t: &Traced, ranks: usize, micro_batches: u32, own: &BTreeMap<String, Array>) -> Option<Vec<Array>> {
    let micro_batches = if t.is_gradient { 1 } else { micro_batches };
    let names = (0..ranks).flat_map(|rank| (0..micro_batches).map(move |m| Trace::name(t.ours, rank, m)));
    names.map(|name| own.get(&name).cloned()).collect()
}

fn apart(t: &Traced, parts: Vec<Array>, whole: &Array) -> Option<How> {
    let own = match assemble(&t.held, parts) {
        Ok(own) => own,
        Err(differs) => return Some(How::BetweenRanks { axis: differs.axis }),
    };
    if own.shape != whole.shape {
        return Some(How::Shape);
    }
    let distance = distance(&own.values, &whole.values, SMALLEST_SCALE);
    (distance > BOUND).then_some(How::Value { distance })
}

impl Parting {
    /// In one line.
    pub fn shown(&self) -> String {
        let module = if self.module.is_empty() { "the model" } else { &self.module };
        let what = match self.phase {
            "backward" => format!("the gradient of `{}`", self.value),
            _ => format!("`{}` ({})", self.value, self.operator),
        };
        let how = match &self.how {
            How::BetweenRanks { axis: Some(axis) } => format!("differs between the ranks of `{axis}`"),
            How::BetweenRanks { axis: None } => "differs between micro-batches".to_owned(),
            How::Value { distance } => format!("is off by {distance:.1e} of its largest element"),
            How::Shape => "has another shape".to_owned(),
        };
        format!("{} of {module}: {what} {how}", self.phase)
    }
}
