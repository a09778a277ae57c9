//! Archives that statements name, and parts of the model that are no longer there because one took their place.

use super::super::archives::ENDING;
use super::super::steps::Argument;
use super::super::value::Value;
use super::{Eval, Expander};
use slapo_syntax::{Code, Diagnostic, Span};

impl Expander<'_> {
    /// The archive of that path, as a step keeps it.
    pub(super) fn archive(&mut self, path: &str, span: Span) -> Eval<Argument> {
        match self.archives.get(path).cloned() {
            Some(Ok(model)) => Ok(Argument::Archive { path: path.to_string(), fingerprint: model.fingerprint.clone() }),
            Some(Err(diagnostics)) => {
                let named = |diagnostic: Diagnostic| diagnostic.primary(span, "named here");
                Err(self.fail_all(diagnostics.into_iter().map(named)))
            }
            None if !path.ends_with(ENDING) => {
                let message =
                    format!("a replacement is the archive of a module, and `{path}` does not end in `{ENDING}`");
                let diagnostic = Diagnostic::error(Code::BadValue, message).primary(span, "no archive");
                Err(self.fail(diagnostic.help("`torch.export.save` writes archives")))
            }
            None => {
                let message = format!("the archive `{path}` was not read");
                Err(self.fail(Diagnostic::error(Code::UnreadableModel, message).primary(span, "named here")))
            }
        }
    }

    /// Refuses what lies in a module that was replaced: the value of an expression at `span`.
    pub(super) fn still_there(&mut self, value: &Value, span: Span) -> Eval<()> {
        let Some(state) = &self.state else { return Ok(()) };
        let gone = match value {
            Value::Place(place) => state.gone(*place),
            Value::Places(selection) => selection.places.iter().find_map(|place| state.gone(*place)),
            Value::Point(point) => state.gone(point.of),
            Value::Points(points) => points.iter().find_map(|point| state.gone(point.of)),
            _ => None,
        };
        match gone {
            None => Ok(()),
            Some(problem) => Err(self.problem(problem, span)),
        }
    }
}
