//! Paths and what is asked of them.

use super::super::builtins::Query;
use super::super::hir::{Expr, ExprKind, PathName};
use super::super::nearest::{corrected, did_you_mean, some_of};
use super::super::types::{Kind, PlaceKind, Ty, Want, WordKind};
use super::Unit;
use crate::primitives;
use slapo_syntax::ast::{self, AstNode, LiteralKind};
use slapo_syntax::{Code, Diagnostic, Span, SyntaxToken};

impl Unit<'_, '_> {
    /// `.name`, `.{…}`, `.*`, `.**`
    pub(super) fn path(&mut self, expr: ast::Expr<'_>) -> Expr {
        let span = expr.span();
        match expr {
            ast::Expr::Field(field) => {
                let receiver = self.down(field.receiver(), span);
                let Some(name) = field.name() else { return Expr::error(span) };
                let is_optional = field.is_optional();
                let name = PathName { name: name.text().to_string(), is_optional, span: name.span() };
                let Ok(want) = self.fields(&receiver, std::slice::from_ref(&name)) else { return Expr::error(span) };
                let kind = want.map_or(PlaceKind::Either, |want| want.place_kind());
                let ty = match receiver.ty {
                    Ty::Place(_) if !is_optional => Ty::Place(kind),
                    Ty::Any => Ty::Any,
                    _ => Ty::Places(kind),
                };
                finish(receiver, span, ty, |receiver| ExprKind::Names(receiver, vec![name]))
            }
            ast::Expr::Brace(brace) => {
                let receiver = self.down(brace.receiver(), span);
                let names = brace.names().filter_map(|name| {
                    let word = name.name()?;
                    Some(PathName { name: word.text().to_string(), is_optional: name.is_optional(), span: word.span() })
                });
                let names: Vec<PathName> = names.collect();
                if names.is_empty() || self.fields(&receiver, &names).is_err() {
                    return Expr::error(span);
                }
                finish(receiver, span, Ty::Places(PlaceKind::Either), |receiver| ExprKind::Names(receiver, names))
            }
            ast::Expr::Star(star) => {
                let receiver = self.down(star.receiver(), span);
                finish(receiver, span, Ty::Places(PlaceKind::Module), ExprKind::Children)
            }
            ast::Expr::Globstar(globstar) => {
                let receiver = self.down(globstar.receiver(), span);
                finish(receiver, span, Ty::Places(PlaceKind::Module), ExprKind::Below)
            }
            _ => Expr::error(span),
        }
    }

    /// What a path goes down from.
    fn down(&mut self, receiver: Option<ast::Expr<'_>>, at: Span) -> Expr {
        let receiver = self.expr(receiver, at);
        match receiver.ty {
            Ty::Place(PlaceKind::Tensor) | Ty::Places(PlaceKind::Tensor) => {
                self.error(
                    Diagnostic::error(Code::BelowTensor, "a parameter has nothing below it")
                        .primary(receiver.span, "a parameter"),
                );
                Expr::error(receiver.span)
            }
            Ty::Place(_) | Ty::Places(_) | Ty::Any => receiver,
            _ => self.expect_type(receiver, |_| false, "a name after a dot is part of a module"),
        }
    }

    // ---- [ ]

    pub(super) fn index(&mut self, index: ast::Index<'_>) -> Expr {
        let span = index.span();
        let receiver = self.list_like(index.receiver(), span, |ty| *ty == Ty::Axis);
        let position = self.expr(index.index(), span);
        let position = match receiver.ty {
            Ty::Axis => self.expect_type(position, Ty::is_number, "a position is wanted"),
            _ => self.expect_type(position, |ty| ty.is_number() || *ty == Ty::Text, "a position or a name is wanted"),
        };
        if receiver.is_error() || position.is_error() {
            return Expr::error(span);
        }
        let by_name = position.ty == Ty::Text;
        let ty = match &receiver.ty {
            Ty::Place(_) if by_name => Ty::Place(PlaceKind::Either),
            Ty::Places(_) if by_name => Ty::Places(PlaceKind::Either),
            Ty::Place(_) => Ty::Place(PlaceKind::Module),
            Ty::Axis => Ty::Axis,
            ty => ty.element().unwrap_or(Ty::Any),
        };
        Expr { span, ty, kind: ExprKind::Index(Box::new(receiver), Box::new(position)) }
    }

