//! Tests of `slapo-model` on the committed archives and on archives edited here.
//!
//! `snapshots` shows what is read; `facts` states what must hold; `faults` breaks archives one thing at a time;
//! `fuzz` breaks them at random.

mod binding;
mod facts;
mod faults;
mod fuzz;
mod graphs;
mod sizes;
mod snapshots;
mod support;
