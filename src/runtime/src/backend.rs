//! How the ranks of a mesh reach each other: all of them in this process, or one here and the others in processes of their
//! own.
//!
//! A mesh runs the same instructions either way; it brings what the ranks here hold, and gets what they are given. Read
//! [`Backend`] first; the other implementation is [`crate::processes`].

use crate::collectives::collective;
use crate::error::{Error, Result};
use crate::logical::{Held, assemble};
use slapo_program::{Collective, Placement};
use tch::Tensor;

pub trait Backend {
    /// What a collective gives each rank of one group of `axis`, those here, in order; `brought` is what they bring.
    /// `result` is the shape of a rank's result.
    fn collective(&self, axis: usize, kind: Collective, brought: &[Tensor], result: &[i64]) -> Result<Vec<Tensor>>;

    /// A word of every rank of the mesh, from those of the ranks here.
    fn words(&self, own: &[u64]) -> Result<Vec<u64>>;

    /// A tensor from the boxes of all ranks, of which `own` are here: on the process of rank 0, where some rank has a
    /// value. `label` is what messages call it.
    fn whole(&self, label: &str, own: &[Share]) -> Result<Option<Tensor>>;

    /// No rank needs another any more. Nobody ends before all have come here.
    fn leave(&self) -> Result<()> {
        Ok(())
    }
}

/// A rank's box of a tensor.
pub struct Share<'a> {
    pub tensor: Option<&'a Tensor>,
    pub placement: Placement,
}

/// All ranks are here.
pub struct Simulated;

impl Backend for Simulated {
    fn collective(&self, _: usize, kind: Collective, brought: &[Tensor], _: &[i64]) -> Result<Vec<Tensor>> {
        collective(kind, brought).map_err(Error::run)
    }

    fn words(&self, own: &[u64]) -> Result<Vec<u64>> {
        Ok(own.to_vec())
    }

    fn whole(&self, label: &str, own: &[Share]) -> Result<Option<Tensor>> {
        let held = own.iter().enumerate();
        let held: Vec<Held> = held
            .filter_map(|(rank, share)| Some(Held { rank, tensor: share.tensor?, placement: &share.placement }))
            .collect();
        if held.is_empty() {
            return Ok(None);
        }
        assemble(&held).map(Some).map_err(|message| Error::ranks(format!("{label} {message}")))
    }
}
