//! Patterns: their expressions as terms over operators.
//!
//! Numbers are folded; what names a tensor of the pattern becomes an operator. A pattern with optional operands is
//! resolved once per choice of those that are absent: an operator of two operands that loses one is the other, and one
//! that loses an attribute it cannot be without is its operand. A pattern that is called inside another is written out.

use super::super::nearest::{did_you_mean, some_of};
use super::{Named, Unit};
use crate::patterns::operators::{self, Given, Operator, Slot, SlotKind};
use crate::patterns::{Param, Pattern, Term, TermId, Variant};
use slapo_syntax::ast::{self, AstNode, BinaryOp, LiteralKind, PrefixOp, TypeRef};
use slapo_syntax::{Code, Diagnostic, Span, SyntaxToken};
use std::sync::Arc;

/// Each doubles the number of variants.
const MOST_OPTIONAL: usize = 4;
/// Terms of one pattern: more than any kernel fuses, and few enough for search.
const MOST_TERMS: usize = 200;

/// What an expression of a pattern is.
#[derive(Clone, Debug)]
enum Part {
    Term(TermId),
    Number(f64),
    Other(Given),
    /// An optional operand that is absent in this variant, or what disappeared with it.
    Absent,
}

/// A mistake, to be reported once for all variants.
type Made<T> = Result<T, Box<Diagnostic>>;

impl Unit<'_, '_> {
    /// The pattern that an item declares, if it is sound.
    pub(super) fn resolved_pattern(&mut self, item: ast::Pattern<'_>) -> Option<Arc<Pattern>> {
        let name = item.name()?.text().to_string();
        let (params, body) = (self.pattern_params(item)?, item.body()?);
        let optional: Vec<usize> = (0..params.len()).filter(|at| params[*at].is_optional).collect();
        let mut variants = Vec::new();
        for absent in 0..1_usize << optional.len() {
            let is_absent =
                |at: usize| optional.iter().position(|known| *known == at).is_some_and(|bit| absent >> bit & 1 == 1);
            let variant = Variant::default();
            let mut build = Build { unit: self, params: &params, absent: &is_absent, variant, is_said: false };
            match build.results(body) {
                Ok(()) => variants.push(build.variant),
                Err(diagnostic) => {
                    if !build.is_said {
                        self.error(*diagnostic);
                    }
                    return None;
                }
            }
        }
        let unused = params.iter().enumerate().find(|(at, _)| !variants[0].terms.contains(&Term::Param(*at)));
        if let Some((_, param)) = unused {
            let span = item.params().map_or(item.span(), |params| params.span());
            let message = format!("`{name}` does not use its parameter `{}`", param.name);
            self.error(Diagnostic::error(Code::BadPattern, message).primary(span, "stands for nothing"));
            return None;
        }
        Some(Arc::new(Pattern { name, params, variants }))
    }

    /// The names of the patterns that another one may call.
    fn patterns(&self) -> impl Iterator<Item = &str> {
        let patterns = self.names.values.iter().filter(|(_, (named, _))| matches!(named, Named::Pattern(_)));
        patterns.map(|(name, _)| name.as_str())
    }

