//! Types: what an expression is known to be before there is a model, and what a parameter wants.
//!
//! [`Ty`] is inferred: whether a path is one thing or several is decided by its syntax, whether it leads to a module or
//! to a tensor only by the model. [`Want`] is declared, by a parameter of a schedule or of a primitive.

use super::steps::Argument;
use slapo_syntax::Span;
use std::fmt;
use std::sync::Arc;

/// What an expression gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ty {
    /// An error was reported; fits everywhere.
    Any,
    Number,
    Bool,
    Text,
    /// One module, parameter or buffer.
    Place(PlaceKind),
    /// A selection.
    Places(PlaceKind),
    Point,
    Points,
    Pattern,
    /// A place where a pattern was found.
    Match,
    Matches,
    Axis,
    Word(WordKind),
    /// The name of a class.
    Class,
    List(Box<Ty>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    Module,
    /// A parameter or a buffer.
    Tensor,
    /// The model decides.
    Either,
}

/// Kinds of built-in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WordKind {
    /// The role of a dimension.
    Dim,
    DType,
    /// The order of a pipeline.
    Order,
    /// `before`, `after`
    Side,
    Collective,
    /// `replicate`, `shard`
    Layout,
    /// `auto`, for an axis of the mesh
    Auto,
    /// What a replacement computes
    Operator,
    /// `by_name`, for the weights of a replacement
    Naming,
}

/// What a parameter wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    pub kind: Kind,
    /// `[T]`
    pub list: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Module,
    /// A module of that class.
    Class(String),
    /// A module that has what a `type` lists.
    Structure(Arc<Structure>),
    /// A parameter or a buffer.
    Tensor,
    Point,
    Pattern,
    Match,
    /// Or a list of axes, which are taken together.
    Axis,
    /// A role or a number.
    Dim,
    Int,
    Float,
    Bool,
    Text,
    DType,
    Order,
    /// `all_reduce`, `reduce_scatter(seq)` and their kin.
    Collective,
    /// `replicate` or `shard(seq)`
    Layout,
    /// A number or a list of section sizes.
    Groups,
    /// An operator with its operands and attributes: `gelu(approximate: "tanh")`.
    Operator,
    /// An operator, or the path of an archive.
    Replacement,
    /// `by_name`, or pairs of a name and a parameter.
    Weights,
    /// Pairs of a name and a point.
    Ports,
    /// A number, a string or a truth value.
    Scalar,
    /// The type is wrong or missing, which was reported: everything fits.
    Unknown,
}

impl Kind {
    /// The words of the language that are such a value, bare or with arguments.
    pub fn words(&self) -> Option<WordKind> {
        match self {
            Kind::Dim => Some(WordKind::Dim),
            Kind::DType => Some(WordKind::DType),
            Kind::Order => Some(WordKind::Order),
            Kind::Collective => Some(WordKind::Collective),
            Kind::Layout => Some(WordKind::Layout),
            _ => None,
        }
    }
}

/// `type Mlp = { c_fc: Linear, c_proj: Linear }`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Structure {
    pub name: String,
    pub span: Span,
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub span: Span,
    pub is_optional: bool,
    pub want: Want,
}

