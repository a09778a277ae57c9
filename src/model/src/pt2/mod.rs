//! Importer of `.pt2`, the archive that `torch.export.save` writes.
//!
//! Bytes in, [`crate::Model`] out. Only the zip directory and the archive's JSON are read: weights stay where they are
//! and are known by their place in the file. Pickles in the archive are never looked at. Read [`import()`] first; what
//! an archive may look like is in `schema`.

mod archive;
mod argument;
mod builder;
mod error;
mod import;
mod json;
mod nodes;
mod schema;
mod sizes;
mod sources;
mod tensors;
mod tree;

pub use error::{ImportError, Site};
pub use import::{import, import_module};
