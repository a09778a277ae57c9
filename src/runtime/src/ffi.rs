//! The C++ shim as Rust sees it: declarations only, the counterpart of `shim/shim.h`.
//!
//! Safe wrappers live where they are used: [`crate::operator`], [`crate::allocator`], [`crate::gloo`],
//! [`crate::libtorch`].

use std::ffi::{c_char, c_void};
use torch_sys::C_tensor;

/// `SlapoCall` of the shim; only ever behind a pointer.
#[repr(C)]
pub struct RawCall {
    _private: [u8; 0],
}

/// `SlapoStore` of the shim; only ever behind a pointer.
#[repr(C)]
pub struct RawStore {
    _private: [u8; 0],
}

/// `SlapoGroup` of the shim; only ever behind a pointer.
#[repr(C)]
pub struct RawGroup {
    _private: [u8; 0],
}

/// `SlapoKind` of the shim: how the data behind an argument is to be read.
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum Kind {
    None = 0,
    Tensor = 1,
    Tensors = 2,
    Int = 3,
    Float = 4,
    Bool = 5,
    Ints = 6,
    Floats = 7,
    Bools = 8,
    DType = 9,
    Str = 10,
}

/// `SlapoMemory` of the shim.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct RawMemory {
    pub current: u64,
    pub peak: u64,
    pub cached: u64,
    pub mapped: u64,
    pub reused: u64,
}

pub type Push = extern "C" fn(*mut c_void, *mut C_tensor);
pub type PushBytes = extern "C" fn(*mut c_void, *const u8, usize);

unsafe extern "C" {
    pub fn slapo_free(message: *mut c_char);

    pub fn slapo_call_new(name: *const c_char, overload: *const c_char, call: *mut *mut RawCall) -> *mut c_char;
    pub fn slapo_call_delete(call: *mut RawCall);
    pub fn slapo_call_argument(
        call: *mut RawCall,
        name: *const c_char,
        kind: i32,
        data: *const c_void,
        count: usize,
    ) -> *mut c_char;
    pub fn slapo_call_finish(call: *mut RawCall, results: *mut i64) -> *mut c_char;
    pub fn slapo_call_run(
        call: *mut RawCall,
        tensors: *const *const C_tensor,
        count: usize,
        recorded: u8,
        push: Push,
        sink: *mut c_void,
    ) -> *mut c_char;
    pub fn slapo_call_vjp(
        call: *mut RawCall,
        tensors: *const *const C_tensor,
        wanted: *const u8,
        count: usize,
        gradients: *const *const C_tensor,
        results: usize,
        push: Push,
        sink: *mut c_void,
    ) -> *mut c_char;
    pub fn slapo_owns_storage(tensor: *const C_tensor) -> u8;

    pub fn slapo_has_type(tensor: *const C_tensor, scalar_type: i8, shape: *const i64, dims: usize) -> u8;

    pub fn slapo_set_deterministic(deterministic: u8) -> *mut c_char;
    pub fn slapo_set_threads(threads: i32) -> *mut c_char;
    pub fn slapo_threads() -> i32;
    pub fn slapo_version() -> *mut c_char;
    pub fn slapo_features() -> *mut c_char;
    pub fn slapo_parallel_for(end: i64, grain: i64, body: extern "C" fn(*mut c_void, i64, i64), context: *mut c_void);

    pub fn slapo_allocator_install();
    pub fn slapo_allocator_read(out: *mut RawMemory);
    pub fn slapo_allocator_reset_peak();
    pub fn slapo_allocator_trim();

    pub fn slapo_store_open(
        host: *const c_char,
        port: u16,
        listener: i32,
        timeout: i64,
        prefix: *const c_char,
        store: *mut *mut RawStore,
    ) -> *mut c_char;
    pub fn slapo_store_delete(store: *mut RawStore);
    pub fn slapo_store_set(store: *mut RawStore, key: *const c_char, data: *const u8, count: usize) -> *mut c_char;
    pub fn slapo_store_get(
        store: *mut RawStore,
        key: *const c_char,
        timeout: i64,
        push: PushBytes,
        sink: *mut c_void,
    ) -> *mut c_char;
    pub fn slapo_group_new(
        store: *mut RawStore,
        prefix: *const c_char,
        rank: i32,
        size: i32,
        address: *const c_char,
        timeout: i64,
        group: *mut *mut RawGroup,
    ) -> *mut c_char;
    pub fn slapo_group_delete(group: *mut RawGroup);
    pub fn slapo_group_sum(group: *mut RawGroup, tensor: *const C_tensor) -> *mut c_char;
    pub fn slapo_group_exchange(
        group: *mut RawGroup,
        sent: *const *const C_tensor,
        received: *const *const C_tensor,
        peer: *mut i32,
    ) -> *mut c_char;
}

/// Takes over a message of the shim: `Err` with its text where there is one.
pub fn check(message: *mut c_char) -> Result<(), String> {
    if message.is_null() { Ok(()) } else { Err(take_string(message)) }
}

/// Takes over a string that the shim allocated.
pub fn take_string(text: *mut c_char) -> String {
    // SAFETY: the shim returns NUL-terminated strings of its own and forgets them.
    unsafe {
        let copy = std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned();
        slapo_free(text);
        copy
    }
}
