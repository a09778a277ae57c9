//! `module.find(pattern)`: where a pattern occurs, or how close the model comes to it.

use super::super::hir::Expr;
use super::super::select::Place;
use super::super::value::{Found, Value};
use super::{Eval, Expander, Stop};
use crate::patterns::{self, Match, Miss, Pattern, Why};
use slapo_model::regions::Regions;
use slapo_model::{Model, NodeId};
use slapo_syntax::{Code, Diagnostic, Span};
use std::rc::Rc;
use std::sync::Arc;

impl Expander<'_> {
    pub(super) fn find(&mut self, of: &Value, from: Span, arg: &Expr, span: Span) -> Eval<Value> {
        let pattern = match self.value(arg)? {
            Value::Pattern(pattern) => pattern,
            other => return Err(self.unfit("a pattern", &other, arg.span)),
        };
        let places = match of {
            Value::Place(place) => vec![*place],
            Value::Places(selection) => selection.places.clone(),
            other => return Err(self.unfit("a module", other, from)),
        };
        self.still_there(of, from)?;
        let model = self.model()?;
        let state = self.state.as_ref().ok_or(Stop::Reported)?;
        let graph = state.graph();
        let regions = Regions::new(graph, model);
        let mut found = Found::default();
        let mut closest: Option<Miss> = None;
        for place in &places {
            let Place::Module(module) = place else { return Err(self.unfit("a module", &Value::Place(*place), from)) };
            match patterns::find(graph, model, &regions.module(*module), &pattern) {
                Ok(matches) => {
                    found.add(matches.into_iter().map(|one| Arc::new(Match { age: state.rewrites(), ..one })))
                }
                Err(Some(miss)) if closest.as_ref().is_none_or(|known| miss.is_closer(known)) => closest = Some(miss),
                Err(_) => {}
            }
        }
        if found.matches.is_empty() {
            found.missing = Some(self.no_match(&pattern, &places, closest.as_ref(), span));
        }
        Ok(Value::Matches(Rc::new(found)))
    }

    /// Says why there are no matches, where none was found.
    pub(super) fn found(&mut self, value: &Value) -> Eval<()> {
        match value {
            Value::Matches(found) => match found.missing.clone() {
                Some(missing) => Err(self.nothing(missing)),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Matches of a list, each once.
    pub(super) fn joined_matches(values: &[Value]) -> Value {
        let mut found = Found::default();
        for value in values {
            match value {
                Value::Matches(several) => found.add(several.matches.iter().cloned()),
                Value::Match(one) => found.add([one.clone()]),
                _ => {}
            }
        }
        Value::Matches(Rc::new(found))
    }

    fn no_match(&self, pattern: &Pattern, places: &[Place], miss: Option<&Miss>, span: Span) -> Diagnostic {
        let place = match places {
            [one] => self.path(*one),
            several => format!("any of the {} modules", several.len()),
        };
        let message = format!("the pattern `{}` is found nowhere in {place}", pattern.name);
        let diagnostic = Diagnostic::error(Code::NoMatch, message).primary(span, "no match");
        match (miss, self.model, &self.state) {
            (Some(miss), Some(model), Some(state)) => {
                let at = |node: NodeId| located(model, state.graph(), node);
                let operators = if miss.of == 1 { "operator agrees" } else { "operators agree" };
                diagnostic
                    .note(format!("closest at {}: {} of {} {operators}", at(miss.at), miss.agree, miss.of))
                    .note(why(miss, state.graph(), at))
            }
            _ => {
                let last = pattern.variants.first().and_then(|variant| variant.root());
                match last {
                    Some(operator) => {
                        diagnostic.note(format!("nothing there is computed by `{operator}`, which it ends in"))
                    }
                    None => diagnostic,
                }
            }
        }
    }
}

impl Found {
    /// Adds matches that are not there yet.
    fn add(&mut self, matches: impl IntoIterator<Item = Arc<Match>>) {
        for one in matches {
            if !self.matches.iter().any(|known| known.overlaps(&one.values)) {
                self.matches.push(one);
            }
        }
    }
}

/// ``what differs: `erf` stands where the pattern has `tanh` ``
fn why(miss: &Miss, graph: &slapo_model::Graph<slapo_model::sym::Size>, at: impl Fn(NodeId) -> String) -> String {
    match &miss.why {
        Why::Operator { wanted, found } => format!("the pattern goes on with {wanted}, the model with {found}"),
        Why::Given { wanted, found } => format!("the pattern wants {wanted}, the model has {found}"),
        Why::Different { param } => format!("`{param}` would stand for two different values"),
        Why::Escapes { value, by: Some(by) } => {
            let name = &graph.value(*value).name;
            format!("`{name}` inside of it is also used by {}", at(*by))
        }
        Why::Escapes { value, by: None } => {
            format!("`{}` inside of it is also returned by the model", graph.value(*value).name)
        }
        Why::Outside { found } => format!("{found}, which belongs to it, is computed outside"),
    }
}

/// `` `mul_222` (transformer.h.0.mlp.act, activations.py:47) ``
fn located(model: &Model, graph: &slapo_model::Graph<slapo_model::sym::Size>, node: NodeId) -> String {
    let node = graph.node(node);
    let name = node.outs.iter().flatten().next().map_or("", |value| graph.value(*value).name.as_str());
    let module = match model.scope_path(node.origin.scope) {
        "" => "the model",
        path => path,
    };
    let source = node.origin.source.map(|id| &model.sources[id.0 as usize]);
    let line = source.map(|line| format!(", {}:{}", line.file, line.line)).unwrap_or_default();
    format!("`{name}` ({module}{line})")
}
