//! What ranks communicate in one step, gathered: equal collectives of equal modules are one line.

use super::patterns::{patterns, shape};
use serde::Serialize;
use slapo_program::{Carries, FunctionKind, Program, communications};
use std::collections::BTreeSet;

/// Collectives of one kind at modules that are alike.
#[derive(Debug, Serialize)]
pub struct Traffic {
    pub axis: String,
    /// `all_reduce`, `all_gather[dim 1, groups 3]`
    pub kind: String,
    /// `prologue`, `forward`, `backward`, `reduction` or `optimizer`.
    pub function: &'static str,
    /// `a value`, `the gradient`, `the parameter`, `the loss`, `the token count`, `the gradient norm`
    pub what: &'static str,
    /// Modules, or parameters where it is their gradients; empty for the model itself.
    pub place: String,
    /// How many modules or parameters that is.
    pub places: usize,
    pub calls: u64,
    /// Of the tensors that a rank brings.
    pub bytes: u64,
}

/// All of an axis in functions of one kind.
#[derive(Debug, Serialize)]
pub struct Total {
    pub axis: String,
    pub function: &'static str,
    pub calls: u64,
    pub bytes: u64,
}

/// Gradients of all kinds share buckets there.
const REDUCTION: &str = FunctionKind::Reduction.name();

/// Of one rank, in the order of its program.
pub fn traffic(program: &Program) -> Vec<Traffic> {
    let mut found: Vec<(Traffic, Vec<String>)> = Vec::new();
    for c in communications(program) {
        let (what, places) = match c.carries {
            Carries::Value => ("a value", vec![c.module]),
            Carries::Gradients(parameters) => ("the gradient", parameters),
            Carries::Parameters(parameters) => ("the parameter", parameters),
            Carries::Loss => ("the loss", vec![String::new()]),
            Carries::Count => ("the token count", vec![String::new()]),
            Carries::GradientNorm => ("the gradient norm", vec![String::new()]),
        };
        let own = Traffic {
            axis: program.mesh[c.axis as usize].name.clone(),
            kind: c.kind.to_string(),
            function: c.function.name(),
            what,
            place: String::new(),
            places: 0,
            calls: c.calls,
            bytes: c.bytes,
        };
        let alike = |(known, paths): &&mut (Traffic, Vec<String>)| {
            (&known.axis, &known.kind, known.function, known.what) == (&own.axis, &own.kind, own.function, own.what)
                && (own.function == REDUCTION || shape(&paths[0]) == shape(&places[0]))
        };
        match found.iter_mut().find(alike) {
            Some((known, paths)) => {
                known.calls += own.calls;
                known.bytes += own.bytes;
                paths.extend(places);
            }
            None => found.push((own, places)),
        }
    }
    let placed = |(traffic, paths): (Traffic, Vec<String>)| {
        let places = paths.iter().collect::<BTreeSet<_>>().len();
        Traffic { place: patterns(&paths).join(", "), places, ..traffic }
    };
    found.into_iter().map(placed).collect()
}

/// By axis and function, in the order of `traffic`.
pub fn totals(traffic: &[Traffic]) -> Vec<Total> {
    let mut totals: Vec<Total> = Vec::new();
    for one in traffic {
        match totals.iter_mut().find(|total| total.axis == one.axis && total.function == one.function) {
            Some(total) => {
                total.calls += one.calls;
                total.bytes += one.bytes;
            }
            None => {
                let Traffic { axis, function, calls, bytes, .. } = one;
                totals.push(Total { axis: axis.clone(), function, calls: *calls, bytes: *bytes });
            }
        }
    }
    totals
}
