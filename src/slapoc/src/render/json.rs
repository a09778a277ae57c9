//! Diagnostics as JSON records. Fields are only ever added.
//!
//! Offsets are bytes of the file, the end excluded; lines and columns count from 1, columns in characters.

use super::{Style, human};
use crate::failure::Failure;
use serde::Serialize;
use slapo_syntax::{Applicability, Code, Diagnostic, Fix, Label, Lint, ModelExcerpt, Severity, SourceMap, Span};

#[derive(Serialize)]
pub struct Record<'a> {
    severity: &'static str,
    /// Absent for mistakes in the command itself.
    code: Option<&'static str>,
    title: Option<&'static str>,
    /// The name that `-A`, `-W` and `-D` take, of what they can change.
    #[serde(skip_serializing_if = "Option::is_none")]
    lint: Option<&'static str>,
    message: &'a str,
    labels: Vec<LabelRecord<'a>>,
    model: Vec<ModelRecord<'a>>,
    notes: &'a [String],
    helps: &'a [String],
    fixes: Vec<FixRecord<'a>>,
    /// As the human format shows it, without colours.
    rendered: String,
}

#[derive(Serialize)]
struct LabelRecord<'a> {
    #[serde(flatten)]
    place: PlaceRecord<'a>,
    text: &'a str,
    primary: bool,
}

#[derive(Serialize)]
struct PlaceRecord<'a> {
    file: &'a str,
    start: u32,
    end: u32,
    line: u32,
    column: u32,
    end_line: u32,
    end_column: u32,
}

/// A line of the model's own source.
#[derive(Serialize)]
struct ModelRecord<'a> {
    file: &'a str,
    line: u32,
    source: &'a str,
    text: &'a str,
}

#[derive(Serialize)]
struct FixRecord<'a> {
    title: &'a str,
    applicability: &'static str,
    edits: Vec<EditRecord<'a>>,
}

#[derive(Serialize)]
struct EditRecord<'a> {
    #[serde(flatten)]
    place: PlaceRecord<'a>,
    replacement: &'a str,
}

pub fn diagnostic<'a>(files: &'a SourceMap, diagnostic: &'a Diagnostic) -> Record<'a> {
    let label = |l: &'a Label, primary| LabelRecord { place: place(files, l.span), text: &l.text, primary };
    let primary = diagnostic.primary.iter().map(|l| label(l, true));
    Record {
        severity: super::word(diagnostic.severity),
        code: Some(diagnostic.code.id()),
        title: Some(diagnostic.code.title()),
        lint: Lint::of(diagnostic.code).map(|lint| lint.name),
        message: &diagnostic.message,
        labels: primary.chain(diagnostic.secondary.iter().map(|l| label(l, false))).collect(),
        model: diagnostic.excerpt.iter().map(model).collect(),
        notes: &diagnostic.notes,
        helps: &diagnostic.helps,
        fixes: diagnostic.fixes.iter().map(|f| fix(files, f)).collect(),
        rendered: human::diagnostic(files, diagnostic, Style { color: false }),
    }
}

pub fn failure(failure: &Failure) -> Record<'_> {
    Record {
        severity: super::word(Severity::Error),
        code: failure.code.map(Code::id),
        title: failure.code.map(Code::title),
        lint: None,
        message: &failure.message,
        labels: Vec::new(),
        model: failure.excerpt.iter().map(model).collect(),
        notes: &failure.notes,
        helps: &failure.helps,
        fixes: Vec::new(),
        rendered: human::failure(failure, Style { color: false }),
    }
}

fn place(files: &SourceMap, span: Span) -> PlaceRecord<'_> {
    let (from, to) = (files.line_column(span.file, span.start), files.line_column(span.file, span.end));
    PlaceRecord {
        file: files.name(span.file),
        start: span.start,
        end: span.end,
        line: from.line,
        column: from.column,
        end_line: to.line,
        end_column: to.column,
    }
}

fn model(excerpt: &ModelExcerpt) -> ModelRecord<'_> {
    ModelRecord { file: &excerpt.file, line: excerpt.line, source: &excerpt.source, text: &excerpt.label }
}

fn fix<'a>(files: &'a SourceMap, fix: &'a Fix) -> FixRecord<'a> {
    FixRecord {
        title: &fix.title,
        applicability: match fix.applicability {
            Applicability::MachineApplicable => "machine_applicable",
            Applicability::MaybeIncorrect => "maybe_incorrect",
        },
        edits: fix
            .edits
            .iter()
            .map(|edit| EditRecord { place: place(files, edit.span), replacement: &edit.replacement })
            .collect(),
    }
}
