//! Rules for what changes layouts: syncs on their own axis, and what an outer axis makes of the pieces and collectives of inner
//! ones, whose partition the graph has seen already.

use super::rules::{Rule, Verdict, is_rows_of_input, refuse};
use super::{Partial, Refusal, Split, Sync};
use slapo_program::Collective;

impl Rule<'_> {
    /// On its own axis a sync must find what it takes; on others it is the identity.
    pub(super) fn sync(&self, number: u32) -> Verdict {
        let from = self.layout("self");
        match self.on.syncs.get(number as usize) {
            Some((axis, sync)) if Some(*axis) == self.on.axis => {
                let Some(to) = sync.apply(from) else {
                    return Err(refuse(format!("`{sync}` takes {}, but the value is {from}", sync.takes())));
                };
                let exchanges = matches!(sync.chosen(from), Some(Sync::AllToAll { .. }));
                for (layout, shape) in [(from, self.shape("self")), (to, self.out_shape())] {
                    match layout {
                        Split { dim, groups } if exchanges || groups != 1 => self.divides(shape, dim, groups)?,
                        _ => {}
                    }
                }
                Ok(self.all(to))
            }
            _ => self.linear(),
        }
    }

    /// Refuses pieces of different sizes, with the sizes of the axis that would do.
    fn divides(&self, shape: &[i64], dim: usize, groups: i64) -> Result<(), Refusal> {
        let fits = |parts: &i64| shape[dim] % groups.saturating_mul(*parts) == 0;
        let legal = (1..=shape[dim]).filter(fits).collect();
        self.even(shape, dim, groups, "it moves pieces").map_err(|refusal| Refusal { legal, ..refusal })
    }

    /// Micro-batches divide a rank's rows of an input further; to other axes a piece is as the whole.
    pub(super) fn part(&self, dim: usize, groups: i64) -> Verdict {
        match self.on.axis {
            None if is_rows_of_input(self.graph, self.node) => Ok(self.all(Split { dim: 0, groups: 1 })),
            _ => self.inner(dim, groups),
        }
    }

    /// Of an inner axis: the identity, but for the largest of summands.
    pub(super) fn collective(&self, kind: Collective) -> Verdict {
        match (kind, self.layout("self")) {
            (Collective::AllReduceMax, Partial) => Err(refuse("the largest of partial sums is not that of the sums")),
            (Collective::AllGather { dim, groups } | Collective::ReduceScatter { dim, groups }, _) => {
                self.inner(dim, groups)
            }
            (Collective::AllToAll { to, .. }, Split { dim, .. }) if dim == to => self.inner(to, 1),
            (Collective::AllToAll { from, groups, .. }, _) => self.inner(from, groups),
            (_, layout) => Ok(self.all(layout)),
        }
    }

    /// Pieces of an inner axis: of the same dimension they lie within this one's.
    fn inner(&self, cut: usize, groups: i64) -> Verdict {
        match self.layout("self") {
            Split { dim, groups: own } if dim == cut => match groups % own.saturating_mul(self.typing.parts) {
                0 => Ok(self.all(Split { dim, groups: own })),
                _ => Err(refuse("pieces of one dimension do not nest")),
            },
            layout => Ok(self.all(layout)),
        }
    }
}
