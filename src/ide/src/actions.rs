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

/// The fixes of the diagnostics that touch a span, or else of those that start on its lines.
pub fn actions(snapshot: &Snapshot, span: Span) -> Vec<Action> {
    let line = |offset| snapshot.files.line_column(snapshot.file, offset).line;
    let touches = |place: Span| place.start <= span.end && span.start <= place.end;
    let is_beside = |place: Span| (line(span.start)..=line(span.end)).contains(&line(place.start));
    let touching = fixes_at(snapshot, &touches);
    if touching.is_empty() { fixes_at(snapshot, &is_beside) } else { touching }
}

fn fixes_at(snapshot: &Snapshot, fits: &dyn Fn(Span) -> bool) -> Vec<Action> {
    let is_there = |place: Span| place.file == snapshot.file && fits(place);
    let numbered = snapshot.diagnostics.iter().enumerate();
    let found = numbered.filter(|(_, found)| found.span().is_some_and(is_there));
    found.flat_map(|(at, found)| fixes(snapshot, at, found)).collect()
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
