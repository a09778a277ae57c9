//! Explained forms inside statements: what the parser accepts only so that it can be spoken about.

use crate::ast::{AstNode, Binary, BinaryOp, Expr, Literal, LiteralKind, Unit};
use crate::code::Code;
use crate::diagnostic::{Diagnostic, Fix};
use crate::kind::SyntaxKind as K;
use crate::span::Span;
use crate::tree::{SyntaxElement, SyntaxNode, SyntaxToken};

use super::names::Names;
use super::words::between;
use super::{quoted, token_before, token_behind, words};

/// The error a node stands for, if any.
pub(super) fn explain(node: SyntaxNode<'_>, names: &Names<'_>) -> Option<Diagnostic> {
    match node.kind() {
        K::Arg => equals_in_argument(node),
        K::Entry => colon_in_entry(node),
        K::MissingComma => missing_comma(node),
        K::FilterExpr => type_filter(node),
        K::WhereClause => Some(where_clause(node)),
        K::AssignStmt => Some(assignment(node, names)),
        K::BinaryExpr => equals_in_condition(node).or_else(|| comparison_chain(node)),
        K::RangeExpr => misplaced_range(node),
        K::SliceExpr => inclusive_slice(node),
        K::BraceExpr | K::IndexExpr | K::UseNames => empty_braces(node),
        K::MissingName => unfinished_path(node),
        K::MissingValue => missing_value(node),
        K::LetType => annotated_let(node),
        K::Param => misplaced_mark(node),
        K::RecordType => inline_structure(node),
        K::ExprStmt => foreign_statement(node),
        _ => None,
    }
}

fn equals_in_argument(arg: SyntaxNode<'_>) -> Option<Diagnostic> {
    let (label, eq) = (arg.token(K::Word)?, arg.token(K::Eq)?);
    let name = label.text();
    Some(
        Diagnostic::error(Code::EqualsInArgument, format!("the argument `{name}` is named with `=`"))
            .primary(eq.span(), "`:` here")
            .help(format!("arguments are named with a colon: `{name}: ...`"))
            .fix(Fix::safe("write `:`").replace(label.span().at_end().to(eq.span()), ":")),
    )
}

fn colon_in_entry(entry: SyntaxNode<'_>) -> Option<Diagnostic> {
    let (name, colon) = (entry.token(K::Word)?, entry.token(K::Colon)?);
    Some(
        Diagnostic::error(Code::ColonInEntry, format!("`{}` is given a value with `:`", name.text()))
            .primary(colon.span(), "`=` here")
            .help(format!("entries are written `{} = ...`", name.text()))
            .fix(Fix::safe("write `=`").replace(name.span().at_end().to(colon.span()), " =")),
    )
}

fn missing_comma(node: SyntaxNode<'_>) -> Option<Diagnostic> {
    let before = token_before(node.tree(), node.start())?;
    let behind = token_behind(node.tree(), node.end())?;
    let gap = between(before.span(), behind.span());
    let starred = before.parent();
    if let (K::StarExpr, Some(dot)) = (starred.kind(), starred.token(K::Dot))
        && token_before(node.tree(), dot.start()).is_some_and(|number| number.kind() == K::Number)
    {
        return Some(dotted_product(dot, before, behind));
    }
    if before.kind() == K::Number && Unit::parse(behind.text()).is_some() {
        return Some(
            Diagnostic::error(Code::BadNumber, "there is white space between a number and its unit")
                .primary(before.span().to(behind.span()), "one word is needed here")
                .help(format!("write `{}{}`", before.text(), behind.text()))
                .fix(Fix::safe("join them").delete(gap)),
        );
    }
    let missing = "is missing behind this";
    let error = |marks: &str| {
        Diagnostic::error(Code::MissingComma, format!("expected {marks} before {}", quoted(behind.text())))
    };
    let comma = |fix: Fix| fix.insert(gap, ",");
    if could_be_named(node, before) {
        return Some(
            error("`,` or `:`")
                .primary(before.span(), format!("a comma or a colon {missing}"))
                .fix(comma(Fix::maybe("add a comma")))
                .fix(Fix::maybe("add a colon").insert(gap, ":")),
        );
    }
    Some(error("`,`").primary(before.span(), format!("a comma {missing}")).fix(comma(Fix::safe("add the comma"))))
}

