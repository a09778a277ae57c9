//! From a schedule's text to steps, and what the user is told on the way.

mod acceptance;
mod cases;
mod dataflow;
mod expansion;
mod faults;
mod fixes;
mod fusion;
mod heads;
mod layouts;
mod meshes;
mod mistakes;
mod one_mistake;
mod pages;
mod patterns;
mod replacements;
mod robust;
mod steps;
mod support;
mod types;
mod ui;
