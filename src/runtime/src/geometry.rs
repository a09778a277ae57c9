//! Which elements of a global tensor a local one holds, as runs of consecutive global indices.
//!
//! Local elements in row-major order fall into runs of one length, each consecutive in the global row-major order.
//! Splits of one dimension nest in the order they are listed: each divides what the one before left. Knows nothing of
//! tensors; read [`Geometry::for_each_run`] first.

use slapo_program::{Part, Placement, Split, piece};
use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Length of a run; a local tensor has a whole number of them.
    run: usize,
    elements: usize,
    /// Outer dimensions down to the innermost split one, outermost first; empty where the local tensor is the whole.
    dims: Vec<Dim>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Dim {
    /// Steps of this dimension over runs: its local size, or for the innermost split one its number of chunks.
    steps: u64,
    /// Local coordinates per step.
    unit: u64,
    /// Global elements between neighbouring coordinates.
    stride: u64,
    levels: Vec<Level>,
}

/// One split: local coordinate `g · chunk + r` was `g · period + offset + r`. An uneven one has a single chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Level {
    /// Length that all pieces are multiples of.
    chunk: u64,
    period: u64,
    offset: u64,
    /// Of sections that are not of one size: where their pieces begin, here and in the whole.
    starts: Vec<(u64, u64)>,
}

impl Geometry {
    /// The geometry of a local tensor of `local` shape, for the given running micro-batch.
    pub fn new(placement: &Placement, local: &[i64], micro_batch: u32) -> Result<Geometry, String> {
        let elements = local.iter().product::<i64>() as usize;
        let whole = Geometry { run: elements.max(1), elements, dims: Vec::new() };
        let Some(innermost) = placement.splits.iter().map(|s| s.dim).max() else {
            let declared = &placement.global_shape;
            return if declared.is_empty() || declared == local {
                Ok(whole)
            } else {
                Err(format!("{local:?} is not the whole of {declared:?}"))
            };
        };
        let expected = local_shape(placement)?;
        if expected != local {
            return Err(format!("{local:?} is not the part {expected:?} of {:?}", placement.global_shape));
        }
        let mut stride: u64 = placement.global_shape[innermost + 1..].iter().map(|n| *n as u64).product();
        let mut run = stride;
        let mut dims = Vec::new();
        for dim in (0..=innermost).rev() {
            let levels = levels(placement, dim, micro_batch);
            let size = local[dim] as u64;
            let borders =
                levels.iter().flat_map(|l| [l.chunk, l.offset].into_iter().chain(l.starts.iter().map(|s| s.1)));
            let unit = if dim == innermost { borders.fold(0, gcd) } else { 1 };
            if dim == innermost {
                run *= unit;
            }
            dims.push(Dim { steps: size / unit.max(1), unit, stride, levels });
            stride *= placement.global_shape[dim] as u64;
        }
        dims.reverse();
        Ok(Geometry { run: (run as usize).max(1), elements, dims })
    }

    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Calls `body(local start, global start, length)` for every piece of a run inside `local`, in order.
    pub fn for_each_run(&self, local: Range<usize>, mut body: impl FnMut(usize, u64, usize)) {
        let mut at = local.start;
        while at < local.end {
            let within = at % self.run;
            let length = (self.run - within).min(local.end - at);
            body(at, self.start((at / self.run) as u64) + within as u64, length);
            at += length;
        }
    }

    /// Global index of the first element of a run.
    fn start(&self, run: u64) -> u64 {
        let mut rest = run;
        let mut index = 0;
        for dim in self.dims.iter().rev() {
            index += dim.lift(rest % dim.steps * dim.unit) * dim.stride;
            rest /= dim.steps;
        }
        index
    }
}

impl Dim {
    /// Global coordinate of a local one.
    fn lift(&self, local: u64) -> u64 {
        self.levels.iter().rev().fold(local, |at, level| level.lift(at))
    }
}

