//! What all ranks of a mesh must be about to run, as facts that are compared before anything is computed.
//!
//! A fact has a name and a value, both for people; long things are told by a digest. What differs between ranks by design,
//! such as the part of a tensor that is theirs, is left out. Read [`facts`] first.

use crate::data::DataSet;
use crate::error::{Error, Result};
use crate::libtorch;
use crate::mesh::common;
use slapo_program::{Arg, Function, FunctionKind, Instr, Job, Placement, Program, VERSION};
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;

pub type Facts = Vec<(String, String)>;

/// Of a rank's job, in the order in which differences are told.
pub fn facts(job: &Job, data: &DataSet) -> Result<Facts> {
    let program = &job.program;
    let mesh: Vec<String> = program.mesh.iter().map(|axis| format!("{} = {}", axis.name, axis.size)).collect();
    let functions: Vec<&str> = program.functions.iter().map(|f| f.name.as_str()).collect();
    let calls = |calls: &[slapo_program::Call]| calls.iter().map(|c| (c.function, c.micro_batch)).collect::<Vec<_>>();
    let calls = (calls(&program.setup), calls(&program.step), program.loss, program.grad_norm);
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let mut facts = vec![
        ("worker", format!("{} with libtorch {}", env!("CARGO_PKG_VERSION"), libtorch::version())),
        ("version of programs", format!("{VERSION}")),
        ("model", short(&program.fingerprint.model)),
        ("size of the archive", job.archive.as_deref().map_or(Ok("none".to_owned()), size)?),
        ("schedule", short(&program.fingerprint.schedule)),
        ("mesh", mesh.join(", ")),
        ("data", format!("{} rows, {}", data.rows(), data.digest())),
        ("number of steps", job.steps.to_string()),
        ("seed", program.seed.to_string()),
        ("number of micro-batches", program.micro_batches.to_string()),
        ("use of initial values", yes(job.init)),
        ("determinism", yes(job.deterministic)),
        ("dump of gradients", yes(job.dump_gradients.is_some())),
        ("saving of parameters", yes(job.save.is_some())),
        ("list of functions", functions.join(", ")),
        ("order of calls", digest([format!("{calls:?}")])),
        ("list of parameters and inputs", digest(tensors(program))),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect::<Facts>();
    facts.extend(program.functions.iter().map(|function| {
        let value = format!("{} instructions, {}", function.body.len(), digest(instructions(function)));
        (format!("function `{}`", function.name), value)
    }));
    Ok(facts)
}

pub fn to_bytes(facts: &Facts) -> Vec<u8> {
    serde_json::to_vec(facts).unwrap_or_default()
}

/// The first fact of rank 0 that differs on rank `other`, in words.
pub fn difference(first: &Facts, other_facts: &[u8], other: u32) -> Option<String> {
    let theirs: Facts = serde_json::from_slice(other_facts).unwrap_or_default();
    let value_of = |name: &str| theirs.iter().find(|(other, _)| other == name).map_or("none", |(_, value)| value);
    let differs = first.iter().find(|(name, value)| value_of(name) != value);
    differs.map(|(name, value)| {
        let found = value_of(name);
        format!("ranks 0 and {other} do not run the same: the {name} is {value} on rank 0, {found} on rank {other}")
    })
}

/// Enough of a fingerprint to tell two apart.
fn short(fingerprint: &str) -> String {
    if fingerprint.is_empty() { "unnamed".to_owned() } else { fingerprint.chars().take(12).collect() }
}

fn size(path: &Path) -> Result<String> {
    let found = path.metadata().map_err(|e| Error::input(format!("cannot read `{}`: {e}", path.display())))?;
    Ok(format!("{} bytes", found.len()))
}

fn tensors(program: &Program) -> Vec<String> {
    let parameters = program.parameters.iter().map(|p| {
        let Placement { global_shape, splits } = &p.placement;
        let splits: Vec<_> = splits.iter().map(|s| (s.dim, s.groups, s.parts)).collect();
        format!("{} {:?} {} {global_shape:?} {splits:?} {:?}", p.global, p.names, p.saved, p.init)
    });
    let globals = program.globals.iter().map(|g| format!("{} {:?}", g.name, g.role));
    let inputs = program.inputs.iter().map(|i| format!("{} {}", i.global, i.name));
    parameters.chain(globals).chain(inputs).collect()
}

fn instructions(function: &Function) -> Vec<String> {
    let settings = function.kind == FunctionKind::Optimizer;
    let line = |instr: &Instr| {
        let named = instr.named.iter().map(|(_, arg)| arg);
        let floats = instr.args.iter().chain(named).filter(|arg| settings && matches!(arg, Arg::Float(_)));
        format!("{:?} {:?}", common(&instr.op), floats.collect::<Vec<_>>())
    };
    function.body.iter().map(line).collect()
}

fn digest(lines: impl IntoIterator<Item = String>) -> String {
    let mut hasher = DefaultHasher::new();
    for line in lines {
        hasher.write(line.as_bytes());
        hasher.write_u8(b'\n');
    }
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_told_with_both_values() {
        let facts = |seed: &str, steps: &str| -> Facts {
            [("steps", steps), ("seed", seed)].map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
        };
        let compare = |other: &Facts| difference(&facts("1", "5"), &to_bytes(other), 3);
        assert_eq!(compare(&facts("1", "5")), None);
        let expected = "ranks 0 and 3 do not run the same: the seed is 1 on rank 0, 2 on rank 3";
        assert_eq!(compare(&facts("2", "5")).as_deref(), Some(expected));
        assert!(compare(&facts("2", "6")).is_some_and(|text| text.contains("the steps is 5 on rank 0, 6 on rank 3")));
        assert!(difference(&facts("1", "5"), b"{", 1).is_some_and(|text| text.contains("none on rank 1")));
    }
}