/// `2.*x`: a dot, a star and the factor behind them.
pub(super) fn dotted_product(dot: SyntaxToken<'_>, star: SyntaxToken<'_>, factor: SyntaxToken<'_>) -> Diagnostic {
    let product = dot.span().to(between(star.span(), factor.span()));
    Diagnostic::error(Code::Unexpected, "a dot stands between a number and `*`")
        .primary(dot.span(), "a number has no children to select")
        .help("a product is written `2 * x`")
        .fix(Fix::safe("write a product").replace(product, " * "))
}

/// Whether a colon may be meant: `over axis` among parameters, `over tp` among arguments.
fn could_be_named(node: SyntaxNode<'_>, before: SyntaxToken<'_>) -> bool {
    let siblings = std::iter::successors(node.previous(), |element| element.previous());
    let earlier = siblings.filter_map(SyntaxElement::node).next();
    let is_bare = |earlier: SyntaxNode<'_>| {
        matches!(earlier.kind(), K::Param | K::Arg) && earlier.text() == before.text() && before.kind() == K::Word
    };
    let next = std::iter::successors(node.next(), |element| element.next());
    let is_named = next.filter_map(SyntaxElement::node).next().is_some_and(|next| next.token(K::Colon).is_some());
    earlier.is_some_and(is_bare) && !is_named
}

fn type_filter(node: SyntaxNode<'_>) -> Option<Diagnostic> {
    let receiver = node.children().next()?;
    let colon = node.token(K::Colon)?;
    let class: String = node.tokens().skip(1).map(SyntaxToken::text).collect();
    let quoted = if class.contains('.') { format!("\"{class}\"") } else { class };
    let from = Span::new(colon.span().file, receiver.end(), node.end());
    Some(
        Diagnostic::error(Code::TypeFilter, "a path takes no type behind a colon")
            .primary(Span::new(colon.span().file, colon.start(), node.end()), "a filter is a method")
            .help(format!("select by class with `.only({quoted})`"))
            .fix(Fix::safe("use `.only`").replace(from, format!(".only({quoted})"))),
    )
}

fn where_clause(node: SyntaxNode<'_>) -> Diagnostic {
    Diagnostic::error(Code::WhereClause, "there is no `where`")
        .primary(super::first_span(node), "selections are filtered otherwise")
        .help("filter by class with `.only(Class)` or `.except(...)`, by anything else with `if` inside a `for`")
}

fn assignment(node: SyntaxNode<'_>, names: &Names<'_>) -> Diagnostic {
    let op = node.tokens().next();
    let target = node.children().next();
    let name = target.map_or("", SyntaxNode::text);
    let span = op.map_or(node.span(), SyntaxToken::span);
    let error = Diagnostic::error(Code::Assignment, "names cannot change once they are bound")
        .primary(span, format!("would change {}", quoted(name)));
    let is_new_name = op.is_some_and(|op| op.kind() == K::Eq) && target.is_some_and(|at| at.kind() == K::NameExpr);
    if is_new_name {
        let fix = if names.is_new(name) { Fix::safe("bind a new name") } else { Fix::maybe("bind a new name") };
        return error
            .help(format!("bind a new name with `let {name} = ...`; `choose(cond, a, b)` gives one of two values"))
            .fix(fix.insert(node.span(), "let "));
    }
    error.help("bind a new name with `let`; `choose(cond, a, b)` gives one of two values")
}

fn equals_in_condition(node: SyntaxNode<'_>) -> Option<Diagnostic> {
    let op = node.token(K::Eq)?;
    Some(
        Diagnostic::error(Code::EqualsInCondition, "a condition compares with `==`")
            .primary(op.span(), "`=` only binds names")
            .help("write `==`")
            .fix(Fix::safe("write `==`").replace(op.span(), "==")),
    )
}