    pub(super) fn slice(&mut self, slice: ast::Slice<'_>) -> Expr {
        let span = slice.span();
        let receiver = self.list_like(slice.receiver(), span, |_| false);
        let start = slice.start().map(|start| Box::new(self.number(Some(start), span)));
        let end = slice.end().map(|end| Box::new(self.number(Some(end), span)));
        let ty = match &receiver.ty {
            Ty::Place(_) => Ty::Places(PlaceKind::Module),
            ty => ty.clone(),
        };
        finish(receiver, span, ty, |receiver| ExprKind::Slice(receiver, start, end))
    }

    /// What `[ ]` picks from; `other` says what else will do.
    fn list_like(&mut self, receiver: Option<ast::Expr<'_>>, at: Span, other: fn(&Ty) -> bool) -> Expr {
        let receiver = self.expr(receiver, at);
        let fits = |ty: &Ty| {
            other(ty)
                || ty.element().is_some()
                || matches!(ty, Ty::Any | Ty::Place(PlaceKind::Module | PlaceKind::Either))
        };
        self.expect_type(receiver, fits, "`[ ]` picks from a list, a selection or the children of a module")
    }

    // ---- .word( )

    /// A dot-call whose value is used.
    pub(super) fn method_value(&mut self, method: ast::Method<'_>) -> Expr {
        let span = method.span();
        let Some(name) = method.name() else { return Expr::error(span) };
        match Query::find(name.text()) {
            Some(query) => self.query(query, method, name),
            None => {
                // The receiver's own mistakes are worth saying, whatever the word means.
                let receiver = self.expr(method.receiver(), span);
                match primitives::find(name.text()) {
                    Some(_) => self.no_value(name.text(), name.span(), "a primitive"),
                    None if receiver.is_error() => {}
                    None => self.unknown_primitive(name),
                }
                Expr::error(span)
            }
        }
    }

    pub(super) fn unknown_primitive(&mut self, name: SyntaxToken<'_>) {
        let known = primitives::ALL.iter().map(|primitive| primitive.name);
        let help = match self.names.callables.contains_key(name.text()) {
            true => Some(format!("`{0}` is a schedule: call it as `{0}(…)`", name.text())),
            false => did_you_mean(name.text(), known.clone().chain(Query::names())),
        };
        let diagnostic = Diagnostic::error(Code::UnknownPrimitive, format!("there is no primitive `{}`", name.text()))
            .primary(name.span(), "a word with parentheses after a dot belongs to the language");
        let diagnostic = help.into_iter().fold(diagnostic, Diagnostic::help);
        let diagnostic = corrected(diagnostic, name.span(), name.text(), known.clone().chain(Query::names()));
        self.error(diagnostic.help(format!(
            "primitives are {}; what can be asked of a path is {}",
            some_of(known),
            some_of(Query::names())
        )));
    }

