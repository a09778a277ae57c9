//! The dropout kernel: reads a tensor, multiplies by a mask that is computed on the way, writes a new tensor.
//!
//! The mask is never stored: forward, backward and recomputation compute it again from the keys of [`crate::random`].
//! Kept values are multiplied by `1 / (1 − p)`, in f32 for half-width types; dropped ones are 0 whatever they were.

use crate::geometry::Geometry;
use crate::libtorch;
use crate::random::{self, BATCH, Stream};
use tch::{Kind, Tensor};

/// Elements below which a second thread costs more than it gains.
const GRAIN: usize = 16 * 1024;

/// What one call of the kernel does to any of its elements.
#[derive(Clone, Copy)]
struct Mask {
    stream: Stream,
    threshold: u32,
    scale: f64,
}

/// `x · mask / (1 − p)` as a new contiguous tensor. `geometry` says which global elements `x` holds.
pub fn dropout(x: &Tensor, p: f64, stream: Stream, geometry: &Geometry) -> Result<Tensor, String> {
    let failed = |e: tch::TchError| libtorch::message(&e);
    let kind = x.kind();
    if kind == Kind::Half {
        let wide = dropout(&x.f_to_kind(Kind::Float).map_err(failed)?, p, stream, geometry)?;
        return wide.f_to_kind(Kind::Half).map_err(failed);
    }
    let x = x.f_contiguous().map_err(failed)?;
    let Ok(threshold) = u32::try_from(random::threshold(p)) else {
        return x.f_zeros_like().map_err(failed);
    };
    let out = x.f_empty_like().map_err(failed)?;
    let mask = Mask { stream, threshold, scale: 1.0 / (1.0 - p) };
    match kind {
        Kind::Float => apply::<f32>(&x, &out, mask, geometry),
        Kind::Double => apply::<f64>(&x, &out, mask, geometry),
        Kind::BFloat16 => apply::<Bf16>(&x, &out, mask, geometry),
        _ => return Err(format!("dropout of {}: only floating types have it", libtorch::describe(&x))),
    }
    Ok(out)
}

fn apply<T: Element>(x: &Tensor, out: &Tensor, mask: Mask, geometry: &Geometry) {
    let elements = geometry.elements();
    let from = Shared(x.data_ptr().cast::<T>());
    let to = Shared(out.data_ptr().cast::<T>());
    libtorch::parallel_for(elements, GRAIN, |range| {
        geometry.for_each_run(range, |local, global, length| {
            // SAFETY: both tensors are contiguous, of type `T` and of `elements` elements; pieces do not overlap.
            let (from, to) = unsafe {
                (
                    std::slice::from_raw_parts(from.at(local), length),
                    std::slice::from_raw_parts_mut(to.at(local), length),
                )
            };
            run(from, to, global, mask);
        });
    });
}

/// A pointer that threads may share: each uses its own part.
struct Shared<T>(*mut T);
// SAFETY: see `apply`.
unsafe impl<T> Sync for Shared<T> {}
impl<T> Shared<T> {
    fn at(&self, index: usize) -> *mut T {
        self.0.wrapping_add(index)
    }
}

/// One run with the widest vectors this processor has.
fn run<T: Element>(from: &[T], to: &mut [T], global: u64, mask: Mask) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        fn avx512<T: Element>(from: &[T], to: &mut [T], global: u64, mask: Mask) {
            run_any(from, to, global, mask);
        }
        #[target_feature(enable = "avx2")]
        fn avx2<T: Element>(from: &[T], to: &mut [T], global: u64, mask: Mask) {
            run_any(from, to, global, mask);
        }
        if is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: processors with these two have the other two.
            return unsafe { avx512(from, to, global, mask) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: just asked.
            return unsafe { avx2(from, to, global, mask) };
        }
    }
    run_any(from, to, global, mask);
}

#[inline(always)]
fn run_any<T: Element>(from: &[T], to: &mut [T], global: u64, mask: Mask) {
    let scale = T::factor(mask.scale);
    // Up to the first element whose block begins there.
    let head = (global.next_multiple_of(4) - global).min(from.len() as u64) as usize;
    let (from_head, from) = from.split_at(head);
    let (to_head, to) = to.split_at_mut(head);
    single(from_head, to_head, global, mask);
    let mut at = global + head as u64;
    let mut batches = from.chunks_exact(BATCH);
    let mut outs = to.chunks_exact_mut(BATCH);
    for (from, to) in batches.by_ref().zip(outs.by_ref()) {
        let words = mask.stream.words(at / 4);
        for i in 0..BATCH {
            to[i] = if words[i] >= mask.threshold { from[i].times(scale) } else { T::ZERO };
        }
        at += BATCH as u64;
    }
    single(batches.remainder(), outs.into_remainder(), at, mask);
}

/// The few elements at the ends of a run.
fn single<T: Element>(from: &[T], to: &mut [T], global: u64, mask: Mask) {
    let scale = T::factor(mask.scale);
    for ((element, from), to) in (global..).zip(from).zip(to) {
        let word = mask.stream.block(element / 4)[(element % 4) as usize];
        *to = if word >= mask.threshold { from.times(scale) } else { T::ZERO };
    }
}

trait Element: Copy + Send + Sync {
    /// The type that values are multiplied in.
    type Factor: Copy;
    const ZERO: Self;
    fn factor(scale: f64) -> Self::Factor;
    fn times(self, factor: Self::Factor) -> Self;
}

impl Element for f32 {
    type Factor = f32;
    const ZERO: f32 = 0.0;
    #[inline(always)]
    fn factor(scale: f64) -> f32 {
        scale as f32
    }
    #[inline(always)]
    fn times(self, factor: f32) -> f32 {
        self * factor
    }
}

