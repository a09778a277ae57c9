//! Calls of primitives and schedules, and how arguments find their parameters.

use super::super::builtins::{self, Function, Query, WORDS};
use super::super::hir::{Call, Callee, Expr, ExprKind, Param};
use super::super::nearest::{corrected, did_you_mean, listed, some_of};
use super::super::types::{Kind, PlaceKind, Ty, Want, WordKind};
use super::Unit;
use crate::primitives::{self, Primitive, Receiver};
use slapo_syntax::ast::{self, AstNode};
use slapo_syntax::{Code, Diagnostic, Span, SyntaxToken};

/// A parameter of whatever is called.
struct Formal<'p> {
    name: &'p str,
    want: &'p Want,
    is_optional: bool,
}

impl Unit<'_, '_> {
    /// An expression that stands alone: it must be a call that changes something.
    pub(super) fn call_stmt(&mut self, expr: ast::Expr<'_>, is_tried: bool) -> Option<Call> {
        match expr {
            ast::Expr::Paren(paren) => self.call_stmt(paren.inner()?, is_tried),
            ast::Expr::Error(_) => None,
            ast::Expr::Call(call) if call.name().is_some_and(|name| Function::find(name.text()).is_none()) => {
                self.schedule_call(call)
            }
            ast::Expr::Method(method) if method.name().is_some_and(|name| Query::find(name.text()).is_none()) => {
                self.primitive_call(method)
            }
            other => {
                let value = self.expr(Some(other), other.span());
                if !value.is_error() {
                    self.does_nothing(&value, is_tried);
                }
                None
            }
        }
    }

    fn does_nothing(&mut self, value: &Expr, is_tried: bool) {
        let help = match value.ty {
            _ if is_tried => "only a primitive or a schedule can be tried".to_string(),
            Ty::Matches | Ty::Match => {
                let is_one = |receiver: Receiver| matches!(receiver, Receiver::ModuleOrMatch | Receiver::Match);
                let takes = primitives::ALL.iter().filter(|primitive| is_one(primitive.receiver));
                format!("ask something of it: {}", some_of(takes.map(|primitive| primitive.name)))
            }
            Ty::Place(_) | Ty::Places(_) => {
                let known = primitives::ALL.iter().map(|primitive| primitive.name);
                format!("ask something of it: {}", some_of(known))
            }
            _ => "give it a name with `let`, or leave the line away".to_string(),
        };
        self.error(
            Diagnostic::error(Code::DoesNothing, "this line does nothing")
                .primary(value.span, format!("only {}", value.ty))
                .help(help),
        );
    }

    fn schedule_call(&mut self, call: ast::Call<'_>) -> Option<Call> {
        let name = call.name()?;
        let Some((id, known)) = self.names.callables.get(name.text()).copied() else {
            for arg in call.args().into_iter().flat_map(ast::ArgList::args) {
                self.expr(arg.value(), arg.span());
            }
            self.unknown_callable(name.text(), name.span());
            return None;
        };
        self.resolver.read.insert(known);
        if self.resolver.hir.schedule(id).has_broken_head {
            for arg in call.args().into_iter().flat_map(ast::ArgList::args) {
                self.expr(arg.value(), arg.span());
            }
            return None;
        }
        if let Some(caller) = self.current {
            self.resolver.calls.push((caller, id, call.span()));
        }
        let declared = self.resolver.hir.schedule(id).name_span;
        let params: Vec<Param> = self.resolver.hir.schedule(id).params.clone();
        let formals: Vec<Formal> = params
            .iter()
            .map(|param| Formal { name: &param.name, want: &param.want, is_optional: param.default.is_some() })
            .collect();
        let args = self.arguments(name.text(), call.span(), Some(declared), &formals, call.args())?;
        if !self.one_selection(&formals, &args, None) {
            return None;
        }
        Some(Call { span: call.span(), callee: Callee::Schedule(id), args })
    }

    fn primitive_call(&mut self, method: ast::Method<'_>) -> Option<Call> {
        let name = method.name()?;
        let receiver = self.expr(method.receiver(), method.span());
        let Some(primitive) = primitives::find(name.text()) else {
            for arg in method.args().into_iter().flat_map(ast::ArgList::args) {
                self.expr(arg.value(), arg.span());
            }
            if !receiver.is_error() {
                self.unknown_primitive(name);
            }
            return None;
        };
        let formals: Vec<Formal> = primitive
            .params
            .iter()
            .map(|param| Formal { name: param.name, want: &param.want, is_optional: param.default.is_some() })
            .collect();
        let args = self.arguments(primitive.name, method.span(), None, &formals, method.args());
        let receiver = self.receiver(primitive, receiver, name);
        let args = args?;
        if !self.one_selection(&formals, &args, Some(&receiver)) {
            return None;
        }
        Some(Call { span: method.span(), callee: Callee::Primitive { primitive, receiver }, args })
    }