impl Level {
    fn lift(&self, at: u64) -> u64 {
        match self.starts.iter().rev().find(|(here, _)| *here <= at) {
            Some((here, whole)) => whole + (at - here),
            None => at / self.chunk * self.period + self.offset + at % self.chunk,
        }
    }

    /// The pieces of sections of these lengths.
    fn of_sections(lengths: &[i64], parts: u64, part: u64) -> Level {
        let (mut here, mut whole, mut chunk) = (0, 0, 0);
        let mut starts = Vec::new();
        for length in lengths.iter().map(|length| *length as u64) {
            let piece = length / parts;
            starts.push((here, whole + part * piece));
            chunk = gcd(chunk, piece);
            here += piece;
            whole += length;
        }
        Level { chunk: chunk.max(1), period: 0, offset: 0, starts }
    }
}

/// Shape of a part.
pub fn local_shape(placement: &Placement) -> Result<Vec<i64>, String> {
    let mut shape = placement.global_shape.clone();
    for split in &placement.splits {
        let size = shape
            .get_mut(split.dim)
            .ok_or_else(|| format!("dimension {} of {:?} does not exist", split.dim, placement.global_shape))?;
        *size = split
            .length(*size)
            .ok_or_else(|| format!("{size} does not split into {} groups of {} parts", split.groups, split.parts))?;
    }
    Ok(shape)
}

/// The index of the middle factor that is here.
pub fn part(split: &Split, micro_batch: u32) -> i64 {
    match split.part {
        Part::Rank(rank) => rank,
        Part::MicroBatch => i64::from(micro_batch),
    }
}

