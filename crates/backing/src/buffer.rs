//! Page-aligned bytes, as transfers past the page cache need them.

use std::fmt;
use std::ops::{Deref, DerefMut};

const PAGE: usize = 4096;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// Page-aligned bytes that a transfer owns while it is under way.
///
/// Derefs to its bytes. Meant to be used again: shrinking keeps the memory.
#[derive(Default)]
pub struct Buffer {
    /// `pages.len() * PAGE >= len`; beyond `len` anything.
    pages: Vec<Page>,
    len: usize,
}

impl Buffer {
    /// So many zeros.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Buffer {
            pages: vec![Page([0; PAGE]); len.div_ceil(PAGE)],
            len,
        }
    }

    /// Changes the length. What stays keeps its value; what is added is whatever was there when the
    /// buffer was last that long, or zero.
    pub fn resize(&mut self, len: usize) {
        let pages = len.div_ceil(PAGE);
        if pages > self.pages.len() {
            self.pages.resize(pages, Page([0; PAGE]));
        }
        self.len = len;
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Self {
        let mut buffer = Buffer::new(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `pages` are bytes without padding, all of them initialised, `len` of them or more,
        // and borrowed for as long as the slice is.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and borrowed uniquely; any byte is a valid one.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer of {} bytes", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_aligned_and_keep_their_values_through_every_length() {
        let mut buffer = Buffer::from(&b"pleat"[..]);
        for len in [5, 4096, 4097, 0, 100, 300_000, 5] {
            buffer.resize(len);
            assert_eq!(buffer.len(), len);
            assert!((buffer.as_ptr() as usize).is_multiple_of(PAGE));
            assert!(len < 5 || &buffer[..5] == b"pleat");
        }
        assert!(Buffer::new(10_000).iter().all(|&byte| byte == 0));
        assert!(Buffer::default().is_empty());
    }
}
