//! Several fixes of one text at once.

use crate::diagnostic::{Applicability, Diagnostic, Fix};
use crate::span::FileId;

/// The diagnostics of which a fix is made when all are made that are surely right and do not touch each other, with those
/// fixes. Fixes that reach beyond the file are left out; of two that touch, the later one.
pub fn safe_fixes(diagnostics: &[Diagnostic], file: FileId) -> Vec<(&Diagnostic, &Fix)> {
    let is_safe = |fix: &&Fix| {
        fix.applicability == Applicability::MachineApplicable
            && !fix.edits.is_empty()
            && fix.edits.iter().all(|edit| edit.span.file == file)
    };
    let mut chosen: Vec<(&Diagnostic, &Fix)> = Vec::new();
    for diagnostic in diagnostics {
        let Some(fix) = diagnostic.fixes.iter().find(is_safe) else { continue };
        if chosen.iter().all(|(_, other)| !touch(other, fix)) {
            chosen.push((diagnostic, fix));
        }
    }
    chosen
}

/// The text with fixes made that do not touch each other.
pub fn apply_fixes<'a>(fixes: impl IntoIterator<Item = &'a Fix>, file: FileId, text: &str) -> String {
    let edits = fixes.into_iter().flat_map(|fix| &fix.edits);
    let one = edits.fold(Fix::safe(""), |one, edit| one.replace(edit.span, edit.replacement.clone()));
    one.apply(file, text)
}

fn touch(a: &Fix, b: &Fix) -> bool {
    let mut pairs = a.edits.iter().flat_map(|a| b.edits.iter().map(move |b| (a.span, b.span)));
    pairs.any(|(a, b)| a.start <= b.end && b.start <= a.end)
}
