//! The worker: runs a [`slapo_program::Program`] on libtorch. The only crate that knows libtorch.
//!
//! It must know nothing of schedules or models: operators are names, and what they mean is libtorch's business. Read
//! [`executor::Executor`] first, then [`mesh::Mesh`], which runs those of several ranks in lock step or one of them among
//! other processes, and [`trainer`], which drives a mesh through a job.

mod agreement;
pub mod allocator;
mod autograd;
pub mod backend;
mod bucket;
pub mod collectives;
pub mod data;
pub mod dropout;
pub mod error;
pub mod executor;
mod ffi;
pub mod geometry;
pub mod gloo;
pub mod libtorch;
pub mod line;
pub mod logical;
pub mod mesh;
pub mod operator;
pub mod processes;
pub mod random;
pub mod save;
mod self_test;
mod trace;
pub mod trainer;
pub mod weights;

pub use error::{Error, Result};