    fn pattern_params(&mut self, item: ast::Pattern<'_>) -> Option<Vec<Param>> {
        let mut params: Vec<Param> = Vec::new();
        for param in item.params().into_iter().flat_map(ast::ParamList::params) {
            let name = param.name()?;
            if params.iter().any(|known| known.name == name.text()) {
                let message = format!("`{}` is declared twice", name.text());
                self.error(Diagnostic::error(Code::NameTaken, message).primary(name.span(), "for the second time"));
                return None;
            }
            let is_number = match param.ty() {
                None => false,
                Some(TypeRef::Named(ty)) if ty.name().is_some_and(|ty| ty.text() == "float") => true,
                Some(ty) => {
                    let diagnostic =
                        Diagnostic::error(Code::BadPattern, "a parameter of a pattern is a tensor or a number")
                            .primary(ty.syntax().span(), "neither")
                            .help(format!("write `{0}` for a tensor, `{0}: float` for a number", name.text()));
                    self.error(diagnostic);
                    return None;
                }
            };
            if let Some(default) = param.default() {
                let diagnostic = Diagnostic::error(Code::BadPattern, "a parameter of a pattern has no default")
                    .primary(default.span(), "a default")
                    .help("what a parameter stands for is found in the model");
                self.error(diagnostic);
                return None;
            }
            params.push(Param { name: name.text().to_string(), is_number, is_optional: param.is_optional() });
        }
        if params.iter().filter(|param| param.is_optional).count() > MOST_OPTIONAL {
            let message = format!("a pattern has at most {MOST_OPTIONAL} optional operands");
            self.error(Diagnostic::error(Code::BadPattern, message).primary(item.params()?.span(), "too many"));
            return None;
        }
        Some(params)
    }
}

struct Build<'p, 'a, 'f> {
    unit: &'p mut Unit<'a, 'f>,
    params: &'p [Param],
    absent: &'p dyn Fn(usize) -> bool,
    variant: Variant,
    /// What is wrong was said already, of a pattern that is called.
    is_said: bool,
}

