//! Several tensors in one collective: what a rank brings of them, as one row of elements, and what it takes from the row that
//! it gets.
//!
//! Of tensors that are cut, every rank's pieces lie next to each other, each as long as the longest rank's: pieces of
//! different sizes are padded with zeros. Knows nothing of programs or of how ranks run. Read [`Bucket`] first.

use crate::collectives::{gather, piece};
use crate::libtorch;
use slapo_program::Collective;
use tch::Tensor;

type Result<T> = std::result::Result<T, String>;

/// A collective of `parts` ranks over several tensors of one type. `wholes` are their shapes as no rank's piece.
pub struct Bucket<'s> {
    pub kind: Collective,
    pub parts: i64,
    pub wholes: Vec<&'s [i64]>,
}

impl Bucket<'_> {
    /// What ranks do with the rows.
    pub fn of_rows(kind: Collective) -> Collective {
        match kind {
            Collective::AllGather { .. } => Collective::AllGather { dim: 0, groups: 1 },
            Collective::ReduceScatter { .. } => Collective::ReduceScatter { dim: 0, groups: 1 },
            other => other,
        }
    }

    /// The row of a rank that has these tensors.
    pub fn brought(&self, tensors: &[&Tensor]) -> Result<Tensor> {
        match self.kind {
            Collective::AllGather { .. } => {
                let padded: Result<Vec<Tensor>> =
                    tensors.iter().enumerate().map(|(i, tensor)| self.padded(tensor, i)).collect();
                libtorch::in_a_row(&padded?.iter().collect::<Vec<_>>())
            }
            Collective::ReduceScatter { dim, groups } => {
                let mut pieces = Vec::new();
                for rank in 0..self.parts {
                    for (i, tensor) in tensors.iter().enumerate() {
                        pieces.push(self.padded(&piece(tensor, dim, groups, self.parts, rank)?, i)?);
                    }
                }
                libtorch::in_a_row(&pieces.iter().collect::<Vec<_>>())
            }
            _ => libtorch::in_a_row(tensors),
        }
    }

    /// What `rank` takes from the row that it gets.
    pub fn taken(&self, row: &Tensor, rank: i64) -> Result<Vec<Tensor>> {
        match self.kind {
            Collective::AllGather { dim, groups } => {
                let taken = (0..self.wholes.len()).map(|i| {
                    let pieces =
                        (0..self.parts).map(|rank| self.view(row, rank * self.chunk() + self.before(i), i, rank));
                    gather(&pieces.collect::<Result<Vec<_>>>()?, dim, groups)
                });
                taken.collect()
            }
            Collective::ReduceScatter { .. } => {
                (0..self.wholes.len()).map(|i| self.view(row, self.before(i), i, rank)).collect()
            }
            _ => libtorch::out_of_a_row(row, self.wholes.iter().copied()),
        }
    }

    /// Elements of the row that a rank gets.
    pub fn length(&self) -> i64 {
        match self.kind {
            Collective::AllGather { .. } => self.parts * self.chunk(),
            Collective::ReduceScatter { .. } => self.chunk(),
            _ => self.wholes.iter().map(|shape| shape.iter().product::<i64>()).sum(),
        }
    }

    /// Elements of a rank's pieces with their padding.
    fn chunk(&self) -> i64 {
        self.before(self.wholes.len())
    }

    /// Of the pieces of the first `count` tensors.
    fn before(&self, count: usize) -> i64 {
        (0..count).map(|i| self.shape(i, 0).iter().product::<i64>()).sum()
    }

    /// The shape of a rank's piece of tensor number `i`; the first rank's is the largest.
    fn shape(&self, i: usize, rank: i64) -> Vec<i64> {
        let mut shape = self.wholes[i].to_vec();
        if let Collective::AllGather { dim, groups } | Collective::ReduceScatter { dim, groups } = self.kind
            && let Some(size) = shape.get_mut(dim)
        {
            *size = groups * slapo_program::piece(*size / groups.max(1), self.parts, rank).1;
        }
        shape
    }

    fn padded(&self, piece: &Tensor, i: usize) -> Result<Tensor> {
        let flat = piece.f_reshape([-1]).map_err(|e| libtorch::message(&e))?;
        let missing = self.shape(i, 0).iter().product::<i64>() - flat.numel() as i64;
        match missing {
            0 => Ok(flat),
            _ => flat.f_constant_pad_nd([0, missing]).map_err(|e| libtorch::message(&e)),
        }
    }

    fn view(&self, row: &Tensor, offset: i64, i: usize, rank: i64) -> Result<Tensor> {
        let shape = self.shape(i, rank);
        let view = row.f_narrow(0, offset, shape.iter().product()).and_then(|part| part.f_view(&shape[..]));
        view.map_err(|e| libtorch::message(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::collective;
    use tch::{Device, Kind};

    /// What every rank gets of the bucket is what it gets of each tensor alone.
    #[test]
    fn a_bucket_is_its_tensors_one_by_one() {
        let parts = 3;
        let shapes: [&[i64]; 3] = [&[7, 2], &[3, 5], &[4, 1]];
        let tensor = |rank: i64, shape: &[i64]| {
            let count: i64 = shape.iter().product();
            (Tensor::arange(count, (Kind::Double, Device::Cpu)) + 100 * rank).reshape(shape)
        };
        let scatter = Collective::ReduceScatter { dim: 0, groups: 1 };
        let gathers = Collective::AllGather { dim: 0, groups: 1 };
        for kind in [Collective::AllReduce, scatter, gathers] {
            let bucket = Bucket { kind, parts, wholes: shapes.to_vec() };
            let own = |rank: i64| -> Vec<Tensor> {
                let whole = shapes.iter().map(|shape| tensor(rank, shape));
                let cut = |whole: Tensor| piece(&whole, 0, 1, parts, rank).expect("a piece");
                if kind == gathers { whole.map(cut).collect() } else { whole.collect() }
            };
            let rows = (0..parts).map(|rank| bucket.brought(&own(rank).iter().collect::<Vec<_>>()).expect("a row"));
            let got = collective(Bucket::of_rows(kind), &rows.collect::<Vec<_>>()).expect("rows");
            for (rank, row) in got.iter().enumerate() {
                assert_eq!(row.numel() as i64, bucket.length());
                let taken = bucket.taken(row, rank as i64).expect("tensors");
                for (i, taken) in taken.iter().enumerate() {
                    let alone: Vec<Tensor> = (0..parts).map(|rank| own(rank)[i].shallow_clone()).collect();
                    assert_eq!(
                        *taken,
                        collective(kind, &alone).expect("alone")[rank],
                        "{kind}, tensor {i}, rank {rank}"
                    );
                }
            }
        }
    }
}
