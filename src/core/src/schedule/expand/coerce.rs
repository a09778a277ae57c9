//! Values given where a type is declared.

use super::super::builtins::{WORDS, shaped};
use super::super::hir::Expr;
use super::super::mesh::Axes;
use super::super::points::Point;
use super::super::select::{Missed, Place};
use super::super::steps::Argument;
use super::super::types::{Kind, Want};
use super::super::value::Value;
use super::paths::exists;
use super::{Eval, Expander, Stop, list};
use slapo_model::Model;
use slapo_syntax::{Code, Diagnostic, Span};
use std::rc::Rc;

impl Expander<'_> {
    /// The value as its parameter takes it: lists of modules as selections, axes as numbers where one is wanted.
    pub(super) fn coerce(&mut self, value: Value, want: &Want, span: Span, callee: &str, name: &str) -> Eval<Value> {
        if want.list {
            return self.coerce_list(value, want, span, callee, name);
        }
        match (&want.kind, &value) {
            (Kind::Module | Kind::Class(_) | Kind::Structure(_) | Kind::Tensor, Value::Place(place)) => {
                match place.is(self.model()?, want) {
                    true => Ok(value),
                    false => Err(self.wrong_place(*place, want, span, callee)),
                }
            }
            (Kind::Int, Value::Number(_) | Value::Axis(_)) => {
                let number = self.number_of(&value, span)?;
                self.whole_of(number, span)?;
                Ok(Value::Number(number))
            }
            (Kind::Float | Kind::Dim | Kind::Groups | Kind::Scalar, Value::Axis(_)) => {
                self.number_of(&value, span).map(Value::Number)
            }
            (Kind::Axis, Value::List(elements)) => self.joined_axes(elements, span, callee, name),
            (Kind::Unknown, _) => Ok(value),
            (Kind::Point, Value::Point(_)) | (Kind::Axis, Value::Axis(_)) => Ok(value),
            (Kind::Pattern, Value::Pattern(_)) | (Kind::Match, Value::Match(_)) => Ok(value),
            (Kind::Float | Kind::Scalar | Kind::Dim | Kind::Groups, Value::Number(_)) => Ok(value),
            (Kind::Bool | Kind::Scalar, Value::Bool(_)) | (Kind::Text | Kind::Scalar, Value::Text(_)) => Ok(value),
            (Kind::Dim | Kind::DType | Kind::Order | Kind::Collective | Kind::Layout, Value::Word(_)) => Ok(value),
            (Kind::Groups, Value::List(_)) | (Kind::Collective | Kind::Layout | Kind::Operator, Value::Shaped(_)) => {
                Ok(value)
            }
            (Kind::Replacement, Value::Text(_) | Value::Shaped(_)) => Ok(value),
            (Kind::Weights, Value::Word(_) | Value::List(_)) | (Kind::Ports, Value::List(_)) => Ok(value),
            _ => {
                let shown = self.show(&value);
                let diagnostic =
                    Diagnostic::error(Code::WrongType, format!("`{name}` of `{callee}` takes {want}, not {shown}"))
                        .primary(span, shown);
                Err(self.fail(diagnostic))
            }
        }
    }

    /// A collective or a layout with its arguments as a step keeps them; what was not given is left out.
    pub(super) fn shaped(&mut self, word: u32, args: &[Option<Expr>]) -> Eval<Value> {
        let name = WORDS.get(word as usize).map_or("", |word| word.name);
        let mut given = Vec::new();
        for (formal, arg) in shaped(name).unwrap_or_default().iter().zip(args) {
            let Some(arg) = arg else { continue };
            let value = self.value(arg)?;
            let value = self.coerce(value, &formal.want, arg.span, name, formal.name)?;
            given.push((formal.name.to_string(), self.argument(&value)));
        }
        Ok(match given.is_empty() {
            true => Value::Word(word),
            false => Value::Shaped(Rc::new(Argument::Call(name.to_string(), given))),
        })
    }

    /// `[dp, tp]` where an axis is wanted: both together.
    fn joined_axes(&mut self, elements: &[Value], span: Span, callee: &str, name: &str) -> Eval<Value> {
        let mut joined: Option<Axes> = None;
        for element in elements {
            let Value::Axis(axes) = element else {
                return Err(self.unfit("an axis", element, span));
            };
            joined = Some(match joined {
                None => axes.clone(),
                Some(known) => match known.and(axes) {
                    Ok(both) => both,
                    Err(twice) => {
                        let message =
                            format!("`{name}` of `{callee}` takes `{}` twice", self.show(&Value::Axis(twice)));
                        let diagnostic = Diagnostic::error(Code::BadValue, message).primary(span, "an axis too many");
                        return Err(self.fail(diagnostic));
                    }
                },
            });
        }
        joined.map(Value::Axis).ok_or_else(|| {
            let diagnostic =
                Diagnostic::error(Code::BadValue, format!("`{name}` of `{callee}` takes one axis at least"))
                    .primary(span, "an empty list");
            self.fail(diagnostic)
        })
    }

    fn coerce_list(&mut self, value: Value, want: &Want, span: Span, callee: &str, name: &str) -> Eval<Value> {
        let one = Want::one(want.kind.clone());
        let elements = self.elements(&value, span)?;
        let mut values = Vec::with_capacity(elements.len());
        for element in elements {
            values.push(self.coerce(element, &one, span, callee, name)?);
        }
        Ok(match (want.kind.is_place(), &value) {
            _ if want.kind == Kind::Match => Self::joined_matches(&values),
            (true, Value::Place(_) | Value::List(_)) => {
                let place = |value: &Value| if let Value::Place(place) = value { Some(*place) } else { None };
                Value::places(values.iter().filter_map(place).collect())
            }
            (true, _) => value,
            (false, _) => list(values),
        })
    }

    fn wrong_place(&mut self, place: Place, want: &Want, span: Span, callee: &str) -> Stop {
        let Some(model) = self.model else { return Stop::Reported };
        if let Kind::Structure(structure) = &want.kind
            && let Some(missed) = place.module().and_then(|_| place.misses(model, structure))
        {
            return self.wrong_field(place, missed, want, span, callee);
        }
        let what = describe(place, model);
        let message = format!("`{callee}` takes {want}, but {} is {what}", self.path(place));
        let is_class = place.module().is_some() && !matches!(want.kind, Kind::Tensor);
        let code = if is_class { Code::WrongClass } else { Code::WrongType };
        let diagnostic = Diagnostic::error(code, message).primary(span, what);
        let note = match &want.kind {
            Kind::Tensor => Some(format!("it has {}", super::super::nearest::some_of(place.names(model)))),
            _ => None,
        };
        self.fail(note.into_iter().fold(diagnostic, Diagnostic::note))
    }

    /// A module without something that a structure lists.
    fn wrong_field(&mut self, place: Place, missed: Missed, want: &Want, span: Span, callee: &str) -> Stop {
        let Some(model) = self.model else { return Stop::Reported };
        let Missed { field, of, found } = missed;
        let what = match found {
            Some(found) => format!("{} is {}", self.path(found), describe(found, model)),
            None => format!("{} has no `{}`", self.path(of), field.name),
        };
        let wanted = match found {
            Some(_) => format!("wants {}", field.want),
            None => "wanted here".to_string(),
        };
        let mut diagnostic = Diagnostic::error(Code::WrongClass, format!("`{callee}` takes {want}, but {what}"))
            .primary(span, describe(place, model))
            .secondary(field.span, wanted);
        if found.is_none() {
            let names = of.names(model);
            let close = super::super::nearest::did_you_mean(&field.name, names.iter().copied());
            diagnostic = diagnostic.help(close.unwrap_or_else(|| exists(of, model)));
        }
        self.fail(diagnostic)
    }

    /// A value as a step keeps it.
    pub(super) fn argument(&self, value: &Value) -> Argument {
        let whole = |number: super::super::Number| number.whole().and_then(|whole| i64::try_from(whole).ok());
        match value {
            Value::Number(number) => whole(*number).map_or(Argument::Number(*number), Argument::Int),
            Value::Bool(value) => Argument::Bool(*value),
            Value::Text(text) => Argument::Text(text.to_string()),
            Value::Word(word) => {
                Argument::Word(WORDS.get(*word as usize).map_or(String::new(), |word| word.name.to_string()))
            }
            Value::Axis(axes) => {
                let mut names = axes.names(&self.mesh.axes).into_iter().map(Argument::Axis);
                match (names.next(), names.len()) {
                    (Some(only), 0) => only,
                    (first, _) => Argument::List(first.into_iter().chain(names).collect()),
                }
            }
            Value::Shaped(call) => (**call).clone(),
            Value::List(values) => Argument::List(values.iter().map(|value| self.argument(value)).collect()),
            Value::Places(selection) => {
                let places = selection.places.iter().map(|place| self.argument(&Value::Place(*place)));
                Argument::List(places.collect())
            }
            Value::Place(place) => Argument::Path(self.model.map(|model| place.path(model)).unwrap_or_default()),
            Value::Pattern(_) | Value::Match(_) | Value::Matches(_) => Argument::Text(self.show(value)),
            Value::Point(point) => self.point_path(point),
            Value::Points(points) => Argument::List(points.iter().map(|point| self.point_path(point)).collect()),
            Value::Class(_) => Argument::Text(self.show(value)),
        }
    }

    fn point_path(&self, point: &Point) -> Argument {
        Argument::Path(self.ports.as_ref().map(|ports| ports.path(point)).unwrap_or_default())
    }
}

/// With an article: `` a `Conv1D` ``.
fn describe(place: Place, model: &Model) -> String {
    let class = place.module().map(|id| model.module(id).short_class());
    match class {
        Some("") => "a container".to_string(),
        Some(class) => Want::one(Kind::Class(class.to_string())).to_string(),
        None => place.noun().to_string(),
    }
}
