//! What an editor asks of a schedule, as plain data: byte offsets in, spans and text out.
//!
//! Everything is a question to a [`Snapshot`], one text checked on its model. Nothing here knows a protocol, lines and
//! columns, or files; `slapoc lsp` does. Read [`Snapshot`] first.

mod completion;
mod describe;
mod hover;
mod scope;
mod select;
mod signature_help;
mod signatures;
mod snapshot;
mod view;
mod words;

pub use completion::{Completion, CompletionKind, completions};
pub use hover::{Hover, hover};
pub use signature_help::{SignatureHelp, signature_help};
pub use signatures::{Param, Signature};
pub use snapshot::{Found, Snapshot};
