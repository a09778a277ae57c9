//! Diagnostics as pictures of the source, drawn by ariadne. The only file that knows it.
//!
//! Spans are bytes; ariadne is given characters, because it takes one for the other in the headings of further files. What
//! it would take for a line end but `SourceMap` does not, and what would steer a terminal, is replaced by another character
//! before drawing. Lines of the model's own source are drawn as files of their own.

use super::{Style, bytes, kind, printable};
use crate::failure::Failure;
use ariadne::{Cache, Color, Config, IndexType, Label, LabelAttach, Report, ReportKind, Source};
use slapo_syntax::{Applicability, Diagnostic, Fix, ModelExcerpt, Severity, SourceMap, Span};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// Longer lines are not drawn.
const LONGEST_LINE: usize = 400;

/// A file of the source map, or behind those a model excerpt.
type Id = usize;
/// In characters.
type Area = (Id, Range<usize>);

pub fn diagnostic(files: &SourceMap, diagnostic: &Diagnostic, style: Style) -> String {
    let drawn = has_short_lines(files, diagnostic).then(|| draw(files, diagnostic, style)).flatten();
    drawn.unwrap_or_else(|| list(files, diagnostic, style))
}

/// A failure has no place in a schedule; it may have one in the model.
pub fn failure(failure: &Failure, style: Style) -> String {
    let kind = style.severity(Severity::Error, &kind(Severity::Error, failure.code));
    let mut text = format!("{kind}: {}\n", style.bold(&printable(&failure.message)));
    if let Some(ModelExcerpt { file, line, source, .. }) = &failure.excerpt {
        text.push_str(&format!("  --> {file}:{line}\n"));
        if !source.is_empty() {
            text.push_str(&format!("      {}\n", printable(source)));
        }
    }
    append(&mut text, style, &failure.notes, &failure.helps);
    text
}

fn append(text: &mut String, style: Style, notes: &[String], helps: &[String]) {
    for (kind, lines) in [("note", notes), ("help", helps)] {
        for line in lines {
            let indented = printable(line).replace('\n', "\n        ");
            text.push_str(&format!("  {}: {indented}\n", style.bold(kind)));
        }
    }
}

fn draw(files: &SourceMap, diagnostic: &Diagnostic, style: Style) -> Option<String> {
    let color = match diagnostic.severity {
        Severity::Error => Color::Red,
        Severity::Warning => Color::Yellow,
        Severity::Note => Color::Cyan,
    };
    let labels = labels(files, diagnostic, color);
    let (first, _) = labels.first()?;
    let config = Config::default()
        .with_color(style.color)
        .with_index_type(IndexType::Char)
        .with_label_attach(LabelAttach::Start);
    let mut report = Report::build(ReportKind::Error, first.clone())
        .with_config(config)
        .with_labels(labels.into_iter().map(|(_, label)| label));
    for note in &diagnostic.notes {
        report.add_note(printable(note));
    }
    for help in &diagnostic.helps {
        report.add_help(printable(help));
    }
    // A help says already what a fix would do.
    for fix in diagnostic.fixes.iter().filter(|_| diagnostic.helps.is_empty()) {
        report.add_help(suggestion(files, fix));
    }
    let mut buffer = Vec::new();
    report.finish().write(Sources::new(files, &diagnostic.excerpt), &mut buffer).ok()?;
    let drawn = String::from_utf8_lossy(&buffer);
    // The first line is ariadne's own title.
    let lines = drawn.lines().skip(1).map(str::trim_end);
    let lines: Vec<String> = [title(diagnostic, style)].into_iter().chain(lines.map(str::to_owned)).collect();
    Some(format!("{}\n", lines.join("\n")))
}

/// `error[S0601]: cannot split …`
fn title(diagnostic: &Diagnostic, style: Style) -> String {
    let kind = kind(diagnostic.severity, Some(diagnostic.code));
    let message = printable(&diagnostic.message).replace('\n', " ");
    format!("{}: {}", style.severity(diagnostic.severity, &kind), style.bold(&message))
}

/// The primary label first. They are drawn file by file and line by line, the primary label's file first.
fn labels(files: &SourceMap, diagnostic: &Diagnostic, color: Color) -> Vec<(Area, Label<Area>)> {
    let own =
        diagnostic.primary.iter().map(|l| (l, color)).chain(diagnostic.secondary.iter().map(|l| (l, Color::Blue)));
    let mut drawn: Vec<(Area, &str, Color)> =
        own.map(|(l, color)| ((l.span.file.0 as usize, characters(files, l.span)), l.text.as_str(), color)).collect();
    let first_excerpt = files.files().count();
    for (i, excerpt) in diagnostic.excerpt.iter().enumerate() {
        let start = above(excerpt);
        let area = (first_excerpt + i, start..start + excerpt.source.chars().count());
        drawn.push((area, &excerpt.label, Color::Magenta));
    }
    let main = drawn.first().map(|((file, _), ..)| *file);
    let spans: Vec<Span> = diagnostic.primary.iter().chain(&diagnostic.secondary).map(|l| l.span).collect();
    let line = |at: usize| spans.get(at).map_or(0, |span| files.line_column(span.file, span.start).line);
    let mut downwards: Vec<usize> = (0..drawn.len()).collect();
    downwards.sort_by_key(|at| {
        let file = drawn[*at].0.0;
        (Some(file) != main, file, line(*at))
    });
    let order = |at: usize| downwards.iter().position(|other| *other == at).unwrap_or(at) as i32;
    let label = |(at, (area, text, color)): (usize, (Area, &str, Color))| {
        let label = Label::new(area.clone()).with_color(color).with_order(order(at));
        (area, if text.is_empty() { label } else { label.with_message(printable(text)) })
    };
    drawn.into_iter().enumerate().map(label).collect()
}

