//! Errors that lie in a single token: literals, operators and words of other languages, separators.

use crate::ast::{Number, Str, Unit};
use crate::code::Code;
use crate::diagnostic::{Diagnostic, Fix};
use crate::kind::{SyntaxKind as K, is_reserved};
use crate::span::Span;
use crate::tree::SyntaxToken;

use super::names::{Names, binds};
use super::{indentation, token_before, words};

pub(super) fn explain(token: SyntaxToken<'_>, names: &Names<'_>, out: &mut Vec<Diagnostic>) {
    match token.kind() {
        K::UnclosedString => {
            let fix = Fix::maybe("close the string").insert(token.span().at_end(), "\"");
            out.push(unclosed_string(token).fix(fix));
        }
        K::SingleString => out.push(single_quotes(token)),
        K::String => out.extend(bad_escapes(token)),
        K::Number => out.extend(bad_number(token, names)),
        K::Semicolon => out.extend(semicolon(token)),
        K::ForeignKw => out.extend(words::foreign_keyword(token)),
        K::Word => out.extend(bad_name(token)),
        K::StarStar | K::SlashSlash | K::AmpAmp | K::PipePipe | K::Bang => out.extend(foreign_operator(token)),
        _ => {}
    }
}

pub(super) fn unclosed_string(token: SyntaxToken<'_>) -> Diagnostic {
    Diagnostic::error(Code::UnclosedString, "this string has no closing quote")
        .primary(token.span(), "a string ends on the line it begins on")
        .help("close it with `\"`; a quote inside a string is written `\\\"`")
}

fn single_quotes(token: SyntaxToken<'_>) -> Diagnostic {
    let inner = token.text().trim_matches('\'');
    let inner = inner.replace('\\', "\\\\").replace('"', "\\\"");
    Diagnostic::error(Code::SingleQuotes, "strings are written in double quotes")
        .primary(token.span(), "single quotes")
        .help(format!("write `\"{inner}\"`"))
        .fix(Fix::safe("use double quotes").replace(token.span(), format!("\"{inner}\"")))
}

fn bad_escapes(token: SyntaxToken<'_>) -> impl Iterator<Item = Diagnostic> {
    let bad = Str::of(token).bad_escapes().into_iter();
    bad.map(move |span| {
        let from = (span.start - token.start()) as usize;
        let escape = &token.text()[from..from + span.len() as usize];
        Diagnostic::error(Code::BadEscape, format!("unknown escape `{escape}`"))
            .primary(span, "not an escape")
            .help("the escapes are `\\\"`, `\\\\`, `\\n` and `\\t`; a backslash itself is written `\\\\`")
            .fix(Fix::maybe("write a backslash").insert(span, "\\"))
    })
}

fn bad_number(token: SyntaxToken<'_>, names: &Names<'_>) -> Option<Diagnostic> {
    let number = Number::of(token);
    let suffix = number.suffix();
    if suffix.is_empty() || number.unit().is_some() {
        return None;
    }
    let span = token.span();
    let behind = Span::new(span.file, span.end - suffix.len() as u32, span.end);
    let error = Diagnostic::error(Code::BadNumber, format!("`{suffix}` cannot be attached to a number"));
    let digits = number.digits();
    let unit = Unit::names().find(|name| name.eq_ignore_ascii_case(suffix));
    if let Some(unit) = unit {
        return Some(
            error
                .primary(behind, "not a unit")
                .help(format!("the unit is spelled `{unit}`"))
                .fix(Fix::safe(format!("write `{unit}`")).replace(behind, unit)),
        );
    }
    let error = error.primary(behind, "neither digits nor a unit");
    let is_name = suffix.starts_with(|c: char| c.is_lowercase());
    let is_base = digits == "0" && suffix.starts_with(['x', 'b', 'o']);
    let units = Unit::names().collect::<Vec<_>>().join("`, `");
    Some(if is_base {
        error.help("numbers are decimal")
    } else if is_name && suffix.len() <= 3 {
        // Behind `/`, a product would be read otherwise.
        let is_divisor = token.parent().parent().is_some_and(|around| {
            let op = around.tokens().find(|op| !op.kind().is_trivia());
            op.is_some_and(|op| matches!(op.kind(), K::Slash | K::SlashSlash | K::Percent) && op.end() <= token.start())
        });
        let is_product = !is_divisor && names.is_bound(suffix);
        let fix = if is_product { Fix::safe("write a product") } else { Fix::maybe("write a product") };
        error
            .help(format!("a product is written `{digits} * {suffix}`; the units are `{units}`"))
            .fix(fix.insert(behind, " * "))
    } else {
        error.help(format!("the units are `{units}`"))
    })
}

