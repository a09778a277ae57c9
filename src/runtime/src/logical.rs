//! Logical tensors from the boxes that ranks hold.
//!
//! Ranks may hold the same box: then their values must be equal bit by bit, for nothing in a mesh makes replicas equal
//! but the program itself. Every box must be held by some rank. Knows nothing of programs; read [`assemble`] first.

use crate::geometry::Geometry;
use crate::libtorch;
use slapo_program::{Part, Placement, Split};
use std::collections::BTreeMap;
use std::ops::Range;
use tch::Tensor;

/// What one rank holds of a tensor.
pub struct Held<'a> {
    pub rank: usize,
    pub tensor: &'a Tensor,
    pub placement: &'a Placement,
}

/// The whole tensor, or what keeps the ranks from having one.
pub fn assemble(held: &[Held]) -> Result<Tensor, String> {
    let first = held.first().ok_or("no rank holds it")?;
    let mut boxes: BTreeMap<Vec<i64>, &Held> = BTreeMap::new();
    for one in held {
        let here = box_of(first, one)?;
        let replica = *boxes.entry(here).or_insert(one);
        if replica.rank != one.rank && !bit_equal(replica.tensor, one.tensor)? {
            return Err(format!(
                "differs between ranks {} and {}, which should hold the same values",
                replica.rank, one.rank
            ));
        }
    }
    let splits = &first.placement.splits;
    if let Some(missing) = first_missing(splits, &boxes) {
        let parts: Vec<String> =
            missing.iter().zip(splits).map(|(at, s)| format!("part {at} of {} along {}", s.parts, s.dim)).collect();
        return Err(format!("is incomplete: no rank holds {}", parts.join(", ")));
    }
    if splits.is_empty() {
        return Ok(first.tensor.shallow_clone());
    }
    let options = (first.tensor.kind(), first.tensor.device());
    let whole = Tensor::f_empty(&first.placement.global_shape, options).map_err(|e| libtorch::message(&e))?;
    for one in boxes.values() {
        copy(one, &whole).map_err(|e| format!("on rank {}: {e}", one.rank))?;
    }
    Ok(whole)
}

/// The index of a rank's box along every split. Ranks split alike and differ in the part only, so boxes are the same or
/// disjoint.
fn box_of(first: &Held, one: &Held) -> Result<Vec<i64>, String> {
    let form = |held: &Held| {
        let splits = held.placement.splits.iter().map(|s| (s.dim, s.groups, s.parts));
        (held.placement.global_shape.clone(), splits.collect::<Vec<_>>(), held.tensor.kind())
    };
    if form(first) != form(one) {
        return Err(format!("is split differently on ranks {} and {}", first.rank, one.rank));
    }
    let at = |split: &Split| match split.part {
        Part::Rank(at) => Ok(at),
        Part::MicroBatch => Err(format!("is split over micro-batches on rank {}", one.rank)),
    };
    one.placement.splits.iter().map(at).collect()
}

fn first_missing(splits: &[Split], boxes: &BTreeMap<Vec<i64>, &Held>) -> Option<Vec<i64>> {
    let total: i64 = splits.iter().map(|s| s.parts).product();
    let index = |number: i64| {
        let mut rest = number;
        let mut index: Vec<i64> = splits
            .iter()
            .rev()
            .map(|split| {
                let at = rest % split.parts;
                rest /= split.parts;
                at
            })
            .collect();
        index.reverse();
        index
    };
    (0..total).map(index).find(|at| !boxes.contains_key(at))
}

/// Not by value: zeros of both signs differ, and a NaN equals itself.
fn bit_equal(a: &Tensor, b: &Tensor) -> Result<bool, String> {
    let dense = |t: &Tensor| t.f_contiguous().map_err(|e| libtorch::message(&e));
    Ok(libtorch::bytes(&dense(a)?) == libtorch::bytes(&dense(b)?))
}