    /// `reduce_scatter(seq, groups: 3)`, as an argument.
    pub(super) fn shaped(&mut self, word: u32, formals: &'static [builtins::Formal], call: ast::Call<'_>) -> Expr {
        let formals: Vec<Formal> = formals
            .iter()
            .map(|formal| Formal { name: formal.name, want: &formal.want, is_optional: formal.is_optional })
            .collect();
        let span = call.span();
        let (name, kind) = WORDS.get(word as usize).map_or(("", WordKind::Collective), |word| (word.name, word.kind));
        match self.arguments(name, span, None, &formals, call.args()) {
            Some(args) => Expr { span, ty: Ty::Word(kind), kind: ExprKind::Shaped(word, args) },
            None => Expr::error(span),
        }
    }

    fn receiver(&mut self, primitive: &Primitive, receiver: Expr, name: SyntaxToken<'_>) -> Expr {
        let fits = match &receiver.ty {
            Ty::Any => true,
            Ty::Place(kind) | Ty::Places(kind) => match primitive.receiver {
                Receiver::Module | Receiver::ModuleOrMatch => *kind != PlaceKind::Tensor,
                Receiver::Parameter | Receiver::PointOrParameter => *kind != PlaceKind::Module,
                Receiver::ModuleOrParameter | Receiver::Any => true,
                Receiver::Point | Receiver::Match => false,
            },
            Ty::Match | Ty::Matches => matches!(primitive.receiver, Receiver::ModuleOrMatch | Receiver::Match),
            Ty::Point | Ty::Points => primitive.receiver.takes_points(),
            _ => false,
        };
        match fits {
            true => receiver,
            false => self.wrong_receiver(primitive.name, &receiver, &primitive.receiver.to_string(), name),
        }
    }

    /// A value given where `want` is declared.
    pub(super) fn given(&mut self, want: &Want, value: Option<ast::Expr<'_>>, at: Span, name: &str) -> Expr {
        match want.kind {
            Kind::Operator => return self.operator(value, at, name),
            Kind::Replacement => return self.replacement(value, at, name),
            Kind::Weights | Kind::Ports => return self.pairs(want, value, at, name),
            _ => {}
        }
        if let Some(word) = value.and_then(bare_word)
            && self.unknown_word(want, word, name)
        {
            return Expr::error(word.span());
        }
        let value = self.expr(value, at);
        if want.accepts(&value.ty) {
            return if self.covers(want, &value) { value } else { Expr::error(value.span) };
        }
        let message = format!("`{name}` takes {want}, not {}", value.ty);
        self.error(Diagnostic::error(Code::WrongType, message).primary(value.span, value.ty.to_string()));
        Expr::error(value.span)
    }

    /// Says that a name which means nothing stands where words of the language are wanted.
    fn unknown_word(&mut self, want: &Want, name: SyntaxToken<'_>, argument: &str) -> bool {
        let Some(kind) = want.kind.words() else { return false };
        let text = name.text();
        let is_known = self.visible(text, name.span()).is_some()
            || self.is_excused(text)
            || self.names.later.contains_key(text)
            || self.names.callables.contains_key(text)
            || Function::find(text).is_some();
        if is_known {
            return false;
        }
        let legal: Vec<&str> = WORDS.iter().filter(|word| word.kind == kind).map(|word| word.name).collect();
        let near = self.locals.iter().map(|local| local.name.as_str()).chain(legal.iter().copied());
        let help = did_you_mean(text, near).unwrap_or_else(|| format!("legal here are {}", listed(&legal, "and")));
        let diagnostic = Diagnostic::error(Code::UnknownName, format!("there is no `{text}` here"))
            .primary(name.span(), format!("`{argument}` takes {want}"))
            .help(help);
        self.error(corrected(diagnostic, name.span(), text, legal));
        true
    }

