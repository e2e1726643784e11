//! What eight words in a row are (16 bits of the two planes of `words.rs`) repeats down a page as its
//! objects do. A table of 16 keeps the last group of each hash; stored are the places of groups that
//! are in the table, and the others.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | a bit each group: is it in the table |
//! | 1/2 each that is | its place |
//! | 2 each other | itself |

use super::lanes::{pack_nibbles, unpack_nibbles, Lanes};
use crate::bytes::window;

pub const GROUPS: usize = 64;
/// Longest stored form.
pub const BYTES_MAX: usize = 8 + 2 * GROUPS;
const TABLE: usize = 16;

/// The two planes of each group, the first in the low byte.
pub type Patterns = [u16; GROUPS];

/// A group's place in the table.
#[inline(always)]
fn place_of(pattern: u16) -> usize {
    (u32::from(pattern).wrapping_mul(0x9E37_79B1) >> 28) as usize
}

/// Writes the stored form, and how long it is.
#[inline(always)]
pub fn pack<V: Lanes>(patterns: &Patterns, out: &mut [u8; BYTES_MAX]) -> usize {
    let mut table = [0u16; TABLE];
    let (mut known, mut places, mut others) = (0u64, [0u8; GROUPS + 8], [0u16; GROUPS + 1]);
    let (mut hits, mut misses) = (0, 0);
    for (group, &pattern) in patterns.iter().enumerate() {
        let place = place_of(pattern);
        let hit = usize::from(table[place] == pattern);
        table[place] = pattern;
        known |= (hit as u64) << group;
        // Both are written, one is kept: a branch would often be wrong.
        places[hits] = place as u8;
        others[misses] = pattern;
        hits += hit;
        misses += 1 - hit;
    }
    let place_bytes = pack_nibbles::<V>(&mut places, hits);
    *window(out, 0) = known.to_le_bytes();
    out[8..8 + place_bytes].copy_from_slice(&places[..place_bytes]);
    let at = 8 + place_bytes;
    for (to, other) in out[at..].chunks_exact_mut(2).zip(&others[..misses]) {
        to.copy_from_slice(&other.to_le_bytes());
    }
    at + 2 * misses
}

/// Reads the stored form from the start of `input`, which has room for the longest; how long it was.
#[inline(always)]
pub fn unpack<V: Lanes>(input: &mut [u8], patterns: &mut Patterns) -> usize {
    let known = u64::from_le_bytes(*window(input, 0));
    let count = known.count_ones() as usize;
    let mut places = [0u8; GROUPS + 8];
    unpack_nibbles::<V>(&mut input[8..], &mut places, count);
    let mut others = 8 + count.div_ceil(2);
    let mut table = [0u16; TABLE + 1];
    let mut hits = 0;
    for (group, pattern) in patterns.iter_mut().enumerate() {
        let hit = usize::from(known >> group & 1 == 1);
        let other = u16::from_le_bytes(*window(input, others));
        let old = table[usize::from(places[hits]) % TABLE];
        *pattern = if hit == 1 { old } else { other };
        // One that is there stays; to write it again would make the next wait for it.
        let place = if hit == 1 { TABLE } else { place_of(other) };
        table[place] = other;
        hits += hit;
        others += 2 * (1 - hit);
    }
    others
}
