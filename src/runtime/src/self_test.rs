//! Every collective between the processes of a mesh, tried on known answers before they are trusted with a model.
//!
//! The expected results are those of [`crate::collectives`]. Small whole numbers, so that no order of sums matters.

use crate::backend::Backend;
use crate::collectives::collective;
use crate::error::{Error, Result};
use crate::processes::Processes;
use slapo_program::Collective;
use tch::{Kind, Tensor};

/// Fails where some collective over some axis gives something else than it should.
pub fn run(processes: &Processes, axes: usize) -> Result<()> {
    (0..axes).try_for_each(|axis| match processes.line(axis) {
        Some(line) => on_axis(processes, axis, line.rank(), line.size()),
        None => Ok(()),
    })
}

fn on_axis(processes: &Processes, axis: usize, own: usize, size: usize) -> Result<()> {
    let n = size as i64;
    let whole = Collective::AllReduce;
    let cases = [
        (whole, Kind::Float),
        (whole, Kind::Double),
        (whole, Kind::Int64),
        (whole, Kind::BFloat16),
        (Collective::AllReduceMax, Kind::Float),
        (Collective::AllGather { dim: 0, groups: 1 }, Kind::Float),
        (Collective::AllGather { dim: 1, groups: 2 }, Kind::Bool),
        (Collective::ReduceScatter { dim: 1, groups: 2 }, Kind::Float),
        (Collective::AllToAll { from: 0, groups: 1, to: 1 }, Kind::Float),
    ];
    for (kind, element) in cases {
        let brought = |rank: i64| {
            let numbers: Vec<i64> = (0..6 * n * n).map(|i| i * (rank + 1) % 7).collect();
            Tensor::from_slice(&numbers).view([3 * n, 2 * n]).to_kind(element)
        };
        let all: Vec<Tensor> = (0..n).map(brought).collect();
        let expected = collective(kind, &all).map_err(Error::run)?.swap_remove(own);
        let got = processes.collective(axis, kind, &all[own..=own], &expected.size())?.swap_remove(0);
        if !got.equal(&expected) {
            return Err(Error::run(format!(
                "{} of {element:?} between processes gives wrong values: {got}, not {expected}",
                kind.name()
            )));
        }
    }
    Ok(())
}
