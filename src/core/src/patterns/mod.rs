//! Patterns: expressions over operators that are looked for in a model's graph, and what was found.
//!
//! A [`Pattern`] is resolved text, with equal sub-expressions one term; [`find`] gives [`Match`]es. Nothing here knows
//! source text, steps or layouts. A match names values, not nodes: values keep their numbers when the graph is
//! rewritten. Read [`Pattern`], then [`find`].

mod find;
pub mod operators;
pub mod sample;
pub mod shapes;
mod tensors;
mod through;

pub use find::{Miss, Why, find, innermost};
use operators::{Given, Operator};
use slapo_model::{Model, ModuleId, ValueId};
use std::sync::Arc;

/// `pattern gelu(x, c: float) = …`
#[derive(Debug)]
pub struct Pattern {
    pub name: String,
    pub params: Vec<Param>,
    /// The expression as it is with each choice of absent optional operands, all present first.
    pub variants: Vec<Variant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    pub name: String,
    /// `c: float` stands for a number of the model, any other parameter for a tensor.
    pub is_number: bool,
    /// `x?`: its operator disappears with it.
    pub is_optional: bool,
}

/// A pattern with some optional operands absent, as terms in topological order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variant {
    pub terms: Vec<Term>,
    pub results: Vec<TermId>,
}

pub type TermId = usize;

#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// Position in [`Pattern::params`].
    Param(usize),
    /// A number or an attribute.
    Given(Given),
    /// Operands and attributes by the operator's slots; `None` for what takes its default or is absent.
    Apply(&'static Operator, Vec<Option<TermId>>),
}

/// Where a pattern was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    pub pattern: Arc<Pattern>,
    /// The innermost module around all of it.
    pub within: ModuleId,
    /// What its nodes compute, in the graph's order.
    pub values: Vec<ValueId>,
    /// By the pattern's results.
    pub results: Vec<ValueId>,
    /// Which of the pattern's variants was found.
    pub variant: usize,
    /// Rewrites that the graph had seen by then; later ones may have taken the match away.
    pub age: usize,
    /// By [`Pattern::params`].
    pub bound: Vec<Given>,
    /// Its number among the matches found in that module, where there are several.
    pub number: Option<u32>,
}

impl Variant {
    /// The term's number; equal terms are one.
    pub fn term(&mut self, term: Term) -> TermId {
        self.terms.iter().position(|known| *known == term).unwrap_or_else(|| {
            self.terms.push(term);
            self.terms.len() - 1
        })
    }

    /// The operator that the first result comes from.
    pub fn root(&self) -> Option<&'static str> {
        match &self.terms[*self.results.first()?] {
            Term::Apply(operator, _) => Some(operator.name),
            _ => None,
        }
    }

    /// How many operators it has.
    pub fn operators(&self) -> usize {
        self.terms.iter().filter(|term| matches!(term, Term::Apply(..))).count()
    }
}

impl Match {
    /// `transformer.h.0.mlp.act.find(gelu_tanh)`
    pub fn path(&self, model: &Model) -> String {
        let within = &model.module(self.within).path;
        let dot = if within.is_empty() { "" } else { "." };
        let number = self.number.map(|number| format!("[{number}]")).unwrap_or_default();
        format!("{within}{dot}find({}){number}", self.pattern.name)
    }

    /// What a parameter of the pattern stands for here; `None` for a name it does not have.
    pub fn param(&self, name: &str) -> Option<&Given> {
        let at = self.pattern.params.iter().position(|param| param.name == name)?;
        self.bound.get(at)
    }

    /// Whether both have a node in common.
    pub fn overlaps(&self, values: &[ValueId]) -> bool {
        self.values.iter().any(|value| values.contains(value))
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.name == other.name && self.params == other.params && self.variants == other.variants
    }
}
