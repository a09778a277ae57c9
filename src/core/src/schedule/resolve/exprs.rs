//! Expressions: names, literals, operators, functions.

use super::super::builtins::{Function, WORDS, find_word};
use super::super::hir::{Expr, ExprKind};
use super::super::nearest::{corrected, did_you_mean};
use super::super::number::Number;
use super::super::types::{Ty, WordKind};
use super::{Named, Unit};
use slapo_syntax::ast::{self, AstNode, BinaryOp, LiteralKind, PrefixOp};
use slapo_syntax::{Code, Diagnostic, Fix, Span, SyntaxKind};
use std::sync::Arc;

impl Unit<'_, '_> {
    /// An expression; `at` is where it should stand if it is missing.
    pub(super) fn expr(&mut self, expr: Option<ast::Expr<'_>>, at: Span) -> Expr {
        let Some(expr) = expr else { return Expr::error(at) };
        let span = expr.span();
        match expr {
            ast::Expr::Name(name) => self.name(name),
            ast::Expr::RoleIn(_) => word(find_word("in"), span),
            ast::Expr::Literal(literal) => self.literal(literal),
            ast::Expr::Paren(paren) => Expr { span, ..self.expr(paren.inner(), span) },
            ast::Expr::List(list) => self.list(list),
            ast::Expr::Prefix(prefix) => self.prefix(prefix),
            ast::Expr::Binary(binary) => self.binary(binary),
            ast::Expr::Call(call) => self.function(call),
            ast::Expr::Method(method) => self.method_value(method),
            ast::Expr::Field(_) | ast::Expr::Star(_) | ast::Expr::Globstar(_) | ast::Expr::Brace(_) => self.path(expr),
            ast::Expr::Index(index) => self.index(index),
            ast::Expr::Slice(slice) => self.slice(slice),
            // Both are explained by the parser.
            ast::Expr::Range(_) | ast::Expr::Error(_) => Expr::error(span),
        }
    }

    /// An expression that must be a number.
    pub(super) fn number(&mut self, expr: Option<ast::Expr<'_>>, at: Span) -> Expr {
        let expr = self.expr(expr, at);
        self.expect_type(expr, Ty::is_number, "a number is wanted")
    }

    /// The expression if its type fits, an error after saying so otherwise.
    pub(super) fn expect_type(&mut self, expr: Expr, fits: impl Fn(&Ty) -> bool, wanted: &str) -> Expr {
        if fits(&expr.ty) {
            return expr;
        }
        let diagnostic = Diagnostic::error(Code::WrongType, format!("{wanted}, not {}", expr.ty))
            .primary(expr.span, expr.ty.to_string());
        self.error(diagnostic);
        Expr::error(expr.span)
    }

    // ---- names

    fn name(&mut self, name: ast::Name<'_>) -> Expr {
        let span = name.span();
        let text = name.text();
        self.visible(text, span).unwrap_or_else(|| {
            self.unknown_name(text, span);
            Expr::error(span)
        })
    }

    /// What a name stands for; `None` for one that nothing declares.
    pub(super) fn visible(&mut self, text: &str, span: Span) -> Option<Expr> {
        if let Some(local) = self.locals.iter().rfind(|local| local.name == text) {
            self.resolver.read.insert(local.span);
            return Some(Expr { span, ty: local.ty.clone(), kind: ExprKind::Local(local.id) });
        }
        match self.names.values.get(text) {
            Some((Named::Global(id), declared)) => {
                self.resolver.read.insert(*declared);
                let ty = self.resolver.hir.global(*id).value.ty.clone();
                return Some(Expr { span, ty, kind: ExprKind::Global(*id) });
            }
            Some((Named::Axis(axis), _)) => return Some(Expr { span, ty: Ty::Axis, kind: ExprKind::Axis(*axis) }),
            Some((Named::Pattern(pattern), declared)) => {
                self.resolver.read.insert(*declared);
                return Some(match pattern {
                    Some(at) => Expr { span, ty: Ty::Pattern, kind: ExprKind::Pattern(*at) },
                    None => Expr::error(span),
                });
            }
            None => {}
        }
        find_word(text).map(|at| word(Some(at), span))
    }