/// `a < b < c`, reported once for the whole chain.
fn comparison_chain(node: SyntaxNode<'_>) -> Option<Diagnostic> {
    let is_comparison = |node: SyntaxNode<'_>| Binary::cast(node)?.op().filter(|op| op.is_comparison());
    let chains = |node: SyntaxNode<'_>| {
        is_comparison(node).is_some() && node.children().next().and_then(is_comparison).is_some()
    };
    if !chains(node) || node.parent().is_some_and(chains) && is_left_operand(node) {
        return None;
    }
    let outer = Binary::cast(node)?;
    let inner = Binary::cast(node.children().next()?)?;
    let apart = pairs(outer)?;
    // Whatever binds tighter than `and` around the chain would take its last pair only.
    let is_loose = node.parent().is_none_or(|around| match around.kind() {
        K::BinaryExpr => {
            Binary::cast(around).and_then(Binary::op).is_some_and(|op| matches!(op, BinaryOp::And | BinaryOp::Or))
        }
        kind => kind != K::PrefixExpr,
    });
    let written = if is_loose { apart.clone() } else { format!("({apart})") };
    Some(
        Diagnostic::error(Code::ComparisonChain, "comparisons do not chain")
            .primary(outer.op_token()?.span(), "a second comparison")
            .secondary(inner.op_token()?.span(), "the first one")
            .help(format!("write {}", quoted(&apart)))
            .fix(Fix::safe("compare in pairs").replace(node.span(), written)),
    )
}

/// `a < b < c` as `a < b and b < c`.
fn pairs(chain: Binary<'_>) -> Option<String> {
    let mut pairs = Vec::new();
    let mut rest = Some(chain);
    while let Some(last) = rest.filter(|last| last.op().is_some_and(BinaryOp::is_comparison)) {
        let inner = Binary::cast(last.left()?.syntax()).filter(|inner| inner.op().is_some_and(BinaryOp::is_comparison));
        let left = inner.map_or(last.left(), Binary::right)?.syntax().text();
        pairs.insert(0, format!("{left} {} {}", last.op()?.symbol(), last.right()?.syntax().text()));
        rest = inner;
    }
    Some(pairs.join(" and "))
}

fn is_left_operand(node: SyntaxNode<'_>) -> bool {
    node.parent().and_then(|parent| parent.children().next()) == Some(node)
}

/// Ranges belong behind `in`; one without white space between two names is a doubled dot.
fn misplaced_range(node: SyntaxNode<'_>) -> Option<Diagnostic> {
    let parent = node.parent()?;
    let is_domain = match parent.kind() {
        K::ForStmt => true,
        K::KnobItem => parent.token(K::InKw).is_some_and(|word| word.end() <= node.start()),
        K::WhereExpr => parent.parent().is_some_and(|around| around.kind() == K::ForStmt),
        _ => false,
    };
    let dots = node.tokens().next()?;
    let start = node.children().next()?;
    let touches = dots.start() == start.end() && dots.next().is_some_and(|next| !next.kind().is_trivia());
    let is_path = matches!(start.kind(), K::NameExpr | K::FieldExpr | K::MethodCall | K::IndexExpr);
    let ends_in_call = node.children().nth(1).is_some_and(|end| matches!(end.kind(), K::CallExpr | K::MethodCall));
    if touches && is_path && dots.kind() == K::DotDot && (!is_domain || ends_in_call && parent.kind() != K::ForStmt) {
        return Some(
            Diagnostic::error(Code::DoubledDot, "a doubled dot in a path")
                .primary(dots.span(), "one dot is enough")
                .help("steps of a path are joined by one dot; ranges stand behind `in` and in `[ ]`")
                .fix(Fix::maybe("write one dot").replace(dots.span(), ".")),
        );
    }
    (!is_domain).then(|| {
        Diagnostic::error(Code::MisplacedRange, "a range cannot stand here")
            .primary(node.span(), "ranges stand behind `in` and in `[ ]`")
            .help("loop over it with `for i in a..b { }`, or pick a part of a list with `x[a..b]`")
    })
}

