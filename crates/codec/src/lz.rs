//! What the Lempel-Ziv codecs written here share: reading a page by words, seeing how far two places
//! of it agree, and copying in pieces of fixed size, which compilers make into single moves.
//!
//! Nothing here can read or write outside the slices given, whatever the numbers.

use pleat_types::{Page, PAGE_SIZE};

/// Copies of up to this many bytes are one move of this many, where there is room for it.
const PIECE: usize = 16;

/// The four bytes from `at`, the first the lowest.
#[inline(always)]
pub(crate) fn load32(page: &Page, at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&page[at..at + 4]);
    u32::from_le_bytes(bytes)
}

#[inline(always)]
fn load64(page: &Page, at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&page[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// Where the bytes from `at` stop to repeat those `back` before them, looking from `at` to `limit`.
#[inline(always)]
pub(crate) fn match_end(page: &Page, at: usize, back: usize, limit: usize) -> usize {
    let mut end = at;
    while end + 8 <= limit {
        let differs = load64(page, end) ^ load64(page, end - back);
        if differs != 0 {
            return end + (differs.trailing_zeros() / 8) as usize;
        }
        end += 8;
    }
    while end < limit && page[end] == page[end - back] {
        end += 1;
    }
    end
}

/// The output of an encoder: every method is `None` when the room is used up.
pub(crate) struct Sink<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> Sink<'a> {
    /// Writes to the start of `out`.
    pub fn new(out: &'a mut [u8]) -> Self {
        Sink { out, len: 0 }
    }

    /// Bytes written.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Appends `bytes`.
    #[inline(always)]
    pub fn put<const N: usize>(&mut self, bytes: [u8; N]) -> Option<()> {
        *self.out.get_mut(self.len..)?.first_chunk_mut()? = bytes;
        self.len += N;
        Some(())
    }

    /// Appends `page[from..to]`.
    #[inline(always)]
    pub fn put_from(&mut self, page: &Page, from: usize, to: usize) -> Option<()> {
        let count = to - from;
        let wide = self.out.get_mut(self.len..)?;
        if count <= PIECE && from + PIECE <= PAGE_SIZE && wide.len() >= PIECE {
            wide[..PIECE].copy_from_slice(&page[from..from + PIECE]);
        } else {
            wide.get_mut(..count)?.copy_from_slice(&page[from..to]);
        }
        self.len += count;
        Some(())
    }

    /// Sets bits in the byte written `before` bytes ago (1: the last one).
    #[inline(always)]
    pub fn add_bits(&mut self, before: usize, bits: u8) {
        if let Some(byte) = self.out.get_mut(self.len.wrapping_sub(before)) {
            *byte |= bits;
        }
    }

    /// Overwrites two bytes at `at`, which were written before.
    #[inline(always)]
    pub fn patch(&mut self, at: usize, bytes: [u8; 2]) {
        self.out[at..at + 2].copy_from_slice(&bytes);
    }

    /// Forgets the last `count` bytes.
    pub fn take_back(&mut self, count: usize) {
        self.len = self.len.saturating_sub(count);
    }
}

/// Untrusted input of a decoder: every method is `None` when it ends too early.
pub(crate) struct Source<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Source<'a> {
    /// Reads from the start of `data`.
    pub fn new(data: &'a [u8]) -> Self {
        Source { data, at: 0 }
    }

    /// Whether everything is read.
    #[inline(always)]
    pub fn is_at_end(&self) -> bool {
        self.at >= self.data.len()
    }

    /// Bytes not yet read.
    #[inline(always)]
    pub fn left(&self) -> usize {
        self.data.len() - self.at
    }

    /// The next byte, which stays.
    #[inline(always)]
    pub fn peek(&self) -> Option<u8> {
        self.data.get(self.at).copied()
    }

    /// The next `N` bytes.
    #[inline(always)]
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = *self.data.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(bytes)
    }

    /// Copies the next `count` bytes to `page[to..]`; where the page is filled to afterwards. Bytes
    /// behind that may change too.
    #[inline(always)]
    pub fn copy(&mut self, page: &mut Page, to: usize, count: usize) -> Option<usize> {
        let left = self.data.get(self.at..)?;
        if count <= PIECE && left.len() >= PIECE && to + PIECE <= PAGE_SIZE {
            page[to..to + PIECE].copy_from_slice(&left[..PIECE]);
        } else {
            let room = page.get_mut(to..to + count)?;
            room.copy_from_slice(left.get(..count)?);
        }
        self.at += count;
        Some(to + count)
    }
}

/// Writes `count` bytes at `page[to..]` that repeat those `back` before them; where the page is
/// filled to afterwards, `None` when they would begin before the page or end behind it. Bytes behind
/// the end may change too.
#[inline(always)]
pub(crate) fn copy_back(page: &mut Page, to: usize, back: usize, count: usize) -> Option<usize> {
    let end = to + count;
    if back > to || back == 0 || end > PAGE_SIZE {
        return None;
    }
    // A piece too far is overwritten later, if there is room for it.
    if end + PIECE > PAGE_SIZE {
        copy_back_bytes(page, to, back, end);
    } else if back >= PIECE {
        copy_back_pieces::<PIECE>(page, to, back, end);
    } else if back >= 8 {
        copy_back_pieces::<8>(page, to, back, end);
    } else {
        // Eight bytes at a time once the period, taken several times, is that long.
        copy_back_bytes(page, to, back, to + 8);
        if count > 8 {
            copy_back_bytes(page, to + 8, back, to + 14);
            copy_back_pieces::<8>(page, to + 14, back * [0, 8, 4, 3, 2, 2, 2, 2][back], end);
        }
    }
    Some(end)
}

#[inline(always)]
fn copy_back_pieces<const N: usize>(page: &mut Page, mut to: usize, back: usize, end: usize) {
    loop {
        let mut piece = [0; N];
        piece.copy_from_slice(&page[to - back..to - back + N]);
        page[to..to + N].copy_from_slice(&piece);
        to += N;
        if to >= end {
            return;
        }
    }
}

#[inline(always)]
fn copy_back_bytes(page: &mut Page, to: usize, back: usize, end: usize) {
    for at in to..end {
        page[at] = page[at - back];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_repeat_what_lies_before_at_every_distance_and_length() {
        for (to, back, count) in (1..40)
            .flat_map(|back| (1..80).map(move |count| (40, back, count)))
            .chain((1..40).map(|count| (PAGE_SIZE - count, 3, count)))
        {
            let mut page: Page = std::array::from_fn(|i| (i % 251) as u8);
            let mut expected = page;
            for at in to..to + count {
                expected[at] = expected[at - back];
            }
            assert_eq!(copy_back(&mut page, to, back, count), Some(to + count));
            assert_eq!(page[..to + count], expected[..to + count]);
        }
    }

    #[test]
    fn copies_from_before_or_to_behind_the_page_are_refused() {
        let mut page = [0; PAGE_SIZE];
        assert_eq!(copy_back(&mut page, 10, 11, 1), None);
        assert_eq!(copy_back(&mut page, 10, 0, 1), None);
        assert_eq!(copy_back(&mut page, PAGE_SIZE - 3, 1, 4), None);
        assert_eq!(
            Source::new(&[1; 20]).copy(&mut page, PAGE_SIZE - 3, 4),
            None
        );
        assert_eq!(Source::new(&[1; 20]).copy(&mut page, 0, 21), None);
    }
}
