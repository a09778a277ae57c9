//! Passes from graph to graph. Each is a function that returns a new graph; none knows the schedule's text.

pub mod autodiff;
pub mod borders;
pub mod canonical;
pub mod constant;
pub mod conversions;
mod derivatives;
pub mod describe;
pub mod gather;
pub mod merge;
pub mod mesh;
mod prune;
pub mod recompute;
pub mod rewrite;
pub mod splice;

pub use prune::prune;
