//! Paths of a schedule on its model, read off the tree: what the names before a cursor lead to.
//!
//! Unlike the checker's expansion this answers in the middle of broken text, and for schedules that nobody calls: where
//! a name may stand for several things (the variable of a loop, a parameter), it gives them all and says so. Read
//! [`Selected`] first.

use crate::scope::{By, Scope, Space};
use slapo_core::schedule::{Kind, Place, Query, Want};
use slapo_model::{Model, ModuleId};
use slapo_syntax::ast::{self, AstNode, Expr, LiteralKind, TypeRef};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Names lead to names: so deep, and no deeper, since broken text may go in circles.
const DEEPEST: u32 = 64;

/// What an expression leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// In the model's order, each once.
    pub places: Vec<Place>,
    pub extent: Extent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The one place.
    One,
    /// All of them.
    All,
    /// One or some of them, one at a time or by numbers that are not known here.
    Some,
}

/// The paths of one file.
pub struct Paths<'a> {
    pub model: &'a Model,
    pub scope: &'a Scope<'a>,
    pub known: &'a Known,
}

/// What names were found to lead to, by the offset of their declaration: a parameter stands for what every caller gives,
/// and so on, which must not be followed again and again. Nothing while it is being found.
pub type Known = RefCell<BTreeMap<u32, Option<Selected>>>;

impl<'a> Paths<'a> {
    /// What an expression leads to; `None` where it is no path or leads to what is not known.
    pub fn select(&self, expr: Expr<'a>) -> Option<Selected> {
        self.expr(expr, 0)
    }

