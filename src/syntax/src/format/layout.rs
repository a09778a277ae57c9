//! From a stream of marks to text: which groups fit on a line, and which are broken into several.
//!
//! The usual document algebra (Oppen; Wadler), as a flat stream: a group is written on one line where it and what
//! follows it up to the next possible break fit; otherwise its lines break, and each group inside decides anew. Two
//! passes, both linear: widths from the end, text from the start. Knows nothing of the language. Read [`Mark`] first.

/// Columns of code; strings, paths and comments may reach beyond.
const WIDTH: usize = 88;

const INDENT: usize = 4;

/// Between code and the comment beside it.
const GAP: usize = 2;

pub(super) enum Mark<'t> {
    Text(&'t str),
    /// A space, unless a line begins here.
    Space,
    /// The end of a line in a broken group, a space otherwise.
    Line,
    /// The end of a line in a broken group, nothing otherwise.
    Soft,
    /// The end of a line; stands in no group.
    Hard,
    /// Sets off the line that begins here by a blank one; nothing where no line begins.
    Blank,
    /// A comma in a broken group, nothing otherwise.
    Comma,
    In,
    Out,
    Open(Group),
    Close,
    /// A comment behind code. It ends its line and breaks the groups around it.
    Beside(&'t str),
    /// A comment on a line of its own. It breaks the groups around it.
    Above(&'t str),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Plain,
    /// What stands behind `=`, after a space where it fits; otherwise on the next line, or behind the `=` all the same
    /// with its own brackets broken.
    Value(Hug),
}

/// When a value that does not fit behind `=` stays there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hug {
    Never,
    /// Where a line of its own is too short for it as well.
    Last,
    Always,
}

/// The text of balanced marks. It ends with a line end unless it is empty.
pub(super) fn text(marks: &[Mark<'_>], line_end: &str) -> String {
    let mut printer = Printer { line_end, line_ends: 1, ..Printer::default() };
    let mut sizes = sizes(marks).into_iter().rev();
    for mark in marks {
        match mark {
            Mark::Open(group) => printer.open(*group, sizes.next().unwrap_or_default()),
            _ => printer.mark(mark),
        }
    }
    if !printer.out.is_empty() {
        printer.out.push_str(line_end);
    }
    printer.aligned()
}

/// Of one group.
#[derive(Clone, Copy, Default)]
struct Size {
    /// On one line.
    width: usize,
    /// Of what follows up to the next place where a line may end.
    tail: usize,
    has_comments: bool,
}

/// The sizes of all groups, the last one to open first.
fn sizes(marks: &[Mark<'_>]) -> Vec<Size> {
    let mut sizes = Vec::new();
    let mut closed: Vec<(usize, usize, usize)> = Vec::new();
    // From here to the end of the text, and to the next possible end of a line.
    let (mut width, mut comments, mut tail) = (0, 0, 0);
    for mark in marks.iter().rev() {
        match mark {
            Mark::Text(text) => {
                let columns = text.chars().count();
                (width, tail) = (width + columns, tail + columns);
            }
            Mark::Space => (width, tail) = (width + 1, tail + 1),
            // Where it follows a group, its own group is a broken one.
            Mark::Comma => tail += 1,
            Mark::Line => (width, tail) = (width + 1, 0),
            Mark::Soft | Mark::Hard => tail = 0,
            Mark::Beside(_) | Mark::Above(_) => (comments, tail) = (comments + 1, 0),
            Mark::Close => closed.push((width, comments, tail)),
            Mark::Open(group) => {
                if let Group::Value(_) = group {
                    (width, tail) = (width + 1, 0);
                }
                let (width_behind, comments_behind, tail) = closed.pop().unwrap_or_default();
                sizes.push(Size { width: width - width_behind, tail, has_comments: comments > comments_behind });
            }
            Mark::Blank | Mark::In | Mark::Out => {}
        }
    }
    sizes
}

#[derive(Default)]
struct Printer<'o> {
    out: String,
    line_end: &'o str,
    column: usize,
    /// Of the lines to come.
    indent: usize,
    /// To be written before the next text.
    line_ends: usize,
    space: bool,
    /// The groups around this place: whether they are broken, and the indentation outside of them.
    groups: Vec<(bool, usize)>,
    /// Of the line that is being written.
    line: Place,
    comments: Vec<Beside>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    number: usize,
    indent: usize,
}

/// A comment beside code, still without the space before it.
struct Beside {
    line: Place,
    column: usize,
    /// Where it starts in the text.
    at: usize,
}

impl Printer<'_> {
    fn mark(&mut self, mark: &Mark<'_>) {
        match mark {
            Mark::Text(text) => self.write(text),
            Mark::Space => self.space = true,
            Mark::Line | Mark::Soft if self.is_broken() => self.end_line(),
            Mark::Line => self.space = true,
            Mark::Soft => {}
            Mark::Hard => self.end_line(),
            Mark::Blank if self.line_ends > 0 => self.line_ends = 2,
            Mark::Blank => {}
            Mark::Comma if self.is_broken() => self.write(","),
            Mark::Comma => {}
            Mark::In => self.indent += INDENT,
            Mark::Out => self.indent -= INDENT,
            Mark::Open(_) => {}
            Mark::Close => {
                if let Some((_, indent)) = self.groups.pop() {
                    self.indent = indent;
                }
            }
            Mark::Beside(comment) if self.line_ends == 0 => {
                self.comments.push(Beside { line: self.line, column: self.column, at: self.out.len() });
                self.out.push_str(comment);
                self.end_line();
            }
            Mark::Beside(comment) | Mark::Above(comment) => {
                self.end_line();
                self.write(comment);
                self.end_line();
            }
        }
    }

    fn open(&mut self, group: Group, size: Size) {
        let fits = |from: usize, width: usize| !size.has_comments && from + width + size.tail <= WIDTH;
        let from = if self.line_ends > 0 { self.indent } else { self.column + usize::from(self.space) };
        let is_broken = self.is_broken() && !fits(from, size.width);
        self.groups.push((is_broken, self.indent));
        if let Group::Value(hug) = group {
            let has_own_line = || fits(self.indent + INDENT, size.width - 1);
            if !is_broken || hug == Hug::Always || hug == Hug::Last && !has_own_line() {
                self.space = true;
            } else {
                self.indent += INDENT;
                self.end_line();
            }
        }
    }

    fn is_broken(&self) -> bool {
        self.groups.last().is_none_or(|(is_broken, _)| *is_broken)
    }

    fn end_line(&mut self) {
        self.line_ends = self.line_ends.max(1);
    }

    fn write(&mut self, text: &str) {
        if self.line_ends > 0 {
            if !self.out.is_empty() {
                (0..self.line_ends).for_each(|_| self.out.push_str(self.line_end));
            }
            self.line = Place { number: self.line.number + self.line_ends, indent: self.indent };
            self.out.extend(std::iter::repeat_n(' ', self.indent));
            self.column = self.indent;
        } else if self.space {
            self.out.push(' ');
            self.column += 1;
        }
        (self.line_ends, self.space) = (0, false);
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    /// The text with the comments beside neighbouring lines of one indentation in one column.
    fn aligned(self) -> String {
        let follows =
            |before: &Beside, next: &Beside| next.line == Place { number: before.line.number + 1, ..before.line };
        let mut out = String::with_capacity(self.out.len() + self.out.len() / 8);
        let mut done = 0;
        for run in self.comments.chunk_by(follows) {
            let margin = run.iter().map(|comment| comment.column).max().unwrap_or(0) + GAP;
            for comment in run {
                out.push_str(&self.out[done..comment.at]);
                out.extend(std::iter::repeat_n(' ', margin - comment.column));
                done = comment.at;
            }
        }
        out.push_str(&self.out[done..]);
        out
    }
}
