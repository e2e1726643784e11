//! Pages of 64-bit words as heaps hold them: zeros, repeats, pointers into the same few regions, small
//! numbers, short text. Method: word dictionaries as in WKdm (Wilson, Kaplan and Smaragdakis, USENIX
//! 1999), but of 64-bit words, in three stages, each of which only sees what the one before did not
//! recognise, and eight words at a time without a branch that depends on them.
//!
//! 1. Of all 512 words: *zero*; *exact*, equal to the last word of its dictionary slot; *near*, equal
//!    but for bits 3 to 12; *other*. A slot is chosen by the bits above 12.
//! 2. Of the others: 1 to 11; 8, 16 or 24 bits; *rest*.
//! 3. Of the rest, each half: zero; exact and near (but for 10 bits) in a second dictionary; *literal*.
//!    A word of two literals and eight ASCII characters takes seven bytes.
//!
//! Stored form (all little-endian; counts follow from what comes before):
//!
//! | bytes | what |
//! |---|---|
//! | 8 to 136 | which of the four the words are: two bit planes, stored as `patterns.rs` says |
//! | 3/4 each exact | slot |
//! | 2 each near | slot in 6 bits, bits 3 to 12 |
//! | 1/2 each other | 1 to 11 itself, 0: 8 bits, 12: 16 bits, 13: 24 bits, 14: rest |
//! | 1/2 each rest | 2 bits a half: 0 zero, 1 exact, 2 near, 3 literal; all 0: ASCII |
//! | | for each rest, of low and high half: 1 slot, 2 slot and low bits, 4 itself; 7 ASCII |
//! | | for each other: 1, 2, 3 itself |

use pleat_types::{Page, PAGE_SIZE};

use super::bits::Bits;
use super::lanes::{pack_nibbles, pack_slots, Lanes, Mask, LANES};
use super::patterns::{self, Patterns, GROUPS};
use crate::bytes::window;

pub const WORDS: usize = PAGE_SIZE / 8;

/// 64 slots, and those of [`NOWHERE`]; any byte is an index.
pub type Dictionary = [u64; 256];
/// A lane each: in one slot for all, every word would wait for the one before.
pub const NOWHERE: u64 = 0x4746_4544_4342_4140;

pub const ONES: u64 = u64::MAX;
/// What a near word may differ in.
pub const NEAR: u64 = 0x3FF << 3;
/// What a near half may differ in.
pub const NEAR_HALF: u64 = 0x3FF;
pub const HALF: u64 = 0xFFFF_FFFF;
const ASCII: u64 = 0x7F7F_7F7F_7F7F_7F7F;

/// Codes of the second stage; 1 to 11 are the word itself.
pub const CODE_U8: u64 = 0;
pub const CODE_U16: u64 = 12;
pub const CODE_U24: u64 = 13;
pub const CODE_REST: u64 = 14;

/// A page with more of the rest is not worth the last stage.
const REST_MAX: usize = 400;

/// What became of a page.
pub struct Encoded {
    /// Bytes of the stored form.
    pub len: usize,
    /// Of these, bytes of literals: what Lempel-Ziv might find something in.
    pub literals: usize,
}

/// Where the stages leave their parts until all are known; a vector's room beyond the longest.
pub struct Parts {
    patterns: [u8; patterns::BYTES_MAX],
    exact: [u8; WORDS + LANES],
    near: [u8; 2 * WORDS + 8 * LANES],
    others: [u64; WORDS + LANES],
    codes: [u8; WORDS + LANES],
    other_bytes: [u8; 4 * WORDS + 8 * LANES],
    rest: [u64; WORDS + LANES],
    rest_codes: [u8; WORDS + LANES],
    rest_bytes: [u8; 8 * WORDS + 8 * LANES],
}

