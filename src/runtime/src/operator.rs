//! A prepared call of an ATen operator: handle and constants converted once, tensors given at each run.
//!
//! Knows nothing of slots: a caller passes the tensors in the order in which the arguments were given, the present
//! entries of lists in line.

use crate::ffi::{self, Kind};
use slapo_program::Arg;
use std::ffi::{CStr, CString, c_void};
use std::ptr;
use tch::Tensor;
use torch_sys::C_tensor;

pub struct PreparedCall {
    raw: *mut ffi::RawCall,
    /// How many results the operator gives; `None` where a list decides it at run time.
    pub results: Option<usize>,
}

impl PreparedCall {
    /// Looks up `name` (`aten::add.Tensor`) and converts the constants among the arguments to the types of its schema;
    /// what neither `args` nor `named` gives takes the schema's default.
    pub fn new(name: &str, args: &[Arg], named: &[(String, Arg)]) -> Result<PreparedCall, String> {
        let (qualified, overload) = name.split_once('.').unwrap_or((name, ""));
        let qualified = CString::new(qualified).map_err(|_| format!("`{name}` is no operator name"))?;
        let overload = CString::new(overload).map_err(|_| format!("`{name}` is no operator name"))?;
        let mut call = PreparedCall { raw: ptr::null_mut(), results: None };
        // SAFETY: both names are NUL-terminated; on success `raw` is ours until `Drop`.
        ffi::check(unsafe { ffi::slapo_call_new(qualified.as_ptr(), overload.as_ptr(), &raw mut call.raw) })?;
        for arg in args {
            call.give(None, arg)?;
        }
        for (name, arg) in named {
            let name = CString::new(name.as_str()).map_err(|_| format!("`{name}` is no argument name"))?;
            call.give(Some(&name), arg)?;
        }
        let mut results = -1;
        // SAFETY: `raw` is a live call.
        ffi::check(unsafe { ffi::slapo_call_finish(call.raw, &raw mut results) })?;
        call.results = usize::try_from(results).ok();
        Ok(call)
    }

    fn give(&mut self, name: Option<&CStr>, arg: &Arg) -> Result<(), String> {
        match arg {
            Arg::None => self.push::<u8>(name, Kind::None, &[]),
            Arg::Value(_) => self.push::<u8>(name, Kind::Tensor, &[]),
            Arg::Values(values) => self.push(name, Kind::Tensors, &bytes(values.iter().map(Option::is_some))),
            Arg::Int(i) => self.push(name, Kind::Int, &[*i]),
            Arg::Float(x) => self.push(name, Kind::Float, &[*x]),
            Arg::Bool(b) => self.push(name, Kind::Bool, &[u8::from(*b)]),
            Arg::Ints(list) => self.push(name, Kind::Ints, list),
            Arg::Floats(list) => self.push(name, Kind::Floats, list),
            Arg::Bools(list) => self.push(name, Kind::Bools, &bytes(list.iter().copied())),
            Arg::DType(dtype) => self.push(name, Kind::DType, &[i64::from(dtype.scalar_type())]),
            Arg::Str(text) => self.push(name, Kind::Str, text.as_bytes()),
        }
    }

    fn push<T>(&mut self, name: Option<&CStr>, kind: Kind, data: &[T]) -> Result<(), String> {
        let name = name.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: `data` is of the element type that `kind` announces, and only read during the call, as is `name`.
        ffi::check(unsafe {
            ffi::slapo_call_argument(self.raw, name, kind as i32, data.as_ptr().cast::<c_void>(), data.len())
        })
    }

    /// Runs the operator below autograd, or, where `recorded`, under it. A result that is no defined tensor is `None`.
    pub fn run(&self, tensors: &[&Tensor], recorded: bool) -> Result<Vec<Option<Tensor>>, String> {
        let pointers: Vec<*const C_tensor> = tensors.iter().map(|t| t.as_ptr()).collect();
        let mut results = Vec::with_capacity(self.results.unwrap_or(4));
        // SAFETY: the tensors outlive the call; `push` gets the vector it expects.
        ffi::check(unsafe {
            ffi::slapo_call_run(
                self.raw,
                pointers.as_ptr(),
                pointers.len(),
                u8::from(recorded),
                push_result,
                (&raw mut results).cast::<c_void>(),
            )
        })?;
        Ok(results)
    }

    /// Gradients of the tensors where `wanted`, by running the operator again under autograd with `gradients` of its
    /// results (`None`: zero). Refuses operators that draw random numbers or change their arguments.
    pub fn vjp(
        &self,
        tensors: &[&Tensor],
        wanted: &[bool],
        gradients: &[Option<&Tensor>],
    ) -> Result<Vec<Option<Tensor>>, String> {
        assert_eq!(tensors.len(), wanted.len(), "one flag per tensor");
        let pointers: Vec<*const C_tensor> = tensors.iter().map(|t| t.as_ptr()).collect();
        let seeds: Vec<*const C_tensor> = gradients.iter().map(|g| g.map_or(ptr::null(), Tensor::as_ptr)).collect();
        let wanted = bytes(wanted.iter().copied());
        let mut results = Vec::new();
        // SAFETY: as in `run`; `wanted` has one entry per tensor.
        ffi::check(unsafe {
            ffi::slapo_call_vjp(
                self.raw,
                pointers.as_ptr(),
                wanted.as_ptr(),
                pointers.len(),
                seeds.as_ptr(),
                seeds.len(),
                push_result,
                (&raw mut results).cast::<c_void>(),
            )
        })?;
        Ok(results)
    }
}

impl Drop for PreparedCall {
    fn drop(&mut self) {
        // SAFETY: null or a call that nobody else holds.
        unsafe { ffi::slapo_call_delete(self.raw) }
    }
}

extern "C" fn push_result(sink: *mut c_void, tensor: *mut C_tensor) {
    // SAFETY: `sink` is the result vector of `run` or `vjp`, and the tensor is ours to keep.
    unsafe {
        let results = &mut *sink.cast::<Vec<Option<Tensor>>>();
        results.push(if tensor.is_null() { None } else { Some(Tensor::from_ptr(tensor)) });
    }
}

fn bytes(flags: impl Iterator<Item = bool>) -> Vec<u8> {
    flags.map(u8::from).collect()
}

/// Whether the tensor alone holds a contiguous storage of exactly its size, so that it may be kept as it is.
pub fn owns_storage(tensor: &Tensor) -> bool {
    // SAFETY: reads the tensor.
    unsafe { ffi::slapo_owns_storage(tensor.as_ptr()) != 0 }
}
