//! The command line without a worker: what is said about schedules and models, in which format, with which exit code.

mod apply;
mod check;
mod files;
mod fixes;
mod fmt;
mod formats;
mod lints;
mod lsp;
mod schedules;
mod support;
mod tools;