impl Parts {
    pub fn new() -> Self {
        Parts {
            patterns: [0; patterns::BYTES_MAX],
            exact: [0; WORDS + LANES],
            near: [0; 2 * WORDS + 8 * LANES],
            others: [0; WORDS + LANES],
            codes: [0; WORDS + LANES],
            other_bytes: [0; 4 * WORDS + 8 * LANES],
            rest: [0; WORDS + LANES],
            rest_codes: [0; WORDS + LANES],
            rest_bytes: [0; 8 * WORDS + 8 * LANES],
        }
    }
}

/// Bytes that a stage has left in its part.
#[derive(Default)]
struct Lengths {
    patterns: usize,
    exact: usize,
    near: usize,
    others: usize,
    other_bytes: usize,
    rest: usize,
    rest_bytes: usize,
}

/// Which of 64 slots a word with this key belongs to; bits 26 to 31 of the product are mixed best.
#[inline(always)]
pub fn slot<V: Lanes>(key: V) -> V {
    let product = key.xor(key.shr::<29>()).mul_low(V::splat(0x9E37_79B1));
    product.shr::<26>().and(V::splat(63))
}

/// Puts the words into their slots; the words that were there.
#[inline(always)]
fn exchange<V: Lanes>(dictionary: &mut Dictionary, slots: V, words: V) -> V {
    let (mut new, mut old) = ([0; LANES], [0; LANES]);
    words.store(&mut new);
    let slots = slots.to_bytes().to_le_bytes();
    for (slot, (new, old)) in slots.into_iter().zip(new.into_iter().zip(&mut old)) {
        let slot = &mut dictionary[usize::from(slot)];
        *old = *slot;
        *slot = new;
    }
    V::gather(old)
}

/// The lanes of a group that lie before `count`.
#[inline(always)]
pub fn lanes_before(count: usize, group: usize) -> Mask {
    let left = count - group * LANES;
    if left >= LANES {
        Mask::MAX
    } else {
        (1 << left) - 1
    }
}

/// The byte mask with `bytes` set in each lane of `mask`.
#[inline(always)]
pub fn bytes_of<V: Lanes>(mask: Mask, bytes: u8) -> u64 {
    V::Bits::spread(mask) & u64::from_ne_bytes([bytes; 8])
}

/// Compresses `page`; `None` when it does not suit or `out` is too short.
#[inline(always)]
pub fn encode<V: Lanes>(page: &Page, parts: &mut Parts, out: &mut [u8]) -> Option<Encoded> {
    let mut lengths = Lengths::default();
    let patterns = repeats::<V>(page, parts, &mut lengths);
    lengths.patterns = patterns::pack::<V>(&patterns, &mut parts.patterns);
    numbers::<V>(parts, &mut lengths);
    if lengths.rest > REST_MAX {
        return None;
    }
    let literals = halves::<V>(parts, &mut lengths);
    let len = assemble::<V>(parts, &lengths, out)?;
    Some(Encoded { len, literals })
}

/// Stage 1.
#[inline(always)]
fn repeats<V: Lanes>(page: &Page, parts: &mut Parts, lengths: &mut Lengths) -> Patterns {
    let mut patterns = [0; GROUPS];
    let mut dictionary: Dictionary = [0; 256];
    let ones = V::splat(ONES);
    let (mut exacts, mut nears, mut others) = (0, 0, 0);
    for (group, pattern) in patterns.iter_mut().enumerate() {
        let x = V::load(&words_of(page, group));
        let key = x.shr::<13>();
        let big = key.any(ones);
        let slots = slot(key).or_else(!big, V::from_bytes(NOWHERE));
        let change = exchange(&mut dictionary, slots, x).xor(x);
        let changed = change.any(ones);
        let exact = big & !changed;
        let near = big & changed & !change.any(V::splat(!NEAR));
        let other = x.any(ones) & !(exact | near);
        *pattern = u16::from_le_bytes([exact | other, near | other]);

        let packed = V::Bits::compress_word(slots.to_bytes(), exact);
        *window(&mut parts.exact, exacts) = packed.to_le_bytes();
        exacts += exact.count_ones() as usize;
        let low = x.and(V::splat(NEAR)).shr::<3>();
        let item = slots.shl::<10>().or(low);
        item.compress_bytes(bytes_of::<V>(near, 0x03), window(&mut parts.near, nears));
        nears += 2 * near.count_ones() as usize;
        x.compress(other, window(&mut parts.others, others));
        others += other.count_ones() as usize;
    }
    (lengths.exact, lengths.near, lengths.others) = (exacts, nears, others);
    patterns
}

