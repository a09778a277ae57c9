//! Places in source text: a file and a range of bytes.
//!
//! Knows nothing of lines, columns or text; `files.rs` does. Read `Span` first.

/// A file of a [`SourceMap`](crate::SourceMap), by its position there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// A half-open range of bytes in one file. Both ends lie on token boundaries, hence on character boundaries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub file: FileId,
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub fn new(file: FileId, start: u32, end: u32) -> Self {
        debug_assert!(start <= end, "a span ends before it starts: {start}..{end}");
        Self { file, start, end }
    }

    pub fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }

    pub fn len(self) -> u32 {
        self.end - self.start
    }

    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    pub fn contains(self, offset: u32) -> bool {
        self.start <= offset && offset < self.end
    }

    /// The smallest span over both. Spans of different files cannot be joined: the first is kept.
    pub fn to(self, other: Span) -> Span {
        if self.file != other.file {
            return self;
        }
        Span::new(self.file, self.start.min(other.start), self.end.max(other.end))
    }

    /// The empty span where this one begins.
    pub fn at_start(self) -> Span {
        Span::new(self.file, self.start, self.start)
    }

    /// The empty span where this one ends.
    pub fn at_end(self) -> Span {
        Span::new(self.file, self.end, self.end)
    }
}

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}..{}", self.file.0, self.start, self.end)
    }
}
