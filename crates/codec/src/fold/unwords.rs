//! The reverse of `words.rs`.

use pleat_types::Page;

use super::bits::Bits;
use super::lanes::{slot_bytes, unpack_nibbles, unpack_slots, Lanes, Mask, LANES};
use super::patterns::{self, Patterns, GROUPS};
use super::words::*;
use crate::bytes::window;

/// Where the stages leave their words for the next; a vector's room beyond the longest.
pub struct Unparts {
    /// The stored form with room behind it: a damaged one makes the stages read on there.
    input: Box<[u8; INPUT]>,
    exact: [u8; WORDS + LANES],
    codes: [u8; WORDS + LANES],
    others: [u64; WORDS + LANES],
    rest_codes: [u8; WORDS + LANES],
    rest: [u64; WORDS + LANES],
}

/// As long as every part at its longest, so that no count in the input leads out of it.
const INPUT: usize = patterns::BYTES_MAX + (1 + 2 + 1 + 1 + 8 + 4) * WORDS + 8 * LANES;

impl Unparts {
    pub fn new() -> Self {
        Unparts {
            input: Box::new([0; INPUT]),
            exact: [0; WORDS + LANES],
            codes: [0; WORDS + LANES],
            others: [0; WORDS + LANES],
            rest_codes: [0; WORDS + LANES],
            rest: [0; WORDS + LANES],
        }
    }
}

/// Decompresses `data` into `page`; `None` when it is damaged, `page` then holds anything.
#[inline(always)]
pub fn decode<V: Lanes>(data: &[u8], parts: &mut Unparts, page: &mut Page) -> Option<()> {
    parts.input.get_mut(..data.len())?.copy_from_slice(data);
    let mut patterns = [0; GROUPS];
    let exact_at = patterns::unpack::<V>(&mut *parts.input, &mut patterns);
    let (mut exacts, mut nears, mut others) = (0, 0, 0);
    for [low, high] in patterns.map(u16::to_le_bytes) {
        exacts += (low & !high).count_ones() as usize;
        nears += (high & !low).count_ones() as usize;
        others += (low & high).count_ones() as usize;
    }
    let near_at = exact_at + slot_bytes(exacts);
    unpack_slots::<V>(&mut parts.input[exact_at..], &mut parts.exact, exacts);
    let codes_at = near_at + 2 * nears;
    let rest_codes_at = codes_at + others.div_ceil(2);
    unpack_nibbles::<V>(&mut parts.input[codes_at..], &mut parts.codes, others);
    let codes = &parts.codes[..others];
    if codes.iter().any(|&code| u64::from(code) > CODE_REST) {
        return None;
    }
    let is_rest = |&&code: &&u8| u64::from(code) == CODE_REST;
    let rests = codes.iter().filter(is_rest).count();
    let rest_bytes_at = rest_codes_at + rests.div_ceil(2);
    // From here on every count is one that was stored.
    if rest_bytes_at > data.len() {
        return None;
    }
    unpack_nibbles::<V>(
        &mut parts.input[rest_codes_at..],
        &mut parts.rest_codes,
        rests,
    );
    let other_bytes_at = halves::<V>(parts, rest_bytes_at, rests);
    let end = numbers::<V>(parts, other_bytes_at, others);
    repeats::<V>(&patterns, parts, near_at, page);
    (end == data.len()).then_some(())
}

/// What lanes are made of: a dictionary word, of which `keep` stays, and `set`. Enters them into the
/// same slots.
#[inline(always)]
fn resolve<V: Lanes>(dictionary: &mut Dictionary, slots: V, keep: V, set: V) -> [u64; LANES] {
    let (mut kept, mut words) = ([0; LANES], [0; LANES]);
    keep.store(&mut kept);
    set.store(&mut words);
    let slots = slots.to_bytes().to_le_bytes();
    for (slot, (keep, word)) in slots.into_iter().zip(kept.into_iter().zip(&mut words)) {
        let slot = &mut dictionary[usize::from(slot)];
        *word |= *slot & keep;
        *slot = *word;
    }
    words
}

/// Stage 3: the words of two halves; where its bytes end.
#[inline(always)]
fn halves<V: Lanes>(parts: &mut Unparts, mut at: usize, count: usize) -> usize {
    let mut dictionary: Dictionary = [0; 256];
    let ones = V::splat(ONES);
    for group in 0..count.div_ceil(LANES) {
        let valid = lanes_before(count, group);
        let codes = window(&mut parts.rest_codes, group * LANES);
        let code = V::from_bytes(u64::from_le_bytes(*codes));
        let ascii = !code.any(ones) & valid;
        let low = code.any(V::splat(1)) & valid;
        let high = code.any(V::splat(2)) & valid;
        let low = Tags::new(low & !high, high & !low, low & high);
        let first = code.any(V::splat(4)) & valid;
        let second = code.any(V::splat(8)) & valid;
        let high = Tags::new(first & !second, second & !first, first & second);
        let mask = low.bytes::<V>() | high.bytes::<V>() << 4 | bytes_of::<V>(ascii, 0x7F);
        let items = V::expand_bytes(mask, window(&mut *parts.input, at));
        at += mask.count_ones() as usize;
        let items = items.or_else(ascii, unpack_ascii(items));
        let low = half(
            &mut dictionary,
            items.and(V::splat(HALF)),
            low.with_literals(ascii),
        );
        let high = half(
            &mut dictionary,
            items.shr::<32>(),
            high.with_literals(ascii),
        );
        let rest = low.or(high.shl::<32>());
        rest.store(window(&mut parts.rest, group * LANES));
    }
    at
}

