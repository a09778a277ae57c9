//! The source files of one run: names, texts, and the only place that knows where lines start.
//!
//! Reads nothing from disk: texts are handed in. Columns count characters, from 1, as editors and compilers print them;
//! the language server counts UTF-16 units beside it. This and the renderers of `slapoc` are the only files that name
//! codespan-reporting. Read `SourceMap` first.

use std::ops::Range;
use std::sync::Arc;

use codespan_reporting::files::{self, Files};

use crate::span::{FileId, Span};

/// All files of a run, in the order they were added.
#[derive(Clone, Debug, Default)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

#[derive(Clone, Debug)]
struct SourceFile {
    name: String,
    text: Arc<str>,
    /// Byte offsets of the first character of every line; never empty.
    lines: Vec<u32>,
}

/// A place as people write it: both numbers from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineColumn {
    pub line: u32,
    pub column: u32,
}

impl SourceMap {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file under the name that messages will show.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> FileId {
        let text = text.into();
        let lines = files::line_starts(&text).map(|start| start as u32).collect();
        self.files.push(SourceFile { name: name.into(), text, lines });
        FileId(self.files.len() as u32 - 1)
    }

    pub fn files(&self) -> impl Iterator<Item = FileId> {
        (0..self.files.len() as u32).map(FileId)
    }

    /// The name of a file, or an empty one for an id of another map.
    pub fn name(&self, file: FileId) -> &str {
        self.get(file).map_or("", |found| &found.name)
    }

    /// The text of a file, or an empty one for an id of another map.
    pub fn text(&self, file: FileId) -> &str {
        self.get(file).map_or("", |found| &found.text)
    }

    /// The text of a file, shared.
    pub fn shared_text(&self, file: FileId) -> Arc<str> {
        self.get(file).map_or_else(|| Arc::from(""), |found| found.text.clone())
    }

    /// The text under a span; offsets beyond the file are cut, a broken character boundary gives nothing.
    pub fn slice(&self, span: Span) -> &str {
        let text = self.text(span.file);
        let end = (span.end as usize).min(text.len());
        text.get((span.start as usize).min(end)..end).unwrap_or("")
    }

    /// Line and column of a byte offset; beyond the end is the end.
    pub fn line_column(&self, file: FileId, offset: u32) -> LineColumn {
        let Some(found) = self.get(file) else { return LineColumn { line: 1, column: 1 } };
        let offset = (offset as usize).min(found.text.len());
        let line = found.line_of(offset as u32);
        let before = found.text.get(found.lines[line] as usize..offset).unwrap_or("");
        LineColumn { line: line as u32 + 1, column: before.chars().count() as u32 + 1 }
    }

    /// Where a span starts, as `name:line:column`.
    pub fn place(&self, span: Span) -> String {
        let at = self.line_column(span.file, span.start);
        format!("{}:{}:{}", self.name(span.file), at.line, at.column)
    }

    /// A line by its number from 1, without its line ending.
    pub fn line_text(&self, file: FileId, line: u32) -> &str {
        let Some(index) = (line as usize).checked_sub(1) else { return "" };
        let Some(range) = self.get(file).and_then(|found| found.line_bytes(index)) else { return "" };
        self.text(file)[range].trim_end_matches(['\n', '\r'])
    }

    /// The byte offset at which a line (from 1) begins.
    pub fn line_start(&self, file: FileId, line: u32) -> Option<u32> {
        let index = (line as usize).checked_sub(1)?;
        self.get(file)?.lines.get(index).copied()
    }

    pub fn line_count(&self, file: FileId) -> u32 {
        self.get(file).map_or(0, |found| found.lines.len() as u32)
    }

    fn get(&self, file: FileId) -> Option<&SourceFile> {
        self.files.get(file.0 as usize)
    }
}

impl SourceFile {
    fn line_of(&self, offset: u32) -> usize {
        self.lines.partition_point(|start| *start <= offset).saturating_sub(1)
    }

    fn line_bytes(&self, index: usize) -> Option<Range<usize>> {
        let start = *self.lines.get(index)? as usize;
        let end = self.lines.get(index + 1).map_or(self.text.len(), |next| *next as usize);
        Some(start..end)
    }
}

impl<'a> Files<'a> for SourceMap {
    type FileId = FileId;
    type Name = &'a str;
    type Source = &'a str;

    fn name(&'a self, id: FileId) -> Result<&'a str, files::Error> {
        self.get(id).map(|found| found.name.as_str()).ok_or(files::Error::FileMissing)
    }

    fn source(&'a self, id: FileId) -> Result<&'a str, files::Error> {
        self.get(id).map(|found| &*found.text).ok_or(files::Error::FileMissing)
    }

    fn line_index(&'a self, id: FileId, byte: usize) -> Result<usize, files::Error> {
        let found = self.get(id).ok_or(files::Error::FileMissing)?;
        Ok(found.line_of(byte.min(found.text.len()) as u32))
    }

    fn line_range(&'a self, id: FileId, line: usize) -> Result<Range<usize>, files::Error> {
        let found = self.get(id).ok_or(files::Error::FileMissing)?;
        found.line_bytes(line).ok_or(files::Error::LineTooLarge { given: line, max: found.lines.len() - 1 })
    }
}