impl Element for f64 {
    type Factor = f64;
    const ZERO: f64 = 0.0;
    #[inline(always)]
    fn factor(scale: f64) -> f64 {
        scale
    }
    #[inline(always)]
    fn times(self, factor: f64) -> f64 {
        self * factor
    }
}

/// The upper half of an f32.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Bf16(u16);

impl Element for Bf16 {
    type Factor = f32;
    const ZERO: Bf16 = Bf16(0);
    #[inline(always)]
    fn factor(scale: f64) -> f32 {
        scale as f32
    }
    #[inline(always)]
    fn times(self, factor: f32) -> Bf16 {
        let product = f32::from_bits(u32::from(self.0) << 16) * factor;
        let bits = product.to_bits();
        // To nearest, ties to even; a NaN stays one.
        let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1));
        Bf16(if product.is_nan() { 0x7FC0 } else { (rounded >> 16) as u16 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slapo_program::{Part, Placement, Split};
    use tch::Device;

    fn whole(x: &Tensor) -> Geometry {
        Geometry::new(&Placement::default(), &x.size(), 0).expect("whole")
    }

    fn masked(x: &Tensor, p: f64, site: u32, step: u64) -> Tensor {
        dropout(x, p, Stream::dropout(5, site, step), &whole(x)).expect("runs")
    }

    #[test]
    fn keeps_the_right_share_and_the_mean() {
        let x = Tensor::ones([1000, 1000], (Kind::Double, Device::Cpu));
        for p in [0.0, 0.1, 0.5, 0.9] {
            let kept = masked(&x, p, 1, 0).ne(0.0).sum(Kind::Double).double_value(&[]);
            let expected = 1e6 * (1.0 - p);
            assert!((kept - expected).abs() <= 5.0 * (1e6 * p * (1.0 - p)).sqrt(), "{kept} of {expected}");
        }
    }

    #[test]
    fn follows_the_definition_element_by_element() {
        let x = Tensor::arange_start(1, 134, (Kind::Double, Device::Cpu));
        let stream = Stream::dropout(5, 2, 7);
        let got = Vec::<f64>::try_from(masked(&x, 0.25, 2, 7)).expect("a vector");
        for (i, value) in got.iter().enumerate() {
            let keep = u64::from(stream.block(i as u64 / 4)[i % 4]) >= 1 << 30;
            let expected = if keep { (i + 1) as f64 * (1.0 / 0.75) } else { 0.0 };
            assert_eq!(*value, expected);
        }
    }

    #[test]
    fn boxes_compute_the_same_as_the_whole() {
        let x = Tensor::rand([6, 10, 21], (Kind::Double, Device::Cpu));
        let all = masked(&x, 0.4, 3, 2);
        for (dim, groups, parts) in [(0, 1, 3), (1, 5, 2), (2, 1, 7), (2, 7, 3)] {
            for rank in 0..parts {
                let part = |t: &Tensor| {
                    let mut shape = t.size();
                    let rest = shape[dim] / (groups * parts);
                    shape.splice(dim..=dim, [groups, parts, rest]);
                    let picked = t.view(shape.as_slice()).select(dim as i64 + 1, rank);
                    picked.flatten(dim as i64, dim as i64 + 1).contiguous()
                };
                let splits = vec![Split::even(dim, groups, parts, Part::MicroBatch)];
                let placement = Placement { global_shape: x.size(), splits };
                let local = part(&x);
                let geometry = Geometry::new(&placement, &local.size(), rank as u32).expect("fits");
                let got = dropout(&local, 0.4, Stream::dropout(5, 3, 2), &geometry).expect("runs");
                assert!(got.equal(&part(&all)), "dim {dim}, {groups} groups, part {rank} of {parts}");
            }
        }
    }

    #[test]
    fn sites_and_steps_are_independent() {
        let x = Tensor::ones([400_000], (Kind::Double, Device::Cpu));
        let base = masked(&x, 0.5, 1, 0) - 1.0;
        for (site, step) in [(2, 0), (1, 1)] {
            let other = masked(&x, 0.5, site, step) - 1.0;
            // Products of independent ±1: the mean's deviation is 1 / sqrt(n).
            let correlation = (&base * other).mean(Kind::Double).double_value(&[]);
            assert!(correlation.abs() < 5.0 / 400_000f64.sqrt(), "{correlation}");
        }
    }

    #[test]
    fn element_types_agree_on_the_mask() {
        let x = Tensor::randn([4, 100], (Kind::Float, Device::Cpu)).to_kind(Kind::BFloat16).to_kind(Kind::Float);
        let expected = masked(&x, 0.3, 1, 1);
        for kind in [Kind::BFloat16, Kind::Half] {
            let got = masked(&x.to_kind(kind), 0.3, 1, 1);
            assert_eq!(got.kind(), kind);
            assert!(got.equal(&masked(&x.to_kind(kind).to_kind(Kind::Float), 0.3, 1, 1).to_kind(kind)));
        }
        assert!(expected.ne(0.0).equal(&masked(&x.to_kind(Kind::Double), 0.3, 1, 1).ne(0.0)));
    }

    #[test]
    fn a_transposed_argument_is_indexed_by_its_shape() {
        let x = Tensor::rand([30, 40], (Kind::Float, Device::Cpu));
        let got = masked(&x.tr(), 0.5, 1, 0);
        assert!(got.equal(&masked(&x.tr().contiguous(), 0.5, 1, 0)));
    }

    #[test]
    fn integers_have_no_dropout() {
        let x = Tensor::ones([4], (Kind::Int64, Device::Cpu));
        let error = dropout(&x, 0.5, Stream::dropout(0, 0, 0), &whole(&x)).expect_err("refused");
        assert_eq!(error, "dropout of i64[4]: only floating types have it");
    }
}
