//! What the ranks of one axis do together, as pure functions: every rank's tensor goes in, every rank's result comes
//! out, in coordinate order.
//!
//! Knows nothing of programs or of how ranks run. Sums are taken in rank order, so results do not depend on timing, and
//! every result has a storage of its own. A split dimension is seen as groups × parts × rest, of which a rank has one
//! index of the middle factor. Read [`collective`] first.

use crate::libtorch;
use slapo_program::Collective;
use tch::{TchError, Tensor};

type Result<T> = std::result::Result<T, String>;

/// One result per tensor. All tensors must have one type, but for the pieces of one group that [`Collective::AllGather`]
/// puts together: these may be uneven.
pub fn collective(kind: Collective, tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    if let Collective::AllGather { dim, groups: 1 } = kind
        && !are_alike(tensors)
    {
        return copies(uneven(tensors, dim)?, tensors.len());
    }
    one_type(tensors)?;
    match kind {
        Collective::AllReduce => copies(sum(tensors)?, tensors.len()),
        Collective::AllReduceMax => copies(largest(tensors)?, tensors.len()),
        Collective::AllGather { dim, groups } => copies(gather(tensors, dim, groups)?, tensors.len()),
        Collective::ReduceScatter { dim, groups } => each_piece(tensors, dim, groups, |pieces| sum(&pieces)),
        Collective::AllToAll { from, to, .. } if from == to => {
            Err(format!("all_to_all gathers and splits the same dimension {from}"))
        }
        Collective::AllToAll { from, groups, to } => each_piece(tensors, to, 1, |pieces| gather(&pieces, from, groups)),
    }
}

/// What part `at` has of dimension `dim`, of one group unevenly where it does not divide. Contiguous, because some kernels
/// expect what they would get from another operator; so a view only along the first dimension.
pub fn piece(whole: &Tensor, dim: usize, groups: i64, parts: i64, at: i64) -> Result<Tensor> {
    part_of(whole, dim, groups, parts, at)?.f_contiguous().map_err(text)
}

/// As [`piece`], as a view where strides allow it.
pub fn part_of(whole: &Tensor, dim: usize, groups: i64, parts: i64, at: i64) -> Result<Tensor> {
    let d = dim as i64;
    let cut = match groups {
        1 => {
            let (offset, length) = slapo_program::piece(size(whole, dim)?, parts, at);
            whole.f_narrow(d, offset, length)
        }
        groups => whole
            .f_unflatten(d, [groups, parts, rest(whole, dim, groups, parts)?])
            .and_then(|w| w.f_select(d + 1, at))
            .and_then(|w| w.f_flatten(d, d + 1)),
    };
    cut.map_err(text)
}

/// The inverse of [`piece`]: the whole from all its pieces.
pub fn gather(pieces: &[Tensor], dim: usize, groups: i64) -> Result<Tensor> {
    let d = dim as i64;
    if groups == 1 {
        return Tensor::f_cat(pieces, d).map_err(text);
    }
    let factored: Result<Vec<Tensor>> =
        pieces.iter().map(|piece| piece.f_unflatten(d, [groups, rest(piece, dim, groups, 1)?]).map_err(text)).collect();
    Tensor::f_stack(&factored?, d + 1).and_then(|whole| whole.f_flatten(d, d + 2)).map_err(text)
}

/// The whole from pieces whose sizes differ along `dim`, as [`slapo_program::piece`] cuts it.
fn uneven(pieces: &[Tensor], dim: usize) -> Result<Tensor> {
    let lengths = pieces.iter().map(|piece| size(piece, dim)).collect::<Result<Vec<i64>>>()?;
    let (total, parts) = (lengths.iter().sum(), lengths.len() as i64);
    let expected: Vec<i64> = (0..parts).map(|at| slapo_program::piece(total, parts, at).1).collect();
    if lengths != expected {
        return Err(format!(
            "ranks bring pieces of {lengths:?} along dimension {dim}, and {total} divides as {expected:?}"
        ));
    }
    Tensor::f_cat(pieces, dim as i64).map_err(text)
}

/// For every index, `body` of every tensor's piece at that index.
fn each_piece(
    tensors: &[Tensor],
    dim: usize,
    groups: i64,
    body: impl Fn(Vec<Tensor>) -> Result<Tensor>,
) -> Result<Vec<Tensor>> {
    let parts = tensors.len() as i64;
    let pieces = |at| tensors.iter().map(|t| piece(t, dim, groups, parts, at)).collect::<Result<Vec<Tensor>>>();
    (0..parts).map(|at| body(pieces(at)?)).collect()
}

