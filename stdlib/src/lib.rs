//! The standard library of schedules, embedded as text.
//!
//! One `.slapo` file per module; `use std.memory.{…}` reads `memory.slapo`. This crate only holds the texts: parsing and
//! checking them is the compiler's.

/// Name and text of every module, in alphabetical order.
const MODULES: &[(&str, &str)] = &[
    ("fusion", include_str!("../fusion.slapo")),
    ("memory", include_str!("../memory.slapo")),
    ("parallel", include_str!("../parallel.slapo")),
];

/// The text of a module.
pub fn module(name: &str) -> Option<&'static str> {
    MODULES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The names of all modules, in alphabetical order.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    MODULES.iter().map(|(name, _)| *name)
}
