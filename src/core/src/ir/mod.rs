//! What passes share: the operator table and the builder that writes graphs with it.

mod builder;
pub mod ops;

pub use builder::{Builder, arg};