fn characters(files: &SourceMap, span: Span) -> Range<usize> {
    let (text, range) = (files.text(span.file), bytes(files, span));
    let before = text[..range.start].chars().count();
    before..before + text[range].chars().count()
}

/// The fix's title, and its first line as it would be.
fn suggestion(files: &SourceMap, fix: &Fix) -> String {
    let doubt = match fix.applicability {
        Applicability::MachineApplicable => "",
        Applicability::MaybeIncorrect => ", if that is what was meant",
    };
    let title = format!("{}{doubt}", fix.title);
    let Some(first) = fix.edits.first() else { return title };
    let span = first.span;
    // Of a line that goes there is nothing to show.
    if first.replacement.is_empty() && files.slice(span).contains('\n') {
        return title;
    }
    let at = files.line_column(span.file, span.start);
    let fixed = fix.apply(span.file, files.text(span.file));
    match fixed.lines().nth(at.line as usize - 1).unwrap_or("").trim() {
        "" => title,
        line if line.len() > LONGEST_LINE => title,
        line => printable(&format!("{title}: `{line}`")).into_owned(),
    }
}

fn has_short_lines(files: &SourceMap, diagnostic: &Diagnostic) -> bool {
    let labels = diagnostic.primary.iter().chain(&diagnostic.secondary);
    let mut ends = labels.flat_map(|l| [(l.span.file, l.span.start), (l.span.file, l.span.end)]);
    ends.all(|(file, offset)| files.line_text(file, files.line_column(file, offset).line).len() <= LONGEST_LINE)
}

/// Without a picture: what there is to say and the places.
fn list(files: &SourceMap, diagnostic: &Diagnostic, style: Style) -> String {
    let mut text = format!("{}\n", title(diagnostic, style));
    for label in diagnostic.primary.iter().chain(&diagnostic.secondary) {
        text.push_str(&format!("  --> {}\n", files.place(label.span)));
        if !label.text.is_empty() {
            text.push_str(&format!("      {}\n", printable(&label.text)));
        }
    }
    for excerpt in &diagnostic.excerpt {
        text.push_str(&format!("  --> {}:{}\n      {}\n", excerpt.file, excerpt.line, printable(&excerpt.source)));
    }
    append(&mut text, style, &diagnostic.notes, &diagnostic.helps);
    text
}

/// Empty lines drawn above a model's line, so that it gets its number: characters before it.
fn above(excerpt: &ModelExcerpt) -> usize {
    const MOST: u32 = 1 << 20;
    excerpt.line.saturating_sub(1).min(MOST) as usize
}

struct Sources<'a> {
    files: &'a SourceMap,
    excerpts: &'a [ModelExcerpt],
    ready: BTreeMap<Id, Source<String>>,
}

impl<'a> Sources<'a> {
    fn new(files: &'a SourceMap, excerpts: &'a [ModelExcerpt]) -> Sources<'a> {
        Sources { files, excerpts, ready: BTreeMap::new() }
    }

    fn excerpt(&self, id: Id) -> Option<&'a ModelExcerpt> {
        self.excerpts.get(id.checked_sub(self.files.files().count())?)
    }

    fn source(&self, id: Id) -> Source<String> {
        if let Some(excerpt) = self.excerpt(id) {
            return Source::from("\n".repeat(above(excerpt)) + &drawable(&excerpt.source, true));
        }
        let file = self.files.files().nth(id);
        Source::from(file.map(|file| drawable(self.files.text(file), false)).unwrap_or_default())
    }
}

impl Cache<Id> for Sources<'_> {
    type Storage = String;

    fn fetch(&mut self, id: &Id) -> Result<&Source<String>, impl fmt::Debug> {
        if !self.ready.contains_key(id) {
            let source = self.source(*id);
            self.ready.insert(*id, source);
        }
        self.ready.get(id).ok_or("no such file")
    }

    fn display<'a>(&self, id: &'a Id) -> Option<impl fmt::Display + 'a> {
        let file = self.files.files().nth(*id).map(|file| self.files.name(file).to_owned());
        file.or_else(|| self.excerpt(*id).map(|excerpt| excerpt.file.clone()))
    }
}

/// The text with as many characters, only `\n` ending lines, and no control characters.
fn drawable(text: &str, one_line: bool) -> String {
    let carriage_return_before_line_end = |at: usize| text[at..].starts_with("\r\n");
    text.char_indices()
        .map(|(at, c)| match c {
            '\n' | '\t' if !one_line => c,
            '\r' if carriage_return_before_line_end(at) => ' ',
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => '?',
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawable_text_keeps_its_characters() {
        let text = "a\x1b[31m\u{85}\u{2028}\r\nb\r\u{b}é\t";
        let drawn = drawable(text, false);
        assert_eq!(drawn.chars().count(), text.chars().count());
        assert_eq!(drawn.matches('\n').count(), 1);
        assert!(!drawn.contains(['\x1b', '\r', '\u{85}', '\u{2028}', '\u{b}']));
    }
}
