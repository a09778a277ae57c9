//! The front of the compiler: sources, diagnostics as data, the lossless tree and its typed views.
//!
//! [`parse`] turns text into a [`Parse`]: a tree that holds every byte, and a list of [`Diagnostic`]s of family S00.
//! [`ast`] gives the tree names, [`format`](fn@format) writes it in its one style. This crate knows no model, no mesh and no meaning; it performs no I/O; pest appears in
//! `pest_tree.rs` only, codespan-reporting in `files.rs` only.

pub mod ast;
mod code;
mod diagnostic;
mod errors;
mod files;
mod fixes;
mod format;
mod green;
mod kind;
mod lex;
mod lint;
mod parse;
mod pest_tree;
mod precedence;
mod span;
mod tree;

pub use code::Code;
pub use diagnostic::{Applicability, Diagnostic, Edit, Fix, Label, ModelExcerpt, Severity};
pub use files::{LineColumn, SourceMap};
pub use fixes::{apply_fixes, safe_fixes};
pub use format::format;
pub use kind::{ITEM_WORDS, RESERVED, SyntaxKind, is_reserved};
pub use lint::Lint;
pub use parse::{MAX_BRACKETS, Parse, parse};
pub use span::{FileId, Span};
pub use tree::{SyntaxElement, SyntaxNode, SyntaxToken, Tree};
