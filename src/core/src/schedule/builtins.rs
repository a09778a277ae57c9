//! What the language knows without a declaration: words, functions, and what may be asked of a part of the model.
//!
//! Primitives, which change something, have a table of their own in [`crate::primitives`].

use super::types::{Kind, Want, WordKind};

/// A built-in word: a value that stands for itself.
pub struct Word {
    pub name: &'static str,
    pub kind: WordKind,
}

const fn word(name: &'static str, kind: WordKind) -> Word {
    Word { name, kind }
}

#[rustfmt::skip]
pub const WORDS: &[Word] = &[
    word("in", WordKind::Dim), word("out", WordKind::Dim), word("vocab", WordKind::Dim), word("hidden", WordKind::Dim),
    word("channel", WordKind::Dim), word("head", WordKind::Dim), word("expert", WordKind::Dim),
    word("batch", WordKind::Dim), word("seq", WordKind::Dim), word("token", WordKind::Dim),
    word("fp64", WordKind::DType), word("fp32", WordKind::DType), word("fp16", WordKind::DType), word("bf16", WordKind::DType),
    word("gpipe", WordKind::Order), word("one_f_one_b", WordKind::Order), word("interleaved", WordKind::Order),
    word("zero_bubble", WordKind::Order),
    word("before", WordKind::Side), word("after", WordKind::Side),
    word("all_reduce", WordKind::Collective), word("all_gather", WordKind::Collective),
    word("reduce_scatter", WordKind::Collective), word("all_to_all", WordKind::Collective), word("slice", WordKind::Collective),
    word("replicate", WordKind::Layout), word("shard", WordKind::Layout),
    word("auto", WordKind::Auto), word("by_name", WordKind::Naming),
];

/// What a collective or a layout takes in parentheses; without any it stands bare.
pub struct Formal {
    pub name: &'static str,
    pub want: Want,
    pub is_optional: bool,
}

const fn formal(name: &'static str, kind: Kind, is_optional: bool) -> Formal {
    Formal { name, want: Want::one(kind), is_optional }
}

static SHAPED: &[(&str, &[Formal])] = &[
    ("all_reduce", &[]),
    ("all_gather", &[formal("dim", Kind::Dim, false)]),
    ("reduce_scatter", &[formal("dim", Kind::Dim, false), formal("groups", Kind::Groups, true)]),
    (
        "all_to_all",
        &[formal("from", Kind::Dim, false), formal("to", Kind::Dim, false), formal("groups", Kind::Groups, true)],
    ),
    ("slice", &[formal("dim", Kind::Dim, false), formal("groups", Kind::Groups, true)]),
    ("replicate", &[]),
    ("shard", &[formal("dim", Kind::Dim, false), formal("groups", Kind::Groups, true)]),
];

/// The arguments of a collective or a layout; `None` for any other word.
pub fn shaped(name: &str) -> Option<&'static [Formal]> {
    SHAPED.iter().find(|(known, _)| *known == name).map(|(_, formals)| *formals)
}

/// The number of a word in [`WORDS`].
pub fn find_word(name: &str) -> Option<usize> {
    WORDS.iter().position(|word| word.name == name)
}

/// Pure functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Len,
    Floor,
    Ceil,
    Min,
    Max,
    Abs,
    Choose,
}

impl Function {
    /// Name, and the names of the arguments; `min` and `max` take one or more.
    const TABLE: &[(Function, &str, &[&str])] = &[
        (Function::Len, "len", &["list"]),
        (Function::Floor, "floor", &["number"]),
        (Function::Ceil, "ceil", &["number"]),
        (Function::Min, "min", &["number"]),
        (Function::Max, "max", &["number"]),
        (Function::Abs, "abs", &["number"]),
        (Function::Choose, "choose", &["condition", "if true", "if false"]),
    ];

    pub fn find(name: &str) -> Option<Function> {
        Self::TABLE.iter().find(|(_, known, _)| *known == name).map(|(function, ..)| *function)
    }

    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        Self::TABLE.iter().map(|(_, name, _)| *name)
    }

    pub fn name(self) -> &'static str {
        Self::TABLE[self as usize].1
    }

    pub fn params(self) -> &'static [&'static str] {
        Self::TABLE[self as usize].2
    }

    pub fn is_variadic(self) -> bool {
        matches!(self, Function::Min | Function::Max)
    }
}

/// What can be asked of a part of the model; it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// A value as it enters the region of a module.
    Input,
    Output,
    /// The gradient at a point or of a parameter.
    Grad,
    /// The size of a dimension of a parameter.
    Size,
    Only,
    Except,
    Expect,
    Is,
    /// Where a pattern occurs inside a module.
    Find,
}

impl Query {
    const TABLE: &[(Query, &str)] = &[
        (Query::Input, "input"),
        (Query::Output, "output"),
        (Query::Grad, "grad"),
        (Query::Size, "size"),
        (Query::Only, "only"),
        (Query::Except, "except"),
        (Query::Expect, "expect"),
        (Query::Is, "is"),
        (Query::Find, "find"),
    ];

    pub fn find(name: &str) -> Option<Query> {
        Self::TABLE.iter().find(|(_, known)| *known == name).map(|(query, _)| *query)
    }

    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        Self::TABLE.iter().map(|(_, name)| *name)
    }

    pub fn name(self) -> &'static str {
        Self::TABLE[self as usize].1
    }
}
