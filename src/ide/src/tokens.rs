//! What every word of a text is, for editors that colour by meaning.

use crate::Snapshot;
use crate::scope::{By, Scope, Space};
use slapo_core::schedule::WORDS;
use slapo_syntax::{Span, SyntaxKind, SyntaxToken};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub span: Span,
    pub kind: TokenKind,
    /// Where a name is declared.
    pub is_declaration: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    Keyword,
    Comment,
    String,
    Number,
    Library,
    Schedule,
    /// A primitive or what is asked of a path.
    Method,
    /// Part of the model.
    Path,
    Parameter,
    Variable,
    Axis,
    Type,
    /// A value of the language.
    Word,
}

impl TokenKind {
    /// In the order of their numbers.
    pub const ALL: &[TokenKind] = &[
        TokenKind::Keyword,
        TokenKind::Comment,
        TokenKind::String,
        TokenKind::Number,
        TokenKind::Library,
        TokenKind::Schedule,
        TokenKind::Method,
        TokenKind::Path,
        TokenKind::Parameter,
        TokenKind::Variable,
        TokenKind::Axis,
        TokenKind::Type,
        TokenKind::Word,
    ];
}

/// All tokens that have a meaning, in the order of the text.
pub fn tokens(snapshot: &Snapshot) -> Vec<Token> {
    let scope = Scope::new(&snapshot.parse, &snapshot.modules);
    let leaves = snapshot.parse.root().leaves();
    let token = |leaf: SyntaxToken<'_>| {
        let (kind, is_declaration) = kind(&scope, leaf)?;
        Some(Token { span: leaf.span(), kind, is_declaration })
    };
    leaves.filter_map(token).collect()
}

fn kind(scope: &Scope<'_>, leaf: SyntaxToken<'_>) -> Option<(TokenKind, bool)> {
    let kind = match leaf.kind() {
        SyntaxKind::Comment | SyntaxKind::DocComment => TokenKind::Comment,
        SyntaxKind::String => TokenKind::String,
        SyntaxKind::Number => TokenKind::Number,
        SyntaxKind::InKw if leaf.parent().kind() == SyntaxKind::RoleIn => TokenKind::Word,
        keyword if keyword.is_keyword() => TokenKind::Keyword,
        SyntaxKind::Word => return word(scope, leaf),
        _ => return None,
    };
    Some((kind, false))
}

fn word(scope: &Scope<'_>, word: SyntaxToken<'_>) -> Option<(TokenKind, bool)> {
    if let Some(found) = scope.of(word) {
        let kind = match found.by {
            By::Param(..) | By::Operand(_) => TokenKind::Parameter,
            By::Axis(_) => TokenKind::Axis,
            by => match by.space() {
                Space::Value => TokenKind::Variable,
                Space::Callable => TokenKind::Schedule,
                Space::Type => TokenKind::Type,
            },
        };
        return Some((kind, found.name == word));
    }
    let kind = match word.parent().kind() {
        SyntaxKind::FieldExpr | SyntaxKind::BraceName => TokenKind::Path,
        SyntaxKind::MethodCall => TokenKind::Method,
        SyntaxKind::CallExpr if WORDS.iter().any(|known| known.name == word.text()) => TokenKind::Word,
        SyntaxKind::CallExpr => TokenKind::Schedule,
        SyntaxKind::Arg | SyntaxKind::Entry | SyntaxKind::RecordField => TokenKind::Parameter,
        SyntaxKind::NamedType => TokenKind::Type,
        SyntaxKind::UseItem => TokenKind::Library,
        SyntaxKind::NameExpr if WORDS.iter().any(|known| known.name == word.text()) => TokenKind::Word,
        SyntaxKind::NameExpr => TokenKind::Type,
        _ => return None,
    };
    Some((kind, false))
}
