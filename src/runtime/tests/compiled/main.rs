//! What the compiler makes of schedules, run rank by rank in this process.

mod harness;
mod mutants;
mod mutation;
