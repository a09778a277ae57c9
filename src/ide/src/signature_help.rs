//! The call around the cursor, and which of its arguments the cursor is in.

use crate::Snapshot;
use crate::signatures::Signature;
use crate::view::View;
use slapo_syntax::{SyntaxKind, SyntaxToken};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureHelp {
    pub signature: Signature,
    /// Position of the parameter that the cursor gives a value to.
    pub active: Option<usize>,
}

/// Follows the tokens and not the tree: a call is asked about while it is being written.
pub fn signature_help(snapshot: &Snapshot, offset: u32) -> Option<SignatureHelp> {
    let view = View::of(snapshot);
    let tokens = snapshot.parse.root().leaves().take_while(|token| token.end() <= offset);
    let tokens: Vec<SyntaxToken> = tokens.filter(|token| !token.kind().is_trivia()).collect();
    let mut depth = 0;
    let mut open = None;
    for (at, token) in tokens.iter().enumerate().rev() {
        match token.kind() {
            SyntaxKind::RParen | SyntaxKind::RBracket => depth += 1,
            SyntaxKind::LParen | SyntaxKind::LBracket if depth > 0 => depth -= 1,
            SyntaxKind::LParen => {
                open = Some(at);
                break;
            }
            SyntaxKind::LBracket | SyntaxKind::LBrace | SyntaxKind::RBrace => return None,
            _ => {}
        }
    }
    let open = open?;
    let name = *tokens.get(open.checked_sub(1)?)?;
    let is_method = open.checked_sub(2).is_some_and(|at| tokens[at].kind() == SyntaxKind::Dot);
    let signature = view.signature_of(name, is_method)?;
    let active = active(&signature, &tokens[open + 1..]);
    Some(SignatureHelp { signature, active })
}

/// By its label, or by how many arguments without one come before.
fn active(signature: &Signature, given: &[SyntaxToken<'_>]) -> Option<usize> {
    let (mut depth, mut bare, mut label, mut is_empty) = (0, 0, None, true);
    for (at, token) in given.iter().enumerate() {
        match token.kind() {
            SyntaxKind::LParen | SyntaxKind::LBracket => depth += 1,
            SyntaxKind::RParen | SyntaxKind::RBracket => depth -= 1,
            SyntaxKind::Comma if depth == 0 => {
                bare += usize::from(label.is_none() && !is_empty);
                (label, is_empty) = (None, true);
                continue;
            }
            SyntaxKind::Colon if depth == 0 => label = at.checked_sub(1).map(|before| given[before].text()),
            _ => {}
        }
        is_empty = false;
    }
    match label {
        Some(label) => signature.params.iter().position(|param| param.name == label),
        None => (bare < signature.params.len()).then_some(bare),
    }
}