    fn query(&mut self, query: Query, method: ast::Method<'_>, name: SyntaxToken<'_>) -> Expr {
        let span = method.span();
        let receiver = self.expr(method.receiver(), span);
        let args = match query {
            Query::Only | Query::Except | Query::Is => self.class_args(method.args()),
            _ => self.plain_args(query.name(), method.args()),
        };
        if receiver.is_error() || args.iter().any(Expr::is_error) {
            return Expr::error(span);
        }
        if !asked_of(query, &receiver.ty) {
            return self.wrong_receiver(query.name(), &receiver, receivers(query), name);
        }
        let (least, most) = match query {
            Query::Input | Query::Output => (0, 1),
            Query::Grad => (0, 0),
            Query::Size | Query::Expect | Query::Is | Query::Find => (1, 1),
            Query::Only | Query::Except => (1, usize::MAX),
        };
        if args.len() < least || args.len() > most {
            let bound = if args.len() < least { least } else { most };
            self.wrong_count(query.name(), span, bound, args.len());
            return Expr::error(span);
        }
        if let Some(wrong) = args.iter().find(|arg| !takes(query, &arg.ty)) {
            let message = format!("`{}` takes {}, not {}", query.name(), taken(query), wrong.ty);
            let diagnostic = Diagnostic::error(Code::WrongType, message).primary(wrong.span, wrong.ty.to_string());
            self.error(match query {
                Query::Find => diagnostic.help("declare one, `pattern gelu(x) = …`, or take one of `std.fusion`"),
                _ => diagnostic,
            });
            return Expr::error(span);
        }
        let ty = result(query, &receiver.ty);
        Expr { span, ty, kind: ExprKind::Query(query, Box::new(receiver), args) }
    }

    pub(super) fn wrong_receiver(&mut self, word: &str, receiver: &Expr, wanted: &str, name: SyntaxToken<'_>) -> Expr {
        let code = match (&receiver.ty, wanted) {
            (Ty::Places(_), "one parameter or buffer" | "one module") => Code::NeedsOne,
            _ => Code::WrongType,
        };
        let diagnostic = Diagnostic::error(code, format!("`{word}` is asked of {wanted}, not of {}", receiver.ty))
            .primary(receiver.span, receiver.ty.to_string())
            .secondary(name.span(), format!("wants {wanted}"));
        let help = match (&receiver.ty, word) {
            (Ty::Match | Ty::Matches, "input" | "output") => {
                Some("points lie on borders of modules: ask the module around the match for them")
            }
            (Ty::Pattern, _) => Some("a pattern is looked for in a module: `m.find(…)` gives its matches"),
            _ => None,
        };
        let diagnostic = help.into_iter().fold(diagnostic, Diagnostic::help);
        self.error(match wanted {
            _ if help.is_some() => diagnostic,
            "a match" => diagnostic.help("`module.find(pattern)` gives matches"),
            "a point" => diagnostic
                .help("points are `.input()` and `.output()` of a module, and `.grad()` of these and of parameters"),
            _ => diagnostic,
        });
        Expr::error(receiver.span.to(name.span()))
    }

    /// Arguments that may name classes and types: `.only(Linear)`, `.except(m.lm_head)`.
    fn class_args(&mut self, args: Option<ast::ArgList<'_>>) -> Vec<Expr> {
        let Some(args) = args else { return Vec::new() };
        let class = |arg: ast::Arg<'_>| match (arg.label(), arg.value()) {
            (None, Some(ast::Expr::Name(name))) => Some((name.text().to_string(), name.span(), false)),
            (None, Some(ast::Expr::Literal(literal))) => match literal.kind() {
                Some(LiteralKind::Str(text)) => Some((text.value(), text.span(), true)),
                _ => None,
            },
            _ => None,
        };
        let mut values = Vec::new();
        for arg in args.args() {
            match class(arg) {
                Some((name, span, is_quoted)) => values.push(self.class_or_name(&name, span, is_quoted)),
                None => values.push(self.expr(arg.value(), arg.span())),
            }
        }
        values
    }

    fn class_or_name(&mut self, name: &str, span: Span, is_quoted: bool) -> Expr {
        if !is_quoted && let Some(value) = self.visible(name, span) {
            return value;
        }
        let kind = match self.names.types.get(name) {
            _ if is_quoted => Kind::Class(name.to_string()),
            Some((want, declared)) => {
                self.resolver.read.insert(*declared);
                let is_part = matches!(want.kind, Kind::Module | Kind::Class(_) | Kind::Structure(_) | Kind::Tensor);
                if want.kind == Kind::Unknown {
                    return Expr::error(span);
                }
                if want.list || !is_part {
                    let message = format!("`{name}` is {want}: nothing of the model is one");
                    self.error(Diagnostic::error(Code::WrongType, message).primary(span, "no class"));
                    return Expr::error(span);
                }
                want.kind.clone()
            }
            None if name == "Module" => Kind::Module,
            None if name == "param" => Kind::Tensor,
            None if self.is_excused(name) => return Expr::error(span),
            None => Kind::Class(name.to_string()),
        };
        Expr { span, ty: Ty::Class, kind: ExprKind::Class(Want::one(kind)) }
    }
}

