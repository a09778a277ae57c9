//! Calls whose value is used: pure functions.

use super::super::builtins::{Function, find_word, shaped};
use super::super::hir::{Expr, ExprKind};
use super::super::nearest::{corrected, did_you_mean, some_of};
use super::super::types::{PlaceKind, Ty};
use super::Unit;
use slapo_syntax::ast::{self, AstNode};
use slapo_syntax::{Code, Diagnostic, Fix, Span};

impl Unit<'_, '_> {
    pub(super) fn function(&mut self, call: ast::Call<'_>) -> Expr {
        let span = call.span();
        let Some(name) = call.name() else { return Expr::error(span) };
        let Some(function) = Function::find(name.text()) else {
            if let (Some(word), Some(formals)) = (find_word(name.text()), shaped(name.text())) {
                return self.shaped(word as u32, formals, call);
            }
            if self.names.callables.contains_key(name.text()) {
                self.no_value(name.text(), span, "a schedule");
            } else {
                self.unknown_callable(name.text(), name.span());
            }
            return Expr::error(span);
        };
        let args = self.plain_args(function.name(), call.args());
        let count = function.params().len();
        if args.len() < count || args.len() > count && !function.is_variadic() {
            self.wrong_count(function.name(), span, count, args.len());
            return Expr::error(span);
        }
        let ty = match function {
            Function::Len => self.len_type(&args[0]),
            Function::Choose => self.choose_type(&args),
            _ => {
                let wrong = args.iter().find(|arg| !arg.ty.is_number());
                wrong.map_or(Some(Ty::Number), |wrong| self.wrong_operand(function, wrong))
            }
        };
        match ty {
            Some(ty) => Expr { span, ty, kind: ExprKind::Function(function, args) },
            None => Expr::error(span),
        }
    }

    fn wrong_operand(&mut self, function: Function, arg: &Expr) -> Option<Ty> {
        self.error(
            Diagnostic::error(Code::WrongType, format!("`{}` takes numbers, not {}", function.name(), arg.ty))
                .primary(arg.span, arg.ty.to_string()),
        );
        None
    }

    fn len_type(&mut self, arg: &Expr) -> Option<Ty> {
        let is_list = arg.ty.element().is_some();
        if is_list || matches!(arg.ty, Ty::Any | Ty::Place(PlaceKind::Module | PlaceKind::Either)) {
            return Some(Ty::Number);
        }
        self.error(
            Diagnostic::error(
                Code::WrongType,
                format!("`len` counts the elements of a list, a selection or a module, not of {}", arg.ty),
            )
            .primary(arg.span, arg.ty.to_string()),
        );
        None
    }

    fn choose_type(&mut self, args: &[Expr]) -> Option<Ty> {
        let [condition, yes, no] = args else { return None };
        if !condition.ty.is_bool() {
            self.error(
                Diagnostic::error(
                    Code::WrongType,
                    format!("`choose` begins with a condition, not with {}", condition.ty),
                )
                .primary(condition.span, condition.ty.to_string()),
            );
            return None;
        }
        let joined = yes.ty.join(&no.ty);
        if joined.is_none() {
            self.error(
                Diagnostic::error(Code::WrongType, format!("`choose` would give {} or {}", yes.ty, no.ty))
                    .primary(no.span, no.ty.to_string())
                    .secondary(yes.span, yes.ty.to_string()),
            );
        }
        joined
    }

    /// The arguments of something that names none of them.
    pub(super) fn plain_args(&mut self, callee: &str, args: Option<ast::ArgList<'_>>) -> Vec<Expr> {
        let mut plain = Vec::new();
        for arg in args.into_iter().flat_map(ast::ArgList::args) {
            let value = self.expr(arg.value(), arg.span());
            match arg.label() {
                Some(label) => {
                    self.error(
                        Diagnostic::error(
                            Code::UnknownArgument,
                            format!("`{callee}` has no argument `{}`", label.text()),
                        )
                        .primary(label.span(), "its arguments have no names")
                        .help("leave the name away"),
                    );
                    plain.push(Expr::error(arg.span()));
                }
                None => plain.push(value),
            }
        }
        plain
    }

    pub(super) fn wrong_count(&mut self, callee: &str, span: Span, wanted: usize, given: usize) {
        let code = if given < wanted { Code::MissingArgument } else { Code::TooManyArguments };
        let plural = if wanted == 1 { "" } else { "s" };
        let message = match wanted {
            0 => format!("`{callee}` takes no arguments"),
            _ => format!("`{callee}` takes {wanted} argument{plural}, not {given}"),
        };
        self.error(Diagnostic::error(code, message).primary(span, format!("{given} given")));
    }

    pub(super) fn unknown_callable(&mut self, name: &str, span: Span) {
        if self.is_excused(name) {
            return;
        }
        let diagnostic = Diagnostic::error(Code::UnknownCallable, format!("there is no schedule or function `{name}`"))
            .primary(span, "unknown");
        let diagnostic = match library_module_of(name) {
            Some(module) => {
                let import = format!("use std.{module}.{name}");
                let diagnostic = diagnostic.help(format!("it is in the library: `{import}`"));
                match self.imports {
                    Some(at) => diagnostic.fix(Fix::safe(format!("add `{import}`")).insert(at, format!("{import}\n"))),
                    None => diagnostic,
                }
            }
            None if crate::primitives::find(name).is_some() => {
                diagnostic.help(format!("`{name}` is asked of a part of the model: `m.{name}(…)`"))
            }
            None => {
                let mut known: Vec<&str> = self.names.callables.keys().map(String::as_str).collect();
                Function::names().for_each(|name| known.push(name));
                let help = did_you_mean(name, known.iter().copied());
                let diagnostic = corrected(diagnostic, span, name, known.iter().copied());
                diagnostic.help(help.unwrap_or_else(|| format!("known here are {}", some_of(&known))))
            }
        };
        self.error(diagnostic);
    }

    pub(super) fn no_value(&mut self, name: &str, span: Span, what: &str) {
        self.error(
            Diagnostic::error(Code::NoValue, format!("`{name}` gives no value"))
                .primary(span, format!("{what} changes the model; it stands on a line of its own")),
        );
    }
}

/// The library module that has a schedule of this name.
pub(super) fn library_module_of(name: &str) -> Option<&'static str> {
    let head = format!("\nschedule {name}(");
    slapo_stdlib::names().find(|module| slapo_stdlib::module(module).is_some_and(|text| text.contains(&head)))
}
