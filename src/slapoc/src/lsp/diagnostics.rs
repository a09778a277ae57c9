//! Diagnostics in the protocol's type: one place, one text, and the causes beside them.

use super::convert::location;
use super::places::Encoding;
use lsp_types::{Diagnostic, DiagnosticRelatedInformation, DiagnosticSeverity, DiagnosticTag, NumberOrString, Uri};
use slapo_ide::Snapshot;
use slapo_syntax::{self as syntax, Code, Severity, Span};

/// A diagnostic, with its label, notes and helps behind the message; `uri` is the schedule's.
pub fn diagnostic(snapshot: &Snapshot, uri: &Uri, found: &syntax::Diagnostic, encoding: Encoding) -> Diagnostic {
    let file = snapshot.file;
    let primary = found.span().filter(|span| span.file == file);
    let range = encoding.range(&snapshot.files, primary.unwrap_or(Span::new(file, 0, 0)));
    let related = found.secondary.iter().chain(found.primary.iter().filter(|label| label.span.file != file));
    let related = related.filter_map(|label| {
        let message = if label.text.is_empty() { "here".to_owned() } else { label.text.clone() };
        Some(DiagnosticRelatedInformation { location: location(snapshot, uri, label.span, encoding)?, message })
    });
    let related: Vec<DiagnosticRelatedInformation> = related.collect();
    Diagnostic {
        range,
        severity: Some(match found.severity {
            Severity::Error => DiagnosticSeverity::ERROR,
            Severity::Warning => DiagnosticSeverity::WARNING,
            Severity::Note => DiagnosticSeverity::INFORMATION,
        }),
        code: Some(NumberOrString::String(found.code.id().to_owned())),
        source: Some("slapoc".to_owned()),
        message: message(found),
        related_information: (!related.is_empty()).then_some(related),
        // Editors fade what may as well be deleted.
        tags: matches!(found.code, Code::DoesNothing | Code::Covered).then(|| vec![DiagnosticTag::UNNECESSARY]),
        ..Diagnostic::default()
    }
}

fn message(found: &syntax::Diagnostic) -> String {
    let label = found.primary.iter().map(|label| label.text.clone()).filter(|text| !text.is_empty());
    let excerpts = found.excerpt.iter().map(|line| format!("{}:{}: {}", line.file, line.line, line.label));
    let notes = found.notes.iter().map(|note| format!("note: {note}"));
    let helps = found.helps.iter().map(|help| format!("help: {help}"));
    let parts = std::iter::once(found.message.clone()).chain(label).chain(excerpts).chain(notes).chain(helps);
    parts.collect::<Vec<_>>().join("\n")
}