fn inclusive_slice(node: SyntaxNode<'_>) -> Option<Diagnostic> {
    let dots = node.token(K::DotDotEq)?;
    let error = Diagnostic::error(Code::MisplacedRange, "a slice never includes its end")
        .primary(dots.span(), "`..` here")
        .help("write `..` and an end that is one higher");
    let end = node.children().last().and_then(Literal::cast).and_then(Literal::kind);
    Some(match end {
        Some(LiteralKind::Number(end)) if end.integer().is_some_and(|end| end < u64::MAX) => {
            let next = end.integer().unwrap_or(0) + 1;
            let all = dots.span().to(end.span());
            error.fix(Fix::safe(format!("write `..{next}`")).replace(all, format!("..{next}")))
        }
        _ => error,
    })
}

fn empty_braces(node: SyntaxNode<'_>) -> Option<Diagnostic> {
    let open = node.tokens().find(|token| matches!(token.kind(), K::LBrace | K::LBracket))?;
    let close = node.tokens().last()?;
    let is_empty = match node.kind() {
        K::IndexExpr => node.children().filter(|child| child.start() >= open.end()).count() == 0,
        K::BraceExpr => node.child(K::BraceName).is_none(),
        _ => node.token(K::Word).is_none(),
    };
    let (message, help) = match node.kind() {
        K::IndexExpr => (
            "there is no position between these brackets",
            "write a position, a name or a slice: `[0]`, `[\"name\"]`, `[..4]`",
        ),
        K::BraceExpr => {
            ("there is no name between these braces", "name the children to select: `.{a, b?}`; all of them are `.*`")
        }
        _ => ("there is no name between these braces", "name what to import: `use std.parallel.{column, row}`"),
    };
    is_empty.then(|| {
        Diagnostic::error(Code::EmptyBraces, message).primary(open.span().to(close.span()), "empty").help(help)
    })
}

fn unfinished_path(node: SyntaxNode<'_>) -> Option<Diagnostic> {
    let dot = token_before(node.tree(), node.start())?;
    Some(
        Diagnostic::error(Code::UnfinishedPath, "this path ends in a dot")
            .primary(dot.span(), "a name, a call, `*` or `{` is missing behind it")
            .help("finish the path, or delete the dot"),
    )
}

fn missing_value(node: SyntaxNode<'_>) -> Option<Diagnostic> {
    let label = node.parent()?.token(K::Word)?;
    Some(
        Diagnostic::error(Code::MissingValue, format!("the argument `{}` has no value", label.text()))
            .primary(label.span(), "a value is missing behind the colon"),
    )
}

fn annotated_let(node: SyntaxNode<'_>) -> Option<Diagnostic> {
    let before = token_before(node.tree(), node.start())?;
    Some(
        Diagnostic::error(Code::AnnotatedLet, "a `let` takes no type")
            .primary(node.span(), "follows from the value")
            .help("leave the type out; parameters are what has types")
            .fix(Fix::safe("leave the type out").delete(before.span().at_end().to(node.span()))),
    )
}

fn misplaced_mark(param: SyntaxNode<'_>) -> Option<Diagnostic> {
    let mark = param.token(K::Question)?;
    let in_pattern = param.parent()?.parent()?.kind() == K::PatternItem;
    (!in_pattern).then(|| {
        Diagnostic::error(Code::MisplacedMark, "a parameter of a schedule cannot be optional")
            .primary(mark.span(), "`?` is for patterns and paths")
            .help("give the parameter a default with `= ...`")
            .fix(Fix::maybe("remove the `?`").delete(mark.span()))
    })
}

fn inline_structure(node: SyntaxNode<'_>) -> Option<Diagnostic> {
    let in_params = node.ancestors().any(|around| around.kind() == K::Param);
    let is_outermost = node.parent().is_some_and(|parent| parent.kind() != K::RecordField);
    (in_params && is_outermost).then(|| {
        Diagnostic::error(Code::InlineStructure, "a structure is written inside a parameter list")
            .primary(node.span(), "needs a name")
            .help(format!(
                "declare it with `type Part = {}` and write `Part` here",
                node.text().lines().next().unwrap_or("")
            ))
    })
}

/// `return`, `break`: names that would do nothing.
fn foreign_statement(node: SyntaxNode<'_>) -> Option<Diagnostic> {
    let name = match Expr::cast(node.children().next()?)? {
        Expr::Name(name) => name.token()?,
        _ => return None,
    };
    words::is_foreign_statement(name.text()).then(|| words::foreign_word(name)).flatten()
}
