//! Values while a schedule is expanded.

use super::builtins::WORDS;
use super::mesh::Axes;
use super::number::Number;
use super::points::{Point, Port};
use super::select::Place;
use super::steps::Argument;
use super::types::Want;
use crate::patterns::{Match, Pattern};
use slapo_model::Model;
use slapo_syntax::{Diagnostic, Span};
use std::rc::Rc;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub enum Value {
    Number(Number),
    Bool(bool),
    Text(Arc<str>),
    Place(Place),
    Places(Rc<Selection>),
    Point(Point),
    Points(Rc<Vec<Point>>),
    Pattern(Arc<Pattern>),
    Match(Arc<Match>),
    Matches(Rc<Found>),
    Axis(Axes),
    Word(u32),
    /// A collective or a layout with its arguments; an [`Argument::Call`].
    Shaped(Rc<Argument>),
    Class(Rc<Want>),
    List(Rc<Vec<Value>>),
}

/// Several places, in the model's order.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub places: Vec<Place>,
    /// The names marked `?` of which none was there: why the selection is empty.
    pub missing: Option<Missing>,
}

/// Matches of a pattern, in the graph's order.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub matches: Vec<Arc<Match>>,
    /// Why there are none.
    pub missing: Option<Diagnostic>,
}

#[derive(Clone, Debug)]
pub struct Missing {
    pub names: Vec<String>,
    pub span: Span,
    /// One of the places that have none of them.
    pub of: Place,
}

impl Value {
    pub fn places(places: Vec<Place>) -> Value {
        Value::Places(Rc::new(Selection { places, missing: None }))
    }

    /// As a message shows it; long lists are cut.
    pub fn show(&self, model: Option<&Model>, axes: &[super::mesh::Axis]) -> String {
        const SHOWN: usize = 3;
        let path = |place: &Place| match model.map(|model| place.path(model)) {
            Some(path) if path.is_empty() => "the model".to_string(),
            path => path.unwrap_or_default(),
        };
        let cut = |mut shown: Vec<String>, all: usize| {
            if all > SHOWN {
                shown.push("…".to_string());
            }
            format!("[{}]", shown.join(", "))
        };
        match self {
            Value::Number(number) => number.to_string(),
            Value::Bool(value) => value.to_string(),
            Value::Text(text) => format!("{text:?}"),
            Value::Place(place) => path(place),
            Value::Places(selection) => {
                cut(selection.places.iter().take(SHOWN).map(path).collect(), selection.places.len())
            }
            Value::Point(point) => point_path(&path(&point.of), point),
            Value::Points(points) => {
                let shown = points.iter().take(SHOWN).map(|point| point_path(&path(&point.of), point));
                cut(shown.collect(), points.len())
            }
            Value::Pattern(pattern) => pattern.name.clone(),
            Value::Match(found) => model.map(|model| found.path(model)).unwrap_or_default(),
            Value::Matches(found) => {
                let shown = found.matches.iter().take(SHOWN);
                cut(
                    shown.map(|one| model.map(|model| one.path(model)).unwrap_or_default()).collect(),
                    found.matches.len(),
                )
            }
            Value::Axis(taken) => match taken.names(axes).as_slice() {
                [name] => name.clone(),
                names => format!("[{}]", names.join(", ")),
            },
            Value::Word(word) => WORDS.get(*word as usize).map_or("", |word| word.name).to_string(),
            Value::Shaped(call) => call.to_string(),
            Value::Class(want) => want.to_string(),
            Value::List(list) => {
                let show = |value: &Value| match value {
                    Value::List(_) => "[…]".to_string(),
                    value => value.show(model, axes),
                };
                cut(list.iter().take(SHOWN).map(show).collect(), list.len())
            }
        }
    }
}

fn point_path(of: &str, point: &Point) -> String {
    let port = match point.port {
        Port::Input(at) => format!(".input({at})"),
        Port::Output(at) => format!(".output({at})"),
        Port::Value => String::new(),
    };
    format!("{of}{port}{}", if point.is_gradient { ".grad()" } else { "" })
}
