//! The reverse of `lz.rs`.

use pleat_types::{Page, PAGE_SIZE};

use super::bits::Bits;
use super::lanes::Lanes;
use super::lz::{HEADER, LENGTH_MIN, LONG, SEQUENCE, SEVEN_BITS};
use crate::bytes::window;

/// Longest input taken; what `lz.rs` makes is much shorter.
const INPUT: usize = 2 * PAGE_SIZE;
/// Room for copies that end beyond their length.
const ROOM: usize = 64;
/// A copy's unit. Two are always copied: a branch that is often wrong costs more.
const CHUNK: usize = 16;

/// Working memory.
pub struct Unlz {
    input: [u8; INPUT + ROOM],
    characters: [u8; PAGE_SIZE + ROOM],
    page: [u8; PAGE_SIZE + ROOM],
}

impl Unlz {
    pub fn new() -> Self {
        Unlz {
            input: [0; INPUT + ROOM],
            characters: [0; PAGE_SIZE + ROOM],
            page: [0; PAGE_SIZE + ROOM],
        }
    }
}

/// What the header says.
struct Header {
    sequences: usize,
    literals: usize,
    seven_bits: bool,
}

impl Header {
    #[inline(always)]
    fn read(input: &mut [u8]) -> Header {
        let mut count = |at| u16::from_le_bytes(*window(input, at));
        let (sequences, literals) = (count(0), count(2));
        Header {
            sequences: sequences.into(),
            literals: (literals & !SEVEN_BITS).into(),
            seven_bits: literals & SEVEN_BITS != 0,
        }
    }

    fn literal_bytes(&self) -> usize {
        if self.seven_bits {
            7 * self.literals.div_ceil(8)
        } else {
            self.literals
        }
    }
}

/// Decompresses `data` into `page`; `None` when it is damaged, `page` then holds anything.
#[inline(always)]
pub fn decode<V: Lanes>(data: &[u8], lz: &mut Unlz, page: &mut Page) -> Option<()> {
    if data.len() > INPUT {
        return None;
    }
    lz.input[..data.len()].copy_from_slice(data);
    let header = Header::read(&mut lz.input);
    let long_at = HEADER + SEQUENCE * header.sequences;
    let literals_at = data.len().checked_sub(header.literal_bytes())?;
    if header.literals > PAGE_SIZE || literals_at < long_at {
        return None;
    }
    if header.seven_bits {
        let packed = &mut lz.input[literals_at..];
        unpack_characters::<V>(packed, &mut lz.characters, header.literals);
    } else {
        lz.characters[..header.literals].copy_from_slice(&lz.input[literals_at..data.len()]);
    }
    let long_end = replay(lz, &header, long_at)?;
    page.copy_from_slice(&lz.page[..PAGE_SIZE]);
    (long_end == literals_at).then_some(())
}

#[inline(always)]
fn unpack_characters<V: Lanes>(
    packed: &mut [u8],
    characters: &mut [u8; PAGE_SIZE + ROOM],
    count: usize,
) {
    for group in 0..count.div_ceil(8) {
        let eight = V::Bits::unpack7(u64::from_le_bytes(*window(packed, 7 * group)));
        *window(characters, 8 * group) = eight.to_le_bytes();
    }
}

/// Does what the sequences say; `None` when they do not make exactly a page, else where the long
/// counts of literals end, the first of which is at `long`.
#[inline(always)]
fn replay(lz: &mut Unlz, header: &Header, mut long: usize) -> Option<usize> {
    let (mut at, mut literal) = (0, 0);
    for sequence in 0..header.sequences {
        let item: [u8; 4] = *window(&mut lz.input, HEADER + SEQUENCE * sequence);
        let item = u32::from_le_bytes(item) as usize;
        let distance = item & 0xFFF;
        let length = LENGTH_MIN + (item >> 12 & 63);
        let mut literals = item >> 18 & 63;
        if literals == LONG {
            // Damaged input may say so more often than there are counts.
            let count = *window(&mut lz.input, long.min(INPUT));
            literals = usize::from(u16::from_le_bytes(count));
            long += 2;
        }
        if literals + length > PAGE_SIZE - at || literal + literals > header.literals {
            return None;
        }
        let few: [u8; 2 * CHUNK] = *window(&mut lz.characters, literal);
        *window(&mut lz.page, at) = few;
        if literals > few.len() {
            lz.page[at..at + literals].copy_from_slice(&lz.characters[literal..literal + literals]);
        }
        at += literals;
        literal += literals;
        if distance == 0 || distance > at {
            return None;
        }
        repeat(&mut lz.page, at, distance, length);
        at += length;
    }
    let last = header.literals - literal;
    if last != PAGE_SIZE - at {
        return None;
    }
    lz.page[at..at + last].copy_from_slice(&lz.characters[literal..literal + last]);
    Some(long)
}

/// Copies `length` bytes from `distance` before `at`, which may be bytes that this copy makes; up to
/// two chunks more than `length` are overwritten.
#[inline(always)]
fn repeat(page: &mut [u8; PAGE_SIZE + ROOM], at: usize, distance: usize, length: usize) {
    let from = at - distance;
    // Where the bytes from the second chunk on are copied from.
    let mut next = from + CHUNK;
    if distance >= CHUNK {
        copy_chunk(page, at, from);
    } else {
        // One byte by byte; after that a multiple of the distance lies at least a chunk back.
        for i in 0..CHUNK {
            page[at + i] = page[from + i];
        }
        next = at + CHUNK - CHUNK.next_multiple_of(distance);
    }
    copy_chunk(page, at + CHUNK, next);
    for to in (at + 2 * CHUNK..at + length).step_by(CHUNK) {
        next += CHUNK;
        copy_chunk(page, to, next);
    }
}

#[inline(always)]
fn copy_chunk(page: &mut [u8; PAGE_SIZE + ROOM], to: usize, from: usize) {
    let chunk: [u8; CHUNK] = *window(page, from);
    *window(page, to) = chunk;
}