impl Structure {
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl Kind {
    /// The types that have a name of their own in parameter lists; classes are named by the model.
    pub const NAMED: &[(&str, Kind)] = &[
        ("Module", Kind::Module),
        ("param", Kind::Tensor),
        ("point", Kind::Point),
        ("pattern", Kind::Pattern),
        ("match", Kind::Match),
        ("axis", Kind::Axis),
        ("dim", Kind::Dim),
        ("int", Kind::Int),
        ("float", Kind::Float),
        ("bool", Kind::Bool),
        ("string", Kind::Text),
        ("dtype", Kind::DType),
        ("order", Kind::Order),
        ("groups", Kind::Groups),
    ];

    pub fn named(name: &str) -> Option<Kind> {
        Self::NAMED.iter().find(|(known, _)| *known == name).map(|(_, kind)| kind.clone())
    }

    /// Whether a value is part of the model, so that a selection may stand for it element by element.
    pub fn is_place(&self) -> bool {
        matches!(self, Kind::Module | Kind::Class(_) | Kind::Structure(_) | Kind::Tensor | Kind::Point | Kind::Match)
    }

    /// What a name of this type is known to be.
    fn ty(&self) -> Ty {
        match self {
            Kind::Module | Kind::Class(_) | Kind::Structure(_) => Ty::Place(PlaceKind::Module),
            Kind::Tensor => Ty::Place(PlaceKind::Tensor),
            Kind::Point => Ty::Point,
            Kind::Pattern => Ty::Pattern,
            Kind::Match => Ty::Match,
            Kind::Axis => Ty::Axis,
            Kind::Int | Kind::Float => Ty::Number,
            Kind::Bool => Ty::Bool,
            Kind::Text => Ty::Text,
            Kind::DType => Ty::Word(WordKind::DType),
            Kind::Order => Ty::Word(WordKind::Order),
            Kind::Collective => Ty::Word(WordKind::Collective),
            Kind::Layout => Ty::Word(WordKind::Layout),
            Kind::Operator => Ty::Word(WordKind::Operator),
            // Either of two types: nothing but passing on makes sense of them.
            Kind::Dim | Kind::Groups | Kind::Scalar | Kind::Unknown => Ty::Any,
            Kind::Replacement | Kind::Weights | Kind::Ports => Ty::Any,
        }
    }

    fn accepts(&self, ty: &Ty) -> bool {
        match (self, ty) {
            (_, Ty::Any) | (Kind::Unknown, _) => true,
            (Kind::Module | Kind::Class(_) | Kind::Structure(_), Ty::Place(kind)) => *kind != PlaceKind::Tensor,
            (Kind::Tensor, Ty::Place(kind)) => *kind != PlaceKind::Module,
            (Kind::Point, Ty::Point) | (Kind::Axis, Ty::Axis) => true,
            (Kind::Pattern, Ty::Pattern) | (Kind::Match, Ty::Match) => true,
            (Kind::Int | Kind::Float | Kind::Groups, Ty::Number | Ty::Axis) => true,
            (Kind::Axis, Ty::List(element)) => matches!(**element, Ty::Axis | Ty::Any),
            (Kind::Groups, Ty::List(element)) => matches!(**element, Ty::Number | Ty::Axis | Ty::Any),
            (Kind::Dim, Ty::Number | Ty::Axis | Ty::Word(WordKind::Dim)) => true,
            (Kind::Bool, Ty::Bool) | (Kind::Text, Ty::Text) => true,
            (Kind::Scalar, Ty::Number | Ty::Axis | Ty::Bool | Ty::Text) => true,
            (Kind::DType, Ty::Word(WordKind::DType)) | (Kind::Order, Ty::Word(WordKind::Order)) => true,
            (Kind::Replacement, Ty::Text | Ty::Word(WordKind::Operator)) => true,
            (Kind::Weights, Ty::Word(WordKind::Naming) | Ty::List(_)) | (Kind::Ports, Ty::List(_)) => true,
            (Kind::Collective, Ty::Word(WordKind::Collective)) | (Kind::Layout, Ty::Word(WordKind::Layout)) => true,
            _ => false,
        }
    }
}

impl Want {
    pub const fn one(kind: Kind) -> Want {
        Want { kind, list: false }
    }

    /// What a name of this type is known to be.
    pub fn ty(&self) -> Ty {
        match (self.kind.ty(), self.list) {
            (ty, false) => ty,
            (Ty::Place(kind), true) => Ty::Places(kind),
            (Ty::Point, true) => Ty::Points,
            (Ty::Match, true) => Ty::Matches,
            (ty, true) => Ty::List(Box::new(ty)),
        }
    }

