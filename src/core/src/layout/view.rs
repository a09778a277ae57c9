//! The view rule: where a split lands when a tensor is seen in another shape.

use super::Layout;
use std::ops::Range;

/// The layout of `to` when `from` is split along `dim` in `groups` over `parts`, or the axis sizes that would be legal.
///
/// Shapes are cut into the finest blocks of equal products. The split factor sits at outer position
/// `O = (product of the block's dimensions before dim) · groups`; it lands in the output dimension `e` of size `M` whose
/// prefix product `Q` divides `O`, with `(O/Q) · parts` dividing `M`.
pub fn view(from: &[i64], to: &[i64], dim: usize, groups: i64, parts: i64) -> Result<Layout, Vec<i64>> {
    let (inputs, outputs) = block_of(from, to, dim).ok_or_else(Vec::new)?;
    // A dimension that stays one keeps any split, an uneven one too.
    if let ([from], [to]) = (&longer(from, inputs.clone())[..], &longer(to, outputs.clone())[..])
        && *from == dim
    {
        return Ok(Layout::Split { dim: *to, groups });
    }
    let outer = from[inputs.start..dim].iter().product::<i64>() * groups;
    let landing = |parts: i64| {
        if from[dim] % (groups * parts) != 0 {
            return None;
        }
        let mut prefix = 1;
        for e in outputs.clone() {
            let size = to[e];
            if size > 1 && outer % prefix == 0 && size % ((outer / prefix) * parts) == 0 {
                return Some(Layout::Split { dim: e, groups: outer / prefix });
            }
            prefix *= size;
        }
        None
    };
    // One part has room everywhere: its split lands where that of several would, so that degree 1 is no special case.
    let as_several = || (2..=from[dim]).find_map(landing).filter(|_| parts == 1);
    as_several().or_else(|| landing(parts)).ok_or_else(|| (1..=from[dim]).filter(|k| landing(*k).is_some()).collect())
}

/// The dimensions among `block` that are longer than 1.
fn longer(shape: &[i64], block: Range<usize>) -> Vec<usize> {
    block.filter(|dim| shape[*dim] > 1).collect()
}

/// The dimension of `to` through which the cuts of a split along `dim` in `groups` run: where [`view`] finds no place for
/// them, the one whose size the axis would have to divide.
pub fn cut(from: &[i64], to: &[i64], dim: usize, groups: i64) -> Option<usize> {
    let (inputs, mut outputs) = block_of(from, to, dim)?;
    let outer = from[inputs.start..dim].iter().product::<i64>() * groups;
    let mut prefix = 1;
    outputs.find(|e| {
        prefix *= to[*e];
        prefix > outer
    })
}

/// Where dimension `dim` is in `to`, if it is one dimension there too: such a dimension keeps any split.
pub fn kept(from: &[i64], to: &[i64], dim: usize) -> Option<usize> {
    let (inputs, outputs) = block_of(from, to, dim)?;
    let mut large = outputs.filter(|e| to[*e] != 1);
    let alone = inputs.filter(|d| from[*d] != 1).eq([dim]);
    large.next().filter(|e| alone && to[*e] == from[dim] && large.next().is_none())
}

/// The input and output dimensions of the finest common block that holds `dim`.
fn block_of(from: &[i64], to: &[i64], dim: usize) -> Option<(Range<usize>, Range<usize>)> {
    let (mut i, mut o) = (0, 0);
    while i < from.len() || o < to.len() {
        let (start_i, start_o) = (i, o);
        let (mut a, mut b) = (1, 1);
        loop {
            if i < from.len() && (a <= b || o >= to.len()) {
                a *= from[i];
                i += 1;
            } else if o < to.len() {
                b *= to[o];
                o += 1;
            } else {
                return None;
            }
            if a == b && i > start_i && o > start_o {
                break;
            }
        }
        // Trailing dimensions of size 1 belong to the last block.
        if i == from.len() {
            o = if to[o..].iter().all(|n| *n == 1) { to.len() } else { o };
        }
        if o == to.len() {
            i = if from[i..].iter().all(|n| *n == 1) { from.len() } else { i };
        }
        if (start_i..i).contains(&dim) {
            return Some((start_i..i, start_o..o));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use Layout::Split;

    #[test]
    fn merging_and_cutting_dimensions() {
        assert_eq!(view(&[4, 6, 8], &[24, 8], 0, 1, 2), Ok(Split { dim: 0, groups: 1 }));
        assert_eq!(view(&[4, 6, 8], &[24, 8], 1, 1, 2), Ok(Split { dim: 0, groups: 4 }));
        assert_eq!(view(&[24, 8], &[4, 6, 8], 0, 4, 2), Ok(Split { dim: 1, groups: 1 }));
        assert_eq!(view(&[5, 72], &[5, 3, 24], 1, 3, 2), Ok(Split { dim: 2, groups: 1 }));
        assert_eq!(view(&[5, 24], &[5, 4, 6], 1, 1, 2), Ok(Split { dim: 1, groups: 1 }));
        assert_eq!(view(&[5, 24], &[1, 5, 24], 0, 1, 5), Ok(Split { dim: 1, groups: 1 }));
        assert_eq!(view(&[6], &[6, 1, 1], 0, 1, 3), Ok(Split { dim: 0, groups: 1 }));
    }

    #[test]
    fn a_dimension_that_stays_one_may_be_uneven() {
        assert_eq!(view(&[4, 6, 11], &[24, 11], 2, 1, 2), Ok(Split { dim: 1, groups: 1 }));
        assert_eq!(view(&[24, 11], &[4, 6, 11, 1], 1, 1, 4), Ok(Split { dim: 2, groups: 1 }));
        assert_eq!(view(&[5, 3], &[15], 0, 1, 2), Err(vec![1, 5]));
        assert_eq!(view(&[15], &[5, 3], 0, 1, 2), Err(vec![1, 5]));
        assert_eq!(view(&[1, 60], &[60], 0, 1, 2), Err(vec![1]));
    }

    #[test]
    fn one_part_lands_where_two_do() {
        for (from, to, dim, groups) in
            [(vec![6, 4, 5], vec![6, 2, 2, 5], 1, 2), (vec![5, 72], vec![5, 3, 24], 1, 3), (vec![4, 6], vec![24], 1, 1)]
        {
            assert_eq!(view(&from, &to, dim, groups, 1), view(&from, &to, dim, groups, 2), "{from:?}");
        }
        assert_eq!(view(&[3, 1], &[1, 3], 0, 3, 1), Ok(Split { dim: 1, groups: 3 }));
    }

    #[test]
    fn a_dimension_that_stays_alone() {
        assert_eq!(kept(&[6, 7, 48], &[42, 48], 2), Some(1));
        assert_eq!(kept(&[42, 48], &[6, 7, 48], 1), Some(2));
        assert_eq!(kept(&[42, 48], &[42, 1, 48], 1), Some(2));
        assert_eq!(kept(&[6, 7, 48], &[42, 48], 1), None);
        assert_eq!(kept(&[6, 48], &[6, 4, 12], 1), None);
    }

    #[test]
    fn a_head_is_not_cut_in_two() {
        assert_eq!(view(&[5, 24], &[5, 3, 8], 1, 1, 2), Err(vec![1, 3]));
        assert_eq!(cut(&[5, 24], &[5, 3, 8], 1, 1), Some(1));
        assert_eq!(cut(&[5, 72], &[5, 3, 24], 1, 3), Some(2));
        assert_eq!(cut(&[4, 6, 8], &[24, 8], 1, 1), Some(0));
    }
}
