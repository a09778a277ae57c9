//! The same schedule in other layouts: white space, line ends and comments wherever the grammar lets them stand.
//!
//! Read [`relaid`] first.

use slapo_syntax::{FileId, SyntaxKind, SyntaxNode, SyntaxToken, parse};

use crate::support::Numbers;

/// What may be changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// White space that has no meaning, and the commas behind last elements. Comments and blank lines stay.
    Spaces,
    /// Comments and blank lines too.
    Comments,
}

/// What may stand between two tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gap {
    /// Spaces.
    Inline,
    /// Spaces and line ends, which mean the same.
    Free,
    /// At least one line end.
    Lines,
}

/// A right schedule in another layout.
pub fn relaid(text: &str, changes: Changes, numbers: &mut Numbers) -> String {
    let parsed = parse(FileId(0), text);
    assert!(parsed.is_ok(), "{text}");
    let mut out = String::new();
    let mut before: Option<SyntaxToken<'_>> = None;
    let mut trivia = String::new();
    let mut depth = 0;
    for leaf in parsed.root().leaves() {
        if leaf.kind().is_trivia() {
            trivia.push_str(leaf.text());
            continue;
        }
        let closes = is_bracket(leaf, &[SyntaxKind::RParen, SyntaxKind::RBracket, SyntaxKind::RBrace]);
        if let Some(before) = before {
            let gap = gap(before, &trivia, depth);
            if changes == Changes::Comments || !trivia.contains('#') {
                between(before, leaf, gap, &trivia, changes, numbers, &mut out);
            } else {
                out.push_str(&trivia);
            }
        } else {
            out.push_str(&trivia);
        }
        depth -= usize::from(closes);
        depth += usize::from(is_bracket(leaf, &[SyntaxKind::LParen, SyntaxKind::LBracket, SyntaxKind::LBrace]));
        out.push_str(leaf.text());
        trivia.clear();
        before = Some(leaf);
    }
    out + &trivia
}

/// A bracket inside of which line ends mean nothing.
fn is_bracket(token: SyntaxToken<'_>, kinds: &[SyntaxKind]) -> bool {
    kinds.contains(&token.kind()) && token.parent().kind() != SyntaxKind::Block
}

fn gap(before: SyntaxToken<'_>, trivia: &str, depth: usize) -> Gap {
    use SyntaxKind::*;
    let around = before.parent();
    let goes_on = match around.kind() {
        BinaryExpr | RangeExpr => true,
        LetStmt | KnobItem | PatternItem | TypeItem => before.kind() == Eq,
        RequireStmt => before.kind() == Comma,
        _ => false,
    };
    if depth > 0 || goes_on {
        Gap::Free
    } else if trivia.contains('\n') {
        Gap::Lines
    } else {
        Gap::Inline
    }
}

fn between(
    before: SyntaxToken<'_>,
    next: SyntaxToken<'_>,
    gap: Gap,
    trivia: &str,
    changes: Changes,
    numbers: &mut Numbers,
    out: &mut String,
) {
    if takes_last_comma(before, next) && gap == Gap::Free && numbers.below(3) == 0 {
        out.push_str(" , ");
    }
    let with_comments = changes == Changes::Comments;
    let ends = match gap {
        Gap::Inline => 0,
        Gap::Free if with_comments => numbers.below(3),
        Gap::Lines if with_comments => 1 + numbers.below(3),
        Gap::Free if trivia.matches('\n').count() < 2 => numbers.below(2),
        Gap::Free | Gap::Lines => trivia.matches('\n').count(),
    };
    spaces(!trivia.is_empty(), numbers, out);
    for _ in 0..ends {
        if with_comments && numbers.below(3) == 0 {
            let kind = ["# c", "## d ", "#", "#!x\t"][numbers.below(4)];
            out.push_str(&format!("{kind}{}", numbers.below(100)));
        }
        out.push('\n');
        spaces(false, numbers, out);
    }
}

fn spaces(at_least_one: bool, numbers: &mut Numbers, out: &mut String) {
    (0..numbers.below(3) + usize::from(at_least_one)).for_each(|_| out.push([' ', ' ', '\t'][numbers.below(3)]));
}

/// Whether a comma may follow the last element of a list.
fn takes_last_comma(before: SyntaxToken<'_>, close: SyntaxToken<'_>) -> bool {
    use SyntaxKind::*;
    let is_list = |node: SyntaxNode<'_>| {
        matches!(node.kind(), UseNames | Entries | ParamList | ArgList | ListExpr | BraceExpr | RecordType)
    };
    let closes = matches!(close.kind(), RParen | RBracket | RBrace);
    closes && is_list(close.parent()) && !matches!(before.kind(), Comma | LParen | LBracket | LBrace)
}
