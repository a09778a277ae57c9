//! Where a pattern was found, for people and as data.

use serde::Serialize;
use slapo_core::patterns::Match;
use slapo_core::patterns::operators::Given;
use slapo_model::inspect::{Port, ports};
use slapo_model::{Model, ValueId};
use std::fmt;
use std::sync::Arc;

#[derive(Serialize)]
pub struct Matches {
    pub pattern: String,
    pub matches: Vec<Found>,
}

/// One match.
#[derive(Serialize)]
pub struct Found {
    /// `transformer.h.0.mlp.act.find(gelu_tanh)`
    pub path: String,
    pub module: String,
    /// Nodes of the model's graph.
    pub nodes: usize,
    pub results: Vec<Port>,
    pub operands: Vec<Operand>,
    /// Lines of the model's own source, in its order.
    pub lines: Vec<Line>,
}

/// What a parameter of the pattern stands for: a value, or a number.
#[derive(Serialize)]
pub struct Operand {
    pub name: String,
    pub value: Option<Port>,
    pub number: Option<f64>,
}

#[derive(PartialEq, Serialize)]
pub struct Line {
    pub file: String,
    pub line: u32,
    pub text: String,
}

impl Matches {
    pub fn of(model: &Model, found: &[Arc<Match>]) -> Matches {
        let pattern = found.first().map_or(String::new(), |one| one.pattern.name.clone());
        Matches { pattern, matches: found.iter().map(|one| Found::of(model, one)).collect() }
    }
}

impl Found {
    fn of(model: &Model, found: &Match) -> Found {
        let bound = found.pattern.params.iter().zip(&found.bound).filter(|(_, given)| **given != Given::Absent);
        let operands = bound.map(|(param, given)| {
            let value = |id: ValueId| ports(model, &[id]).into_iter().next();
            Operand {
                name: param.name.clone(),
                value: if let Given::Value(id) = given { value(*id) } else { None },
                number: if let Given::Number(number) = given { Some(*number) } else { None },
            }
        });
        let mut lines: Vec<Line> = Vec::new();
        for node in found.values.iter().filter_map(|id| model.graph.definition(*id)) {
            let Some(source) = node.origin.source.map(|id| &model.sources[id.0 as usize]) else { continue };
            let line = Line { file: source.file.clone(), line: source.line, text: source.text.trim().to_string() };
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        Found {
            path: found.path(model),
            module: model.module(found.within).path.clone(),
            nodes: found.values.iter().filter(|id| model.graph.definition(**id).is_some()).count(),
            results: ports(model, &found.results),
            operands: operands.collect(),
            lines,
        }
    }
}

impl fmt::Display for Matches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let matches = if self.matches.len() == 1 { "match" } else { "matches" };
        writeln!(f, "{} {matches} of `{}`", self.matches.len(), self.pattern)?;
        for found in &self.matches {
            let nodes = if found.nodes == 1 { "node" } else { "nodes" };
            writeln!(f, "\n{}: {} {nodes}", found.path, found.nodes)?;
            for result in &found.results {
                writeln!(f, "  gives  {}  {}", result.ty(), result.name)?;
            }
            for operand in &found.operands {
                match (&operand.value, operand.number) {
                    (Some(value), _) => writeln!(f, "  {}: {}  {}", operand.name, value.ty(), value.name)?,
                    (None, Some(number)) => writeln!(f, "  {}: {number}", operand.name)?,
                    (None, None) => {}
                }
            }
            for line in &found.lines {
                writeln!(f, "  {}:{}  {}", line.file, line.line, line.text)?;
            }
        }
        Ok(())
    }
}
