//! Rules for what changes layouts: syncs on their own axis, and what other axes' conversions leave of a split.

use super::rules::{Rule, Verdict, is_rows_of_input, refuse};
use super::{Layout, OnAxis, Refusal, Split, encloses};
use slapo_model::Op;
use slapo_program::Collective;

impl Rule<'_> {
    /// Micro-batches divide a rank's rows of an input further.
    pub(super) fn part(&self, on: OnAxis) -> Verdict {
        match (on.axis, &self.node.op) {
            (None, _) if is_rows_of_input(self.graph, self.node) => Ok(self.all(Split { dim: 0, groups: 1 })),
            (_, Op::Part { dim, groups, .. }) => Ok(self.all(self.converted(self.layout("self"), *dim, *groups)?)),
            _ => self.linear(),
        }
    }

    /// What other axes do changes how this one holds the value where both split one dimension.
    pub(super) fn collective(&self, kind: Collective) -> Verdict {
        let from = self.layout("self");
        Ok(self.all(match kind {
            Collective::AllGather { dim, groups } | Collective::ReduceScatter { dim, groups } => {
                self.converted(from, dim, groups)?
            }
            Collective::AllToAll { from: gathered, groups, to } => {
                self.converted(self.converted(from, gathered, groups)?, to, 1)?
            }
            _ => from,
        }))
    }

    /// The layout behind another axis' conversion along `dim`, in `groups`. Pieces inside of the other axis' ones are counted
    /// in what is there: fewer groups where a piece is taken, more where pieces are put together.
    fn converted(&self, layout: Layout, dim: usize, groups: i64) -> Result<Layout, Refusal> {
        let Split { dim: own, groups: inner } = layout else { return Ok(layout) };
        if own != dim || encloses(inner, self.typing.parts, groups) {
            return Ok(layout);
        }
        let (before, after) = (self.shape("self")[dim], self.out_shape()[dim]);
        match inner % groups == 0 && (inner * after) % (groups * before) == 0 {
            true => Ok(Split { dim, groups: inner * after / before }),
            false => Err(refuse(format!("it takes pieces of dimension {dim}, which is split across them"))),
        }
    }

    /// On its own axis a sync must find what it takes; on others it is the identity.
    pub(super) fn sync(&self, number: u32, on: OnAxis) -> Verdict {
        let from = self.layout("self");
        match on.syncs.get(number as usize) {
            Some((axis, sync)) if Some(*axis) == on.axis => match sync.apply(from) {
                Some(to @ Split { dim, groups }) if !self.divides(dim, groups) => Err(refuse(format!(
                    "dimension {dim} of size {} does not divide into the pieces of {to}",
                    self.out_shape()[dim]
                ))),
                Some(to) => Ok(self.all(to)),
                None => Err(refuse(format!("`{sync}` takes {}, but the value is {from}", sync.takes()))),
            },
            _ => self.linear(),
        }
    }

    fn divides(&self, dim: usize, groups: i64) -> bool {
        self.out_shape()[dim] % groups.saturating_mul(self.typing.parts) == 0
    }
}