    fn expr(&self, expr: Expr<'a>, depth: u32) -> Option<Selected> {
        if depth > DEEPEST {
            return None;
        }
        let below = |receiver: Option<Expr<'a>>| self.expr(receiver?, depth + 1);
        match expr {
            Expr::Name(name) => self.name(name, depth),
            Expr::Paren(paren) => below(paren.inner()),
            Expr::List(list) => {
                let parts: Option<Vec<Selected>> = list.elements().map(|one| self.expr(one, depth + 1)).collect();
                let parts = parts?;
                let is_known = parts.iter().all(|part| part.extent != Extent::Some);
                let places = parts.into_iter().flat_map(|part| part.places).collect();
                Some(several(places, if is_known { Extent::All } else { Extent::Some }))
            }
            Expr::Field(field) => Some(self.named(below(field.receiver())?, &[field.name()?.text()])),
            Expr::Brace(brace) => {
                let names = brace.names().filter_map(|name| Some(name.name()?.text()));
                Some(many(self.named(below(brace.receiver())?, &names.collect::<Vec<_>>())))
            }
            Expr::Star(star) => Some(many(self.down(below(star.receiver())?, |place| place.children(self.model)))),
            Expr::Globstar(all) => Some(many(self.down(below(all.receiver())?, |place| place.below(self.model)))),
            Expr::Index(index) => self.index(below(index.receiver())?, index.index()?),
            Expr::Slice(slice) => {
                let list = self.listed(below(slice.receiver())?);
                let whole = slice.start().is_none() && slice.end().is_none();
                let extent = if whole { list.extent } else { Extent::Some };
                let literal = |bound: Option<Expr<'a>>, default| bound.map_or(Some(default), number);
                let length = list.places.len();
                let bounds = (literal(slice.start(), 0), literal(slice.end(), length as i64));
                let (Extent::All, (Some(from), Some(to))) = (list.extent, bounds) else {
                    return Some(Selected { extent, ..list });
                };
                let (from, to) = (position(from, length), position(to, length));
                let places = list.places.get(from?..to?)?.to_vec();
                Some(Selected { places, extent: Extent::All })
            }
            Expr::Method(method) => {
                let selected = below(method.receiver())?;
                let classes = || method.args().into_iter().flat_map(ast::ArgList::args).filter_map(ast::Arg::value);
                let wants: Vec<Want> = classes().filter_map(|class| self.class(class)).collect();
                let is = |place: &Place| wants.iter().any(|want| place.is(self.model, want));
                match Query::find(method.name()?.text())? {
                    Query::Only => Some(kept(selected, is)),
                    Query::Except => Some(kept(selected, |place| !is(place))),
                    Query::Expect => Some(selected),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn name(&self, name: ast::Name<'a>, depth: u32) -> Option<Selected> {
        let declaration = self.scope.find(Space::Value, name.text(), name.syntax().start())?;
        let key = declaration.name.start();
        if let Some(known) = self.known.borrow().get(&key) {
            return known.clone();
        }
        self.known.borrow_mut().insert(key, None);
        let found = self.declared(declaration.by, depth);
        self.known.borrow_mut().insert(key, found.clone());
        found
    }

    fn declared(&self, by: By<'a>, depth: u32) -> Option<Selected> {
        match by {
            By::Let(bound) => self.expr(bound.value()?, depth + 1),
            By::For(turn) => {
                let domain = self.listed(self.expr(turn.domain()?, depth + 1)?);
                Some(Selected { extent: Extent::Some, ..domain })
            }
            By::Param(schedule, param) => self.param(schedule, param, depth),
            _ => None,
        }
    }

    /// The model for `main`; for others what callers give, or else whatever is of the parameter's class.
    fn param(&self, schedule: ast::Schedule<'a>, param: ast::Param<'a>, depth: u32) -> Option<Selected> {
        let name = schedule.name()?.text();
        if name == "main" {
            return Some(Selected { places: vec![Place::Module(ModuleId(0))], extent: Extent::One });
        }
        let at = schedule.params()?.params().position(|other| other == param)?;
        let given = self.scope.calls(name).filter_map(|call| argument(call.args()?, at, param.name()?.text()));
        let is_list = matches!(param.ty(), Some(TypeRef::List(_)));
        let given: Vec<Selected> = given.filter_map(|value| self.expr(value, depth + 1)).collect();
        if given.is_empty() {
            let ty = match param.ty()? {
                TypeRef::List(list) => list.element()?,
                ty => ty,
            };
            let TypeRef::Named(named) = ty else { return None };
            let want = Want::one(Kind::Class(named.name()?.text().to_owned()));
            let all = Place::Module(ModuleId(0)).below(self.model);
            let places: Vec<Place> = all.into_iter().filter(|place| place.is(self.model, &want)).collect();
            return (!places.is_empty()).then(|| several(places, Extent::Some));
        }
        match given.as_slice() {
            [one] if is_list || one.extent == Extent::One => Some(one.clone()),
            _ => Some(several(given.into_iter().flat_map(|one| one.places).collect(), Extent::Some)),
        }
    }

    fn named(&self, from: Selected, names: &[&str]) -> Selected {
        let found = self.down(from, |place| names.iter().filter_map(|name| place.named(self.model, name)).collect());
        match (found.extent, found.places.len()) {
            (Extent::One, 1) => found,
            _ => many(found),
        }
    }

    fn down(&self, from: Selected, step: impl Fn(Place) -> Vec<Place>) -> Selected {
        several(from.places.into_iter().flat_map(step).collect(), from.extent)
    }

    /// A module used as a list is its children.
    fn listed(&self, from: Selected) -> Selected {
        match (from.extent, from.places.as_slice()) {
            (Extent::One, [one]) => Selected { places: one.children(self.model), extent: Extent::All },
            (Extent::Some, places) if !places.is_empty() && places.iter().all(|place| self.is_container(*place)) => {
                self.down(from, |place| place.children(self.model))
            }
            _ => from,
        }
    }

    fn is_container(&self, place: Place) -> bool {
        place.module().is_some_and(|id| self.model.module(id).class.is_empty())
    }

    fn index(&self, from: Selected, index: Expr<'a>) -> Option<Selected> {
        if let Expr::Literal(literal) = index
            && let Some(LiteralKind::Str(name)) = literal.kind()
        {
            return Some(self.named(from, &[&name.value()]));
        }
        let list = self.listed(from);
        let at = number(index).and_then(|at| position(at, list.places.len()));
        match (list.extent, at) {
            (Extent::All, Some(at)) => Some(Selected { places: vec![*list.places.get(at)?], extent: Extent::One }),
            _ => Some(Selected { extent: Extent::Some, ..list }),
        }
    }

    fn class(&self, class: Expr<'a>) -> Option<Want> {
        let Expr::Name(name) = class else { return None };
        let named = Kind::named(name.text()).unwrap_or_else(|| Kind::Class(name.text().to_owned()));
        Some(Want::one(named))
    }
}

/// The value that a call gives to the parameter at a position.
pub fn argument<'t>(args: ast::ArgList<'t>, at: usize, name: &str) -> Option<Expr<'t>> {
    let labelled = args.args().find(|arg| arg.label().is_some_and(|label| label.text() == name));
    let bare = || args.args().filter(|arg| arg.label().is_none()).nth(at);
    labelled.or_else(bare)?.value()
}

fn number(expr: Expr<'_>) -> Option<i64> {
    match expr {
        Expr::Literal(literal) => match literal.kind()? {
            LiteralKind::Number(number) => i64::try_from(number.integer()?).ok(),
            _ => None,
        },
        Expr::Prefix(prefix) => number(prefix.operand()?).map(|value| -value),
        _ => None,
    }
}

/// Counted from the end where negative.
fn position(at: i64, length: usize) -> Option<usize> {
    usize::try_from(if at < 0 { at + length as i64 } else { at }).ok()
}

fn several(places: Vec<Place>, extent: Extent) -> Selected {
    let mut seen = BTreeSet::new();
    let places = places.into_iter().filter(|place| seen.insert(place.identity())).collect();
    Selected { places, extent }
}

fn kept(selected: Selected, keep: impl Fn(&Place) -> bool) -> Selected {
    let places = selected.places.into_iter().filter(keep).collect();
    Selected { places, extent: unless_some(selected.extent) }
}

fn many(selected: Selected) -> Selected {
    Selected { extent: unless_some(selected.extent), ..selected }
}

fn unless_some(extent: Extent) -> Extent {
    if extent == Extent::Some { extent } else { Extent::All }
}
