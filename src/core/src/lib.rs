//! The compiler: from a schedule's tree and a model to the Program of a rank.
//!
//! Owns name resolution, checking, steps, graph passes and lowering. It does no I/O, knows no libtorch, and is
//! deterministic. Read `passes` for graph to graph, `lower` for graph to Program.

pub mod compile;
pub mod ir;
pub mod layout;
pub mod lower;
pub mod memory;
pub mod passes;
pub mod patterns;
pub mod primitives;
mod replacement;
pub mod schedule;
pub mod trace;
pub mod units;