    fn unknown_name(&mut self, text: &str, span: Span) {
        if self.is_excused(text) {
            return;
        }
        if let Some(below) = self.names.later.get(text).copied() {
            self.error(
                Diagnostic::error(Code::UsedBefore, format!("`{text}` is declared further below"))
                    .primary(span, "used here")
                    .secondary(below, "declared here")
                    .help("move the declaration up"),
            );
            return;
        }
        let diagnostic =
            Diagnostic::error(Code::UnknownName, format!("there is no `{text}` here")).primary(span, "unknown name");
        let is_callable = self.names.callables.contains_key(text) || Function::find(text).is_some();
        let locals = self.locals.iter().map(|local| local.name.as_str());
        let known = locals.chain(self.names.values.keys().map(String::as_str));
        let known: Vec<&str> = known.chain(WORDS.iter().map(|word| word.name)).collect();
        let diagnostic = match is_callable {
            true => diagnostic.help(format!("`{text}` is called with parentheses: `{text}(…)`")),
            false => {
                let outside =
                    "what a schedule that uses this file declares is not visible here: take it as a parameter";
                let near = did_you_mean(text, known.iter().copied());
                let help = near.or_else(|| (!self.is_user).then(|| outside.to_string()));
                corrected(help.into_iter().fold(diagnostic, Diagnostic::help), span, text, known)
            }
        };
        self.error(diagnostic);
    }

    // ---- literals and lists

    fn literal(&mut self, literal: ast::Literal<'_>) -> Expr {
        let span = literal.span();
        let (ty, kind) = match literal.kind() {
            Some(LiteralKind::Bool(value)) => (Ty::Bool, ExprKind::Bool(value)),
            Some(LiteralKind::Str(text)) => (Ty::Text, ExprKind::Text(Arc::from(text.value()))),
            Some(LiteralKind::Number(number)) => match self.value_of(number) {
                Some(value) => (Ty::Number, ExprKind::Number(value)),
                None => return Expr::error(span),
            },
            None => return Expr::error(span),
        };
        Expr { span, ty, kind }
    }

    fn value_of(&mut self, number: ast::Number<'_>) -> Option<Number> {
        let unit = match (number.suffix(), number.unit()) {
            ("", _) => Number::ONE,
            (_, Some(unit)) => Number::from(i128::from(unit.bytes())),
            // Explained by the parser.
            (_, None) => return None,
        };
        let value = Number::parse(number.digits()).and_then(|value| value.checked_mul(unit));
        if value.is_err() {
            self.error(
                Diagnostic::error(Code::Arithmetic, format!("`{}` is too large or too fine a number", number.text()))
                    .primary(number.span(), "does not fit a fraction of 128 bits"),
            );
        }
        value.ok()
    }

    fn list(&mut self, list: ast::List<'_>) -> Expr {
        let span = list.span();
        let elements: Vec<Expr> = list.elements().map(|element| self.expr(Some(element), span)).collect();
        let mut joined = Ty::Any;
        for element in &elements {
            match joined.join(&element.ty) {
                Some(ty) => joined = ty,
                None => {
                    self.error(
                        Diagnostic::error(
                            Code::WrongType,
                            format!("a list cannot hold both {joined} and {}", element.ty),
                        )
                        .primary(element.span, element.ty.to_string()),
                    );
                    return Expr::error(span);
                }
            }
        }
        // A list literal of modules is a selection.
        let ty = match joined {
            Ty::Place(kind) | Ty::Places(kind) => Ty::Places(kind),
            Ty::Point | Ty::Points => Ty::Points,
            other => Ty::List(Box::new(other)),
        };
        Expr { span, ty, kind: ExprKind::List(elements) }
    }

    // ---- operators

    fn prefix(&mut self, prefix: ast::Prefix<'_>) -> Expr {
        let span = prefix.span();
        match prefix.op() {
            Some(PrefixOp::Neg) => {
                let operand = self.number(prefix.operand(), span);
                Expr { span, ty: Ty::Number, kind: ExprKind::Neg(Box::new(operand)) }
            }
            Some(PrefixOp::Not) => {
                let operand = self.expr(prefix.operand(), span);
                let operand = self.expect_type(operand, Ty::is_bool, "`not` takes a truth value");
                Expr { span, ty: Ty::Bool, kind: ExprKind::Not(Box::new(operand)) }
            }
            None => Expr::error(span),
        }
    }

