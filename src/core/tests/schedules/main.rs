//! From a schedule's text to steps, and what the user is told on the way.

mod acceptance;
mod cases;
#[path = "../../../../tests/fuzz/clock.rs"]
mod clock;
mod dataflow;
#[path = "../../../../tests/fuzz/edits.rs"]
mod edits;
mod expansion;
mod faults;
mod fixes;
mod fusion;
mod fuzz;
mod heads;
mod knobs;
mod layouts;
mod meshes;
mod mistakes;
mod names;
mod one_mistake;
mod pages;
mod patterns;
mod replacements;
mod robust;
mod steps;
mod support;
mod types;
mod ui;
