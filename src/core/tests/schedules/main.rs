//! From a schedule's text to steps, and what the user is told on the way.

mod cases;
#[path = "../../../../tests/fuzz/clock.rs"]
mod clock;
#[path = "../../../../tests/fuzz/edits.rs"]
mod edits;
mod expansion;
mod faults;
mod fixes;
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
mod robust;
mod steps;
mod support;
mod ui;