/// A path step on a receiver, unless that was wrong.
fn finish(receiver: Expr, span: Span, ty: Ty, kind: impl FnOnce(Box<Expr>) -> ExprKind) -> Expr {
    match receiver.is_error() {
        true => Expr::error(span),
        false => Expr { span, ty, kind: kind(Box::new(receiver)) },
    }
}

fn asked_of(query: Query, ty: &Ty) -> bool {
    let is_tensor = matches!(ty, Ty::Place(PlaceKind::Tensor) | Ty::Places(PlaceKind::Tensor));
    let is_module = matches!(ty, Ty::Place(PlaceKind::Module) | Ty::Places(PlaceKind::Module));
    match (query, ty) {
        (_, Ty::Any) => true,
        (Query::Input | Query::Output | Query::Find, Ty::Place(_) | Ty::Places(_)) => !is_tensor,
        (Query::Grad, Ty::Place(_) | Ty::Places(_)) => !is_module,
        (Query::Grad, Ty::Point | Ty::Points) => true,
        (Query::Size, Ty::Place(_)) => !is_module,
        (Query::Is, Ty::Place(_)) => true,
        (Query::Only | Query::Except | Query::Expect, Ty::Places(_)) => true,
        (Query::Only | Query::Except | Query::Expect, Ty::Place(_)) => !is_tensor,
        (Query::Expect, Ty::Points | Ty::Matches | Ty::List(_)) => true,
        _ => false,
    }
}

fn receivers(query: Query) -> &'static str {
    match query {
        Query::Input | Query::Output | Query::Find => "modules",
        Query::Grad => "points and parameters",
        Query::Size => "one parameter or buffer",
        Query::Is => "one module",
        Query::Only | Query::Except | Query::Expect => "a selection",
    }
}

fn takes(query: Query, ty: &Ty) -> bool {
    match query {
        Query::Input | Query::Output => ty.is_number() || *ty == Ty::Text,
        Query::Size => ty.is_number() || *ty == Ty::Word(WordKind::Dim),
        Query::Expect => ty.is_number(),
        Query::Is => matches!(ty, Ty::Class | Ty::Any),
        Query::Only | Query::Except => matches!(ty, Ty::Class | Ty::Any | Ty::Place(_) | Ty::Places(_)),
        Query::Find => matches!(ty, Ty::Pattern | Ty::Any),
        Query::Grad => false,
    }
}

fn taken(query: Query) -> &'static str {
    match query {
        Query::Input | Query::Output => "the number or the name of a port",
        Query::Size => "a dimension: its role or its number",
        Query::Expect => "a number of elements",
        Query::Is => "a class",
        Query::Find => "a pattern",
        Query::Only | Query::Except => "classes and selections",
        Query::Grad => "nothing",
    }
}

fn result(query: Query, receiver: &Ty) -> Ty {
    match query {
        Query::Input | Query::Output | Query::Grad if receiver.is_selection() => Ty::Points,
        Query::Input | Query::Output | Query::Grad => Ty::Point,
        Query::Size => Ty::Number,
        Query::Is => Ty::Bool,
        Query::Find => Ty::Matches,
        Query::Only | Query::Except | Query::Expect => match receiver {
            Ty::Place(_) => Ty::Places(PlaceKind::Module),
            other => other.clone(),
        },
    }
}