impl Build<'_, '_, '_> {
    fn results(&mut self, body: ast::Expr<'_>) -> Made<()> {
        let results: Vec<ast::Expr> = match body {
            ast::Expr::List(list) => list.elements().collect(),
            one => vec![one],
        };
        for result in results {
            let span = result.span();
            match self.part(result)? {
                Part::Term(term) if matches!(self.variant.terms[term], Term::Apply(..)) => {
                    self.variant.results.push(term);
                }
                _ => return Err(wrong(span, "a result of a pattern is computed by an operator", "no operator")),
            }
        }
        match self.variant.results.is_empty() {
            true => Err(wrong(body.span(), "a pattern has a result", "an empty list")),
            false => Ok(()),
        }
    }

    fn part(&mut self, expr: ast::Expr<'_>) -> Made<Part> {
        let span = expr.span();
        if self.variant.terms.len() > MOST_TERMS {
            return Err(too_many(span));
        }
        match expr {
            ast::Expr::Paren(paren) => match paren.inner() {
                Some(inner) => self.part(inner),
                None => Ok(Part::Absent),
            },
            ast::Expr::Name(name) => self.name(name.text(), span),
            ast::Expr::Literal(literal) => literal_part(literal, span),
            ast::Expr::List(list) => dims(list),
            ast::Expr::Prefix(prefix) if prefix.op() == Some(PrefixOp::Neg) => {
                let Some(operand) = prefix.operand() else { return Ok(Part::Absent) };
                match self.part(operand)? {
                    Part::Number(number) => Ok(Part::Number(-number)),
                    operand => self.apply("neg", vec![(operand, span)], span),
                }
            }
            ast::Expr::Binary(binary) => self.binary(binary, span),
            ast::Expr::Call(call) => self.call(call, span),
            ast::Expr::Error(_) => Err(wrong(span, "this is no pattern", "not understood")),
            _ => {
                let diagnostic =
                    wrong(span, "a pattern is made of operators, numbers and its own parameters", "something else");
                Err(Box::new(diagnostic.help("what a path leads to is found by `m.….find(…)`")))
            }
        }
    }

    fn name(&mut self, name: &str, span: Span) -> Made<Part> {
        if let Some(at) = self.params.iter().position(|param| param.name == name) {
            return Ok(match (self.absent)(at) {
                true => Part::Absent,
                false => Part::Term(self.variant.term(Term::Param(at))),
            });
        }
        if name == "pi" {
            return Ok(Part::Number(std::f64::consts::PI));
        }
        let diagnostic = Diagnostic::error(Code::UnknownName, format!("the pattern has no parameter `{name}`"))
            .primary(span, "unknown name");
        let help = match operators::find(name) {
            Some(_) => format!("an operator takes its operands in parentheses: `{name}(…)`"),
            None => did_you_mean(name, self.params.iter().map(|param| param.name.as_str()))
                .unwrap_or_else(|| "a pattern knows its own parameters, operators and `pi`".to_string()),
        };
        Err(Box::new(diagnostic.help(help)))
    }

    fn binary(&mut self, binary: ast::Binary<'_>, span: Span) -> Made<Part> {
        let (Some(left), Some(op), Some(right)) = (binary.left(), binary.op(), binary.right()) else {
            return Ok(Part::Absent);
        };
        let (name, fold): (&str, fn(f64, f64) -> f64) = match op {
            BinaryOp::Add => ("add", |a, b| a + b),
            BinaryOp::Sub => ("sub", |a, b| a - b),
            BinaryOp::Mul => ("mul", |a, b| a * b),
            BinaryOp::Div => ("div", |a, b| a / b),
            BinaryOp::Pow => ("pow", f64::powf),
            _ => {
                let message = format!("a pattern has no operator `{}`", op.symbol());
                let diagnostic = wrong(span, &message, "not an operator on tensors");
                return Err(Box::new(diagnostic.help("between operands stand `+`, `-`, `*`, `/` and `^`")));
            }
        };
        let (left, right) = ((self.part(left)?, left.span()), (self.part(right)?, right.span()));
        match (&left.0, &right.0) {
            (Part::Number(a), Part::Number(b)) => Ok(Part::Number(fold(*a, *b))),
            // Without one operand, the operator is the other.
            (Part::Absent, _) => Ok(right.0),
            (_, Part::Absent) => Ok(left.0),
            _ => self.apply(name, vec![left, right], span),
        }
    }

    fn call(&mut self, call: ast::Call<'_>, span: Span) -> Made<Part> {
        let Some(name) = call.name() else { return Ok(Part::Absent) };
        let Some(operator) = operators::find(name.text()) else {
            let pattern = self.called(name)?;
            return self.inlined(&pattern, call, span);
        };
        let names: Vec<&str> = operator.slots.iter().map(|slot| slot.name).collect();
        let parts = self.arguments(operator.name, &names, operator.listed(), call)?;
        if let (["x"], [Some((Part::Number(number), _))]) = (names.as_slice(), parts.as_slice()) {
            return fold(operator.name, *number, span);
        }
        let missing = operator.slots.iter().zip(&parts).find(|(slot, part)| part.is_none() && slot.default.is_none());
        if let Some((slot, _)) = missing {
            let message = format!("`{}` is given no `{}`", operator.name, slot.name);
            let diagnostic = Diagnostic::error(Code::MissingArgument, message).primary(span, "an operand is missing");
            return Err(Box::new(diagnostic.help(format!("its operands are {}", some_of(names)))));
        }
        self.filled(operator, parts, span)
    }

    /// What a call gives for each of `names`. Of the first `listed` the operands may stand in a list: `cat([a, b])`.
    fn arguments(
        &mut self,
        callee: &str,
        names: &[&str],
        listed: usize,
        call: ast::Call<'_>,
    ) -> Made<Vec<Option<(Part, Span)>>> {
        let mut parts: Vec<Option<(Part, Span)>> = names.iter().map(|_| None).collect();
        let mut next = 0;
        for arg in call.args().into_iter().flat_map(ast::ArgList::args) {
            let Some(value) = arg.value() else {
                return Err(wrong(arg.span(), "this is no pattern", "not understood"));
            };
            let (mut at, mut values) = (next, vec![value]);
            match (arg.label(), value) {
                (Some(label), _) => at = position(callee, names, label.text(), label.span())?,
                (None, ast::Expr::List(list)) if at < listed => {
                    values = list.elements().collect();
                    next += values.len();
                    if values.len() != listed {
                        let message = format!("`{callee}` takes a list of {listed} tensors");
                        return Err(wrong(list.span(), &message, &format!("a list of {}", values.len())));
                    }
                }
                (None, _) => next += 1,
            }
            for value in values {
                let Some(name) = names.get(at) else {
                    let message = match names.len() {
                        1 => format!("`{callee}` takes 1 argument"),
                        count => format!("`{callee}` takes {count} arguments"),
                    };
                    return Err(Box::new(
                        Diagnostic::error(Code::TooManyArguments, message).primary(arg.span(), "too many"),
                    ));
                };
                if parts[at].is_some() {
                    let message = format!("`{name}` is given twice");
                    return Err(Box::new(
                        Diagnostic::error(Code::RepeatedArgument, message).primary(arg.span(), "for the second time"),
                    ));
                }
                parts[at] = Some((self.part(value)?, value.span()));
                at += 1;
            }
        }
        Ok(parts)
    }

    /// The pattern of that name, which stands above or was imported.
    fn called(&mut self, name: SyntaxToken<'_>) -> Made<Arc<Pattern>> {
        if let Some((Named::Pattern(pattern), declared)) = self.unit.names.values.get(name.text()).copied() {
            self.unit.resolver.read.insert(declared);
            let known = pattern.map(|at| self.unit.resolver.hir.patterns[at as usize].clone());
            self.is_said = known.is_none();
            return known.ok_or_else(|| wrong(name.span(), "a pattern with a mistake is called", "is not known"));
        }
        match self.unit.names.later.get(name.text()) {
            Some(below) => Err(Box::new(
                Diagnostic::error(Code::UsedBefore, format!("`{}` is declared further below", name.text()))
                    .primary(name.span(), "used here")
                    .secondary(*below, "declared here")
                    .help("move the declaration up"),
            )),
            None => Err(self.unknown_operator(name)),
        }
    }

    fn unknown_operator(&self, name: SyntaxToken<'_>) -> Box<Diagnostic> {
        let diagnostic =
            Diagnostic::error(Code::UnknownCallable, format!("there is no operator or pattern `{}`", name.text()))
                .primary(name.span(), "unknown operator");
        let patterns: Vec<&str> = self.unit.patterns().collect();
        let help = did_you_mean(name.text(), operators::names())
            .or_else(|| did_you_mean(name.text(), patterns.iter().copied()))
            .unwrap_or_else(|| format!("operators are {}", some_of(operators::names())));
        Box::new(diagnostic.help(help))
    }

    /// The expression of another pattern, with what is given in place of its parameters.
    fn inlined(&mut self, pattern: &Pattern, call: ast::Call<'_>, span: Span) -> Made<Part> {
        let names: Vec<&str> = pattern.params.iter().map(|param| param.name.as_str()).collect();
        let given = self.arguments(&pattern.name, &names, 0, call)?;
        let (mut operands, mut absent) = (Vec::new(), 0);
        let mut bit = 0;
        for (param, part) in pattern.params.iter().zip(given) {
            let operand = match part {
                Some((Part::Absent, _)) | None if param.is_optional => {
                    absent |= 1 << bit;
                    None
                }
                Some((Part::Absent, _)) => return Ok(Part::Absent),
                Some((Part::Term(term), at)) => {
                    let is_number = matches!(&self.variant.terms[term], Term::Param(at) if self.params[*at].is_number);
                    if is_number != param.is_number {
                        return Err(self.unlike(pattern, param, at));
                    }
                    Some(term)
                }
                Some((Part::Number(number), _)) if param.is_number => {
                    Some(self.variant.term(Term::Given(Given::Number(number))))
                }
                Some((_, at)) => return Err(self.unlike(pattern, param, at)),
                None => {
                    let message = format!("`{}` is given no `{}`", pattern.name, param.name);
                    let diagnostic =
                        Diagnostic::error(Code::MissingArgument, message).primary(span, "an operand is missing");
                    return Err(Box::new(diagnostic.help(format!("its parameters are {}", some_of(names)))));
                }
            };
            operands.push(operand);
            bit += usize::from(param.is_optional);
        }
        let [result] = pattern.variants[absent].results.as_slice() else {
            let message = format!("`{}` has several results: it is no operand", pattern.name);
            return Err(wrong(span, &message, "several values"));
        };
        if self.variant.terms.len() + pattern.variants[absent].terms.len() > MOST_TERMS {
            return Err(too_many(span));
        }
        let mut written: Vec<TermId> = Vec::new();
        for term in &pattern.variants[absent].terms {
            let id = match term {
                Term::Param(at) => operands[*at],
                Term::Given(given) => Some(self.variant.term(Term::Given(given.clone()))),
                Term::Apply(operator, args) => {
                    let args = args.iter().map(|arg| arg.map(|arg| written[arg])).collect();
                    Some(self.variant.term(Term::Apply(operator, args)))
                }
            };
            // A variant has no term for what is absent in it.
            written.extend(id);
        }
        Ok(Part::Term(written[*result]))
    }

    fn unlike(&self, pattern: &Pattern, param: &Param, span: Span) -> Box<Diagnostic> {
        let (wanted, found) = if param.is_number { ("a number", "no number") } else { ("a tensor", "no tensor") };
        let message = format!("`{}` of `{}` is {wanted}", param.name, pattern.name);
        Box::new(Diagnostic::error(Code::WrongType, message).primary(span, found))
    }

    fn apply(&mut self, name: &str, parts: Vec<(Part, Span)>, span: Span) -> Made<Part> {
        let Some(operator) = operators::find(name) else { return Ok(Part::Absent) };
        self.filled(operator, parts.into_iter().map(Some).collect(), span)
    }

    fn filled(&mut self, operator: &'static Operator, parts: Vec<Option<(Part, Span)>>, span: Span) -> Made<Part> {
        let mut args = Vec::with_capacity(parts.len());
        for (slot, part) in operator.slots.iter().zip(parts) {
            let Some((part, at)) = part else {
                args.push(None);
                continue;
            };
            match (part, slot.default) {
                (Part::Absent, Some(_)) => args.push(None),
                // What has no other operand disappears with this one; without an attribute, the operator is its operand.
                (Part::Absent, None) => {
                    let operand = args.first().copied().flatten().filter(|_| !slot.is_tensor());
                    return Ok(operand.map_or(Part::Absent, Part::Term));
                }
                (part, _) => args.push(Some(self.given(operator, slot, part, at)?)),
            }
        }
        let is_tensor = |term: &TermId| match &self.variant.terms[*term] {
            Term::Param(at) => !self.params[*at].is_number,
            Term::Apply(..) => true,
            Term::Given(_) => false,
        };
        if !args.iter().flatten().any(is_tensor) {
            let diagnostic = wrong(span, "a pattern does not compute with the model's numbers", "no tensor in it");
            return Err(Box::new(
                diagnostic.help("a parameter of type `float` is an operand or an attribute by itself"),
            ));
        }
        Ok(Part::Term(self.variant.term(Term::Apply(operator, args))))
    }

    /// An operand or attribute as a term.
    fn given(&mut self, operator: &Operator, slot: &Slot, part: Part, span: Span) -> Made<TermId> {
        let found = match part {
            Part::Term(term) => {
                let is_number = matches!(&self.variant.terms[term], Term::Param(at) if self.params[*at].is_number);
                let fits = match slot.kind {
                    SlotKind::Operand => true,
                    SlotKind::Tensor => !is_number,
                    SlotKind::Number => is_number,
                    SlotKind::Bool | SlotKind::Text | SlotKind::Dims | SlotKind::Sizes => false,
                };
                if fits {
                    return Ok(term);
                }
                if is_number { "a number of the model" } else { "a tensor" }
            }
            Part::Number(number) => match slot.fit(Given::Number(number), usize::MAX >> 1) {
                // Dimensions are counted once the rank is known.
                Some(_) => return Ok(self.variant.term(Term::Given(Given::Number(number)))),
                None => "a number",
            },
            Part::Other(given) => match slot.fit(given.clone(), usize::MAX >> 1) {
                Some(_) => return Ok(self.variant.term(Term::Given(given))),
                None => "something else",
            },
            Part::Absent => "nothing",
        };
        let wanted = match slot.kind {
            SlotKind::Operand => "a tensor or a number",
            SlotKind::Tensor => "a tensor",
            SlotKind::Number => "a number",
            SlotKind::Bool => "`true` or `false`",
            SlotKind::Text => "a string",
            SlotKind::Dims => "a dimension or a list of dimensions, as numbers",
            SlotKind::Sizes => "a size or a list of sizes, as numbers",
        };
        let message = format!("`{}` of `{}` is {wanted}, not {found}", slot.name, operator.name);
        Err(Box::new(Diagnostic::error(Code::WrongType, message).primary(span, found)))
    }
}

