//! What the kernel is told without being asked: that a file changed, or that we want its pages.
//!
//! Never from a worker that answers requests: the kernel waits for pages that are being read, and those
//! wait for a worker.
#![forbid(unsafe_code)]

use crate::wire;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::sync::Arc;

const INVAL_INODE: i32 = 2;
const INVAL_ENTRY: i32 = 3;
const STORE: i32 = 4;
const RETRIEVE: i32 = 5;

/// Speaks to the kernel about one mount. `Ok(false)`: the kernel does not know that node, or the mount is gone.
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Arc<File>,
}

impl Notifier {
    pub(crate) fn new(device: Arc<File>) -> Self {
        Notifier { device }
    }

    /// Drops pages of a file from the kernel's page cache, writing back what is dirty; its attributes too.
    /// A `len` of 0 means to the end of the file. Waits for reads of these pages.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn inval_inode(&self, node: u64, offset: u64, len: u64) -> io::Result<bool> {
        let mut body = [0; 24];
        put(&mut body, 0, &node.to_ne_bytes());
        put(&mut body, 8, &offset.to_ne_bytes());
        put(&mut body, 16, &len.to_ne_bytes());
        self.send(INVAL_INODE, &body, &[])
    }

    /// Drops attributes of a node from the kernel's cache, and nothing of its data.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn inval_attributes(&self, node: u64) -> io::Result<bool> {
        let mut body = [0; 24];
        put(&mut body, 0, &node.to_ne_bytes());
        // Before the beginning: no data.
        put(&mut body, 8, &(-1i64).to_ne_bytes());
        self.send(INVAL_INODE, &body, &[])
    }

    /// Drops a name from the kernel's cache of names. Waits for operations in that directory.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn inval_entry(&self, parent: u64, name: &CStr) -> io::Result<bool> {
        let mut body = [0; 16];
        put(&mut body, 0, &parent.to_ne_bytes());
        put(&mut body, 8, &(name.count_bytes() as u32).to_ne_bytes());
        self.send(INVAL_ENTRY, &body, name.to_bytes_with_nul())
    }

    /// Puts data into the kernel's page cache; makes the file longer there when it ends behind its end.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn store(&self, node: u64, offset: u64, data: &[u8]) -> io::Result<bool> {
        let mut body = [0; 24];
        put(&mut body, 0, &node.to_ne_bytes());
        put(&mut body, 8, &offset.to_ne_bytes());
        put(&mut body, 16, &(data.len() as u32).to_ne_bytes());
        self.send(STORE, &body, data)
    }

    /// Asks for what the kernel has of a file in its page cache, from `offset` up to the first page that it
    /// does not have; [`crate::Content::retrieved`] gets it, with this `unique`.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn retrieve(&self, unique: u64, node: u64, offset: u64, size: u32) -> io::Result<bool> {
        let mut body = [0; 32];
        put(&mut body, 0, &unique.to_ne_bytes());
        put(&mut body, 8, &node.to_ne_bytes());
        put(&mut body, 16, &offset.to_ne_bytes());
        put(&mut body, 24, &size.to_ne_bytes());
        self.send(RETRIEVE, &body, &[])
    }

    fn send(&self, code: i32, body: &[u8], data: &[u8]) -> io::Result<bool> {
        let len = wire::ANSWER_HEADER_BYTES + body.len() + data.len();
        let header = wire::answer_header(len, code, 0);
        let parts = [&header[..], body, data].map(IoSlice::new);
        match (&*self.device).write_vectored(&parts) {
            // The kernel takes a message whole, or not at all.
            Ok(sent) => Ok(sent == len),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV | libc::ENOTCONN | libc::ECONNABORTED) => {
                    Ok(false)
                }
                _ => Err(error),
            },
        }
    }
}

fn put(body: &mut [u8], at: usize, bytes: &[u8]) {
    body[at..at + bytes.len()].copy_from_slice(bytes);
}