/// In the order of the tensors.
pub fn sum(tensors: &[Tensor]) -> Result<Tensor> {
    let (first, others) = tensors.split_first().ok_or("has no ranks")?;
    let mut total = libtorch::dense_copy(first)?;
    for other in others {
        let _ = total.f_add_(other).map_err(text)?;
    }
    Ok(total)
}

/// Element by element.
pub fn largest(tensors: &[Tensor]) -> Result<Tensor> {
    let (first, others) = tensors.split_first().ok_or("has no ranks")?;
    let largest = libtorch::dense_copy(first)?;
    others.iter().try_fold(largest, |largest, other| largest.f_maximum(other).map_err(text))
}

fn copies(tensor: Tensor, count: usize) -> Result<Vec<Tensor>> {
    let mut all: Vec<Tensor> = (1..count).map(|_| libtorch::dense_copy(&tensor)).collect::<Result<_>>()?;
    all.insert(0, tensor);
    Ok(all)
}

/// Size of the innermost factor of a dimension.
fn rest(tensor: &Tensor, dim: usize, groups: i64, parts: i64) -> Result<i64> {
    let (shape, size) = (tensor.size(), size(tensor, dim)?);
    match groups.checked_mul(parts) {
        Some(ways) if groups >= 1 && parts >= 1 && size % ways == 0 => Ok(size / ways),
        _ => Err(format!("dimension {dim} of {shape:?} does not divide into {groups} groups of {parts} parts")),
    }
}

fn size(tensor: &Tensor, dim: usize) -> Result<i64> {
    let shape = tensor.size();
    shape.get(dim).copied().ok_or_else(|| format!("{shape:?} has no dimension {dim}"))
}

fn are_alike(tensors: &[Tensor]) -> bool {
    tensors.windows(2).all(|pair| pair[0].size() == pair[1].size())
}

fn one_type(tensors: &[Tensor]) -> Result<()> {
    let first = tensors.first().ok_or("has no ranks")?;
    let differs = |t: &&Tensor| (t.kind(), t.size()) != (first.kind(), first.size());
    match tensors.iter().find(differs) {
        None => Ok(()),
        Some(other) => Err(format!(
            "ranks bring tensors of different types: {} and {}",
            libtorch::describe(first),
            libtorch::describe(other)
        )),
    }
}