/// Writes a box to its place.
fn copy(held: &Held, whole: &Tensor) -> Result<(), String> {
    let dense = held.tensor.f_contiguous().map_err(|e| libtorch::message(&e))?;
    let geometry = Geometry::new(held.placement, &dense.size(), 0)?;
    let width = dense.kind().elt_size_in_bytes();
    let (from, to) = (libtorch::bytes(&dense), whole.data_ptr().cast::<u8>());
    let bytes = |start: usize, length: usize| -> Range<usize> { start * width..(start + length) * width };
    geometry.for_each_run(0..geometry.elements(), |local, global, length| {
        let source = &from[bytes(local, length)];
        // SAFETY: `whole` is dense, of the placement's global shape and this element type, and nobody else has it yet;
        // a geometry's runs lie inside the global shape.
        unsafe { to.add(global as usize * width).copy_from_nonoverlapping(source.as_ptr(), source.len()) };
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind};

    fn split(dim: usize, groups: i64, parts: i64, at: i64) -> Split {
        Split::even(dim, groups, parts, Part::Rank(at))
    }

    /// Ranks 0, 1, … with their boxes of `arange(shape)`.
    fn assembled(shape: &[i64], ranks: &[Vec<Split>], change: impl Fn(usize, &Tensor)) -> Result<(), String> {
        let whole = Tensor::arange(shape.iter().product::<i64>(), (Kind::Float, Device::Cpu)).view(shape);
        let placed: Vec<(Tensor, Placement)> = (ranks.iter().enumerate())
            .map(|(rank, splits)| {
                let mut tensor = whole.copy();
                for s in splits {
                    let Part::Rank(at) = s.part else { unreachable!("ranks only") };
                    tensor = crate::collectives::piece(&tensor, s.dim, s.groups, s.parts, at).expect("divides").copy();
                }
                change(rank, &tensor);
                (tensor, Placement { global_shape: shape.to_vec(), splits: splits.clone() })
            })
            .collect();
        let held: Vec<Held> =
            (placed.iter().enumerate()).map(|(rank, (tensor, placement))| Held { rank, tensor, placement }).collect();
        assemble(&held).map(|got| assert!(got.equal(&whole), "{got}"))
    }

    #[test]
    fn boxes_come_back_to_their_places() {
        let two = |make: &dyn Fn(i64) -> Vec<Split>| (0..2).map(make).collect::<Vec<_>>();
        for ranks in [
            two(&|_| vec![]),
            two(&|at| vec![split(0, 1, 2, at)]),
            two(&|at| vec![split(1, 3, 2, at)]),
            (0..6).map(|r| vec![split(0, 1, 2, r / 3), split(1, 2, 3, r % 3)]).collect(),
            // Nested splits of one dimension, and replicas.
            (0..8).map(|r| vec![split(1, 3, 2, r / 2 % 2), split(1, 1, 2, r % 2)]).collect(),
            // Uneven pieces, of which some are empty.
            (0..8).map(|r| vec![split(2, 1, 8, r)]).collect(),
            (0..6).map(|r| vec![split(0, 1, 3, r / 2), split(2, 1, 2, r % 2)]).collect(),
            (0..4).map(|r| vec![split(2, 1, 2, r / 2), split(2, 1, 2, r % 2)]).collect(),
        ] {
            assembled(&[4, 12, 5], &ranks, |_, _| {}).expect("complete");
        }
    }

    #[test]
    fn replicas_are_equal_bit_by_bit() {
        let ranks: Vec<Vec<Split>> = (0..4).map(|r| vec![split(0, 1, 2, r % 2)]).collect();
        // Element 0 is zero: its sign is a difference, too.
        let error = assembled(&[4, 3], &ranks, |rank, tensor| {
            if rank == 2 {
                let _ = tensor.view(-1).get(0).fill_(-0.0);
            }
        });
        assert_eq!(error.expect_err("refused"), "differs between ranks 0 and 2, which should hold the same values");
        // A NaN of the same bits is no difference.
        let replicas = [(); 2].map(|()| Tensor::full([2], f64::NAN, (Kind::Float, Device::Cpu)));
        let placement = Placement::default();
        let held = [0, 1].map(|rank| Held { rank, tensor: &replicas[rank], placement: &placement });
        assert!(assemble(&held).is_ok());
    }

    #[test]
    fn what_is_missing_or_split_differently_is_named() {
        let error = assembled(&[4, 4], &[vec![split(0, 1, 2, 0), split(1, 1, 2, 1)]], |_, _| {});
        assert_eq!(
            error.expect_err("refused"),
            "is incomplete: no rank holds part 0 of 2 along 0, part 0 of 2 along 1"
        );
        let error = assembled(&[4, 4], &[vec![split(0, 1, 2, 0)], vec![split(0, 2, 2, 1)]], |_, _| {});
        assert_eq!(error.expect_err("refused"), "is split differently on ranks 0 and 1");
    }
}