/// `sqrt(2)`: a function of a number is a number.
fn fold(name: &str, number: f64, span: Span) -> Made<Part> {
    let result = match name {
        "abs" => number.abs(),
        "cos" => number.cos(),
        "exp" => number.exp(),
        "log" => number.ln(),
        "neg" => -number,
        "relu" => number.max(0.0),
        "rsqrt" => 1.0 / number.sqrt(),
        "sigmoid" => 1.0 / (1.0 + (-number).exp()),
        "sin" => number.sin(),
        "sqrt" => number.sqrt(),
        "tanh" => number.tanh(),
        _ => return Err(wrong(span, &format!("`{name}` takes a tensor, not a number"), "a number")),
    };
    Ok(Part::Number(result))
}

fn literal_part(literal: ast::Literal<'_>, span: Span) -> Made<Part> {
    match literal.kind() {
        Some(LiteralKind::Bool(value)) => Ok(Part::Other(Given::Bool(value))),
        Some(LiteralKind::Str(text)) => Ok(Part::Other(Given::Text(text.value()))),
        Some(LiteralKind::Number(number)) if number.suffix().is_empty() => {
            let text = number.digits().replace('_', "");
            let parsed: Option<f64> = text.parse().ok();
            parsed.map(Part::Number).ok_or_else(|| wrong(span, "this number is not understood", "no number"))
        }
        _ => Err(wrong(span, "a number of a pattern has no unit", "with a unit")),
    }
}

