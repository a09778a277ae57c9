//! The formatter: one style, no options.
//!
//! The layout follows from the tokens, the comments and the blank lines between statements alone; how a text was laid
//! out before does not matter. Tokens are kept as they are, but for the comma behind the last element of a list, which
//! stands where every element has a line of its own. `trivia` says which comments belong to which token, `items` and
//! `exprs` write the tree as a stream of marks, and `layout` decides where lines break. Read [`format`] first.

mod build;
mod exprs;
mod items;
mod layout;
mod trivia;

use crate::kind::SyntaxKind;
use crate::parse::Parse;
use build::Builder;

/// The text in its one form; `None` where it has errors, since nothing is known of what stands there.
///
/// A byte-order mark stays, and lines end as the first one does: `\n` or `\r\n`.
pub fn format(parse: &Parse) -> Option<String> {
    if !parse.is_ok() {
        return None;
    }
    let root = parse.root();
    let mark = root.leaves().next().filter(|token| token.kind() == SyntaxKind::ByteOrderMark);
    let first_end = root.leaves().find(|token| token.kind() == SyntaxKind::Newline);
    let line_end = if first_end.is_some_and(|token| token.text() == "\r\n") { "\r\n" } else { "\n" };
    let mut builder = Builder::new(root);
    builder.file(root);
    let text = layout::text(&builder.marks, line_end);
    Some(format!("{}{text}", mark.map_or("", |token| token.text())))
}
