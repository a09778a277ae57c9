//! Calls: schedules are inlined, primitives become steps.

use super::super::Skipped;
use super::super::hir::{Call, Callee, Expr, ScheduleId};
use super::super::points::Point;
use super::super::select::Place;
use super::super::steps::{Argument, FrameKind, Step, Target};
use super::super::types::{Kind, Want};
use super::super::value::Value;
use super::{DEEPEST_CALL, Eval, Expander, Stop};
use crate::patterns::Match;
use crate::primitives::{Primitive, Receiver};
use slapo_syntax::{Code, Diagnostic, Span};
use std::sync::Arc;

/// An argument with the place it is written at.
type Given = (Value, Span);

/// What a primitive is asked of, before it has a path.
struct On {
    place: Place,
    point: Option<Point>,
    found: Option<Arc<Match>>,
}

impl On {
    fn value(&self) -> Value {
        self.point.map_or(Value::Place(self.place), Value::Point)
    }
}

impl<'a> Expander<'a> {
    pub(super) fn call(&mut self, call: &'a Call, is_tried: bool) -> Eval<()> {
        match &call.callee {
            Callee::Primitive { primitive, receiver } => self.primitive(primitive, receiver, call, is_tried),
            Callee::Schedule(id) => self.schedule(*id, call, is_tried),
        }
    }

    // ---- primitives

