//! The grammar of schedules as a pest parser, and nothing else.
//!
//! This crate knows no tree, no message and no file: it exists apart so that the generated parser is rebuilt only when
//! `slapo.pest` changes. Read `slapo.pest` first; `slapo-syntax` is the only user.

pub use pest;

/// The generated parser; `ScheduleParser::parse(Rule::file, text)` accepts every text whose brackets are not nested
/// too deeply for the stack.
#[derive(pest_derive::Parser)]
#[grammar = "../slapo.pest"]
pub struct ScheduleParser;
