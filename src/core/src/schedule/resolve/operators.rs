//! An operator as an argument: `gelu`, `gelu(approximate: "tanh")`, `attention(q: query, scale: 1 / c)`.
//!
//! Attributes are literals, or numbers that are computed of the pattern's; tensors are named by the parameters of the pattern
//! that is replaced, which are not known here.

use super::super::hir::{Expr, ExprKind};
use super::super::nearest::{did_you_mean, some_of};
use super::super::number::Number;
use super::super::steps::Argument;
use super::super::types::{Ty, WordKind};
use super::Unit;
use crate::patterns::operators::{self, Operator};
use slapo_syntax::ast::{self, AstNode, BinaryOp, LiteralKind, PrefixOp};
use slapo_syntax::{Code, Diagnostic, Span, SyntaxToken};
use std::sync::Arc;

impl Unit<'_, '_> {
    /// An operator given as the argument `name`.
    pub(super) fn operator(&mut self, value: Option<ast::Expr<'_>>, at: Span, name: &str) -> Expr {
        let (token, args) = match value {
            Some(ast::Expr::Name(name)) => (name.token(), None),
            Some(ast::Expr::Call(call)) => (call.name(), call.args()),
            Some(ast::Expr::Paren(paren)) => return self.operator(paren.inner(), at, name),
            Some(ast::Expr::Error(_)) | None => return Expr::error(at),
            Some(other) => {
                let diagnostic = Diagnostic::error(Code::WrongType, format!("`{name}` takes an operator"))
                    .primary(other.span(), "no operator")
                    .help("write one such as `gelu(approximate: \"tanh\")`");
                self.error(diagnostic);
                return Expr::error(other.span());
            }
        };
        let Some(token) = token else { return Expr::error(at) };
        let Some(operator) = operators::find(token.text()) else {
            self.unknown_operator(token);
            return Expr::error(at);
        };
        let mut given = Vec::new();
        for arg in args.into_iter().flat_map(ast::ArgList::args) {
            match self.slot(operator, arg) {
                Some(one) => given.push(one),
                None => return Expr::error(at),
            }
        }
        let call = Argument::Call(operator.name.to_string(), given);
        Expr { span: at, ty: Ty::Word(WordKind::Operator), kind: ExprKind::Operator(Arc::new(call)) }
    }

    fn unknown_operator(&mut self, name: SyntaxToken<'_>) {
        let help = did_you_mean(name.text(), operators::names())
            .unwrap_or_else(|| format!("operators are {}", some_of(operators::names())));
        self.error(
            Diagnostic::error(Code::UnknownCallable, format!("there is no operator `{}`", name.text()))
                .primary(name.span(), "unknown operator")
                .help(help),
        );
    }

    /// What is given for one slot of an operator, by its name.
    fn slot(&mut self, operator: &Operator, arg: ast::Arg<'_>) -> Option<(String, Argument)> {
        let Some(label) = arg.label() else {
            let diagnostic = Diagnostic::error(Code::MissingArgument, "operands of a replacement are given by name")
                .primary(arg.span(), "which one?")
                .help(format!("`{}` has {}", operator.name, some_of(operator.slots.iter().map(|slot| slot.name))));
            self.error(diagnostic);
            return None;
        };
        if operator.slots.iter().all(|slot| slot.name != label.text()) {
            let names = operator.slots.iter().map(|slot| slot.name);
            let help =
                did_you_mean(label.text(), names.clone()).unwrap_or_else(|| format!("it has {}", some_of(names)));
            let diagnostic =
                Diagnostic::error(Code::UnknownArgument, format!("`{}` has no `{}`", operator.name, label.text()))
                    .primary(label.span(), "unknown argument")
                    .help(help);
            self.error(diagnostic);
            return None;
        }
        let value = arg.value()?;
        let argument = operand(value);
        if argument.is_none() {
            let diagnostic = Diagnostic::error(Code::WrongType, "this is a parameter of the pattern or a literal")
                .primary(value.span(), "neither")
                .help(
                    "`x: hidden` takes the pattern's parameter `hidden`, `scale: 1 / c` computes with its number `c`",
                );
            self.error(diagnostic);
        }
        Some((label.text().to_string(), argument?))
    }
}

/// A parameter, a literal, or arithmetic on both: `1 / c` is the call `div(a: 1, b: c)`.
fn operand(value: ast::Expr<'_>) -> Option<Argument> {
    match value {
        ast::Expr::Name(name) => Some(Argument::Word(name.text().to_string())),
        ast::Expr::Literal(literal) => literal_argument(literal, false),
        ast::Expr::Paren(paren) => operand(paren.inner()?),
        ast::Expr::Prefix(prefix) if prefix.op() == Some(PrefixOp::Neg) => match prefix.operand()? {
            ast::Expr::Literal(literal) => literal_argument(literal, true),
            other => Some(Argument::Call("neg".to_string(), vec![("x".to_string(), operand(other)?)])),
        },
        ast::Expr::Binary(binary) => {
            let name = match binary.op()? {
                BinaryOp::Add => "add",
                BinaryOp::Sub => "sub",
                BinaryOp::Mul => "mul",
                BinaryOp::Div => "div",
                BinaryOp::Pow => "pow",
                _ => return None,
            };
            let (a, b) = (operand(binary.left()?)?, operand(binary.right()?)?);
            Some(Argument::Call(name.to_string(), vec![("a".to_string(), a), ("b".to_string(), b)]))
        }
        _ => None,
    }
}

fn literal_argument(literal: ast::Literal<'_>, is_negative: bool) -> Option<Argument> {
    match literal.kind()? {
        LiteralKind::Bool(value) => Some(Argument::Bool(value)),
        LiteralKind::Str(text) => Some(Argument::Text(text.value())),
        LiteralKind::Number(number) => {
            let number = Number::parse(number.digits()).ok()?;
            Some(Argument::Number(if is_negative { -number } else { number }))
        }
    }
}