    /// Whether an argument of type `ty` can be right, a selection that is taken element by element included.
    pub fn accepts(&self, ty: &Ty) -> bool {
        match (ty, self.list) {
            (ty, false) => {
                self.kind.accepts(ty) || ty.element().is_some_and(|one| ty.is_selection() && self.kind.accepts(&one))
            }
            // A module used as a list is its children.
            (Ty::Place(kind), true) => *kind != PlaceKind::Tensor && self.kind.is_place() && self.kind != Kind::Point,
            (ty, true) => *ty == Ty::Any || ty.element().is_some_and(|one| self.kind.accepts(&one)),
        }
    }

    /// What a part of the model of this type is.
    pub fn place_kind(&self) -> PlaceKind {
        match self.kind {
            _ if self.list => PlaceKind::Module,
            Kind::Module | Kind::Class(_) | Kind::Structure(_) => PlaceKind::Module,
            Kind::Tensor => PlaceKind::Tensor,
            _ => PlaceKind::Either,
        }
    }

    /// Whether a selection given here makes the call run once per element.
    pub fn spreads(&self, ty: &Ty) -> bool {
        !self.list && ty.is_selection() && self.kind.is_place()
    }

    /// Whether a recorded argument has this type.
    pub fn takes(&self, argument: &Argument) -> bool {
        match (argument, &self.kind) {
            (Argument::List(pairs), Kind::Weights | Kind::Ports) => pairs.iter().all(is_pair),
            (Argument::List(list), kind) => {
                let inner = Want::one(if *kind == Kind::Groups { Kind::Int } else { kind.clone() });
                (self.list || matches!(kind, Kind::Groups | Kind::Axis))
                    && list.iter().all(|argument| inner.takes(argument))
            }
            _ if self.list => false,
            (Argument::Int(_), Kind::Int | Kind::Float | Kind::Dim | Kind::Groups | Kind::Scalar) => true,
            (Argument::Number(_), Kind::Float | Kind::Scalar) => true,
            (Argument::Bool(_), Kind::Bool | Kind::Scalar) => true,
            (Argument::Text(_), Kind::Text | Kind::Scalar) => true,
            (Argument::Word(_), Kind::Dim | Kind::DType | Kind::Order | Kind::Collective | Kind::Layout) => true,
            (Argument::Call(..), Kind::Collective | Kind::Layout | Kind::Operator | Kind::Replacement) => true,
            (Argument::Archive { .. }, Kind::Replacement) | (Argument::Word(_), Kind::Weights) => true,
            (Argument::Axis(_), Kind::Axis) => true,
            (Argument::Path(_), kind) => kind.is_place(),
            _ => false,
        }
    }
}

/// `["up.weight", transformer.h.0.mlp.c_fc.weight]`, or with a list of parameters that are joined.
fn is_pair(argument: &Argument) -> bool {
    let Argument::List(pair) = argument else { return false };
    match pair.as_slice() {
        [Argument::Text(_), Argument::Path(_)] => true,
        [Argument::Text(_), Argument::List(paths)] => paths.iter().all(|path| matches!(path, Argument::Path(_))),
        _ => false,
    }
}

impl Ty {
    /// What one element is, of a list or a selection.
    pub fn element(&self) -> Option<Ty> {
        match self {
            Ty::Places(kind) => Some(Ty::Place(*kind)),
            Ty::Points => Some(Ty::Point),
            Ty::Matches => Some(Ty::Match),
            Ty::List(element) => Some((**element).clone()),
            _ => None,
        }
    }

    /// Several parts of the model, taken one by one where one is wanted.
    pub fn is_selection(&self) -> bool {
        matches!(self, Ty::Places(_) | Ty::Points | Ty::Matches)
    }

    /// Whether the value counts as a number; an axis is its size.
    pub fn is_number(&self) -> bool {
        matches!(self, Ty::Any | Ty::Number | Ty::Axis)
    }

    pub fn is_bool(&self) -> bool {
        matches!(self, Ty::Any | Ty::Bool)
    }

