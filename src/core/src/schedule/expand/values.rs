//! Evaluation of expressions.

use super::super::builtins::Function;
use super::super::hir::{Expr, ExprKind};
use super::super::mesh::Axes;
use super::super::number::Number;
use super::super::select::Place;
use super::super::types::Ty;
use super::super::value::Value;
use super::{Eval, Expander, Stop, list};
use slapo_syntax::ast::BinaryOp;
use slapo_syntax::{Code, Diagnostic, Span};
use std::rc::Rc;

impl Expander<'_> {
    pub fn value(&mut self, expr: &Expr) -> Eval<Value> {
        Ok(match &expr.kind {
            ExprKind::Error => return Err(Stop::Reported),
            ExprKind::Number(number) => Value::Number(*number),
            ExprKind::Bool(value) => Value::Bool(*value),
            ExprKind::Text(text) => Value::Text(text.clone()),
            ExprKind::Local(local) => self.frame.get(local.0 as usize).cloned().flatten().ok_or(Stop::Reported)?,
            ExprKind::Global(global) => self.global(*global)?,
            ExprKind::Axis(axis) => Value::Axis(Axes::whole(*axis)),
            ExprKind::Pattern(at) => Value::Pattern(self.hir.patterns[*at as usize].clone()),
            ExprKind::Word(word) => Value::Word(*word),
            ExprKind::Shaped(word, args) => self.shaped(*word, args)?,
            ExprKind::Operator(call) => Value::Shaped(Rc::new((**call).clone())),
            ExprKind::Class(want) => Value::Class(Rc::new(want.clone())),
            ExprKind::List(elements) => self.list(elements, &expr.ty)?,
            ExprKind::Neg(operand) => Value::Number(-self.number(operand)?),
            ExprKind::Not(operand) => Value::Bool(!self.truth(operand)?),
            ExprKind::Binary(op, left, right) => self.binary(*op, left, right, expr.span)?,
            ExprKind::Function(function, args) => self.function(*function, args)?,
            ExprKind::Names(receiver, names) => self.names(receiver, names, expr)?,
            ExprKind::Children(receiver) => self.wildcard(receiver, Place::children)?,
            ExprKind::Below(receiver) => self.wildcard(receiver, Place::below)?,
            ExprKind::Index(receiver, position) => self.index(receiver, position, expr)?,
            ExprKind::Slice(receiver, start, end) => {
                self.slice(receiver, start.as_deref(), end.as_deref(), expr.span)?
            }
            ExprKind::Query(query, receiver, args) => self.query(*query, receiver, args, expr.span)?,
        })
    }

    pub fn number(&mut self, expr: &Expr) -> Eval<Number> {
        let value = self.value(expr)?;
        self.number_of(&value, expr.span)
    }

    /// A number that must be whole.
    pub fn whole(&mut self, expr: &Expr) -> Eval<i128> {
        let number = self.number(expr)?;
        self.whole_of(number, expr.span)
    }

    pub(super) fn whole_of(&mut self, number: Number, span: Span) -> Eval<i128> {
        number.whole().ok_or_else(|| {
            let diagnostic = Diagnostic::error(Code::NotWhole, format!("a whole number is wanted, not {number}"))
                .primary(span, number.to_string())
                .help(format!("`floor(…)` makes it {}, `ceil(…)` {}", number.floor(), number.ceil()));
            self.fail(diagnostic)
        })
    }

    /// A value as a number; an axis is its size.
    pub(super) fn number_of(&mut self, value: &Value, span: Span) -> Eval<Number> {
        match value {
            Value::Number(number) => Ok(*number),
            // An axis without a size was reported.
            Value::Axis(axes) => axes.size(&self.mesh.axes).map(Number::from).ok_or(Stop::Reported),
            other => Err(self.unfit("a number", other, span)),
        }
    }

    pub(super) fn truth(&mut self, expr: &Expr) -> Eval<bool> {
        match self.value(expr)? {
            Value::Bool(value) => Ok(value),
            other => Err(self.unfit("a truth value", &other, expr.span)),
        }
    }

    /// A value of a type that only the model could tell.
    pub(super) fn unfit(&mut self, wanted: &str, value: &Value, span: Span) -> Stop {
        let shown = self.show(value);
        let diagnostic =
            Diagnostic::error(Code::WrongType, format!("{wanted} is wanted, not {shown}")).primary(span, shown);
        self.fail(diagnostic)
    }

    fn list(&mut self, elements: &[Expr], ty: &Ty) -> Eval<Value> {
        let mut values = Vec::with_capacity(elements.len());
        for element in elements {
            values.push(self.filled(element)?);
        }
        match ty {
            Ty::Places(_) => {
                let mut places = Vec::new();
                for value in &values {
                    match value {
                        Value::Places(selection) => places.extend(&selection.places),
                        Value::Place(place) => places.push(*place),
                        _ => {}
                    }
                }
                self.tidy(&mut places);
                Ok(Value::places(places))
            }
            Ty::Points => {
                let mut points = Vec::new();
                for value in &values {
                    match value {
                        Value::Points(several) => points.extend(several.iter().copied()),
                        Value::Point(point) => points.push(*point),
                        _ => {}
                    }
                }
                Ok(Value::Points(Rc::new(points)))
            }
            Ty::Matches => Ok(Self::joined_matches(&values)),
            _ => Ok(list(values)),
        }
    }

    fn binary(&mut self, op: BinaryOp, left: &Expr, right: &Expr, span: Span) -> Eval<Value> {
        match op {
            BinaryOp::And => return Ok(Value::Bool(self.truth(left)? && self.truth(right)?)),
            BinaryOp::Or => return Ok(Value::Bool(self.truth(left)? || self.truth(right)?)),
            BinaryOp::Eq | BinaryOp::Ne => {
                let (a, b) = (self.value(left)?, self.value(right)?);
                return Ok(Value::Bool(self.is_equal(&a, &b) == (op == BinaryOp::Eq)));
            }
            _ => {}
        }
        let (a, b) = (self.number(left)?, self.number(right)?);
        let result = match op {
            BinaryOp::Add => a.checked_add(b),
            BinaryOp::Sub => a.checked_sub(b),
            BinaryOp::Mul => a.checked_mul(b),
            BinaryOp::Div => a.checked_div(b),
            BinaryOp::Rem => a.checked_rem(b),
            BinaryOp::Pow => a.checked_pow(b),
            BinaryOp::Lt => return Ok(Value::Bool(a < b)),
            BinaryOp::Le => return Ok(Value::Bool(a <= b)),
            BinaryOp::Gt => return Ok(Value::Bool(a > b)),
            _ => return Ok(Value::Bool(a >= b)),
        };
        let note = |_: &Self| Some(format!("the operands are {a} and {b}"));
        self.arithmetic(result, span, note).map(Value::Number)
    }

    /// Equality of values without parts; a tied parameter is the same under each of its names.
    pub(super) fn is_equal(&self, a: &Value, b: &Value) -> bool {
        let size = |value: &Value| match value {
            Value::Number(number) => Some(*number),
            Value::Axis(axes) => axes.size(&self.mesh.axes).map(Number::from),
            _ => None,
        };
        match (a, b) {
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Text(a), Value::Text(b)) => a == b,
            (Value::Word(a), Value::Word(b)) => a == b,
            (Value::Point(a), Value::Point(b)) => a == b,
            (Value::Pattern(a), Value::Pattern(b)) => a == b,
            (Value::Place(a), Value::Place(b)) => a.identity() == b.identity(),
            (a, b) => size(a).is_some() && size(a) == size(b),
        }
    }

    fn function(&mut self, function: Function, args: &[Expr]) -> Eval<Value> {
        match function {
            Function::Len => {
                let arg = args.first().ok_or(Stop::Reported)?;
                let value = self.value(arg)?;
                let count = self.elements(&value, arg.span)?.len();
                return Ok(Value::Number(Number::from(count)));
            }
            Function::Choose => {
                let [condition, yes, no] = args else { return Err(Stop::Reported) };
                let (chosen, other) = if self.truth(condition)? { (yes, no) } else { (no, yes) };
                self.not_chosen(condition, other);
                return self.value(chosen);
            }
            _ => {}
        }
        let mut numbers = Vec::with_capacity(args.len());
        for arg in args {
            numbers.push(self.number(arg)?);
        }
        let first = *numbers.first().ok_or(Stop::Reported)?;
        Ok(Value::Number(match function {
            Function::Floor => first.floor(),
            Function::Ceil => first.ceil(),
            Function::Abs => first.abs(),
            Function::Min => numbers.into_iter().min().unwrap_or(first),
            _ => numbers.into_iter().max().unwrap_or(first),
        }))
    }
}