    fn binary(&mut self, binary: ast::Binary<'_>) -> Expr {
        let span = binary.span();
        let Some(op) = binary.op() else { return Expr::error(span) };
        // A chain of comparisons is explained by the parser.
        let is_chain = |expr: Option<ast::Expr>| match expr {
            Some(ast::Expr::Binary(inner)) => inner.op().is_some_and(BinaryOp::is_comparison),
            _ => false,
        };
        if op.is_comparison() && is_chain(binary.left()) {
            return Expr::error(span);
        }
        let left = self.expr(binary.left(), span);
        // `m.layer-x` is one mistake, whatever `x` is.
        let is_dashed = op == BinaryOp::Sub && is_place(&left.ty);
        let goes_on = op == BinaryOp::Sub && left.is_error();
        let right = if is_dashed || goes_on { Expr::error(span) } else { self.expr(binary.right(), span) };
        let (takes, gives): (fn(&Ty) -> bool, Ty) = match op {
            BinaryOp::Or | BinaryOp::And => (Ty::is_bool, Ty::Bool),
            BinaryOp::Eq | BinaryOp::Ne => (is_comparable, Ty::Bool),
            BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => (Ty::is_number, Ty::Bool),
            _ => (Ty::is_number, Ty::Number),
        };
        let wrong = [&left, &right].into_iter().find(|side| !takes(&side.ty));
        if let Some(wrong) = wrong {
            let diagnostic =
                Diagnostic::error(Code::WrongType, format!("`{}` cannot be used on {}", op.symbol(), wrong.ty))
                    .primary(wrong.span, wrong.ty.to_string());
            self.error(match dashed(binary).filter(|_| is_dashed) {
                Some(dashed) => dashed.explained(diagnostic),
                None if op.is_comparison() && is_place(&left.ty) => {
                    diagnostic.help("compare single parts of the model, or use `len`")
                }
                None => diagnostic,
            });
            return Expr::error(span);
        }
        let is_equality = matches!(op, BinaryOp::Eq | BinaryOp::Ne);
        if is_equality && left.ty.join(&right.ty).is_none() {
            let message = format!("{} and {} are never equal", left.ty, right.ty);
            self.error(
                Diagnostic::error(Code::WrongType, message)
                    .primary(right.span, right.ty.to_string())
                    .secondary(left.span, left.ty.to_string()),
            );
            return Expr::error(span);
        }
        // `//` is explained by the parser; what it would give is a whole number, and `/` may give another.
        let is_rounded = binary.op_token().is_some_and(|op| op.kind() == SyntaxKind::SlashSlash);
        let kind = if is_rounded { ExprKind::Error } else { ExprKind::Binary(op, Box::new(left), Box::new(right)) };
        Expr { span, ty: gives, kind }
    }
}

fn word(at: Option<usize>, span: Span) -> Expr {
    match at {
        Some(at) => Expr { span, ty: Ty::Word(WORDS[at].kind), kind: ExprKind::Word(at as u32) },
        None => Expr::error(span),
    }
}

/// What `==` compares: values without parts, and single parts of the model.
fn is_comparable(ty: &Ty) -> bool {
    !matches!(ty, Ty::List(_) | Ty::Places(_) | Ty::Points | Ty::Class | Ty::Word(WordKind::Auto))
}

fn is_place(ty: &Ty) -> bool {
    matches!(ty, Ty::Place(_) | Ty::Places(_))
}

/// `m.zh-cn.weight`: a name with dashes, which reads as a subtraction from a part of the model.
struct Dashed {
    /// The path as it should be: `m["zh-cn"].weight`.
    quoted: String,
    /// What it stands for, if there is no white space in it: nobody writes a subtraction so.
    span: Option<Span>,
}

impl Dashed {
    fn explained(self, diagnostic: Diagnostic) -> Diagnostic {
        let diagnostic = diagnostic.help(format!("a name with a dash is quoted: `{}`", self.quoted));
        match self.span {
            // Whether the model has such a name is not known here.
            Some(span) => diagnostic.fix(Fix::maybe("quote the name").replace(span, self.quoted)),
            None => diagnostic,
        }
    }
}

/// The name that begins with the left operand of a subtraction and takes all that follow.
fn dashed(binary: ast::Binary<'_>) -> Option<Dashed> {
    let Some(ast::Expr::Field(field)) = binary.left() else { return None };
    let (mut name, mut rest) = (field.name()?.text().to_string(), String::new());
    let mut outermost = binary;
    for outer in binary.syntax().ancestors().map_while(ast::Binary::cast) {
        let (BinaryOp::Sub, true) = (outer.op()?, rest.is_empty()) else { break };
        let right = outer.right()?.syntax().text();
        let (head, tail) = right.split_at(right.find(['.', '[', '(', ' ']).unwrap_or(right.len()));
        name = format!("{name}-{head}");
        rest = tail.to_string();
        outermost = outer;
    }
    let span = outermost.span();
    let is_tight = !outermost.syntax().text().contains(char::is_whitespace);
    let quoted = format!("{}[\"{name}\"]{rest}", field.receiver()?.syntax().text());
    Some(Dashed { quoted, span: is_tight.then_some(span) })
}
