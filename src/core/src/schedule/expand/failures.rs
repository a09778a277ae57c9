//! How failures are said: at the user's own line, with the way that led there.

use super::super::misfits::Misfit;
use super::super::report::{located, written};
use super::super::steps::what;
use super::{Eval, Expander, Stop};
use crate::primitives::{Problem, Refusal};
use crate::schedule::Step;
use slapo_syntax::{Code, Diagnostic, Span};

/// Failures after which nothing more is looked at, repetitions included.
const MOST_FAILURES: u32 = 2_000;

impl Expander<'_> {
    /// Reports a failure of the statement at hand.
    pub(super) fn fail(&mut self, diagnostic: Diagnostic) -> Stop {
        let Some(diagnostic) = self.not_taken.said(diagnostic) else { return Stop::Reported };
        let located = self.located(diagnostic);
        self.report.push(located);
        self.failed()
    }

    /// At the user's own line. What is to be done there is not written into a library.
    fn located(&self, mut diagnostic: Diagnostic) -> Diagnostic {
        diagnostic.fixes.retain(|fix| fix.edits.iter().all(|edit| edit.span.file == self.user));
        located(diagnostic, &self.chain, self.user)
    }

    fn failed(&mut self) -> Stop {
        self.failures += 1;
        if self.failures > MOST_FAILURES { Stop::Exhausted } else { Stop::Reported }
    }

    /// Reports several failures of the statement at hand.
    pub(super) fn fail_all(&mut self, diagnostics: impl Iterator<Item = Diagnostic>) -> Stop {
        diagnostics.fold(Stop::Reported, |_, diagnostic| self.fail(diagnostic))
    }

    /// A failure that says no more than that nothing is there: no error under `try`.
    pub(super) fn nothing(&mut self, diagnostic: Diagnostic) -> Stop {
        match self.is_trying {
            true => {
                let what = diagnostic.span().map(|span| self.files.slice(span).to_string()).unwrap_or_default();
                Stop::NotApplicable { what, reason: diagnostic.message }
            }
            false => self.fail(diagnostic),
        }
    }

    /// A step that its primitive refuses.
    pub(super) fn refused(&mut self, step: &Step, refusal: Refusal) -> Stop {
        let (is_error, problem) = match refusal {
            Refusal::NotApplicable(problem) => (!self.is_trying, problem),
            Refusal::Illegal(problem) => (true, problem),
        };
        if !is_error {
            let what = what(step.primitive, &step.target.path);
            return Stop::NotApplicable { what, reason: problem.message };
        }
        self.problem(*problem, step.site.span)
    }

    /// Says what is wrong with what stands at `span`.
    pub(super) fn problem(&mut self, problem: Problem, span: Span) -> Stop {
        let Problem { code, message, here, earlier, note, help, sizes } = problem;
        let mut diagnostic = Diagnostic::error(code, message).primary(span, here);
        let earlier = earlier.and_then(|(id, what)| {
            let step = self.state.as_ref()?.steps.iter().find(|step| step.id == id)?;
            Some((written(step, self.user), what))
        });
        if let Some((span, what)) = earlier {
            diagnostic = diagnostic.secondary(span, what);
        }
        diagnostic.notes.extend(note);
        diagnostic.helps.extend(help);
        match sizes {
            Some((axis, legal)) => {
                let diagnostic = self.located(diagnostic);
                self.misfits.push(Misfit { axis, legal, diagnostic });
                self.failed()
            }
            None => self.fail(diagnostic),
        }
    }

    pub(super) fn arithmetic<T>(
        &mut self,
        result: Result<T, super::super::ArithmeticError>,
        span: slapo_syntax::Span,
        note: impl Fn(&Self) -> Option<String>,
    ) -> Eval<T> {
        result.map_err(|error| {
            let mut diagnostic =
                Diagnostic::error(Code::Arithmetic, error.to_string()).primary(span, "cannot be computed");
            diagnostic.notes.extend(note(self));
            self.fail(diagnostic)
        })
    }
}
