//! What is asked of a path without changing it: filters, sizes, points.

use super::super::builtins::{Query, WORDS};
use super::super::hir::Expr;
use super::super::nearest::{corrected, did_you_mean, nearest, some_of};
use super::super::number::Number;
use super::super::points::{NoPort, Point, Port, PortName};
use super::super::select::{Identity, Place, dimension, dimensions};
use super::super::types::{Kind, Want};
use super::super::value::Value;
use super::{Eval, Expander, Stop};
use slapo_model::ValueId;
use slapo_syntax::{Code, Diagnostic, Span};
use std::collections::BTreeSet;
use std::rc::Rc;

impl Expander<'_> {
    pub(super) fn query(&mut self, query: Query, receiver: &Expr, args: &[Expr], span: Span) -> Eval<Value> {
        let value = match query {
            Query::Only | Query::Except | Query::Find => self.filled(receiver)?,
            _ => self.value(receiver)?,
        };
        match query {
            Query::Only | Query::Except => self.filter(query == Query::Only, &value, receiver.span, args, span),
            Query::Expect => self.expect(value, receiver.span, args, span),
            Query::Is => {
                let [arg] = args else { return Err(Stop::Reported) };
                let (Value::Class(want), Value::Place(place)) = (self.value(arg)?, &value) else {
                    return Err(self.unfit("one module", &value, receiver.span));
                };
                self.known_class(&want, arg.span)?;
                Ok(Value::Bool(place.is(self.model()?, &want)))
            }
            Query::Size => self.size(&value, receiver.span, args),
            Query::Input | Query::Output => self.points(query == Query::Input, &value, args, span),
            Query::Grad => self.gradients(&value, receiver.span),
            Query::Find => {
                let [arg] = args else { return Err(Stop::Reported) };
                self.find(&value, receiver.span, arg, span)
            }
        }
    }

    // ---- filters

    fn filter(&mut self, keeps: bool, value: &Value, from: Span, args: &[Expr], span: Span) -> Eval<Value> {
        let model = self.model()?;
        let all = self.places_of(value, from)?;
        let mut classes: Vec<Rc<Want>> = Vec::new();
        let mut places: BTreeSet<Identity> = BTreeSet::new();
        for arg in args {
            match self.value(arg)? {
                Value::Class(want) => {
                    self.known_class(&want, arg.span)?;
                    classes.push(want);
                }
                Value::Place(place) => {
                    places.insert(place.identity());
                }
                Value::Places(selection) => places.extend(selection.places.iter().map(|place| place.identity())),
                other => return Err(self.unfit("a class or a selection", &other, arg.span)),
            }
        }
        let fits =
            |place: Place| places.contains(&place.identity()) || classes.iter().any(|want| place.is(model, want));
        let kept: Vec<Place> = all.iter().copied().filter(|place| fits(*place) == keeps).collect();
        if kept.is_empty() && !all.is_empty() {
            return Err(self.nothing_left(keeps, &all, &classes, span));
        }
        Ok(Value::places(kept))
    }

    fn nothing_left(&mut self, keeps: bool, all: &[Place], classes: &[Rc<Want>], span: Span) -> Stop {
        let Some(model) = self.model else { return Stop::Reported };
        let message = match (keeps, classes) {
            (true, [class]) => format!("none of the {} elements is {class}", all.len()),
            (true, _) => format!("none of the {} elements is any of these", all.len()),
            (false, _) => format!("all of the {} elements are left out", all.len()),
        };
        let mut there: Vec<&str> = Vec::new();
        for class in all.iter().filter_map(|place| place.module()).map(|id| model.module(id).short_class()) {
            if !class.is_empty() && !there.contains(&class) {
                there.push(class);
            }
        }
        let diagnostic = Diagnostic::error(Code::NothingMatches, message).primary(span, "selects nothing");
        let diagnostic = match there.is_empty() {
            true => diagnostic,
            false => diagnostic.help(format!("classes here are {}", some_of(there))),
        };
        self.nothing(diagnostic)
    }

    /// A class that the model does not have is taken for a slip where a similar one exists.
    fn known_class(&mut self, want: &Want, span: Span) -> Eval<()> {
        let (Kind::Class(name), Some(selector)) = (&want.kind, &self.selector) else { return Ok(()) };
        if selector.has_class(name) {
            return Ok(());
        }
        let classes = selector.classes();
        if nearest(name, classes.iter().copied()).is_empty() {
            return Ok(());
        }
        let help = did_you_mean(name, classes.iter().copied()).unwrap_or_default();
        let diagnostic = Diagnostic::error(Code::NoSuchClass, format!("the model has no class `{name}`"))
            .primary(span, "unknown class")
            .help(help);
        Err(self.fail(corrected(diagnostic, span, name, classes)))
    }

    fn expect(&mut self, value: Value, from: Span, args: &[Expr], span: Span) -> Eval<Value> {
        let [arg] = args else { return Err(Stop::Reported) };
        let wanted = self.whole(arg)?;
        let found = self.elements(&value, from)?.len();
        if found as i128 == wanted {
            return Ok(match value {
                Value::Place(_) => Value::places(self.places_of(&value, from)?),
                other => other,
            });
        }
        self.found(&value)?;
        let diagnostic =
            Diagnostic::error(Code::WrongCount, format!("{wanted} elements are expected, but there are {found}"))
                .primary(span, format!("selects {found}"));
        Err(self.fail(diagnostic))
    }

    // ---- sizes

    fn size(&mut self, value: &Value, from: Span, args: &[Expr]) -> Eval<Value> {
        let model = self.model()?;
        let [arg] = args else { return Err(Stop::Reported) };
        let dim = self.value(arg)?;
        let Value::Place(place) = value else { return Err(self.unfit("one parameter", value, from)) };
        let Some(shape) = place.shape(model) else {
            let diagnostic =
                Diagnostic::error(Code::WrongType, format!("{} is a module, and has no size", self.path(*place)))
                    .primary(from, "a module")
                    .help("ask a parameter: `.weight.size(out)`");
            return Err(self.fail(diagnostic));
        };
        let roles = place.roles(model);
        let at = match &dim {
            Value::Word(word) => dimension(roles, shape.len(), WORDS.get(*word as usize).map_or("", |word| word.name)),
            other => {
                let number = self.number_of(other, arg.span)?;
                let number = self.whole_of(number, arg.span)?;
                let number = if number < 0 { number.saturating_add(shape.len() as i128) } else { number };
                usize::try_from(number).ok().filter(|at| *at < shape.len())
            }
        };
        if let Some(size) = at.and_then(|at| shape.get(at)) {
            return Ok(Value::Number(Number::from(*size)));
        }
        let name = match &dim {
            Value::Word(word) => WORDS.get(*word as usize).map_or(String::new(), |word| word.name.to_string()),
            other => self.show(other),
        };
        let named = dimensions(roles, shape);
        let diagnostic = Diagnostic::error(Code::NoSuchDim, format!("{} has no dimension `{name}`", self.path(*place)))
            .primary(arg.span, "not one of its dimensions");
        Err(self.fail(diagnostic.help(named)))
    }

    // ---- points

    fn points(&mut self, is_input: bool, value: &Value, args: &[Expr], span: Span) -> Eval<Value> {
        let name = match args.first() {
            Some(arg) => Some((self.value(arg)?, arg.span)),
            None => None,
        };
        let places: Vec<Place> = match value {
            Value::Place(place) => vec![*place],
            Value::Places(selection) => selection.places.clone(),
            other => return Err(self.unfit("a module", other, span)),
        };
        let mut points = Vec::with_capacity(places.len());
        for place in places {
            points.push(self.point(is_input, place, name.as_ref(), span)?);
        }
        match (value, points.as_slice()) {
            (Value::Place(_), [point]) => Ok(Value::Point(*point)),
            _ => Ok(Value::Points(Rc::new(points))),
        }
    }

    fn point(&mut self, is_input: bool, place: Place, name: Option<&(Value, Span)>, span: Span) -> Eval<Point> {
        let Place::Module(module) = place else {
            return Err(self.unfit("a module", &Value::Place(place), span));
        };
        let at = name.map_or(span, |(_, span)| *span);
        let port = match name {
            None => PortName::Only,
            Some((Value::Text(name), _)) => PortName::Named(name),
            Some((other, span)) => {
                let number = self.number_of(other, *span)?;
                let number = self.whole_of(number, *span)?;
                PortName::Number(u32::try_from(number).unwrap_or(u32::MAX))
            }
        };
        let ports = self.ports.as_ref().ok_or(Stop::Reported)?;
        match ports.find(module, is_input, port) {
            Ok(port) => Ok(Point { of: place, port, is_gradient: false }),
            Err(reason) => Err(self.no_port(is_input, place, reason, at)),
        }
    }

    fn no_port(&mut self, is_input: bool, place: Place, reason: NoPort, span: Span) -> Stop {
        let (what, verb, are) = if is_input { ("input", "enters", "enter") } else { ("output", "leaves", "leave") };
        let path = self.path(place);
        let (message, help) = match reason {
            NoPort::NeverRuns => (format!("{path} is never called: it has no {what}"), None),
            NoPort::None { are_whole: true } => {
                (format!("only whole numbers, such as token ids, {are} {path}: they have no gradient"), None)
            }
            NoPort::None { .. } => (
                format!("no value with a gradient {verb} {path}"),
                Some(format!("ports have numbers, as `slapoc inspect` lists them: `.{what}(0)`")),
            ),
            NoPort::Several(ports) => (
                format!("several values with a gradient {are} {path}"),
                Some(format!(
                    "say which: `.{what}({})`; there are {}",
                    ports.first().map_or(0, |(number, _)| *number),
                    self.ports_in_words(&ports)
                )),
            ),
            NoPort::Number(ports) if ports.is_empty() => (format!("{path} has no {what}s"), None),
            NoPort::Number(ports) => {
                let count = if ports.len() == 1 { format!("1 {what}") } else { format!("{} {what}s", ports.len()) };
                (format!("{path} has {count}"), Some(format!("counted from 0: {}", self.ports_in_words(&ports))))
            }
            NoPort::Name(names) => {
                (format!("no {what} of {path} has this name"), Some(format!("there are {}", some_of(names))))
            }
        };
        let diagnostic = Diagnostic::error(Code::NoSuchPort, message).primary(span, "no such point");
        self.fail(help.into_iter().fold(diagnostic, Diagnostic::help))
    }

    /// ``0 (`add_3`, [8, 64, 32]) and 2 (…)``
    fn ports_in_words(&self, ports: &[(u32, ValueId)]) -> String {
        let Some(known) = &self.ports else { return String::new() };
        let sizes = self.state.as_ref().and_then(|state| state.sizes);
        let shown = ports.iter().map(|(number, id)| {
            let value = known.model.graph.value(*id);
            let sizes: Vec<String> = match sizes.and_then(|sizes| known.bound_type(*id, sizes)) {
                Some(ty) => ty.shape.iter().map(ToString::to_string).collect(),
                None => value.ty.shape.iter().map(ToString::to_string).collect(),
            };
            format!("{number} (`{}`, [{}])", value.name, sizes.join(", "))
        });
        shown.collect::<Vec<_>>().join(" and ")
    }

    fn gradients(&mut self, value: &Value, span: Span) -> Eval<Value> {
        let of = |place: Place| match place {
            Place::Parameter { .. } => Some(Point { of: place, port: Port::Value, is_gradient: true }),
            _ => None,
        };
        let found = match value {
            Value::Point(point) => Some(Value::Point(Point { is_gradient: true, ..*point })),
            Value::Points(points) => {
                let points = points.iter().map(|point| Point { is_gradient: true, ..*point });
                Some(Value::Points(Rc::new(points.collect())))
            }
            Value::Place(place) => of(*place).map(Value::Point),
            Value::Places(selection) => {
                let points: Option<Vec<Point>> = selection.places.iter().map(|place| of(*place)).collect();
                points.map(|points| Value::Points(Rc::new(points)))
            }
            _ => None,
        };
        found.ok_or_else(|| self.unfit("a point or a parameter", value, span))
    }
}