#[inline(always)]
fn words_of(page: &Page, group: usize) -> [u64; LANES] {
    let at = group * 8 * LANES;
    std::array::from_fn(|i| {
        let mut word = [0; 8];
        word.copy_from_slice(&page[at + 8 * i..at + 8 * i + 8]);
        u64::from_le_bytes(word)
    })
}

/// The lanes with a word that takes more bits than so many.
#[inline(always)]
fn lanes_over<V: Lanes>(lanes: V, bits: u32) -> Mask {
    lanes.any(V::splat(ONES << bits))
}

/// Stage 2.
#[inline(always)]
fn numbers<V: Lanes>(parts: &mut Parts, lengths: &mut Lengths) {
    let (mut bytes, mut rests) = (0, 0);
    for group in 0..lengths.others.div_ceil(LANES) {
        let valid = lanes_before(lengths.others, group);
        let x = V::load(window(&mut parts.others, group * LANES));
        let over8 = lanes_over(x, 8) & valid;
        let over16 = lanes_over(x, 16) & valid;
        let rest = lanes_over(x, 24) & valid;
        let over11 = lanes_over(x, 3) & valid & x.shr::<2>().xor(V::splat(2)).any(V::splat(ONES));
        let code = x
            .or_else(over11, V::splat(CODE_U8))
            .or_else(over8, V::splat(CODE_U16))
            .or_else(over16, V::splat(CODE_U24))
            .or_else(rest, V::splat(CODE_REST));
        *window(&mut parts.codes, group * LANES) = code.to_bytes().to_le_bytes();

        let mask = number_bytes::<V>(over11 & !over8, over8 & !over16, over16 & !rest);
        x.compress_bytes(mask, window(&mut parts.other_bytes, bytes));
        bytes += mask.count_ones() as usize;
        x.compress(rest, window(&mut parts.rest, rests));
        rests += rest.count_ones() as usize;
    }
    (lengths.other_bytes, lengths.rest) = (bytes, rests);
}

/// The byte mask of numbers of 8, 16 and 24 bits.
#[inline(always)]
pub fn number_bytes<V: Lanes>(one: Mask, two: Mask, three: Mask) -> u64 {
    bytes_of::<V>(one, 0x01) | bytes_of::<V>(two, 0x03) | bytes_of::<V>(three, 0x07)
}

/// Stage 3; the bytes of literals.
#[inline(always)]
fn halves<V: Lanes>(parts: &mut Parts, lengths: &mut Lengths) -> usize {
    let mut dictionary: Dictionary = [0; 256];
    let (mut bytes, mut literal_bytes) = (0, 0);
    for group in 0..lengths.rest.div_ceil(LANES) {
        let valid = lanes_before(lengths.rest, group);
        let x = V::load(window(&mut parts.rest, group * LANES));
        let low = half(&mut dictionary, x.and(V::splat(HALF)), valid);
        let high = half(&mut dictionary, x.shr::<32>(), valid);
        let ascii = low.literal & high.literal & !x.any(V::splat(!ASCII));
        let code = low.code.or(high.code.shl::<2>());
        let code = code.or_else(ascii, V::splat(0));
        *window(&mut parts.rest_codes, group * LANES) = code.to_bytes().to_le_bytes();

        let mask = low.bytes | high.bytes << 4;
        let mask = mask & !V::Bits::spread(ascii) | bytes_of::<V>(ascii, 0x7F);
        let item = low.item.or(high.item.shl::<32>());
        let item = item.or_else(ascii, pack_ascii(x));
        item.compress_bytes(mask, window(&mut parts.rest_bytes, bytes));
        bytes += mask.count_ones() as usize;
        literal_bytes += 4 * (low.literal.count_ones() + high.literal.count_ones()) as usize;
    }
    lengths.rest_bytes = bytes;
    literal_bytes
}

