//! Evaluation of paths: names, wildcards, positions.

use super::super::hir::{Expr, ExprKind, PathName};
use super::super::mesh::Axes;
use super::super::nearest::{corrected, did_you_mean, some_of};
use super::super::select::Place;
use super::super::types::Ty;
use super::super::value::{Missing, Selection, Value};
use super::{Eval, Expander, Stop, list};
use slapo_model::Model;
use slapo_syntax::{Code, Diagnostic, Span};
use std::rc::Rc;

impl Expander<'_> {
    pub(super) fn tidy(&self, places: &mut Vec<Place>) {
        if let Some(selector) = &self.selector {
            selector.tidy(places);
        }
    }

    /// The value of an expression that must not be an empty selection because nothing has a name.
    pub(super) fn filled(&mut self, expr: &Expr) -> Eval<Value> {
        let value = self.value(expr)?;
        self.found(&value)?;
        let Value::Places(selection) = &value else { return Ok(value) };
        let Some(missing) = &selection.missing else { return Ok(value) };
        let of = self.path(missing.of);
        let diagnostic = Diagnostic::error(Code::NothingMatches, "this selector matches nothing")
            .primary(expr.span, "matches nothing");
        let place = format!("{of} has no {}", some_of(&missing.names));
        let diagnostic = match missing.span == expr.span {
            true => diagnostic.note(place),
            false => diagnostic.secondary(missing.span, place),
        };
        let known = self.model()?;
        let names = missing.of.names(known);
        let help = missing.names.iter().find_map(|name| did_you_mean(name, names.iter().copied()));
        let help = help.unwrap_or_else(|| exists(missing.of, known));
        Err(self.nothing(diagnostic.help(help)))
    }

    /// The elements of a list, a selection, or a module.
    pub(super) fn elements(&mut self, value: &Value, span: Span) -> Eval<Vec<Value>> {
        Ok(match value {
            Value::List(list) => list.to_vec(),
            Value::Places(selection) => selection.places.iter().copied().map(Value::Place).collect(),
            Value::Points(points) => points.iter().copied().map(Value::Point).collect(),
            Value::Matches(found) => found.matches.iter().cloned().map(Value::Match).collect(),
            Value::Place(Place::Module(_)) => self.places_of(value, span)?.into_iter().map(Value::Place).collect(),
            other => return Err(self.unfit("a list", other, span)),
        })
    }

    /// The elements of a selection, or the children of a module.
    pub(super) fn places_of(&mut self, value: &Value, span: Span) -> Eval<Vec<Place>> {
        let model = self.model()?;
        match value {
            Value::Places(selection) => Ok(selection.places.clone()),
            Value::Place(place @ Place::Module(_)) => Ok(place.children(model)),
            other => Err(self.unfit("a selection or a module", other, span)),
        }
    }

    /// What a path goes down from: the things themselves.
    fn from(&mut self, receiver: &Expr) -> Eval<(Vec<Place>, Option<Missing>)> {
        match self.value(receiver)? {
            Value::Place(place) => Ok((vec![place], None)),
            Value::Places(selection) => Ok((selection.places.clone(), selection.missing.clone())),
            other => Err(self.unfit("a module", &other, receiver.span)),
        }
    }

    pub(super) fn wildcard(&mut self, receiver: &Expr, step: fn(Place, &Model) -> Vec<Place>) -> Eval<Value> {
        let model = self.model()?;
        let (from, missing) = self.from(receiver)?;
        if let Some(tensor) = from.iter().find(|place| place.module().is_none()) {
            return Err(self.below_tensor(*tensor, receiver.span));
        }
        let mut places: Vec<Place> = from.into_iter().flat_map(|place| step(place, model)).collect();
        self.tidy(&mut places);
        Ok(Value::Places(Rc::new(Selection { places, missing })))
    }

    fn below_tensor(&mut self, place: Place, span: Span) -> Stop {
        let diagnostic = Diagnostic::error(
            Code::BelowTensor,
            format!("{} is {}: nothing is below it", self.path(place), place.noun()),
        )
        .primary(span, place.noun());
        self.fail(diagnostic)
    }

    /// `.name`, `.{…}`
    pub(super) fn names(&mut self, receiver: &Expr, names: &[PathName], expr: &Expr) -> Eval<Value> {
        let model = self.model()?;
        let (from, mut missing) = self.from(receiver)?;
        // After `.**` a name keeps those that have it.
        let is_search = matches!(receiver.kind, ExprKind::Below(_));
        let mut places = Vec::new();
        for name in names {
            let before = places.len();
            for place in &from {
                match place.named(model, &name.name) {
                    Some(found) => places.push(found),
                    None if name.is_optional || is_search => {}
                    None => return Err(self.no_such_name(*place, &name.name, name.span)),
                }
            }
            if is_search && !name.is_optional && places.len() == before && !from.is_empty() {
                return Err(self.nowhere_below(&from, name));
            }
        }
        if let (Ty::Place(_), [place]) = (&expr.ty, places.as_slice()) {
            return Ok(Value::Place(*place));
        }
        if let (true, Some(of)) = (places.is_empty(), from.first()) {
            let names = names.iter().map(|name| name.name.clone()).collect();
            missing = Some(Missing { names, span: expr.span, of: *of });
        }
        self.tidy(&mut places);
        Ok(Value::Places(Rc::new(Selection { places, missing })))
    }

    fn no_such_name(&mut self, place: Place, name: &str, span: Span) -> Stop {
        let Some(model) = self.model else { return Stop::Reported };
        if place.module().is_none() {
            return self.below_tensor(place, span);
        }
        let known = place.names(model);
        let children = place.children(model);
        let is_list = !children.is_empty() && known.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        let in_children = children.iter().all(|child| child.named(model, name).is_some());
        let help = match did_you_mean(name, known.iter().copied()) {
            _ if is_list && in_children => format!("it is a list; `.*.{name}` takes that of every element"),
            Some(help) => help,
            None => match elsewhere(place, name, model) {
                Some(path) => format!("{}; there is `{path}`", exists(place, model)),
                None => exists(place, model),
            },
        };
        let diagnostic = Diagnostic::error(Code::NoSuchName, format!("{} has no `{name}`", self.path(place)))
            .primary(span, "not there")
            .help(help);
        self.fail(match is_list && in_children {
            true => diagnostic,
            false => corrected(diagnostic, span, name, known),
        })
    }

    fn nowhere_below(&mut self, from: &[Place], name: &PathName) -> Stop {
        let Some(model) = self.model else { return Stop::Reported };
        let all: Vec<&str> = from.iter().flat_map(|place| place.names(model)).collect();
        let diagnostic = Diagnostic::error(Code::NoSuchName, format!("nothing here has a `{}`", name.name))
            .primary(name.span, "nowhere below");
        let help = did_you_mean(&name.name, all.iter().copied());
        self.fail(corrected(help.into_iter().fold(diagnostic, Diagnostic::help), name.span, &name.name, all))
    }

    // ---- [ ]

    pub(super) fn index(&mut self, receiver: &Expr, position: &Expr, expr: &Expr) -> Eval<Value> {
        let at = self.value(position)?;
        if let Value::Text(name) = &at {
            let name = PathName { name: name.to_string(), is_optional: false, span: position.span };
            return self.names(receiver, &[name], expr);
        }
        let value = self.value(receiver)?;
        self.found(&value)?;
        let elements = match &value {
            Value::Axis(axes) => self.factors(axes, receiver.span)?,
            value => self.elements(value, receiver.span)?,
        };
        let number = self.number_of(&at, position.span)?;
        let number = self.whole_of(number, position.span)?;
        let found = resolve(number, elements.len()).and_then(|at| elements.get(at).cloned());
        found.ok_or_else(|| self.no_position(number, elements.len(), receiver.span, position.span))
    }

    fn factors(&mut self, axes: &Axes, span: Span) -> Eval<Vec<Value>> {
        let factors = axes.parts(&self.mesh.axes);
        if factors.is_empty() {
            let shown = self.show(&Value::Axis(axes.clone()));
            let diagnostic = Diagnostic::error(Code::OutOfRange, format!("axis `{shown}` has no factors"))
                .primary(span, "one number")
                .help("an axis is given them where it is declared: `tp = [2, 2]`");
            return Err(self.fail(diagnostic));
        }
        Ok(factors.into_iter().map(Value::Axis).collect())
    }

    pub(super) fn slice(
        &mut self,
        receiver: &Expr,
        start: Option<&Expr>,
        end: Option<&Expr>,
        span: Span,
    ) -> Eval<Value> {
        let value = self.value(receiver)?;
        self.found(&value)?;
        let mut elements = self.elements(&value, receiver.span)?;
        let count = elements.len();
        let mut bounds = [0, count];
        for (bound, expr) in bounds.iter_mut().zip([start, end]) {
            let Some(expr) = expr else { continue };
            let number = self.whole(expr)?;
            // One past the last element is a bound, though no position.
            *bound = match resolve(number, count) {
                Some(at) => at,
                None if number == count as i128 => count,
                None => return Err(self.no_position(number, count, receiver.span, expr.span)),
            };
        }
        let [start, end] = bounds;
        if start > end {
            let diagnostic =
                Diagnostic::error(Code::OutOfRange, format!("the part from {start} to {end} ends before it starts"))
                    .primary(span, format!("of {count} elements"));
            return Err(self.fail(diagnostic));
        }
        elements.truncate(end);
        elements.drain(..start);
        Ok(match value {
            Value::Places(_) | Value::Place(_) => {
                let place = |value: &Value| if let Value::Place(place) = value { Some(*place) } else { None };
                let missing = if let Value::Places(selection) = &value { selection.missing.clone() } else { None };
                Value::Places(Rc::new(Selection { places: elements.iter().filter_map(place).collect(), missing }))
            }
            Value::Points(_) => {
                let point = |value: &Value| if let Value::Point(point) = value { Some(*point) } else { None };
                Value::Points(Rc::new(elements.iter().filter_map(point).collect()))
            }
            Value::Matches(_) => Self::joined_matches(&elements),
            _ => list(elements),
        })
    }

    fn no_position(&mut self, position: i128, count: usize, list: Span, span: Span) -> Stop {
        let elements = if count == 1 { "1 element".to_string() } else { format!("{count} elements") };
        let diagnostic =
            Diagnostic::error(Code::OutOfRange, format!("there is no position {position} among {elements}"))
                .primary(span, format!("position {position}"))
                .secondary(list, elements);
        let diagnostic = match count {
            0 => diagnostic,
            _ => diagnostic.help(format!("positions are 0 to {}, from the end -1 to -{count}", count - 1)),
        };
        self.fail(diagnostic)
    }
}

/// A position counted from either end.
fn resolve(number: i128, count: usize) -> Option<usize> {
    let at = if number < 0 { number.checked_add(count as i128)? } else { number };
    usize::try_from(at).ok().filter(|at| *at < count)
}

/// The first module below a place whose path ends in a name, which may be several with dots between.
fn elsewhere(place: Place, name: &str, model: &Model) -> Option<String> {
    let names: Vec<&str> = name.split('.').collect();
    let follow = |from: Place| names.iter().try_fold(from, |place, name| place.named(model, name));
    place
        .below(model)
        .into_iter()
        .filter_map(follow)
        .find(|found| found.module().is_some())
        .map(|found| found.path(model))
}

/// What there is at a place, for a help.
pub(super) fn exists(place: Place, model: &Model) -> String {
    let names = place.names(model);
    match names.is_empty() {
        true => "nothing is below it".to_string(),
        false => format!("it has {}", some_of(names)),
    }
}
