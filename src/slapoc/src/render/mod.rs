//! Diagnostics and failures in four formats, and what the formats have in common.
//!
//! A format turns data into text; none decides what is shown or where. Crates for drawing appear in one file each:
//! ariadne in `human`, codespan-reporting in `short`.

pub mod github;
pub mod human;
pub mod json;
pub mod short;
#[cfg(test)]
mod tests;

use slapo_syntax::{Code, Severity, SourceMap, Span};
use std::borrow::Cow;
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub color: bool,
}

impl Style {
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn severity(self, severity: Severity, text: &str) -> String {
        let code = match severity {
            Severity::Error => "1;31",
            Severity::Warning => "1;33",
            Severity::Note => "1;36",
        };
        self.paint(code, text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

/// `error[S0601]`, `error`
fn kind(severity: Severity, code: Option<Code>) -> String {
    match code {
        Some(code) => format!("{}[{code}]", word(severity)),
        None => word(severity).to_owned(),
    }
}

/// How much was found, and where to read on.
#[derive(Debug, Default)]
pub struct Tally {
    errors: usize,
    warnings: usize,
    /// Of errors and warnings, in the order in which they were shown.
    first: Option<Code>,
    is_one_kind: bool,
}

impl Tally {
    pub fn add(&mut self, severity: Severity, code: Code) {
        match severity {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
            Severity::Note => return,
        }
        self.is_one_kind = self.first.is_none_or(|first| self.is_one_kind && first == code);
        self.first.get_or_insert(code);
    }

    /// `2 errors, 1 warning in 2 of 9 schedules; …`; nothing for nothing.
    pub fn closing(&self, among: Option<(usize, usize)>, style: Style) -> Option<String> {
        let first = self.first?;
        let counts = [(self.errors, Severity::Error), (self.warnings, Severity::Warning)];
        let parts: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, severity)| style.severity(*severity, &counted(*count, word(*severity))))
            .collect();
        let among = among.map(|(with, of)| format!(" in {with} of {}", counted(of, "schedule"))).unwrap_or_default();
        let more = if self.is_one_kind { "" } else { " about the first" };
        Some(format!("{}{among}; `slapoc explain {first}` says more{more}", parts.join(", ")))
    }
}

/// `1 error`, `2 errors`
pub fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// The span's bytes, inside of the file and on character boundaries whatever it says.
fn bytes(files: &SourceMap, span: Span) -> Range<usize> {
    let text = files.text(span.file);
    let start = text.floor_char_boundary(span.range().start);
    start..text.ceil_char_boundary(span.range().end).max(start)
}

/// Text from a user's file must not steer the terminal.
fn printable(text: &str) -> Cow<'_, str> {
    let control = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(control) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if control(c) { c.escape_default().to_string() } else { c.to_string() }).collect())
}
