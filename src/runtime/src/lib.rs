//! The worker: runs a [`slapo_program::Program`] on libtorch. The only crate that knows libtorch.
//!
//! It must know nothing of schedules or models: operators are names, and what they mean is libtorch's business. Read
//! [`executor::Executor`] first, then [`trainer`], which drives it through a job.

pub mod allocator;
pub mod data;
pub mod dropout;
pub mod error;
pub mod executor;
mod ffi;
pub mod geometry;
pub mod libtorch;
pub mod operator;
pub mod random;
pub mod save;
pub mod trainer;
pub mod weights;

pub use error::{Error, Result};
