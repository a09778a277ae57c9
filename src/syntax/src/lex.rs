//! Cuts raw text into tokens: the gaps between the grammar's own tokens, and text that has no structure.
//!
//! Total and linear: every text is covered, whatever it holds. Read `token` first.

use crate::kind::{RESERVED, SyntaxKind, SyntaxKind::*};

/// Punctuation, longest first.
const PUNCTUATION: &[(&str, SyntaxKind)] = &[
    ("..=", DotDotEq),
    ("..", DotDot),
    ("**", StarStar),
    ("//", SlashSlash),
    ("&&", AmpAmp),
    ("||", PipePipe),
    ("==", EqEq),
    ("!=", BangEq),
    ("<=", LessEq),
    (">=", GreaterEq),
    ("+=", OpEq),
    ("-=", OpEq),
    ("*=", OpEq),
    ("/=", OpEq),
    ("(", LParen),
    (")", RParen),
    ("[", LBracket),
    ("]", RBracket),
    ("{", LBrace),
    ("}", RBrace),
    (",", Comma),
    (":", Colon),
    (";", Semicolon),
    (".", Dot),
    ("?", Question),
    ("=", Eq),
    ("<", Less),
    (">", Greater),
    ("+", Plus),
    ("-", Minus),
    ("*", Star),
    ("/", Slash),
    ("%", Percent),
    ("^", Caret),
    ("!", Bang),
];

/// The first token of a text that is not empty: its kind and its length in bytes.
pub(crate) fn token(text: &str) -> (SyntaxKind, usize) {
    let first = text.chars().next().unwrap_or(' ');
    match first {
        ' ' | '\t' => (Whitespace, run(text, |c| c == ' ' || c == '\t')),
        '\n' => (Newline, 1),
        '\r' => (Newline, if text.starts_with("\r\n") { 2 } else { 1 }),
        '#' => comment(text),
        '"' => string(text),
        '0'..='9' => (Number, number(text)),
        '_' => word(text),
        _ if first.is_alphabetic() => word(text),
        _ => punctuation(text).unwrap_or((Unknown, first.len_utf8())),
    }
}

/// The kind of an operator or another mark, by its text.
pub(crate) fn mark(text: &str) -> SyntaxKind {
    punctuation(text).map_or(Unknown, |(kind, _)| kind)
}

/// The kind of a word: a reserved one is a keyword.
pub(crate) fn word_kind(text: &str) -> SyntaxKind {
    RESERVED.iter().find(|(word, _)| *word == text).map_or(Word, |(_, kind)| *kind)
}

fn punctuation(text: &str) -> Option<(SyntaxKind, usize)> {
    PUNCTUATION.iter().find(|(mark, _)| text.starts_with(mark)).map(|(mark, kind)| (*kind, mark.len()))
}

fn run(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

/// Lengths of words may differ from the grammar's in exotic scripts; that only matters inside broken text.
fn word(text: &str) -> (SyntaxKind, usize) {
    let length = run(text, |c| c == '_' || c.is_alphanumeric());
    (word_kind(&text[..length]), length)
}

fn comment(text: &str) -> (SyntaxKind, usize) {
    let length = run(text, |c| c != '\n' && c != '\r');
    (comment_kind(&text[..length]), length)
}

/// `##` starts documentation, a longer row of `#` is a ruler.
fn comment_kind(text: &str) -> SyntaxKind {
    if text.starts_with("##") && !text.starts_with("###") { DocComment } else { Comment }
}

fn string(text: &str) -> (SyntaxKind, usize) {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\n' | '\r' => return (UnclosedString, at),
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return (String, at + 1),
            _ => {}
        }
    }
    (UnclosedString, text.len())
}

/// A number, its fraction only when a digit follows the dot, with whatever letters are attached.
fn number(text: &str) -> usize {
    let is_part = |c: char| c == '_' || c.is_alphanumeric();
    let whole = run(text, is_part);
    let rest = &text[whole..];
    let has_fraction = rest.starts_with('.') && rest[1..].starts_with(|c: char| c.is_ascii_digit());
    if has_fraction { whole + 1 + run(&rest[1..], is_part) } else { whole }
}
