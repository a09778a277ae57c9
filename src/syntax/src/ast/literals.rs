//! Views of numbers, strings and truth values, and what they denote.

use super::*;
use crate::kind::SyntaxKind as K;

nodes! {
    /// A number, a string, `true` or `false`
    Literal = Literal;
}

/// What a literal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiteralKind<'t> {
    Number(Number<'t>),
    Str(Str<'t>),
    Bool(bool),
}

/// A number token: digits with an optional unit of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number<'t>(SyntaxToken<'t>);

/// A string token, quotes included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Str<'t>(SyntaxToken<'t>);

/// A unit of bytes, decimal or binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[rustfmt::skip]
pub enum Unit { KB, MB, GB, TB, KiB, MiB, GiB, TiB }

impl Unit {
    #[rustfmt::skip]
    const TABLE: &[(&str, Unit, u64)] = &[
        ("KB", Unit::KB, 1_000),
        ("MB", Unit::MB, 1_000_000),
        ("GB", Unit::GB, 1_000_000_000),
        ("TB", Unit::TB, 1_000_000_000_000),
        ("KiB", Unit::KiB, 1 << 10),
        ("MiB", Unit::MiB, 1 << 20),
        ("GiB", Unit::GiB, 1 << 30),
        ("TiB", Unit::TiB, 1 << 40),
    ];

    /// All spellings, for messages.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::TABLE.iter().map(|(name, ..)| *name)
    }

    pub fn parse(text: &str) -> Option<Unit> {
        Self::TABLE.iter().find(|(name, ..)| *name == text).map(|(_, unit, _)| *unit)
    }

    pub fn name(self) -> &'static str {
        Self::TABLE[self as usize].0
    }

    pub fn bytes(self) -> u64 {
        Self::TABLE[self as usize].2
    }
}

impl<'t> Literal<'t> {
    pub fn kind(self) -> Option<LiteralKind<'t>> {
        let token = self.0.tokens().next()?;
        match token.kind() {
            K::Number => Some(LiteralKind::Number(Number(token))),
            K::String | K::SingleString | K::UnclosedString => Some(LiteralKind::Str(Str(token))),
            K::TrueKw => Some(LiteralKind::Bool(true)),
            K::FalseKw => Some(LiteralKind::Bool(false)),
            _ => None,
        }
    }
}

impl<'t> Number<'t> {
    pub(crate) fn of(token: SyntaxToken<'t>) -> Self {
        Self(token)
    }

    pub fn span(self) -> Span {
        self.0.span()
    }

    /// As written, unit included.
    pub fn text(self) -> &'t str {
        self.0.text()
    }

    /// The part before the unit, underscores included.
    pub fn digits(self) -> &'t str {
        &self.text()[..self.digits_end()]
    }

    /// The letters behind the digits, empty without.
    pub fn suffix(self) -> &'t str {
        &self.text()[self.digits_end()..]
    }

    pub fn unit(self) -> Option<Unit> {
        Unit::parse(self.suffix())
    }

    /// The number without its unit; `None` where something else than a unit is attached (diagnosed by the parser).
    pub fn amount(self) -> Option<f64> {
        if !self.suffix().is_empty() && self.unit().is_none() {
            return None;
        }
        self.digits().replace('_', "").parse().ok()
    }

    /// The number times its unit, in bytes where there is one.
    pub fn value(self) -> Option<f64> {
        Some(self.amount()? * self.unit().map_or(1.0, |unit| unit.bytes() as f64))
    }

    /// The value where it was written as a whole number and fits.
    pub fn integer(self) -> Option<u64> {
        self.amount()?;
        let digits: u64 = self.digits().replace('_', "").parse().ok()?;
        digits.checked_mul(self.unit().map_or(1, Unit::bytes))
    }

    /// Digits, a fraction with at least one digit, an exponent with at least one digit.
    fn digits_end(self) -> usize {
        let bytes = self.0.text().as_bytes();
        let digits = |from: usize| {
            let mut at = from;
            while at < bytes.len() {
                let joins = bytes[at] == b'_' && at > from && bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
                if !(bytes[at].is_ascii_digit() || joins) {
                    break;
                }
                at += 1;
            }
            at
        };
        let mut end = digits(0);
        if bytes.get(end) == Some(&b'.') {
            let fraction = digits(end + 1);
            end = if fraction > end + 1 { fraction } else { end };
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(end + 1 + sign);
            end = if exponent > end + 1 + sign { exponent } else { end };
        }
        end
    }
}

impl<'t> Str<'t> {
    pub(crate) fn of(token: SyntaxToken<'t>) -> Self {
        Self(token)
    }

    /// The string that is a direct child of a node.
    pub(super) fn in_node(node: SyntaxNode<'t>) -> Option<Self> {
        let mut tokens = node.tokens();
        tokens.find(|token| matches!(token.kind(), K::String | K::SingleString | K::UnclosedString)).map(Self)
    }

    pub fn span(self) -> Span {
        self.0.span()
    }

    /// As written, quotes included.
    pub fn text(self) -> &'t str {
        self.0.text()
    }

    /// What the string says, escapes resolved; unknown ones (diagnosed by the parser) stay as they are.
    pub fn value(self) -> String {
        let mut out = String::new();
        let mut chars = self.content().chars();
        while let Some(c) = chars.next() {
            let escaped = if c == '\\' { chars.clone().next().and_then(unescape) } else { None };
            out.push(escaped.unwrap_or(c));
            if escaped.is_some() {
                chars.next();
            }
        }
        out
    }

    /// The places of escapes that mean nothing.
    pub fn bad_escapes(self) -> Vec<Span> {
        let start = self.0.start() + 1;
        let mut bad = Vec::new();
        let mut chars = self.content().char_indices();
        while let Some((at, c)) = chars.next() {
            if c != '\\' {
                continue;
            }
            let Some((_, next)) = chars.next() else { break };
            if unescape(next).is_none() {
                let from = start + at as u32;
                bad.push(Span::new(self.span().file, from, from + 1 + next.len_utf8() as u32));
            }
        }
        bad
    }

    fn content(self) -> &'t str {
        let text = &self.text()[1..];
        match self.0.kind() {
            K::UnclosedString => text,
            _ => text.get(..text.len().saturating_sub(1)).unwrap_or(""),
        }
    }
}

fn unescape(c: char) -> Option<char> {
    match c {
        '"' => Some('"'),
        '\\' => Some('\\'),
        'n' => Some('\n'),
        't' => Some('\t'),
        _ => None,
    }
}
