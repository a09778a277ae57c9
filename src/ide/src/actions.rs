//! What can be done about a diagnostic at the press of a key.

use crate::Snapshot;
use slapo_syntax::{Applicability, Diagnostic, Edit, Fix, Span};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    pub title: String,
    /// In the schedule; in the order of the text.
    pub edits: Vec<Edit>,
    /// Surely what was meant.
    pub is_safe: bool,
    /// Position of what it settles among [`Snapshot::diagnostics`].
    pub diagnostic: usize,
}

/// The fixes of the diagnostics that touch a span.
pub fn actions(snapshot: &Snapshot, span: Span) -> Vec<Action> {
    let touches = |place: Span| place.file == span.file && place.start <= span.end && span.start <= place.end;
    let numbered = snapshot.diagnostics.iter().enumerate();
    let touched = numbered.filter(|(_, found)| found.span().is_some_and(touches));
    touched.flat_map(|(at, found)| fixes(snapshot, at, found)).collect()
}

fn fixes<'a>(snapshot: &'a Snapshot, at: usize, found: &'a Diagnostic) -> impl Iterator<Item = Action> + 'a {
    let is_own = |fix: &&Fix| fix.edits.iter().all(|edit| edit.span.file == snapshot.file);
    found.fixes.iter().filter(is_own).map(move |fix| Action {
        title: capital(&fix.title),
        edits: fix.edits.clone(),
        is_safe: fix.applicability == Applicability::MachineApplicable,
        diagnostic: at,
    })
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}