/// The levels of a dimension whose splits have lengths ([`local_shape`]).
fn levels(placement: &Placement, dim: usize, micro_batch: u32) -> Vec<Level> {
    let mut size = placement.global_shape[dim];
    let mut levels = Vec::new();
    for split in placement.splits.iter().filter(|s| s.dim == dim) {
        let at = part(split, micro_batch);
        if let Some(lengths) = split.sections.lengths(size) {
            levels.push(Level::of_sections(&lengths, split.parts as u64, at as u64));
            size /= split.parts;
            continue;
        }
        let (offset, chunk) = piece(size / split.groups, split.parts, at);
        let period = (size / split.groups) as u64;
        levels.push(Level { chunk: (chunk as u64).max(1), period, offset: offset as u64, starts: Vec::new() });
        size = chunk * split.groups;
    }
    levels
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slapo_program::Sections;

    fn split(dim: usize, groups: i64, parts: i64, rank: i64) -> Split {
        Split::even(dim, groups, parts, Part::Rank(rank))
    }

    fn indices(shape: &[i64], splits: Vec<Split>) -> Vec<u64> {
        let placement = Placement { global_shape: shape.to_vec(), splits };
        let local = local_shape(&placement).expect("splits evenly");
        let geometry = Geometry::new(&placement, &local, 0).expect("fits");
        let mut found = Vec::new();
        // Uneven pieces, as threads would cut them.
        let cuts = [0, geometry.elements() / 3, geometry.elements()];
        for cut in cuts.windows(2) {
            geometry.for_each_run(cut[0]..cut[1], |_, start, length| {
                found.extend(start..start + length as u64);
            });
        }
        found
    }

    #[test]
    fn rows_columns_and_groups() {
        assert_eq!(indices(&[4, 3], vec![split(0, 1, 2, 1)]), [6, 7, 8, 9, 10, 11]);
        assert_eq!(indices(&[2, 4], vec![split(1, 1, 2, 1)]), [2, 3, 6, 7]);
        assert_eq!(indices(&[8], vec![split(0, 2, 2, 0)]), [0, 1, 4, 5]);
        assert_eq!(indices(&[2, 2, 2], vec![split(0, 1, 2, 1), split(2, 1, 2, 0)]), [4, 6]);
    }

    #[test]
    fn sections_of_different_sizes() {
        let sections = Sections::new([2, 1, 1]).expect("three sections");
        let part = |rank| Split { sections, ..split(0, 1, 2, rank) };
        assert_eq!(indices(&[16], vec![part(0)]), [0, 1, 2, 3, 8, 9, 12, 13]);
        assert_eq!(indices(&[16], vec![part(1)]), [4, 5, 6, 7, 10, 11, 14, 15]);
        assert_eq!(indices(&[8, 2], vec![part(1), split(1, 1, 2, 0)]), [4, 6, 10, 14]);
        assert_eq!(indices(&[2, 8], vec![Split { dim: 1, ..part(0) }]), [0, 1, 4, 6, 8, 9, 12, 14]);
        let uneven = Placement { global_shape: vec![12], splits: vec![part(0)] };
        assert!(local_shape(&uneven).is_err(), "a section of 3 does not divide into two parts");
    }

    #[test]
    fn splits_of_one_dimension_nest() {
        assert_eq!(indices(&[8], vec![split(0, 1, 2, 1), split(0, 1, 2, 0)]), [4, 5]);
        assert_eq!(indices(&[12], vec![split(0, 3, 2, 1), split(0, 1, 2, 1)]), [7, 10, 11]);
    }

    #[test]
    fn ranks_partition_the_whole() {
        let mut all: Vec<u64> = (0..6)
            .flat_map(|rank| indices(&[4, 12, 5], vec![split(0, 1, 2, rank / 3), split(1, 2, 3, rank % 3)]))
            .collect();
        all.sort_unstable();
        assert_eq!(all, (0..240).collect::<Vec<u64>>());
    }

    /// Every element of a dimension is on one rank, in order, however its size and two nested axes meet.
    #[test]
    fn b73_uneven_splits_of_one_dimension_nest() {
        for size in 0..10 {
            for (outer, inner) in [(2, 2), (2, 3), (3, 2), (4, 4), (1, 5), (9, 1)] {
                let ranks = (0..outer).flat_map(|a| (0..inner).map(move |b| (a, b)));
                let found: Vec<u64> = ranks
                    .flat_map(|(a, b)| indices(&[size, 3], vec![split(0, 1, outer, a), split(0, 1, inner, b)]))
                    .collect();
                assert_eq!(found, (0..size as u64 * 3).collect::<Vec<u64>>(), "{size} rows on {outer} × {inner}");
            }
        }
        let owned = |a, b| indices(&[5], vec![split(0, 1, 2, a), split(0, 1, 2, b)]);
        assert_eq!([owned(0, 0), owned(0, 1), owned(1, 0), owned(1, 1)], [vec![0, 1], vec![2], vec![3], vec![4]]);
    }

    /// Uneven pieces of even groups: runs end where either does.
    #[test]
    fn uneven_splits_nest_in_groups() {
        for (groups, outer, inner) in [(2, 2, 3), (3, 2, 5), (2, 3, 7), (1, 2, 5)] {
            let size = groups * outer * 9;
            let ranks = (0..outer).flat_map(|a| (0..inner).map(move |b| (a, b)));
            let mut found: Vec<u64> = ranks
                .flat_map(|(a, b)| indices(&[2, size, 3], vec![split(1, groups, outer, a), split(1, 1, inner, b)]))
                .collect();
            found.sort_unstable();
            assert_eq!(found, (0..2 * size as u64 * 3).collect::<Vec<u64>>(), "{groups} groups on {outer} × {inner}");
        }
    }

    #[test]
    fn a_part_of_the_wrong_shape_is_refused() {
        let placement = Placement { global_shape: vec![4, 3], splits: vec![split(0, 1, 2, 0)] };
        let error = Geometry::new(&placement, &[4, 3], 0).expect_err("the whole is not the half");
        assert_eq!(error, "[4, 3] is not the part [2, 3] of [4, 3]");
    }
}