    fn primitive(
        &mut self,
        primitive: &'static Primitive,
        receiver: &'a Expr,
        call: &'a Call,
        is_tried: bool,
    ) -> Eval<()> {
        let on = |place: &Place| On { place: *place, point: None, found: None };
        let at = |point: &Point| On { place: point.of, point: Some(*point), found: None };
        let of =
            |found: &Arc<Match>| On { place: Place::Module(found.within), point: None, found: Some(found.clone()) };
        let targets: Vec<On> = match self.tried(is_tried, false, call.span, |this| this.filled(receiver))? {
            Some(Value::Place(place)) => vec![on(&place)],
            Some(Value::Places(selection)) => selection.places.iter().map(on).collect(),
            Some(Value::Point(point)) => vec![at(&point)],
            Some(Value::Points(points)) => points.iter().map(at).collect(),
            Some(Value::Match(found)) => vec![of(&found)],
            Some(Value::Matches(found)) => found.matches.iter().map(of).collect(),
            Some(other) => return Err(self.unfit(&primitive.receiver.to_string(), &other, receiver.span)),
            None => return Ok(()),
        };
        let mut args = Vec::with_capacity(primitive.params.len());
        for (parameter, arg) in primitive.params.iter().zip(&call.args) {
            let value = match (arg, &parameter.default) {
                (Some(expr), _) => {
                    let value = self.filled(expr)?;
                    self.still_there(&value, expr.span)?;
                    let value = self.coerce(value, &parameter.want, expr.span, primitive.name, parameter.name)?;
                    match (&parameter.want.kind, &value) {
                        (Kind::Replacement, Value::Text(path)) => self.archive(path, expr.span)?,
                        _ => self.argument(&value),
                    }
                }
                (None, Some(default)) => default.clone(),
                (None, None) => return Err(Stop::Reported),
            };
            if let (Argument::Number(number), Kind::Int) = (&value, &parameter.want.kind) {
                let message = format!("`{}` of `{}` cannot be {number}", parameter.name, primitive.name);
                let diagnostic = Diagnostic::error(Code::BadValue, message).primary(call.span, "does not fit 64 bits");
                return Err(self.fail(diagnostic));
            }
            args.push((parameter.name, value));
        }
        for target in targets {
            self.work(call.span)?;
            if let Err(stop) = self.still_there(&target.value(), receiver.span) {
                match stop {
                    Stop::Reported => continue,
                    stop => return Err(stop),
                }
            }
            let args = args.clone();
            let stop = self
                .tried(is_tried, false, call.span, |this| this.step(primitive, target, receiver.span, args, call.span));
            match stop {
                Ok(_) | Err(Stop::Reported) => {}
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        primitive: &'static Primitive,
        On { place, point, found }: On,
        receiver: Span,
        args: Vec<(&'static str, Argument)>,
        span: Span,
    ) -> Eval<()> {
        let model = self.model()?;
        if !primitive.receiver.takes(place, point.is_some(), found.is_some()) {
            return Err(self.wrong_target(primitive, place, point.is_some(), receiver));
        }
        if self.not_taken.is_here {
            return Ok(());
        }
        let site = self.site(span);
        let chain = self.chain.clone();
        let state = self.state.as_mut().ok_or(Stop::Reported)?;
        let id = state.steps.len() as u32 + 1;
        let path = match (&point, &found) {
            (Some(point), _) => state.ports.path(point),
            (None, Some(found)) => found.path(model),
            (None, None) => place.path(model),
        };
        let target = Target { place, point, found, path };
        let step = Step { id, primitive, target, args, site, chain };
        match (primitive.check)(state, &step) {
            Ok(()) => {
                state.apply(step);
                Ok(())
            }
            Err(refusal) => Err(self.refused(&step, refusal)),
        }
    }

    fn wrong_target(&mut self, primitive: &Primitive, place: Place, is_point: bool, span: Span) -> Stop {
        let noun = if is_point { "a point" } else { place.noun() };
        let message =
            format!("`{}` is asked of {}, but {} is {noun}", primitive.name, primitive.receiver, self.path(place),);
        let diagnostic = Diagnostic::error(Code::WrongType, message).primary(span, noun);
        let names = self.model.map(|model| place.names(model)).unwrap_or_default();
        let diagnostic = match primitive.receiver {
            Receiver::Parameter if !names.is_empty() => {
                diagnostic.help(format!("it has {}", super::super::nearest::some_of(names)))
            }
            Receiver::Point | Receiver::PointOrParameter if !is_point && place.module().is_some() => {
                diagnostic.help("a point of it: `.input()`, `.output()`, or `.grad()` behind one of these")
            }
            Receiver::Point if !is_point => diagnostic.help("its gradient is a point: `.grad()`"),
            _ => diagnostic,
        };
        self.fail(diagnostic)
    }

    // ---- schedules

    fn schedule(&mut self, id: ScheduleId, call: &'a Call, is_tried: bool) -> Eval<()> {
        let hir = self.hir;
        let schedule = hir.schedule(id);
        if schedule.is_recursive {
            return Err(Stop::Reported);
        }
        let mut given: Vec<Given> = Vec::with_capacity(schedule.params.len());
        for (param, arg) in schedule.params.iter().zip(&call.args) {
            let expr = arg.as_ref().or(param.default.as_ref()).ok_or(Stop::Reported)?;
            let span = if arg.is_some() { expr.span } else { call.span };
            let value = self.tried(is_tried, false, call.span, |this| this.filled(expr))?;
            let Some(value) = value else { return Ok(()) };
            given.push((value, span));
        }
        // A selection where one thing is wanted: once per element.
        let spread = schedule.params.iter().zip(&given).position(|(param, (value, _))| spreads(&param.want, value));
        let Some(at) = spread else {
            return self.tried(is_tried, true, call.span, |this| this.inline(id, given, call.span)).map(drop);
        };
        let (elements, span) = (self.elements(&given[at].0, given[at].1)?, given[at].1);
        let around = self.chain.clone();
        for element in elements {
            self.work(call.span)?;
            let variable = schedule.params[at].name.clone();
            let turn = FrameKind::Iteration { variable, value: self.show(&element) };
            self.chain = around.push(turn, self.site(call.span));
            let mut given = given.clone();
            given[at] = (element, span);
            match self.tried(is_tried, true, call.span, |this| this.inline(id, given, call.span)) {
                Ok(_) | Err(Stop::Reported) => {}
                Err(stop) => {
                    self.chain = around;
                    return Err(stop);
                }
            }
        }
        self.chain = around;
        Ok(())
    }

    /// Runs a schedule's body on its arguments.
    fn inline(&mut self, id: ScheduleId, given: Vec<Given>, call: Span) -> Eval<()> {
        let hir = self.hir;
        let schedule = hir.schedule(id);
        if self.depth >= DEEPEST_CALL {
            let message = format!("schedules call each other more than {DEEPEST_CALL} deep");
            self.fail(Diagnostic::error(Code::TooMuchWork, message).primary(call, "the deepest call"));
            return Err(Stop::Exhausted);
        }
        let mut frame = vec![None; schedule.locals as usize];
        for (at, (param, (value, span))) in schedule.params.iter().zip(given).enumerate() {
            let value = self.coerce(value, &param.want, span, &schedule.name, &param.name)?;
            frame[at] = Some(value);
        }
        let around = self.chain.clone();
        let entered = FrameKind::Call { schedule: schedule.name.clone() };
        self.chain = around.push(entered, self.site(call));
        let outer = std::mem::replace(&mut self.frame, frame);
        self.depth += 1;
        let result = self.block(&schedule.body);
        self.depth -= 1;
        self.frame = outer;
        self.chain = around;
        match result {
            Err(Stop::Leave) => Ok(()),
            result => result,
        }
    }

    // ---- try

    /// Does something; where it is tried and not applicable, `None` is given. Work of several steps is undone then.
    fn tried<T>(
        &mut self,
        is_tried: bool,
        undoes: bool,
        span: Span,
        work: impl FnOnce(&mut Self) -> Eval<T>,
    ) -> Eval<Option<T>> {
        if !is_tried {
            return work(self).map(Some);
        }
        let before = undoes.then(|| self.state.clone());
        let (chain, depth, skipped) = (self.chain.clone(), self.depth, self.skipped.len());
        let was_trying = std::mem::replace(&mut self.is_trying, true);
        let result = work(self);
        self.is_trying = was_trying;
        match result {
            Err(Stop::NotApplicable { what, reason }) => {
                if let Some(before) = before {
                    self.state = before;
                }
                self.skipped.truncate(skipped);
                (self.chain, self.depth) = (chain, depth);
                let (site, chain) = (self.site(span), self.chain.clone());
                self.skipped.push(Skipped { what, reason, site, chain });
                Ok(None)
            }
            result => result.map(Some),
        }
    }
}

/// Whether a value is several things where one is wanted.
fn spreads(want: &Want, value: &Value) -> bool {
    !want.list && want.kind.is_place() && matches!(value, Value::Places(_) | Value::Points(_) | Value::Matches(_))
}