    /// The type of a value that is one of the two; `None` where nothing fits both.
    pub fn join(&self, other: &Ty) -> Option<Ty> {
        match (self, other) {
            (a, b) if a == b => Some(a.clone()),
            (Ty::Any, other) | (other, Ty::Any) => Some(other.clone()),
            (Ty::Number, Ty::Axis) | (Ty::Axis, Ty::Number) => Some(Ty::Number),
            (Ty::Place(_), Ty::Place(_)) => Some(Ty::Place(PlaceKind::Either)),
            (Ty::Place(_) | Ty::Places(_), Ty::Place(_) | Ty::Places(_)) => Some(Ty::Places(PlaceKind::Either)),
            (Ty::Point | Ty::Points, Ty::Point | Ty::Points) => Some(Ty::Points),
            (Ty::Match | Ty::Matches, Ty::Match | Ty::Matches) => Some(Ty::Matches),
            (Ty::List(a), Ty::List(b)) => a.join(b).map(|element| Ty::List(Box::new(element))),
            _ => None,
        }
    }
}

impl WordKind {
    fn noun(self) -> &'static str {
        match self {
            WordKind::Dim => "the role of a dimension",
            WordKind::DType => "an element type",
            WordKind::Order => "a pipeline order",
            WordKind::Side => "a side",
            WordKind::Collective => "a collective",
            WordKind::Layout => "a layout",
            WordKind::Auto => "the size `auto`",
            WordKind::Operator => "an operator",
            WordKind::Naming => "the word `by_name`",
        }
    }
}

/// With an article: `a number`.
impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ty::Any => "a value",
            Ty::Number => "a number",
            Ty::Bool => "a truth value",
            Ty::Text => "a string",
            Ty::Place(PlaceKind::Module) => "a module",
            Ty::Place(PlaceKind::Tensor) => "a parameter",
            Ty::Place(PlaceKind::Either) => "a module or parameter",
            Ty::Places(_) => "a selection",
            Ty::Point => "a point",
            Ty::Points => "a selection of points",
            Ty::Pattern => "a pattern",
            Ty::Match => "a match",
            Ty::Matches => "matches",
            Ty::Axis => "an axis",
            Ty::Word(kind) => kind.noun(),
            Ty::Class => "a class",
            Ty::List(element) => match **element {
                Ty::Number | Ty::Axis => "a list of numbers",
                _ => "a list",
            },
        })
    }
}

/// With an article: `a whole number`.
impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &self.kind {
            Kind::Class(name) => Some(name),
            Kind::Structure(structure) => Some(&structure.name),
            _ => None,
        };
        if let Some(name) = name {
            let article = if name.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
            return match self.list {
                true => write!(f, "a list of `{name}`"),
                false => write!(f, "{article} `{name}`"),
            };
        }
        let (one, many) = match &self.kind {
            Kind::Class(_) | Kind::Structure(_) => return Ok(()),
            Kind::Module => ("a module", "modules"),
            Kind::Tensor => ("a parameter", "parameters"),
            Kind::Point => ("a point", "points"),
            Kind::Pattern => ("a pattern", "patterns"),
            Kind::Match => ("a match", "matches"),
            Kind::Axis => ("an axis", "axes"),
            Kind::Dim => ("a dimension", "dimensions"),
            Kind::Int => ("a whole number", "whole numbers"),
            Kind::Float => ("a number", "numbers"),
            Kind::Bool => ("`true` or `false`", "truth values"),
            Kind::Text => ("a string", "strings"),
            Kind::DType => ("an element type", "element types"),
            Kind::Order => ("a pipeline order", "pipeline orders"),
            Kind::Collective => ("a collective", "collectives"),
            Kind::Layout => ("a layout", "layouts"),
            Kind::Operator => ("an operator", "operators"),
            Kind::Replacement => ("an operator or the path of an archive", "replacements"),
            Kind::Weights => ("`by_name` or a list of pairs `[name, parameter]`", "weights"),
            Kind::Ports => ("a list of pairs `[name, point]`", "ports"),
            Kind::Groups => ("a number of groups or a list of section sizes", "groups"),
            Kind::Unknown => ("a value", "values"),
            Kind::Scalar => ("a number, a string or a truth value", "numbers, strings or truth values"),
        };
        match self.list {
            true => write!(f, "a list of {many}"),
            false => f.write_str(one),
        }
    }
}
