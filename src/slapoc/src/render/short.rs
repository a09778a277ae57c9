//! Diagnostics in one line each: `gpt2.slapo:12:9: error[S0601]: …`. The only file that knows codespan-reporting's
//! terminal half.

use super::{bytes, kind, printable};
use crate::failure::Failure;
use codespan_reporting::diagnostic::{self as codespan, Label};
use codespan_reporting::term::{Config, DisplayStyle, emit_into_string};
use slapo_syntax::{Diagnostic, FileId, Severity, SourceMap};

pub fn diagnostic(files: &SourceMap, diagnostic: &Diagnostic) -> String {
    let config = Config { display_style: DisplayStyle::Short, ..Config::default() };
    // Fails only for files that the map does not have.
    emit_into_string(&config, files, &converted(files, diagnostic)).unwrap_or_default()
}

pub fn failure(failure: &Failure) -> String {
    format!("{}: {}\n", kind(Severity::Error, failure.code), printable(&failure.message))
}

fn converted(files: &SourceMap, diagnostic: &Diagnostic) -> codespan::Diagnostic<FileId> {
    let severity = match diagnostic.severity {
        Severity::Error => codespan::Severity::Error,
        Severity::Warning => codespan::Severity::Warning,
        Severity::Note => codespan::Severity::Note,
    };
    let primary = diagnostic.primary.iter().filter(|l| files.files().any(|file| file == l.span.file));
    let labels = primary.map(|l| Label::primary(l.span.file, bytes(files, l.span)));
    codespan::Diagnostic::new(severity)
        .with_code(diagnostic.code.id())
        .with_message(printable(&diagnostic.message))
        .with_labels(labels.collect())
}
