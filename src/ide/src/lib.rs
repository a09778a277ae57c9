//! What an editor asks of a schedule, as plain data: byte offsets in, spans and text out.
//!
//! Everything is a question to a [`Snapshot`], one text checked on its model. Nothing here knows a protocol, lines and
//! columns, or files; `slapoc lsp` does. Read [`Snapshot`] first.

mod actions;
mod completion;
mod describe;
mod hints;
mod hover;
mod imports;
mod navigation;
mod origin;
mod outline;
mod scope;
mod select;
mod signature_help;
mod signatures;
mod snapshot;
mod tokens;
mod view;
pub mod words;

pub use actions::{Action, actions};
pub use completion::{Completion, CompletionKind, completions};
pub use hints::{Hint, hints};
pub use hover::{Hover, hover};
pub use navigation::{Definition, around, definition, references, renamable, rename};
pub use outline::{Fold, Symbol, SymbolKind, folds, symbols};
pub use signature_help::{SignatureHelp, signature_help};
pub use signatures::{Param, Signature};
pub use snapshot::{Beside, Found, Snapshot};
pub use tokens::{Token, TokenKind, tokens};
