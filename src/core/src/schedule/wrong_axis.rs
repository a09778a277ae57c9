//! A statement over the wrong axis is one mistake, though two axes show it: what it does on its own does not fit there, and
//! on the other it is missing. Whether that is so is tried: over the other axis, everything must fit.

use super::Checked;
use super::layouts::blamed;
use super::report::written;
use crate::compile::{Effects, Fault, LayoutFault, Options, compile};
use slapo_model::Model;
use slapo_syntax::{FileId, Span};
use std::collections::BTreeSet;

/// More statements than that are not tried.
const MOST_TRIED: usize = 12;

/// The faults that one statement over another axis would settle.
pub struct WrongAxis {
    /// As the user wrote it.
    pub statement: Span,
    /// Positions in [`Effects::axes`].
    pub axis: usize,
    pub right: usize,
}

/// Finds the statement that is over the wrong axis.
pub fn wrong_axis(faults: &[Fault], model: &Model, checked: &Checked) -> Option<WrongAxis> {
    let of_layouts: Option<Vec<&LayoutFault>> = faults
        .iter()
        .map(|fault| match fault {
            Fault::Layout(fault) => Some(&**fault),
            _ => None,
        })
        .collect();
    let (faults, sizes) = (of_layouts?, checked.sizes?);
    let axes: BTreeSet<usize> = faults.iter().map(|fault| fault.axis).collect();
    let [one, other] = Vec::from_iter(axes)[..] else { return None };
    let user = checked.entry.map_or(FileId(0), |span| span.file);
    let mut tried = BTreeSet::new();
    for fault in faults {
        let right = if fault.axis == one { other } else { one };
        for step in blamed(fault, model, checked).into_iter().chain(&checked.steps) {
            let statement = written(step, user);
            if tried.len() == MOST_TRIED || !tried.insert((statement, right)) {
                continue;
            }
            let is_of_it = |id: u32| checked.step(id).is_some_and(|step| written(step, user) == statement);
            let Some(effects) = moved(&checked.effects, is_of_it, fault.axis, right) else { continue };
            if compile(model, &sizes, &effects, &Options::default()).is_ok() {
                return Some(WrongAxis { statement, axis: fault.axis, right });
            }
        }
    }
    None
}

/// The effects with those of one statement over another axis, if that changes any.
fn moved(effects: &Effects, is_of_it: impl Fn(u32) -> bool, from: usize, to: usize) -> Option<Effects> {
    let mut moved = effects.clone();
    let shards = moved.shards.iter_mut().map(|shard| (shard.step, &mut shard.axis));
    for (step, axis) in shards.chain(moved.syncs.iter_mut().map(|sync| (sync.step, &mut sync.axis))) {
        if *axis == from && is_of_it(step) {
            *axis = to;
        }
    }
    (moved != *effects).then_some(moved)
}