fn semicolon(token: SyntaxToken<'_>) -> Option<Diagnostic> {
    let before = token_before(token.tree(), token.start());
    if before.is_some_and(|before| before.kind() == K::Semicolon) {
        return None;
    }
    let text = token.tree().text();
    let rest = &text[token.end() as usize..];
    let blanks = rest.len() - rest.trim_start_matches([' ', '\t', ';']).len();
    let rest = &rest[blanks..];
    let ends_line = rest.is_empty() || rest.starts_with(['\n', '\r', '#', '}']);
    let fix = if ends_line {
        let run = text[token.end() as usize..].len() - text[token.end() as usize..].trim_start_matches(';').len();
        Fix::safe("remove the semicolon").delete(Span::new(token.span().file, token.start(), token.end() + run as u32))
    } else {
        let end = token.end() + blanks as u32;
        let line = format!("\n{}", indentation(text, token.start()));
        Fix::safe("start a new line").replace(Span::new(token.span().file, token.start(), end), line)
    };
    Some(
        Diagnostic::error(Code::Semicolon, "there are no semicolons")
            .primary(token.span(), "the end of the line ends a statement")
            .help(if ends_line { "remove it" } else { "write one statement on each line" })
            .fix(fix),
    )
}

/// Names that something new gets: they must not be reserved and must begin with a letter.
fn bad_name(token: SyntaxToken<'_>) -> Option<Diagnostic> {
    let kind = token.parent().kind();
    if !(binds(kind) || matches!(kind, K::TypeItem | K::ScheduleItem | K::Entry | K::NamedType)) {
        return None;
    }
    let name = token.text();
    if is_reserved(name) {
        let free = format!("{name}_");
        return Some(
            Diagnostic::error(Code::ReservedWord, format!("`{name}` is a reserved word"))
                .primary(token.span(), "cannot be a name here")
                .help(format!("choose another name, such as `{free}`"))
                .fix(Fix::maybe(format!("rename to `{free}`")).replace(token.span(), free)),
        );
    }
    name.starts_with(|c: char| c.is_ascii_digit()).then(|| {
        Diagnostic::error(Code::Unexpected, format!("expected a name, found `{name}`"))
            .primary(token.span(), "a name begins with a letter or `_`")
    })
}

fn foreign_operator(token: SyntaxToken<'_>) -> Option<Diagnostic> {
    let parent = token.parent();
    if !matches!(parent.kind(), K::BinaryExpr | K::PrefixExpr) {
        return None;
    }
    let span = token.span();
    let symbol = token.text();
    let (ours, meaning) = match token.kind() {
        K::StarStar => ("^", "powers are written with `^`"),
        K::SlashSlash => ("/", "`/` divides exactly; `floor(a / b)` rounds down"),
        K::AmpAmp => ("and", "both conditions: `and`"),
        K::PipePipe => ("or", "either condition: `or`"),
        _ => ("not", "the negation of a condition: `not`"),
    };
    let fix = match token.kind() {
        K::SlashSlash => Fix::safe("round down with `floor`")
            .insert(parent.span(), "floor(")
            .replace(span, "/")
            .replace(parent.span().at_end(), ")"),
        K::Bang if token.next().is_some_and(|next| !next.kind().is_trivia()) => {
            Fix::safe("write `not`").replace(span, "not ")
        }
        _ => Fix::safe(format!("write `{ours}`")).replace(span, spaced(token, ours)),
    };
    Some(
        Diagnostic::error(Code::ForeignOperator, format!("there is no operator `{symbol}`"))
            .primary(span, format!("`{ours}` here"))
            .help(meaning)
            .fix(fix),
    )
}

/// A word needs white space where a symbol did not.
fn spaced(token: SyntaxToken<'_>, word: &str) -> String {
    if !word.starts_with(|c: char| c.is_alphabetic()) {
        return word.to_string();
    }
    let touches = |side: Option<crate::tree::SyntaxElement<'_>>| side.is_some_and(|other| !other.kind().is_trivia());
    let before = if touches(token.previous()) { " " } else { "" };
    let behind = if touches(token.next()) { " " } else { "" };
    format!("{before}{word}{behind}")
}
