//! Process-wide settings and facts of libtorch, its thread pool, and tensors' element types in the program's terms.

use crate::ffi;
use slapo_program::{DType, TensorType};
use std::ffi::c_void;
use tch::{Kind, Tensor};

/// Sets the number of intra-operator threads, at least 1.
pub fn set_threads(threads: u32) -> Result<(), String> {
    let threads = i32::try_from(threads.max(1)).map_err(|_| format!("{threads} threads are too many"))?;
    // SAFETY: a plain call.
    ffi::check(unsafe { ffi::slapo_set_threads(threads) })
}

pub fn threads() -> u32 {
    // SAFETY: a plain call.
    u32::try_from(unsafe { ffi::slapo_threads() }).unwrap_or(1)
}

/// Makes libtorch refuse operators that have no deterministic implementation.
pub fn set_deterministic(deterministic: bool) -> Result<(), String> {
    // SAFETY: a plain call.
    ffi::check(unsafe { ffi::slapo_set_deterministic(deterministic.into()) })
}

/// One JSON object: version, processor features, libraries.
pub fn features() -> String {
    // SAFETY: returns a string of the shim's own.
    ffi::take_string(unsafe { ffi::slapo_features() })
}

/// libtorch's version, as `2.11.0`.
pub fn version() -> String {
    // SAFETY: returns a string of the shim's own.
    ffi::take_string(unsafe { ffi::slapo_version() })
}

/// Splits `0..end` into ranges of at least `grain` over libtorch's threads; `body` must not panic.
pub fn parallel_for<F: Fn(std::ops::Range<usize>) + Sync>(end: usize, grain: usize, body: F) {
    extern "C" fn run<F: Fn(std::ops::Range<usize>)>(context: *mut c_void, from: i64, to: i64) {
        // SAFETY: `context` is the `body` below, alive until `slapo_parallel_for` returns.
        let body = unsafe { &*context.cast::<F>() };
        body(from as usize..to as usize);
    }
    let context = (&raw const body).cast_mut().cast::<c_void>();
    // SAFETY: `run` reads the context as what it is; `F: Sync` lets several threads do so.
    unsafe { ffi::slapo_parallel_for(end as i64, grain as i64, run::<F>, context) }
}

/// tch's name of an element type.
pub fn kind(dtype: DType) -> Kind {
    match dtype {
        DType::Bool => Kind::Bool,
        DType::U8 => Kind::Uint8,
        DType::I8 => Kind::Int8,
        DType::I16 => Kind::Int16,
        DType::I32 => Kind::Int,
        DType::I64 => Kind::Int64,
        DType::F16 => Kind::Half,
        DType::BF16 => Kind::BFloat16,
        DType::F32 => Kind::Float,
        DType::F64 => Kind::Double,
    }
}

/// The program's name of an element type; `None` for those that programs have not (complex, quantised).
pub fn dtype(kind: Kind) -> Option<DType> {
    Some(match kind {
        Kind::Bool => DType::Bool,
        Kind::Uint8 => DType::U8,
        Kind::Int8 => DType::I8,
        Kind::Int16 => DType::I16,
        Kind::Int => DType::I32,
        Kind::Int64 => DType::I64,
        Kind::Half => DType::F16,
        Kind::BFloat16 => DType::BF16,
        Kind::Float => DType::F32,
        Kind::Double => DType::F64,
        _ => return None,
    })
}

/// Whether a tensor is of a type, without allocating.
pub fn is_of(tensor: &Tensor, ty: &TensorType) -> bool {
    // SAFETY: reads the tensor and the shape.
    unsafe { ffi::slapo_has_type(tensor.as_ptr(), ty.dtype.scalar_type(), ty.shape.as_ptr(), ty.shape.len()) != 0 }
}

/// A tensor's type as messages show it: `f32[2, 3]`.
pub fn describe(tensor: &Tensor) -> String {
    if !tensor.defined() {
        return "undefined".to_owned();
    }
    let element = match tensor.f_kind() {
        Ok(kind) => dtype(kind).map_or_else(|| format!("{kind:?}"), |d| d.to_string()),
        Err(_) => "?".to_owned(),
    };
    format!("{element}{:?}", tensor.size())
}

/// An uninitialised dense tensor.
pub fn empty(ty: &TensorType) -> Result<Tensor, String> {
    Tensor::f_empty(&ty.shape, (kind(ty.dtype), tch::Device::Cpu)).map_err(|e| message(&e))
}

pub fn zeros(ty: &TensorType) -> Result<Tensor, String> {
    Tensor::f_zeros(&ty.shape, (kind(ty.dtype), tch::Device::Cpu)).map_err(|e| message(&e))
}

/// A contiguous copy with a storage of its own.
pub fn dense_copy(tensor: &Tensor) -> Result<Tensor, String> {
    let mut copy = Tensor::f_empty(tensor.size(), (tensor.kind(), tensor.device())).map_err(|e| message(&e))?;
    copy.f_copy_(tensor).map_err(|e| message(&e))?;
    Ok(copy)
}

/// The elements of all tensors as one of one dimension: a copy.
pub fn in_a_row(tensors: &[&Tensor]) -> Result<Tensor, String> {
    let flat: Result<Vec<Tensor>, _> = tensors.iter().map(|t| t.f_reshape([-1])).collect();
    flat.and_then(|flat| Tensor::f_cat(&flat, 0)).map_err(|e| message(&e))
}

/// The inverse of [`in_a_row`]: views into `row` of these shapes.
pub fn out_of_a_row<'s>(row: &Tensor, shapes: impl Iterator<Item = &'s [i64]>) -> Result<Vec<Tensor>, String> {
    let mut offset = 0;
    let view = |shape: &[i64]| {
        let length = shape.iter().product();
        let view = row.f_narrow(0, offset, length).and_then(|part| part.f_view(shape));
        offset += length;
        view.map_err(|e| message(&e))
    };
    shapes.map(view).collect()
}

/// The elements of a contiguous tensor as they lie in memory.
pub fn bytes(tensor: &Tensor) -> &[u8] {
    assert!(tensor.is_contiguous(), "elements lie in one piece");
    let length = tensor.numel() * tensor.kind().elt_size_in_bytes();
    if length == 0 {
        return &[];
    }
    // SAFETY: a contiguous CPU tensor of `length` bytes, borrowed for as long as the slice.
    unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast::<u8>(), length) }
}

/// The first line of an error of tch: the rest is a C++ stack.
pub fn message(error: &tch::TchError) -> String {
    let text = match error {
        tch::TchError::Torch(text) => text.clone(),
        other => other.to_string(),
    };
    text.lines().next().unwrap_or_default().to_owned()
}
