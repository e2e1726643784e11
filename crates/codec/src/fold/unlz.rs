//! The reverse of `lz.rs`.

use pleat_types::{Page, PAGE_SIZE};

use super::lanes::Lanes;
use crate::bytes::window;

/// Longest stored form: a page of literals and the parts of as many sequences as there can be.
const INPUT: usize = 3 * PAGE_SIZE;
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

/// Where the parts of the input begin, and how many there are.
struct Parts {
    sequences: usize,
    matches: usize,
    literal_lengths: usize,
    lengths: usize,
    literals: usize,
    literal_count: usize,
    seven_bits: bool,
}

impl Parts {
    /// Reads the header of an input of `len` bytes; `None` when the parts do not fill it.
    #[inline(always)]
    fn read(input: &mut [u8], len: usize) -> Option<Parts> {
        let mut count = |at| u16::from_le_bytes(*window(input, at));
        let (sequences, lengths, literals) = (count(0), count(2), count(4));
        let seven_bits = literals >> 15 != 0;
        let literal_count = usize::from(literals & 0x7FFF);
        let sequences = usize::from(sequences);
        let literal_lengths = super::lz::HEADER + 2 * sequences;
        let lengths_at = literal_lengths + sequences.div_ceil(2);
        let literals_at = lengths_at + usize::from(lengths);
        let literal_bytes = if seven_bits {
            7 * literal_count.div_ceil(8)
        } else {
            literal_count
        };
        let fits = literal_count <= PAGE_SIZE && literals_at + literal_bytes == len;
        fits.then_some(Parts {
            sequences,
            matches: super::lz::HEADER,
            literal_lengths,
            lengths: lengths_at,
            literals: literals_at,
            literal_count,
            seven_bits,
        })
    }
}

/// Decompresses `data` into `page`; `None` when it is damaged, `page` then holds anything.
#[inline(always)]
pub fn decode<V: Lanes>(data: &[u8], lz: &mut Unlz, page: &mut Page) -> Option<()> {
    if data.len() > INPUT {
        return None;
    }
    lz.input[..data.len()].copy_from_slice(data);
    let parts = Parts::read(&mut lz.input, data.len())?;
    if parts.seven_bits {
        unpack_characters::<V>(
            &mut lz.input[parts.literals..],
            &mut lz.characters,
            parts.literal_count,
        );
    } else {
        let literals = &lz.input[parts.literals..parts.literals + parts.literal_count];
        lz.characters[..parts.literal_count].copy_from_slice(literals);
    }
    replay(lz, &parts)?;
    page.copy_from_slice(&lz.page[..PAGE_SIZE]);
    Some(())
}

#[inline(always)]
fn unpack_characters<V: Lanes>(
    packed: &mut [u8],
    characters: &mut [u8; PAGE_SIZE + ROOM],
    count: usize,
) {
    for group in 0..count.div_ceil(8) {
        let eight = V::unpack7(u64::from_le_bytes(*window(packed, 7 * group)));
        *window(characters, 8 * group) = eight.to_le_bytes();
    }
}

/// Does what the sequences say; `None` when they do not make exactly a page.
#[inline(always)]
fn replay(lz: &mut Unlz, parts: &Parts) -> Option<()> {
    let (mut at, mut literal, mut lengths) = (0, 0, parts.lengths);
    for sequence in 0..parts.sequences {
        let item: [u8; 2] = *window(&mut lz.input, parts.matches + 2 * sequence);
        let item = usize::from(u16::from_le_bytes(item));
        let nibbles = lz.input[parts.literal_lengths + sequence / 2];
        let literals = usize::from(nibbles >> (4 * (sequence & 1)) & 0xF);
        let literals = long(&mut lz.input, &mut lengths, literals);
        let distance = item & 0xFFF;
        let length = 4 + long(&mut lz.input, &mut lengths, item >> 12);
        if literals + length > PAGE_SIZE - at || literal + literals > parts.literal_count {
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
    let last = parts.literal_count - literal;
    if last != PAGE_SIZE - at {
        return None;
    }
    lz.page[at..at + last].copy_from_slice(&lz.characters[literal..literal + last]);
    Some(())
}

/// A length of which 4 bits are known. The rest is at `at`, which may be anywhere in damaged input.
#[inline(always)]
fn long(input: &mut [u8; INPUT + ROOM], at: &mut usize, known: usize) -> usize {
    if known < 15 {
        return known;
    }
    let [more, low, high]: [u8; 3] = *window(input, (*at).min(INPUT));
    if more < 255 {
        *at += 1;
        return known + usize::from(more);
    }
    *at += 3;
    usize::from(u16::from_le_bytes([low, high]))
}

/// Copies `length` bytes from `distance` before `at`, which may be bytes that this copy makes; up to
/// two chunks more than `length` are overwritten.
#[inline(always)]
fn repeat(page: &mut [u8; PAGE_SIZE + ROOM], at: usize, distance: usize, length: usize) {
    let mut from = at - distance;
    if distance >= CHUNK {
        copy_chunk(page, at, from);
    } else {
        // One byte by byte; from then on a multiple of the distance lies at least a chunk back.
        for i in 0..CHUNK {
            page[at + i] = page[from + i];
        }
        from = at - CHUNK.next_multiple_of(distance);
    }
    copy_chunk(page, at + CHUNK, from + CHUNK);
    for done in (2 * CHUNK..length).step_by(CHUNK) {
        copy_chunk(page, at + done, from + done);
    }
}

#[inline(always)]
fn copy_chunk(page: &mut [u8; PAGE_SIZE + ROOM], to: usize, from: usize) {
    let chunk: [u8; CHUNK] = *window(page, from);
    *window(page, to) = chunk;
}
