//! What passes share: the operator table and the builder that writes graphs with it.

mod builder;
pub mod ops;

pub use builder::{Builder, arg};

/// An argument of `embedding_dense_backward` beside the operator's own: the table, which the gradient is held like. It is
/// a matter of layouts alone; lowering drops it.
pub const TABLE: &str = "table";
