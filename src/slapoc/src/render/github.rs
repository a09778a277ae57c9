//! Diagnostics as annotations of GitHub's workflow logs:
//! `::error file=gpt2.slapo,line=12,col=9,endLine=12,endColumn=30,title=S0601::…`.

use crate::failure::Failure;
use slapo_syntax::{Diagnostic, Severity, SourceMap};
use std::fmt::Write;

pub fn diagnostic(files: &SourceMap, diagnostic: &Diagnostic) -> String {
    let mut line = format!("::{} ", command(diagnostic.severity));
    if let Some(span) = diagnostic.span() {
        let (from, to) = (files.line_column(span.file, span.start), files.line_column(span.file, span.end));
        // Writing into a string cannot fail.
        let _ = write!(
            line,
            "file={},line={},col={},endLine={},endColumn={},",
            property(files.name(span.file)),
            from.line,
            from.column,
            to.line,
            to.column
        );
    }
    let label = diagnostic.primary.iter().map(|l| l.text.as_str()).filter(|text| !text.is_empty());
    let notes = diagnostic.notes.iter().map(|note| format!("note: {note}"));
    let helps = diagnostic.helps.iter().map(|help| format!("help: {help}"));
    let more = label.map(str::to_owned).chain(notes).chain(helps);
    let text: Vec<String> = [diagnostic.message.clone()].into_iter().chain(more).collect();
    let _ = writeln!(line, "title={}::{}", diagnostic.code, message(&text.join("\n")));
    line
}

pub fn failure(failure: &Failure) -> String {
    let notes = failure.notes.iter().map(|note| format!("note: {note}"));
    let helps = failure.helps.iter().map(|help| format!("help: {help}"));
    let text: Vec<String> = [failure.message.clone()].into_iter().chain(notes).chain(helps).collect();
    let title = failure.code.map(|code| format!(" title={code}")).unwrap_or_default();
    format!("::{}{title}::{}\n", command(Severity::Error), message(&text.join("\n")))
}

/// A schedule that `slapoc fmt --check` would change.
pub fn unformatted(name: &str) -> String {
    let text = message(&format!("{name} is not formatted: `slapoc fmt` does it"));
    format!("::{} file={},title=slapoc fmt::{text}\n", command(Severity::Error), property(name))
}

fn command(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "notice",
    }
}

fn message(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}
