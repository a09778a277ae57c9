//! The schedule with every name resolved and every expression typed; owns its data, borrows no text.
//!
//! What was wrong is an [`ExprKind::Error`] here and was reported: expansion stops there without a word. Read
//! [`Schedule`] first.

use super::builtins::{Function, Query};
use super::number::Number;
use super::steps::Argument;
use super::types::{Ty, Want};
use crate::patterns::Pattern;
use crate::primitives::Primitive;
use slapo_syntax::Span;
use slapo_syntax::ast::BinaryOp;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleId(pub u32);

/// A `let` or `knob` at the top of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GlobalId(pub u32);

/// A name inside a schedule: its slot in the frame of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalId(pub u32);

/// A file and what it uses of other files and of the library.
#[derive(Clone, Debug, Default)]
pub struct Hir {
    pub schedules: Vec<Schedule>,
    pub globals: Vec<Global>,
    pub patterns: Vec<Arc<Pattern>>,
    /// Of the checked file.
    pub axes: Vec<AxisDecl>,
    /// The `mesh` item.
    pub mesh: Option<Span>,
    pub batch: Option<Entry>,
    pub seq: Option<Entry>,
    /// The `input` item.
    pub input: Option<Span>,
    /// It has a size that does not exist, which was reported: the one that is missing.
    pub has_unknown_size: bool,
    /// The schedule to start with: `main`, or what the command line names.
    pub entry: Option<ScheduleId>,
}

#[derive(Clone, Debug)]
pub struct Schedule {
    pub name: String,
    pub name_span: Span,
    pub params: Vec<Param>,
    pub body: Block,
    /// Slots that a frame needs; the parameters take the first.
    pub locals: u32,
    /// Its parameters have syntax errors: any arguments may be right.
    pub has_broken_head: bool,
    /// Part of a cycle of calls, which was reported.
    pub is_recursive: bool,
}

#[derive(Clone, Debug)]
pub struct Param {
    pub name: String,
    pub span: Span,
    pub want: Want,
    pub default: Option<Expr>,
}

#[derive(Clone, Debug)]
pub struct Global {
    pub name: String,
    /// Of a knob the value it has by default.
    pub value: Expr,
    /// What the command line chooses instead.
    pub set: Option<Expr>,
    /// Absent for a `let`.
    pub knob: Option<Knob>,
}

#[derive(Clone, Debug)]
pub struct Knob {
    /// What it may be; anything of its type without.
    pub domain: Option<Domain>,
    /// The module that declares it, such as `blocks.tp`; none for the file that is checked.
    pub module: Option<String>,
}

impl Global {
    /// How the command line calls it: `ratio`, or `blocks.tp.ratio` where a module declares it.
    pub fn full_name(&self) -> String {
        match self.knob.as_ref().and_then(|knob| knob.module.as_ref()) {
            Some(module) => format!("{module}.{}", self.name),
            None => self.name.clone(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct AxisDecl {
    pub name: String,
    pub span: Span,
    pub size: AxisSize,
}

#[derive(Clone, Debug)]
pub enum AxisSize {
    /// World size over the others.
    Auto(Span),
    Given(Expr),
    /// `[2, 2]`, the outer one first.
    Factors(Vec<Expr>),
}

/// An entry of `input`.
#[derive(Clone, Debug)]
pub struct Entry {
    pub span: Span,
    pub value: Expr,
}

#[derive(Clone, Debug, Default)]
pub struct Block(pub Vec<Stmt>);

#[derive(Clone, Debug)]
pub struct Stmt {
    pub span: Span,
    pub kind: StmtKind,
}

#[derive(Clone, Debug)]
pub enum StmtKind {
    Let { local: LocalId, value: Expr },
    For { local: LocalId, name: String, head: Span, domain: Domain, body: Block },
    If { branches: Vec<(Expr, Block)>, otherwise: Block },
    Require { condition: Expr, message: Option<String> },
    Call { call: Call, is_tried: bool },
}

#[derive(Clone, Debug)]
pub enum Domain {
    Range {
        start: Expr,
        end: Expr,
        inclusive: bool,
    },
    /// A list, a selection, or a module for its children.
    Values(Expr),
}

#[derive(Clone, Debug)]
pub struct Call {
    pub span: Span,
    pub callee: Callee,
    /// By the callee's parameters; `None` takes the default.
    pub args: Vec<Option<Expr>>,
}

#[derive(Clone, Debug)]
pub enum Callee {
    Primitive { primitive: &'static Primitive, receiver: Expr },
    Schedule(ScheduleId),
}

#[derive(Clone, Debug)]
pub struct Expr {
    pub span: Span,
    pub ty: Ty,
    pub kind: ExprKind,
}

#[derive(Clone, Debug)]
pub enum ExprKind {
    /// Reported.
    Error,
    Number(Number),
    Bool(bool),
    Text(Arc<str>),
    Local(LocalId),
    Global(GlobalId),
    /// Position in [`Hir::axes`].
    Axis(u32),
    /// Position in [`Hir::patterns`].
    Pattern(u32),
    /// Position in [`super::builtins::WORDS`].
    Word(u32),
    /// A collective or a layout with its arguments, by its row of [`super::builtins::shaped`].
    Shaped(u32, Vec<Option<Expr>>),
    /// An operator with what is given for its slots; an [`Argument::Call`].
    Operator(Arc<Argument>),
    /// A class or a `type`, as an argument of `.only`, `.except` and `.is`.
    Class(Want),
    List(Vec<Expr>),
    Neg(Box<Expr>),
    Not(Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    Function(Function, Vec<Expr>),
    /// Down from every element.
    Names(Box<Expr>, Vec<PathName>),
    /// `.*`
    Children(Box<Expr>),
    /// `.**`
    Below(Box<Expr>),
    Index(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, Option<Box<Expr>>, Option<Box<Expr>>),
    Query(Query, Box<Expr>, Vec<Expr>),
}

/// A name after a dot or in braces.
#[derive(Clone, Debug)]
pub struct PathName {
    pub name: String,
    pub is_optional: bool,
    pub span: Span,
}

impl Hir {
    pub fn schedule(&self, id: ScheduleId) -> &Schedule {
        &self.schedules[id.0 as usize]
    }

    pub fn global(&self, id: GlobalId) -> &Global {
        &self.globals[id.0 as usize]
    }
}

impl Expr {
    pub fn error(span: Span) -> Expr {
        Expr { span, ty: Ty::Any, kind: ExprKind::Error }
    }

    pub fn is_error(&self) -> bool {
        matches!(self.kind, ExprKind::Error)
    }
}