/// What stage 3 makes of eight halves.
struct Half<V> {
    /// Their codes, 0 to 3.
    code: V,
    /// What is stored, in the low bytes.
    item: V,
    /// Which of the low four bytes are stored.
    bytes: u64,
    /// Those stored as they are.
    literal: Mask,
}

#[inline(always)]
fn half<V: Lanes>(dictionary: &mut Dictionary, y: V, valid: Mask) -> Half<V> {
    let ones = V::splat(ONES);
    let some = y.any(ones) & valid;
    let slots = slot(y.shr::<10>()).or_else(!some, V::from_bytes(NOWHERE));
    let change = exchange(dictionary, slots, y).xor(y);
    let changed = change.any(ones);
    let exact = some & !changed;
    let near = some & changed & !change.any(V::splat(!NEAR_HALF));
    let literal = some & !(exact | near);
    let near_item = slots.shl::<10>().or(y.and(V::splat(NEAR_HALF)));
    Half {
        code: V::splat(0)
            .or_else(exact, V::splat(1))
            .or_else(near, V::splat(2))
            .or_else(literal, V::splat(3)),
        item: y.or_else(exact, slots).or_else(near, near_item),
        bytes: bytes_of::<V>(exact, 0x01)
            | bytes_of::<V>(near, 0x03)
            | bytes_of::<V>(literal, 0x0F),
        literal,
    }
}

#[inline(always)]
fn and<V: Lanes>(x: V, mask: u64) -> V {
    x.and(V::splat(mask))
}

/// Eight 7-bit characters side by side in 56 bits.
#[inline(always)]
fn pack_ascii<V: Lanes>(x: V) -> V {
    let x = and(x, 0x007F_007F_007F_007F).or(and(x, 0x7F00_7F00_7F00_7F00).shr::<1>());
    let x = and(x, 0x0000_3FFF_0000_3FFF).or(and(x, 0x3FFF_0000_3FFF_0000).shr::<2>());
    and(x, 0x0FFF_FFFF).or(and(x, 0x0FFF_FFFF_0000_0000).shr::<4>())
}

/// The reverse of [`pack_ascii`].
#[inline(always)]
pub fn unpack_ascii<V: Lanes>(x: V) -> V {
    let x = and(x, 0x0FFF_FFFF).or(and(x.shl::<4>(), 0x0FFF_FFFF_0000_0000));
    let x = and(x, 0x0000_3FFF_0000_3FFF).or(and(x.shl::<2>(), 0x3FFF_0000_3FFF_0000));
    and(x, 0x007F_007F_007F_007F).or(and(x.shl::<1>(), 0x7F00_7F00_7F00_7F00))
}

/// Puts the parts one behind the other.
#[inline(always)]
fn assemble<V: Lanes>(parts: &mut Parts, lengths: &Lengths, out: &mut [u8]) -> Option<usize> {
    let exact = pack_slots::<V>(&mut parts.exact, lengths.exact);
    let codes = pack_nibbles::<V>(&mut parts.codes, lengths.others);
    let rest_codes = pack_nibbles::<V>(&mut parts.rest_codes, lengths.rest);
    let pieces: [(&[u8], usize); 7] = [
        (&parts.patterns, lengths.patterns),
        (&parts.exact, exact),
        (&parts.near, lengths.near),
        (&parts.codes, codes),
        (&parts.rest_codes, rest_codes),
        (&parts.rest_bytes, lengths.rest_bytes),
        (&parts.other_bytes, lengths.other_bytes),
    ];
    let mut at = 0;
    for (bytes, len) in pieces {
        out.get_mut(at..at + len)?.copy_from_slice(&bytes[..len]);
        at += len;
    }
    Some(at)
}
