//! Diagnostics as data: what finds a problem does not know how it is shown.
//!
//! Renderers (human, short, JSON, editor) read these and nothing else; no rendering crate may appear here. Messages
//! are lower case without a final full stop, code in back-ticks. Read `Diagnostic` first; its builder is meant to be
//! written as one sentence:
//! `Diagnostic::error(Code::MissingComma, "…").primary(span, "…").help("…")`.

use crate::code::Code;
use crate::span::Span;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub code: Code,
    pub severity: Severity,
    /// What is wrong, on one line that stands alone.
    pub message: String,
    /// What is wrong *here*. Absent only where no source text is to blame, such as a missing file.
    pub primary: Option<Label>,
    /// Causes: the earlier step, the mesh line, in this or another file.
    pub secondary: Vec<Label>,
    pub notes: Vec<String>,
    /// What to do about it, with the nearest legal values.
    pub helps: Vec<String>,
    pub fixes: Vec<Fix>,
    /// Lines of the model's own source, which lies outside the source map.
    pub excerpt: Vec<ModelExcerpt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    Error,
    Warning,
    Note,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub span: Span,
    /// May be empty: then only the place is shown.
    pub text: String,
}

/// A change of the text that would settle the diagnostic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    pub title: String,
    /// Do not overlap; in source order.
    pub edits: Vec<Edit>,
    pub applicability: Applicability,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub span: Span,
    pub replacement: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applicability {
    /// Surely what was meant: `--fix` applies it.
    MachineApplicable,
    /// A likely reading; a person decides.
    MaybeIncorrect,
}

/// One line of the file the model was exported from, as the archive carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelExcerpt {
    pub file: String,
    pub line: u32,
    pub source: String,
    pub label: String,
}

impl Diagnostic {
    pub fn new(severity: Severity, code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            severity,
            message: message.into(),
            primary: None,
            secondary: Vec::new(),
            notes: Vec::new(),
            helps: Vec::new(),
            fixes: Vec::new(),
            excerpt: Vec::new(),
        }
    }

    pub fn error(code: Code, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, message)
    }

    pub fn warning(code: Code, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, message)
    }

    pub fn info(code: Code, message: impl Into<String>) -> Self {
        Self::new(Severity::Note, code, message)
    }

    pub fn primary(mut self, span: Span, text: impl Into<String>) -> Self {
        self.primary = Some(Label { span, text: text.into() });
        self
    }

    pub fn secondary(mut self, span: Span, text: impl Into<String>) -> Self {
        self.secondary.push(Label { span, text: text.into() });
        self
    }

    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.helps.push(text.into());
        self
    }

    pub fn fix(mut self, fix: Fix) -> Self {
        self.fixes.push(fix);
        self
    }

    pub fn excerpt(
        mut self,
        file: impl Into<String>,
        line: u32,
        source: impl Into<String>,
        label: impl Into<String>,
    ) -> Self {
        self.excerpt.push(ModelExcerpt { file: file.into(), line, source: source.into(), label: label.into() });
        self
    }

    /// The primary span, if there is one.
    pub fn span(&self) -> Option<Span> {
        self.primary.as_ref().map(|label| label.span)
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl Fix {
    /// A fix that is surely right.
    pub fn safe(title: impl Into<String>) -> Self {
        Self { title: title.into(), edits: Vec::new(), applicability: Applicability::MachineApplicable }
    }

    /// A fix a person should look at.
    pub fn maybe(title: impl Into<String>) -> Self {
        Self { title: title.into(), edits: Vec::new(), applicability: Applicability::MaybeIncorrect }
    }

    pub fn replace(mut self, span: Span, replacement: impl Into<String>) -> Self {
        self.edits.push(Edit { span, replacement: replacement.into() });
        self.edits.sort_by_key(|edit| edit.span);
        self
    }

    pub fn insert(self, before: Span, text: impl Into<String>) -> Self {
        self.replace(before.at_start(), text)
    }

    pub fn delete(self, span: Span) -> Self {
        self.replace(span, "")
    }

    /// The text of one file with the edits made that belong to it.
    pub fn apply(&self, file: crate::FileId, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        for edit in self.edits.iter().filter(|edit| edit.span.file == file) {
            let range = edit.span.range();
            out.push_str(text.get(done..range.start).unwrap_or(""));
            out.push_str(&edit.replacement);
            done = range.end.max(done);
        }
        out.push_str(text.get(done..).unwrap_or(""));
        out
    }
}