fn text(error: TchError) -> String {
    libtorch::message(&error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind};

    fn arange(shape: &[i64]) -> Tensor {
        Tensor::arange(shape.iter().product::<i64>(), (Kind::Double, Device::Cpu)).view(shape)
    }

    fn split(whole: &Tensor, dim: usize, groups: i64, parts: i64) -> Vec<Tensor> {
        (0..parts).map(|at| piece(whole, dim, groups, parts, at).expect("divides")).collect()
    }

    fn all_equal(got: &[Tensor], expected: &[Tensor]) {
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(expected) {
            assert!(got.is_contiguous() && got.equal(expected), "{got} is not {expected}");
        }
        for (i, tensor) in got.iter().enumerate() {
            let shares = |other: &Tensor| tensor.numel() > 0 && other.data_ptr() == tensor.data_ptr();
            assert!(!got[..i].iter().any(shares), "shared storage");
        }
    }

    #[test]
    fn a_sum_goes_in_rank_order_and_to_everyone() {
        // In any other order the small terms would survive.
        let tensors = [1.0, 1e16, -1e16].map(|x| Tensor::from_slice(&[x, 1.0]));
        let got = collective(Collective::AllReduce, &tensors).expect("sums");
        let expected = Tensor::from_slice(&[0.0, 3.0]);
        all_equal(&got, &[expected.copy(), expected.copy(), expected]);
        assert_eq!(tensors[0].double_value(&[0]), 1.0, "arguments are as they were");
    }

    #[test]
    fn the_largest_is_taken_element_by_element() {
        let tensors = [Tensor::from_slice(&[1.0, -3.0]), Tensor::from_slice(&[0.5, -2.0])];
        let expected = Tensor::from_slice(&[1.0, -2.0]);
        all_equal(&collective(Collective::AllReduceMax, &tensors).expect("compares"), &[expected.copy(), expected]);
    }

    #[test]
    fn gathering_undoes_splitting() {
        let whole = arange(&[6, 12, 5]);
        for (dim, groups, parts) in [(0, 1, 2), (0, 3, 2), (1, 1, 3), (1, 2, 3), (1, 4, 1), (2, 1, 5), (2, 5, 1)] {
            let got = collective(Collective::AllGather { dim, groups }, &split(&whole, dim, groups, parts));
            let expected: Vec<Tensor> = (0..parts).map(|_| whole.copy()).collect();
            all_equal(&got.expect("gathers"), &expected);
        }
        let first = Vec::<f64>::try_from(piece(&arange(&[12]), 0, 3, 2, 0).expect("divides")).expect("numbers");
        assert_eq!(first, [0.0, 1.0, 4.0, 5.0, 8.0, 9.0]);
    }

    #[test]
    fn scattering_a_sum_is_splitting_it() {
        for (dim, groups, parts) in [(0, 1, 3), (0, 2, 3), (1, 1, 2), (1, 2, 2)] {
            let tensors: Vec<Tensor> = (1..=parts).map(|k| arange(&[6, 4]) * k).collect();
            let total = arange(&[6, 4]) * (1..=parts).sum::<i64>();
            let got = collective(Collective::ReduceScatter { dim, groups }, &tensors).expect("scatters");
            all_equal(&got, &split(&total, dim, groups, parts));
        }
    }

    #[test]
    fn all_to_all_moves_the_split_to_another_dimension() {
        let whole = arange(&[6, 12, 2]);
        for (from, groups, to, parts) in [(0, 1, 1, 3), (1, 2, 0, 3), (1, 1, 0, 2), (2, 1, 1, 2), (0, 3, 2, 2)] {
            let kind = Collective::AllToAll { from, groups, to };
            let got = collective(kind, &split(&whole, from, groups, parts)).expect("exchanges");
            all_equal(&got, &split(&whole, to, 1, parts));
        }
    }

    /// The round trip is the identity and of the whole size, with pieces of no rows, too.
    #[test]
    fn b72_gathering_uneven_pieces_gives_the_whole() {
        for (shape, dim) in [([5, 3], 0), ([3, 5], 1), ([2, 4], 0), ([7, 1], 0)] {
            let whole = arange(&shape);
            for parts in [3, 4, 8] {
                let pieces = split(&whole, dim, 1, parts);
                let sizes: Vec<i64> = pieces.iter().map(|piece| piece.size()[dim]).collect();
                assert_eq!(sizes.iter().sum::<i64>(), shape[dim]);
                let expected: Vec<Tensor> = (0..parts).map(|_| whole.copy()).collect();
                let got = collective(Collective::AllGather { dim, groups: 1 }, &pieces).expect("gathers");
                all_equal(&got, &expected);
                let tensors: Vec<Tensor> = (0..parts).map(|_| whole.copy()).collect();
                let got = collective(Collective::ReduceScatter { dim, groups: 1 }, &tensors).expect("scatters");
                all_equal(&got, &split(&(whole.copy() * parts), dim, 1, parts));
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_shapes() {
        let refused = |kind, tensors: &[Tensor]| collective(kind, tensors).expect_err("refused");
        let uneven = [arange(&[2, 3]), arange(&[3, 3])];
        for kind in [Collective::AllReduce, Collective::AllGather { dim: 1, groups: 3 }] {
            assert_eq!(refused(kind, &uneven), "ranks bring tensors of different types: f64[2, 3] and f64[3, 3]");
        }
        assert_eq!(
            refused(Collective::AllGather { dim: 0, groups: 1 }, &uneven),
            "ranks bring pieces of [2, 3] along dimension 0, and 5 divides as [3, 2]"
        );
        let narrow = [arange(&[2]), arange(&[2]).to_kind(Kind::Float)];
        assert_eq!(
            refused(Collective::AllReduce, &narrow),
            "ranks bring tensors of different types: f64[2] and f32[2]"
        );
        let pair = || [arange(&[5, 3]), arange(&[5, 3])];
        assert_eq!(
            refused(Collective::ReduceScatter { dim: 0, groups: 2 }, &pair()),
            "dimension 0 of [5, 3] does not divide into 2 groups of 2 parts"
        );
        assert_eq!(
            refused(Collective::AllGather { dim: 1, groups: 2 }, &pair()),
            "dimension 1 of [5, 3] does not divide into 2 groups of 1 parts"
        );
        assert_eq!(refused(Collective::AllToAll { from: 1, groups: 0, to: 2 }, &pair()), "[5, 3] has no dimension 2");
        assert_eq!(
            refused(Collective::AllToAll { from: 1, groups: 1, to: 1 }, &pair()),
            "all_to_all gathers and splits the same dimension 1"
        );
    }
}
