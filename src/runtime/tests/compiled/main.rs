//! What the compiler makes of schedules, run rank by rank in this process.

mod cases;
mod harness;
mod mutants;
mod mutation;
mod plans;
