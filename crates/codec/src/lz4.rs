//! LZ4 through the C library: what others are compared with, some four times as fast to undo as to do.
//!
//! The working memory (16 KiB) is allocated once per value. Its unsafe code passes pointers to C
//! and does nothing else.
#![allow(unsafe_code)]

use std::ops::RangeInclusive;

use lz4_sys::{c_char, c_int, c_void};
use pleat_types::{CodecId, Page, PAGE_SIZE};

use crate::{Codec, CodecError};

/// Accelerations the library knows: by how much faster, and worse, than at 1 it looks for matches.
pub(crate) const ACCELERATIONS: RangeInclusive<i32> = 1..=65537;

// The crate lz4-sys links these but does not declare them. The `_fastReset` variant would gain
// nothing: it clears the table all the same for inputs of 4 KiB and more.
extern "C" {
    fn LZ4_sizeofState() -> c_int;
    fn LZ4_compress_fast_extState(
        state: *mut c_void,
        source: *const c_char,
        dest: *mut c_char,
        source_size: c_int,
        dest_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
}

/// LZ4 with its hash table.
pub struct Lz4 {
    /// Words, because LZ4 wants its state aligned to 8 bytes.
    state: Box<[u64]>,
    acceleration: c_int,
}

impl Lz4 {
    /// Name on the command line.
    pub const NAME: &'static str = "lz4";
    /// Identity stored with pages.
    pub const ID: CodecId = CodecId(1);

    /// Allocates the working memory; acceleration 1, the library's default and best ratio.
    pub fn new() -> Self {
        Lz4::with_acceleration(*ACCELERATIONS.start())
    }

    /// As [`Lz4::new`], with an acceleration of 1 to 65537.
    pub fn with_acceleration(acceleration: i32) -> Self {
        // SAFETY: takes no arguments and returns a constant of the library.
        let state_bytes = unsafe { LZ4_sizeofState() } as usize;
        Lz4 {
            state: vec![0; state_bytes.div_ceil(size_of::<u64>())].into_boxed_slice(),
            acceleration,
        }
    }
}

impl Default for Lz4 {
    fn default() -> Self {
        Lz4::new()
    }
}

impl Codec for Lz4 {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn id(&self) -> CodecId {
        Self::ID
    }

    /// Cost: 2 to 8 us (`cargo bench -p pleat-codec`).
    fn compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
        let capacity = out.len().min(2 * PAGE_SIZE) as c_int;
        // SAFETY: `state` is aligned to 8 and as large as LZ4_sizeofState() asked; the library
        // initialises it at each call. It reads PAGE_SIZE bytes of `page` and writes at most
        // `capacity <= out.len()` bytes. Positions and lengths come from pointer differences, not
        // from page bytes, so they stay in bounds even if another process changes the page.
        let len = unsafe {
            LZ4_compress_fast_extState(
                self.state.as_mut_ptr().cast(),
                page.as_ptr().cast(),
                out.as_mut_ptr().cast(),
                PAGE_SIZE as c_int,
                capacity,
                self.acceleration,
            )
        };
        (len > 0).then_some(len as usize)
    }

    /// Cost: 1.0 to 1.5 us (`cargo bench -p pleat-codec`).
    fn decompress(&mut self, data: &[u8], page: &mut Page) -> Result<(), CodecError> {
        let damaged = CodecError::Damaged { codec: Self::NAME };
        // Nothing this codec writes is twice a page long; the bound keeps the length in a c_int.
        if data.len() > 2 * PAGE_SIZE {
            return Err(damaged);
        }
        // SAFETY: LZ4_decompress_safe reads at most `data.len()` bytes and writes at most
        // PAGE_SIZE bytes to `page`, whatever `data` holds; that is its contract.
        let len = unsafe {
            lz4_sys::LZ4_decompress_safe(
                data.as_ptr().cast(),
                page.as_mut_ptr().cast(),
                data.len() as c_int,
                PAGE_SIZE as c_int,
            )
        };
        if len == PAGE_SIZE as c_int {
            Ok(())
        } else {
            Err(damaged)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn keeps_to_what_every_codec_must() {
        testing::check(&|| Box::new(Lz4::new()));
    }
}
