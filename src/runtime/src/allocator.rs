//! Memory as libtorch's allocator sees it; the allocator itself is `shim/allocator.cpp`.
//!
//! Every tensor of the process is counted, whoever made it. Counts are bytes asked for, not bytes of blocks.

use crate::ffi;

/// Bytes and blocks since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Asked for and not freed.
    pub current: u64,
    /// Highest `current` since the last [`reset_peak`].
    pub peak: u64,
    /// Freed large blocks kept for reuse.
    pub cached: u64,
    /// Large blocks that had to be mapped.
    pub mapped: u64,
    /// Large blocks that came from the cache.
    pub reused: u64,
}

/// Makes the counting allocator libtorch's own; blocks allocated before stay with whoever made them. Idempotent.
pub fn install() {
    // SAFETY: the shim's allocator lives as long as the process.
    unsafe { ffi::slapo_allocator_install() }
}

pub fn read() -> Memory {
    let mut raw = ffi::RawMemory::default();
    // SAFETY: writes a plain structure.
    unsafe { ffi::slapo_allocator_read(&raw mut raw) };
    Memory { current: raw.current, peak: raw.peak, cached: raw.cached, mapped: raw.mapped, reused: raw.reused }
}

pub fn reset_peak() {
    // SAFETY: a plain call.
    unsafe { ffi::slapo_allocator_reset_peak() }
}

/// Returns cached blocks to the system and forgets the highest point that bounds the cache.
pub fn trim() {
    // SAFETY: a plain call.
    unsafe { ffi::slapo_allocator_trim() }
}
