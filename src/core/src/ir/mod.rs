//! What passes share: the operator table and the builder that writes graphs with it.

mod builder;
pub mod ops;

pub use builder::{Builder, arg};

/// An argument beside the operator's own, which a node is held like: an embedding's gradient like the table. It is a
/// matter of layouts alone; lowering drops it.
pub const LIKE: &str = "like";
