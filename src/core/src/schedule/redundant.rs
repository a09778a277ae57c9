//! A sync of what every rank has whole is left out where the rest then fits: that is tried.

use super::{Checked, mend};
use crate::compile::{LayoutFault, LayoutProblem, Options, compile};
use crate::layout::Layout;
use slapo_model::Model;
use slapo_syntax::{FileId, Fix, Span};
use std::collections::BTreeSet;

/// More statements than that are not tried.
const MOST_TRIED: usize = 8;

pub struct Redundant<'a> {
    model: &'a Model,
    checked: &'a Checked,
    /// Faults of the schedule as it is.
    faults: usize,
    tried: BTreeSet<Span>,
}

impl<'a> Redundant<'a> {
    pub fn new(faults: usize, model: &'a Model, checked: &'a Checked) -> Redundant<'a> {
        Redundant { model, checked, faults, tried: BTreeSet::new() }
    }

    /// The statement left out that a fault is of, once for each statement.
    pub fn fix(&mut self, fault: &LayoutFault) -> Option<Fix> {
        let LayoutProblem::Sync { found: Layout::Replicated, step, .. } = fault.problem else { return None };
        let (step, sizes) = (self.checked.step(step)?, self.checked.sizes?);
        let user = self.checked.entry.map_or(FileId(0), |span| span.file);
        let fix = mend::without(step, self.checked, user)?;
        if self.tried.len() == MOST_TRIED || !self.tried.insert(step.site.span) {
            return None;
        }
        let mut effects = self.checked.effects.clone();
        effects.syncs.retain(|sync| self.checked.step(sync.step).is_none_or(|other| other.site != step.site));
        let is_settled = match compile(self.model, &sizes, &effects, &Options::default()) {
            Ok(_) => true,
            Err(faults) => faults.len() < self.faults,
        };
        is_settled.then_some(fix)
    }
}
