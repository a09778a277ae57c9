//! Words of other languages, each with what it is called here: one row a word.

use crate::code::Code;
use crate::diagnostic::{Diagnostic, Fix};
use crate::kind::{ITEM_WORDS, SyntaxKind as K};
use crate::span::Span;
use crate::tree::{SyntaxNode, SyntaxToken};

/// The word, what to say, and the word of ours that may simply take its place.
struct Foreign(&'static str, &'static str, Option<&'static str>);

#[rustfmt::skip]
const FOREIGN: &[Foreign] = &[
    Foreign("def", "a schedule is declared by `schedule name(m: Module) { ... }`", Some("schedule")),
    Foreign("fn", "a schedule is declared by `schedule name(m: Module) { ... }`", Some("schedule")),
    Foreign("func", "a schedule is declared by `schedule name(m: Module) { ... }`", Some("schedule")),
    Foreign("function", "a schedule is declared by `schedule name(m: Module) { ... }`", Some("schedule")),
    Foreign("import", "imports are written `use std.parallel.{column, row}`", Some("use")),
    Foreign("from", "imports are written `use std.parallel.{column, row}`", None),
    Foreign("const", "names are bound by `let`, constants too", Some("let")),
    Foreign("var", "names are bound by `let` and never change", Some("let")),
    Foreign("val", "names are bound by `let`", Some("let")),
    Foreign("elif", "further conditions are written `else if`", Some("else if")),
    Foreign("elsif", "further conditions are written `else if`", Some("else if")),
    Foreign("elseif", "further conditions are written `else if`", Some("else if")),
    Foreign("class", "structures are declared by `type Name = { part: Class }`", None),
    Foreign("struct", "structures are declared by `type Name = { part: Class }`", None),
    Foreign("while", "loops are written `for x in ... { }`, over modules, lists and ranges", None),
    Foreign("loop", "loops are written `for x in ... { }`, over modules, lists and ranges", None),
    Foreign("foreach", "loops are written `for x in ... { }`, over modules, lists and ranges", None),
    Foreign("return", "a schedule gives nothing back; what it does to the model stays done", None),
    Foreign("break", "a loop runs to its end; leave elements out with a slice, `.except(...)` or `if`", None),
    Foreign("continue", "leave elements out with a slice, `.except(...)` or `if`", None),
    Foreign("pass", "an empty block is written `{}`", None),
    Foreign("assert", "conditions are demanded by `require condition, \"message\"`", Some("require")),
    Foreign("match", "choose with `if ... { } else if ... { }`", None),
    Foreign("switch", "choose with `if ... { } else if ... { }`", None),
    Foreign("with", "a block follows only `for`, `if` and `else`", None),
    Foreign("print", "values are shown by `slapoc apply`; a failed `require` prints its operands", None),
];

/// A word the grammar let stand for one of ours.
pub(super) fn foreign_keyword(token: SyntaxToken<'_>) -> Option<Diagnostic> {
    if token.parent().kind() == K::BadHead {
        return None;
    }
    let Foreign(_, advice, ours) = find(token)?;
    let error = explain(token, advice, *ours);
    let Some(ours) = ours else { return Some(error) };
    Some(error.fix(Fix::safe(format!("write `{ours}`")).replace(token.span(), *ours)))
}

/// A word at the start of a broken line, if it is known from elsewhere. Another word alone may not repair the line.
pub(super) fn foreign_word(token: SyntaxToken<'_>) -> Option<Diagnostic> {
    let Foreign(_, advice, ours) = find(token)?;
    let error = explain(token, advice, *ours);
    let Some(ours) = ours else { return Some(error) };
    Some(error.fix(Fix::maybe(format!("write `{ours}`")).replace(token.span(), *ours)))
}

fn find(token: SyntaxToken<'_>) -> Option<&'static Foreign> {
    FOREIGN.iter().find(|row| row.0 == token.text())
}

fn explain(token: SyntaxToken<'_>, advice: &str, ours: Option<&str>) -> Diagnostic {
    let label = ours.map_or("unknown here".into(), |ours| format!("`{ours}` here"));
    Diagnostic::error(Code::ForeignWord, format!("`{}` is not a word of this language", token.text()))
        .primary(token.span(), label)
        .help(advice)
}

/// Words that mean something as a statement elsewhere, and that here are names which do nothing.
pub(super) fn is_foreign_statement(word: &str) -> bool {
    matches!(word, "return" | "break" | "continue" | "pass")
}

/// Whether a block is the body of a structure, so that its lines are no statements.
pub(super) fn declares_structure(block: SyntaxNode<'_>) -> bool {
    block.first_token().is_some_and(|word| matches!(word.text(), "class" | "struct"))
}

/// The item word that a word was probably meant to be.
pub(super) fn near_item_word(word: &str) -> Option<&'static str> {
    let near = ITEM_WORDS.iter().map(|(known, _)| (distance(word, known), *known));
    let near = near.filter(|(distance, known)| *distance <= 2 && *distance * 2 < known.len());
    near.min().map(|(_, known)| known)
}

/// Marks of other alphabets that look like ours.
#[rustfmt::skip]
const LOOKALIKES: &[(char, &str)] = &[
    ('\u{201c}', "\""), ('\u{201d}', "\""), ('\u{201e}', "\""), ('\u{ab}', "\""), ('\u{bb}', "\""),
    ('\u{2018}', "\""), ('\u{2019}', "\""), ('\'', "\""), ('`', "\""),
    ('\u{2013}', "-"), ('\u{2014}', "-"), ('\u{2212}', "-"), ('\u{d7}', "*"), ('\u{f7}', "/"),
    ('\u{2264}', "<="), ('\u{2265}', ">="), ('\u{2260}', "!="), ('\u{2026}', ".."),
    ('\u{a0}', " "), ('\u{2003}', " "), ('\u{200b}', ""), ('\u{feff}', ""), ('\u{ff0c}', ","), ('\u{ff1a}', ":"),
    ('&', "and"), ('|', "or"), ('~', "not "),
];

/// A character that starts no token.
pub(super) fn unknown_character(token: SyntaxToken<'_>) -> Diagnostic {
    let found = token.text().chars().next().unwrap_or(' ');
    let visible =
        found.is_ascii_graphic() || found.is_alphanumeric() || (!found.is_control() && !found.is_whitespace());
    let name = if visible { format!("`{found}`") } else { format!("U+{:04X}", found as u32) };
    let error = Diagnostic::error(Code::UnknownCharacter, format!("unexpected character {name}"))
        .primary(token.span(), "not part of the language");
    let meant = LOOKALIKES.iter().find(|(other, _)| *other == found).map(|(_, ours)| *ours);
    match meant {
        Some("") => error.help("delete it").fix(Fix::safe("delete it").delete(token.span())),
        Some(" ") => error.help("use a plain space").fix(Fix::safe("use a plain space").replace(token.span(), " ")),
        Some(ours) => error
            .help(format!("perhaps `{}` was meant", ours.trim()))
            .fix(Fix::maybe(format!("write `{}`", ours.trim())).replace(token.span(), ours)),
        None => error,
    }
}

/// The span of the white space and tokens from one place to another.
pub(super) fn between(from: Span, to: Span) -> Span {
    Span::new(from.file, from.end, to.start.max(from.end))
}

/// Edits needed to turn one word into another (insert, delete, replace).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = corner + usize::from(from != *to);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