/// `[-2, -1]`
fn dims(list: ast::List<'_>) -> Made<Part> {
    let mut dims = Vec::new();
    for element in list.elements() {
        let number = match element {
            ast::Expr::Literal(literal) => literal_part(literal, element.span())?,
            ast::Expr::Prefix(prefix) => match prefix.operand() {
                Some(ast::Expr::Literal(literal)) => match literal_part(literal, element.span())? {
                    Part::Number(number) => Part::Number(-number),
                    other => other,
                },
                _ => Part::Absent,
            },
            _ => Part::Absent,
        };
        match number {
            Part::Number(number) if number.fract() == 0.0 => dims.push(number as i64),
            _ => return Err(wrong(element.span(), "inside a pattern a list is of dimensions", "no whole number")),
        }
    }
    Ok(Part::Other(Given::Dims(dims)))
}

/// Which of `names` a label names.
fn position(callee: &str, names: &[&str], label: &str, span: Span) -> Made<usize> {
    names.iter().position(|name| *name == label).ok_or_else(|| {
        let names = names.iter().copied();
        let help = did_you_mean(label, names.clone()).unwrap_or_else(|| format!("it takes {}", some_of(names)));
        let message = format!("`{callee}` takes no `{label}`");
        Box::new(Diagnostic::error(Code::UnknownArgument, message).primary(span, "unknown argument").help(help))
    })
}

fn too_many(span: Span) -> Box<Diagnostic> {
    wrong(span, &format!("a pattern has at most {MOST_TERMS} terms"), "one too many")
}

fn wrong(span: Span, message: &str, here: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::error(Code::BadPattern, message).primary(span, here))
}
