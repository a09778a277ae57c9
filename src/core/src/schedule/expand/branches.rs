//! Branches that are not taken: what they name must be in the model too.
//!
//! A knob, an axis or a constant decides for one branch; with another value it would be the other one. Both are walked, the
//! other one without effects, and only for names that the model does not have: whatever else is wrong there may be wrong
//! because of the values at hand. Where the model itself decides, as in `if b.is(Mlp)`, the other branch is for other models.

use super::super::hir::{Block, Expr, ExprKind};
use super::{Eval, Expander, Stop};
use slapo_syntax::{Code, Diagnostic, Span};
use std::collections::BTreeSet;

/// Statements of branches not taken that are looked at, all together.
const MOST_WORK: u32 = 100_000;

/// Where the walk is, and what it has cost.
#[derive(Default)]
pub struct NotTaken {
    /// Inside of a branch that is not taken.
    pub is_here: bool,
    /// Branches that were walked: once is enough, however often a loop or a call comes by.
    seen: BTreeSet<Span>,
    work: u32,
}

impl NotTaken {
    pub fn work(&mut self) -> Eval<()> {
        self.work += 1;
        if self.work <= MOST_WORK { Ok(()) } else { Err(Stop::Exhausted) }
    }

    /// What is said of a failure.
    pub fn said(&self, diagnostic: Diagnostic) -> Option<Diagnostic> {
        match (self.is_here, diagnostic.code) {
            (false, _) => Some(diagnostic),
            (true, Code::NoSuchName) => {
                Some(diagnostic.note("the branch is not taken with these values, but may be with others"))
            }
            (true, _) => None,
        }
    }
}

impl<'a> Expander<'a> {
    /// Walks the branches that are not `taken` (`None`: the last one is), as far as the model does not decide.
    pub(super) fn not_taken(&mut self, branches: &'a [(Expr, Block)], otherwise: &'a Block, taken: Option<usize>) {
        let decided = branches.iter().take_while(|(condition, _)| !asks_the_model(condition)).count();
        for (at, (_, body)) in branches[..decided].iter().enumerate() {
            if Some(at) != taken {
                self.glance(body);
            }
        }
        if decided == branches.len() && taken.is_some() {
            self.glance(otherwise);
        }
    }

    /// The same for the value that `choose` does not give.
    pub(super) fn not_chosen(&mut self, condition: &Expr, other: &Expr) {
        if !asks_the_model(condition) {
            self.quietly(other.span, |this| this.value(other).map(drop));
        }
    }

    fn glance(&mut self, body: &'a Block) {
        if let Some(first) = body.0.first() {
            self.quietly(first.span, |this| this.block(body));
        }
    }

    /// Does what is written at `span`, without effects.
    fn quietly(&mut self, span: Span, work: impl FnOnce(&mut Self) -> Eval<()>) {
        if self.model.is_none() || !self.not_taken.seen.insert(span) {
            return;
        }
        let was_here = std::mem::replace(&mut self.not_taken.is_here, true);
        let (frame, chain, depth) = (self.frame.clone(), self.chain.clone(), self.depth);
        let skipped = self.skipped.len();
        // Whatever stops it: what is to be said was said.
        let _ = work(self);
        self.skipped.truncate(skipped);
        (self.frame, self.chain, self.depth) = (frame, chain, depth);
        self.not_taken.is_here = was_here;
    }
}

/// Whether a condition may depend on the model: on anything but knobs, axes and constants.
fn asks_the_model(condition: &Expr) -> bool {
    match &condition.kind {
        ExprKind::Number(_) | ExprKind::Bool(_) | ExprKind::Text(_) | ExprKind::Word(_) | ExprKind::Axis(_) => false,
        // Declared at the top of a file, where there is no model.
        ExprKind::Global(_) => false,
        ExprKind::Neg(inner) | ExprKind::Not(inner) => asks_the_model(inner),
        ExprKind::Binary(_, left, right) => asks_the_model(left) || asks_the_model(right),
        ExprKind::Function(_, args) | ExprKind::List(args) => args.iter().any(asks_the_model),
        _ => true,
    }
}