    /// Arguments by the parameters they are for; `None` where they do not fit them. A value of the wrong type is an error
    /// value. Each mistake is said once.
    fn arguments(
        &mut self,
        callee: &str,
        call: Span,
        declared: Option<Span>,
        formals: &[Formal],
        args: Option<ast::ArgList<'_>>,
    ) -> Option<Vec<Option<Expr>>> {
        let mut values: Vec<Option<Expr>> = formals.iter().map(|_| None).collect();
        let mut is_broken = false;
        let mut next = 0;
        for arg in args.into_iter().flat_map(ast::ArgList::args) {
            let at = match arg.label() {
                Some(label) => self.labelled(callee, label, formals),
                None => {
                    next += 1;
                    self.positional(callee, next - 1, arg, formals, declared)
                }
            };
            let Some(at) = at else {
                is_broken = true;
                self.expr(arg.value(), arg.span());
                continue;
            };
            let value = self.given(formals[at].want, arg.value(), arg.span(), formals[at].name);
            if let Some(first) = &values[at] {
                is_broken = true;
                self.error(
                    Diagnostic::error(Code::RepeatedArgument, format!("`{}` is given twice", formals[at].name))
                        .primary(arg.span(), "for the second time")
                        .secondary(first.span, "first here"),
                );
            } else {
                values[at] = Some(value);
            }
        }
        if is_broken {
            return None;
        }
        let given = formals.iter().zip(&values);
        let missing: Vec<&Formal> =
            given.filter(|(f, value)| value.is_none() && !f.is_optional).map(|(f, _)| f).collect();
        if !missing.is_empty() {
            self.missing(callee, call, declared, missing);
            return None;
        }
        Some(values)
    }

    fn labelled(&mut self, callee: &str, label: SyntaxToken<'_>, formals: &[Formal]) -> Option<usize> {
        let at = formals.iter().position(|formal| formal.name == label.text());
        if at.is_none() {
            let names = formals.iter().map(|formal| formal.name);
            let help = did_you_mean(label.text(), names.clone()).unwrap_or_else(|| match formals.is_empty() {
                true => "it takes no arguments".to_string(),
                false => format!("its arguments are {}", some_of(names)),
            });
            let diagnostic =
                Diagnostic::error(Code::UnknownArgument, format!("`{callee}` has no argument `{}`", label.text()))
                    .primary(label.span(), "unknown argument")
                    .help(help);
            self.error(corrected(diagnostic, label.span(), label.text(), formals.iter().map(|formal| formal.name)));
        }
        at
    }

    fn positional(
        &mut self,
        callee: &str,
        at: usize,
        arg: ast::Arg<'_>,
        formals: &[Formal],
        declared: Option<Span>,
    ) -> Option<usize> {
        if at < formals.len() {
            return Some(at);
        }
        // One message for all that are too many.
        if at == formals.len() {
            let message = match formals.len() {
                0 => format!("`{callee}` takes no arguments"),
                1 => format!("`{callee}` takes 1 argument"),
                count => format!("`{callee}` takes {count} arguments"),
            };
            let diagnostic = Diagnostic::error(Code::TooManyArguments, message).primary(arg.span(), "too many");
            self.error(
                declared.into_iter().fold(diagnostic, |diagnostic, span| diagnostic.secondary(span, "declared here")),
            );
        }
        None
    }

    fn missing(&mut self, callee: &str, call: Span, declared: Option<Span>, missing: Vec<&Formal>) {
        let names = some_of(missing.iter().map(|formal| formal.name));
        let wants: Vec<String> =
            missing.iter().map(|formal| format!("`{}: …` ({})", formal.name, formal.want)).collect();
        let diagnostic = Diagnostic::error(Code::MissingArgument, format!("`{callee}` is called without {names}"))
            .primary(call, "an argument is missing")
            .help(format!("give {}", wants.join(" and ")));
        self.error(
            declared.into_iter().fold(diagnostic, |diagnostic, span| diagnostic.secondary(span, "declared here")),
        );
    }

    /// A call runs once per element of one selection; of two it could mean pairs or every combination.
    fn one_selection(&mut self, formals: &[Formal], args: &[Option<Expr>], receiver: Option<&Expr>) -> bool {
        let spread = formals.iter().zip(args).filter_map(|(formal, arg)| {
            let arg = arg.as_ref()?;
            formal.want.spreads(&arg.ty).then_some(arg)
        });
        let receiver = receiver.filter(|receiver| receiver.ty.is_selection());
        let mut all = receiver.into_iter().chain(spread);
        let (Some(first), Some(second)) = (all.next(), all.next()) else { return true };
        self.error(
            Diagnostic::error(Code::TwoSelections, "two selections in one call")
                .primary(second.span, "a selection")
                .secondary(first.span, "a selection")
                .help("a call runs once per element of one selection: write the other as a loop"),
        );
        false
    }
}

/// The name of `reduce`, or of `reduce(seq)`.
fn bare_word(value: ast::Expr<'_>) -> Option<SyntaxToken<'_>> {
    match value {
        ast::Expr::Name(name) => name.syntax().first_token(),
        ast::Expr::Call(call) => call.name(),
        _ => None,
    }
}
