//! c10d's store and Gloo's groups, safely: what is sent between the processes of a mesh goes through here.
//!
//! Knows ranks of a group and tensors, not programs or axes. Everything blocks until it is done or its time is over.
//! Read [`Group::exchange`] first; all collectives but one are made of it.

use crate::ffi::{self, RawGroup, RawStore};
use std::ffi::{CString, c_void};
use std::net::TcpListener;
use std::os::fd::IntoRawFd;
use std::ptr;
use std::time::Duration;
use tch::Tensor;
use torch_sys::C_tensor;

/// Why ranks could not communicate. It is never this rank's own fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The rank of the group that it failed with, where that is known.
    pub peer: Option<usize>,
    /// Nothing came in time; otherwise a connection broke.
    pub silent: bool,
    /// In Gloo's words.
    pub text: String,
}

impl Lost {
    fn new(text: &str, peer: Option<usize>) -> Lost {
        let silent = ["timed out", "timeout"].iter().any(|word| text.to_lowercase().contains(word));
        // `[…/pair.cc:547] Connection closed by peer`, and a C++ stack behind it.
        let line = text.lines().next().unwrap_or_default();
        let said = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")).map_or(line, |(_, said)| said);
        Lost { peer, silent, text: said.trim_end_matches('.').to_owned() }
    }
}

/// A table of bytes under names, which all ranks reach.
pub struct Store {
    raw: *mut RawStore,
    timeout: Duration,
}

impl Store {
    /// Serves a store on `listener`.
    pub fn serve(listener: TcpListener, prefix: &str, timeout: Duration) -> Result<Store, Lost> {
        let address = listener.local_addr().map_err(|e| Lost::new(&e.to_string(), None))?;
        // libtorch owns the socket from here on.
        Store::open(&address.ip().to_string(), address.port(), listener.into_raw_fd(), prefix, timeout)
    }

    /// Connects to the store at `host`, which may come later.
    pub fn connect(host: &str, port: u16, prefix: &str, timeout: Duration) -> Result<Store, Lost> {
        Store::open(host, port, -1, prefix, timeout)
    }

    fn open(host: &str, port: u16, listener: i32, prefix: &str, timeout: Duration) -> Result<Store, Lost> {
        let (host, prefix) = (text(host), text(prefix));
        let mut raw = ptr::null_mut();
        // SAFETY: strings live as long as the call; the socket is handed over.
        let opened = unsafe {
            ffi::slapo_store_open(host.as_ptr(), port, listener, milliseconds(timeout), prefix.as_ptr(), &raw mut raw)
        };
        checked(opened, None)?;
        Ok(Store { raw, timeout })
    }

    /// How long a rank waits for another.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), Lost> {
        // SAFETY: the store is alive; key and value live as long as the call.
        checked(unsafe { ffi::slapo_store_set(self.raw, text(key).as_ptr(), value.as_ptr(), value.len()) }, None)
    }

    /// Waits until some rank has set the key.
    pub fn get(&self, key: &str) -> Result<Vec<u8>, Lost> {
        extern "C" fn push(sink: *mut c_void, data: *const u8, count: usize) {
            // SAFETY: `sink` is the vector below; `data` has `count` bytes.
            unsafe {
                let found = if count == 0 { &[][..] } else { std::slice::from_raw_parts(data, count) };
                (*sink.cast::<Vec<u8>>()).extend_from_slice(found);
            }
        }
        let mut value: Vec<u8> = Vec::new();
        let (key, sink) = (text(key), (&raw mut value).cast::<c_void>());
        // SAFETY: the store is alive; `push` gets the vector it expects.
        let got = unsafe { ffi::slapo_store_get(self.raw, key.as_ptr(), milliseconds(self.timeout), push, sink) };
        checked(got, None)?;
        Ok(value)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: nobody else holds it.
        unsafe { ffi::slapo_store_delete(self.raw) }
    }
}

/// Some ranks, connected with each other.
pub struct Group {
    raw: *mut RawGroup,
    rank: usize,
    size: usize,
}

impl Group {
    /// Connects with the others, who do the same under this name. `address` is one of this machine that they reach.
    pub fn connect(store: &Store, name: &str, rank: usize, size: usize, address: &str) -> Result<Group, Lost> {
        let (prefix, address) = (text(name), text(address));
        let mut raw = ptr::null_mut();
        // SAFETY: the store is alive; strings live as long as the call.
        let connected = unsafe {
            ffi::slapo_group_new(
                store.raw,
                prefix.as_ptr(),
                rank as i32,
                size as i32,
                address.as_ptr(),
                milliseconds(store.timeout),
                &raw mut raw,
            )
        };
        checked(connected, None)?;
        Ok(Group { raw, rank, size })
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Replaces a contiguous tensor by the sum of all ranks', in Gloo's order.
    pub fn sum(&self, tensor: &Tensor) -> Result<(), Lost> {
        // SAFETY: group and tensor are alive.
        checked(unsafe { ffi::slapo_group_sum(self.raw, tensor.as_ptr()) }, None)
    }

    /// Sends `sent[i]` to rank i and fills `received[i]` from it, for every other rank. Tensors are contiguous; what one
    /// rank sends has the type that the other receives. Empty ones do not travel.
    pub fn exchange(&self, sent: &[Tensor], received: &[Tensor]) -> Result<(), Lost> {
        assert!(sent.len() == self.size && received.len() == self.size, "one tensor for each rank");
        let pointers = |tensors: &[Tensor]| tensors.iter().map(|t| t.as_ptr()).collect::<Vec<_>>();
        let (from, to): (Vec<*const C_tensor>, Vec<*const C_tensor>) = (pointers(sent), pointers(received));
        let mut peer = -1;
        // SAFETY: group and tensors are alive, as many of each as the group has ranks.
        let done = unsafe { ffi::slapo_group_exchange(self.raw, from.as_ptr(), to.as_ptr(), &raw mut peer) };
        checked(done, usize::try_from(peer).ok())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: nobody else holds it.
        unsafe { ffi::slapo_group_delete(self.raw) }
    }
}

fn checked(message: *mut std::ffi::c_char, peer: Option<usize>) -> Result<(), Lost> {
    ffi::check(message).map_err(|text| Lost::new(&text, peer))
}

/// Names come from the job and have no NUL; one that has ends there.
fn text(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gloo_says_becomes_one_line() {
        let closed = Lost::new("[/a/pair.cc:547] Connection closed by peer [127.0.0.1]:4711\nstack", Some(2));
        assert_eq!((closed.peer, closed.silent), (Some(2), false));
        assert_eq!(closed.text, "Connection closed by peer [127.0.0.1]:4711");
        for text in ["Timed out waiting 2000ms for recv operation to complete", "wait timeout after 2000ms, keys: /a"] {
            assert!(Lost::new(text, None).silent, "{text}");
        }
    }
}