/// What eight words or halves are.
#[derive(Clone, Copy)]
struct Tags {
    exact: u8,
    near: u8,
    literal: u8,
}

impl Tags {
    #[inline(always)]
    fn new(exact: u8, near: u8, literal: u8) -> Self {
        Tags {
            exact,
            near,
            literal,
        }
    }

    #[inline(always)]
    fn with_literals(self, more: u8) -> Self {
        Tags::new(self.exact, self.near, self.literal | more)
    }

    #[inline(always)]
    fn bytes<V: Lanes>(self) -> u64 {
        bytes_of::<V>(self.exact, 0x01)
            | bytes_of::<V>(self.near, 0x03)
            | bytes_of::<V>(self.literal, 0x0F)
    }
}

#[inline(always)]
fn half<V: Lanes>(dictionary: &mut Dictionary, item: V, tags: Tags) -> V {
    let zero = V::splat(0);
    // A literal of zero is none (only damaged input has it); it does not enter the dictionary either.
    let literal = tags.literal & item.any(V::splat(ONES));
    let slots = V::from_bytes(NOWHERE)
        .or_else(literal, slot(item.shr::<10>()))
        .or_else(tags.near, item.shr::<10>())
        .or_else(tags.exact, item.and(V::splat(63)));
    let keep = zero
        .or_else(tags.exact, V::splat(HALF))
        .or_else(tags.near, V::splat(HALF & !NEAR_HALF));
    let set = zero
        .or_else(tags.near, item.and(V::splat(NEAR_HALF)))
        .or_else(literal, item);
    V::gather(resolve(dictionary, slots, keep, set))
}

/// The lanes with this word. (Not a closure: one that is not inlined is compiled for any CPU, and every instruction of the lanes' is a call
/// there.)
#[inline(always)]
fn lanes_that_are<V: Lanes>(lanes: V, word: u64) -> Mask {
    !lanes.xor(V::splat(word)).any(V::splat(ONES))
}

/// Stage 2: the words that are no repeats; where its bytes end.
#[inline(always)]
fn numbers<V: Lanes>(parts: &mut Unparts, mut at: usize, count: usize) -> usize {
    let mut rests = 0;
    for group in 0..count.div_ceil(LANES) {
        let valid = lanes_before(count, group);
        let codes = window(&mut parts.codes, group * LANES);
        let code = V::from_bytes(u64::from_le_bytes(*codes));
        let one = lanes_that_are(code, CODE_U8) & valid;
        let two = lanes_that_are(code, CODE_U16) & valid;
        let three = lanes_that_are(code, CODE_U24) & valid;
        let rest = lanes_that_are(code, CODE_REST) & valid;
        let mask = number_bytes::<V>(one, two, three);
        let item = V::expand_bytes(mask, window(&mut *parts.input, at));
        at += mask.count_ones() as usize;
        let rest_words = V::expand(rest, window(&mut parts.rest, rests));
        rests += rest.count_ones() as usize;
        let words = code
            .or_else(one | two | three, item)
            .or_else(rest, rest_words);
        words.store(window(&mut parts.others, group * LANES));
    }
    at
}

/// Stage 1: the page.
#[inline(always)]
fn repeats<V: Lanes>(
    patterns: &Patterns,
    parts: &mut Unparts,
    mut near_at: usize,
    page: &mut Page,
) {
    let mut dictionary: Dictionary = [0; 256];
    let (mut exacts, mut others) = (0, 0);
    let ones = V::splat(ONES);
    let lines = page.chunks_exact_mut(8 * LANES);
    for (line, pattern) in lines.zip(patterns) {
        // Zeros come in long stretches.
        if *pattern == 0 {
            line.fill(0);
            continue;
        }
        let [low, high] = pattern.to_le_bytes();
        let (exact, near, other) = (low & !high, high & !low, low & high);
        let packed = u64::from_le_bytes(*window(&mut parts.exact, exacts));
        let exact_slots = V::from_bytes(V::Bits::expand_word(exact, packed));
        exacts += exact.count_ones() as usize;
        let items = V::expand_bytes(
            bytes_of::<V>(near, 0x03),
            window(&mut *parts.input, near_at),
        );
        near_at += 2 * near.count_ones() as usize;
        let words = V::expand(other, window(&mut parts.others, others));
        others += other.count_ones() as usize;

        let key = words.shr::<13>();
        let slots = V::from_bytes(NOWHERE)
            .or_else(exact, exact_slots)
            .or_else(near, items.shr::<10>())
            .or_else(key.any(ones), slot(key));
        let keep = V::splat(0)
            .or_else(exact, ones)
            .or_else(near, V::splat(!NEAR));
        let low_bits = items.and(V::splat(NEAR >> 3)).shl::<3>();
        let set = words.or_else(near, low_bits);
        let words = resolve(&mut dictionary, slots, keep, set);
        for (bytes, word) in line.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
}
