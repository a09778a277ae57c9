//! Steps: what a schedule does once loops are unrolled and library schedules inlined.
//!
//! A [`Step`] is one primitive on one target. It can be printed, written as JSON, and [replayed](super::replay) on the model
//! without the schedule; every later change of the graph carries the id of its step. Read `Step` first.

use super::number::Number;
use super::points::Point;
use super::recorded::RecordedMatch;
use super::select::Place;
use crate::patterns::Match;
use crate::primitives::Primitive;
use serde::ser::{SerializeSeq, SerializeStruct};
use serde::{Deserialize, Serialize, Serializer};
use slapo_syntax::{SourceMap, Span};
use std::fmt;
use std::sync::Arc;

/// One applied statement on one target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Counts from 1, in the order of application.
    pub id: u32,
    #[serde(serialize_with = "name_of")]
    pub primitive: &'static Primitive,
    pub target: Target,
    /// By the names of the primitive's signature, in its order; arguments that took their default included.
    pub args: Vec<(&'static str, Argument)>,
    /// The statement that is the step, in the user's file or in the library.
    pub site: Site,
    /// How the expansion got there.
    pub chain: Chain,
}

/// What a step acts on.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub place: Place,
    /// Where the step is about a value at that place.
    pub point: Option<Point>,
    /// Where it is about a pattern found inside that module.
    pub found: Option<Arc<Match>>,
    /// Dotted, as the schedule reached it; empty for the model itself. A point reads `transformer.wte.output()`.
    pub path: String,
}

/// A value given to a primitive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Argument {
    Int(i64),
    Number(Number),
    Bool(bool),
    Text(String),
    /// A built-in word such as `bf16`.
    Word(String),
    /// A built-in word with what it was given: `reduce_scatter(seq)`.
    Call(String, Vec<(String, Argument)>),
    /// An axis, or a factor of one, by its name; several are a list.
    Axis(String),
    /// A part of the model by its path.
    Path(String),
    /// The archive that a replacement comes from: its path as written, and what identifies what was read there.
    Archive {
        path: String,
        fingerprint: String,
    },
    List(Vec<Argument>),
}

impl Argument {
    /// Whether it is that axis, the axis of that factor, or a list with one of them.
    pub fn takes_axis(&self, name: &str) -> bool {
        match self {
            Argument::Axis(own) => {
                own == name || name.strip_prefix(own.as_str()).is_some_and(|rest| rest.starts_with('['))
            }
            Argument::List(all) => all.iter().any(|one| one.takes_axis(name)),
            _ => false,
        }
    }
}

/// A place in a source file, with its line spelt out so that it outlives the source map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    pub span: Span,
    pub file: Arc<str>,
    /// From 1; columns count characters.
    pub line: u32,
    pub column: u32,
}

/// The calls and iterations around a step. Steps share what they have in common. Chains can be long: nothing here walks
/// them recursively.
#[derive(Clone, Default)]
pub struct Chain(Option<Arc<Frame>>);

pub struct Frame {
    pub kind: FrameKind,
    /// The call, or the head of the loop.
    pub site: Site,
    parent: Chain,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A schedule that was called.
    Call { schedule: String },
    /// One turn of a loop, with its variable's value.
    Iteration { variable: String, value: String },
}

impl Chain {
    pub fn push(&self, kind: FrameKind, site: Site) -> Chain {
        Chain(Some(Arc::new(Frame { kind, site, parent: self.clone() })))
    }

    /// Innermost first.
    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        std::iter::successors(self.0.as_deref(), |frame| frame.parent.0.as_deref())
    }
}

impl PartialEq for Chain {
    fn eq(&self, other: &Chain) -> bool {
        let frame = |frame: &Frame| (frame.kind.clone(), frame.site.clone());
        self.frames().map(frame).eq(other.frames().map(frame))
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.frames().map(|frame| (&frame.kind, &frame.site))).finish()
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let mut next = self.parent.0.take();
        while let Some(mut frame) = next.and_then(Arc::into_inner) {
            next = frame.parent.0.take();
        }
    }
}

impl Site {
    pub fn new(files: &SourceMap, span: Span) -> Site {
        let at = files.line_column(span.file, span.start);
        Site { span, file: Arc::from(files.name(span.file)), line: at.line, column: at.column }
    }
}

impl Step {
    /// The argument of that name.
    pub fn arg(&self, name: &str) -> Option<&Argument> {
        self.args.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Arguments as listings show them, `dim: out, over: tp`: without those that are what they are by default.
    pub fn shown_args(&self) -> String {
        let is_default = |name: &str, value: &Argument| {
            let parameter = self.primitive.params.iter().find(|parameter| parameter.name == name);
            parameter.is_some_and(|parameter| parameter.default.as_ref() == Some(value))
        };
        let said = self.args.iter().filter(|(name, value)| !is_default(name, value));
        said.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ")
    }
}

/// `gpt2.slapo:12`
impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// `checkpoint transformer.h.0`
pub(super) fn what(primitive: &Primitive, path: &str) -> String {
    match path {
        "" => format!("{} (model)", primitive.name),
        path => format!("{} {path}", primitive.name),
    }
}

/// `#3 checkpoint transformer.h.0   gpt2.slapo:12`
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {}", self.id, what(self.primitive, &self.target.path))?;
        let args = self.shown_args();
        write!(f, "{}{args}", if args.is_empty() { "" } else { " " })?;
        write!(f, "   {}", self.site)
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Argument::Int(value) => write!(f, "{value}"),
            Argument::Number(value) => write!(f, "{value}"),
            Argument::Bool(value) => write!(f, "{value}"),
            Argument::Text(value) | Argument::Archive { path: value, .. } => write!(f, "{value:?}"),
            Argument::Word(value) | Argument::Axis(value) | Argument::Path(value) => f.write_str(value),
            Argument::Call(name, args) => {
                let show = |(name, value): &(String, Argument)| match name.as_str() {
                    "groups" => format!("groups: {value}"),
                    _ => value.to_string(),
                };
                let shown: Vec<String> = args.iter().map(show).collect();
                write!(f, "{name}({})", shown.join(", "))
            }
            Argument::List(values) => {
                let shown: Vec<String> = values.iter().map(Argument::to_string).collect();
                write!(f, "[{}]", shown.join(", "))
            }
        }
    }
}

/// The steps as JSON, as [`super::replay`] reads them.
pub fn to_json(steps: &[Step]) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(steps)
}

fn name_of<S: Serializer>(primitive: &&'static Primitive, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(primitive.name)
}

/// A path, or what was found.
impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.found {
            None => serializer.serialize_str(&self.path),
            Some(found) => RecordedMatch::new(found, &self.path).serialize(serializer),
        }
    }
}

/// `gpt2.slapo:12:5`
impl Serialize for Site {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self}:{}", self.column))
    }
}

/// Innermost first.
impl Serialize for Chain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut frames = serializer.serialize_seq(None)?;
        for frame in self.frames() {
            frames.serialize_element(frame)?;
        }
        frames.end()
    }
}

impl Serialize for Frame {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut frame = serializer.serialize_struct("Frame", 2)?;
        match &self.kind {
            FrameKind::Call { schedule } => frame.serialize_field("call", schedule)?,
            FrameKind::Iteration { variable, value } => {
                frame.serialize_field("iteration", &format!("{variable} = {value}"))?
            }
        }
        frame.serialize_field("site", &self.site)?;
        frame.end()
    }
}
