//! Pages of numbers that follow one another: counters, offsets, times, floating-point numbers with
//! close exponents. What is stored of each is by how much it differs from the one before, less a step
//! that is the same for all, in as many bits as the largest of 16 needs (frame of reference).
//!
//! Stored form (all little-endian), for numbers of 8 or of 4 bytes:
//!
//! | bytes | what |
//! |---|---|
//! | a number | the first |
//! | a number | the step |
//! | 1 each 16 numbers | bits of each |
//! | 2 for each of these bits | the differences, the sign in the lowest bit |

use pleat_types::{Page, PAGE_SIZE};

use crate::bytes::window;

/// Numbers that share a width.
const GROUP: usize = 16;

/// Working memory of both directions: the stored form, or a damaged one with room behind it.
pub struct Deltas {
    form: [u8; 2 * PAGE_SIZE],
}

impl Deltas {
    pub fn new() -> Self {
        Deltas {
            form: [0; 2 * PAGE_SIZE],
        }
    }
}

/// The number at `index` of a page of numbers of `BYTES` bytes.
#[inline(always)]
fn number<const BYTES: usize>(page: &Page, index: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..BYTES].copy_from_slice(&page[index * BYTES..(index + 1) * BYTES]);
    u64::from_le_bytes(bytes)
}

/// A difference of numbers of `BYTES` bytes, small for small ones of either sign.
#[inline(always)]
fn zigzag<const BYTES: usize>(difference: u64) -> u64 {
    let above = 64 - 8 * BYTES as u32;
    let signed = (difference << above) as i64 >> above;
    (signed << 1 ^ signed >> 63) as u64
}

/// The reverse of [`zigzag`]; only the low `BYTES` bytes count.
#[inline(always)]
fn unzigzag(coded: u64) -> u64 {
    coded >> 1 ^ (coded & 1).wrapping_neg()
}

#[inline(always)]
fn width(coded: u64) -> usize {
    (u64::BITS - coded.leading_zeros()) as usize
}

/// The difference of a number from the one before.
#[inline(always)]
fn difference<const BYTES: usize>(page: &Page, index: usize) -> u64 {
    number::<BYTES>(page, index).wrapping_sub(number::<BYTES>(page, index - 1))
}

/// About how many bytes [`encode`] would make, by a few of the numbers.
#[inline(always)]
pub fn estimate<const BYTES: usize>(page: &Page) -> usize {
    let numbers = PAGE_SIZE / BYTES;
    let mut bits = 0;
    for sample in 0..4 {
        let start = numbers / 8 * (2 * sample + 1);
        let step = difference::<BYTES>(page, start);
        let widths = (1..8).map(|i| {
            let change = difference::<BYTES>(page, start + i).wrapping_sub(step);
            width(zigzag::<BYTES>(change))
        });
        bits += widths.max().unwrap_or(0);
    }
    numbers / GROUP + numbers * bits / 4 / 8
}

/// The middle one of three differences: the step itself where it is always the same.
#[inline(always)]
fn usual_step<const BYTES: usize>(page: &Page) -> u64 {
    let numbers = PAGE_SIZE / BYTES;
    let at = |eighth| zigzag::<BYTES>(difference::<BYTES>(page, numbers / 8 * eighth));
    let (a, b, c) = (at(1), at(4), at(7));
    unzigzag(a.min(b).max(a.max(b).min(c)))
}

/// Compresses `page`; `None` when it does not fit into `out`.
#[inline(always)]
pub fn encode<const BYTES: usize>(
    page: &Page,
    deltas: &mut Deltas,
    out: &mut [u8],
) -> Option<usize> {
    let groups = PAGE_SIZE / BYTES / GROUP;
    let step = usual_step::<BYTES>(page);
    let form = &mut deltas.form;
    let first = number::<BYTES>(page, 0);
    let mut before = first.wrapping_sub(step);
    form[..BYTES].copy_from_slice(&first.to_le_bytes()[..BYTES]);
    form[BYTES..2 * BYTES].copy_from_slice(&step.to_le_bytes()[..BYTES]);
    let mut end = 2 * BYTES + groups;
    for group in 0..groups {
        let mut coded = [0; GROUP];
        for (i, coded) in coded.iter_mut().enumerate() {
            let next = number::<BYTES>(page, group * GROUP + i);
            *coded = zigzag::<BYTES>(next.wrapping_sub(before).wrapping_sub(step));
            before = next;
        }
        let bits = width(coded.into_iter().fold(0, |all, coded| all | coded));
        if end + 2 * bits > out.len() {
            return None;
        }
        form[2 * BYTES + group] = bits as u8;
        form[end] = 0;
        for (i, coded) in coded.into_iter().enumerate() {
            // Nothing above the byte that was begun is kept: it is left from other pages.
            let at = end + i * bits / 8;
            let word = u128::from(form[at]) | u128::from(coded) << (i * bits % 8);
            *window(form, at) = word.to_le_bytes();
        }
        end += 2 * bits;
    }
    out[..end].copy_from_slice(&form[..end]);
    Some(end)
}

/// Decompresses `data` into `page`; `None` when it is damaged, `page` then holds anything.
#[inline(always)]
pub fn decode<const BYTES: usize>(data: &[u8], deltas: &mut Deltas, page: &mut Page) -> Option<()> {
    let groups = PAGE_SIZE / BYTES / GROUP;
    let header = 2 * BYTES + groups;
    if data.len() < header || data.len() > header + PAGE_SIZE {
        return None;
    }
    let form = &mut deltas.form;
    form[..data.len()].copy_from_slice(data);
    let widths = &form[2 * BYTES..header];
    let packed: usize = widths.iter().map(|&bits| 2 * usize::from(bits)).sum();
    if widths.iter().any(|&bits| usize::from(bits) > 8 * BYTES) || header + packed != data.len() {
        return None;
    }
    let mut pair = [[0; 8]; 2];
    pair[0][..BYTES].copy_from_slice(&form[..BYTES]);
    pair[1][..BYTES].copy_from_slice(&form[BYTES..2 * BYTES]);
    let [first, step] = pair.map(u64::from_le_bytes);
    let mut value = first.wrapping_sub(step);
    let mut at = header;
    let lines = page.chunks_exact_mut(GROUP * BYTES);
    for (group, line) in lines.enumerate() {
        let bits = usize::from(form[2 * BYTES + group]);
        let mask = (1u128 << bits) as u64;
        let mask = if bits == 64 {
            u64::MAX
        } else {
            mask.wrapping_sub(1)
        };
        for (i, to) in line.chunks_exact_mut(BYTES).enumerate() {
            let word = u128::from_le_bytes(*window(form, at + i * bits / 8));
            let coded = (word >> (i * bits % 8)) as u64 & mask;
            value = value.wrapping_add(step).wrapping_add(unzigzag(coded));
            to.copy_from_slice(&value.to_le_bytes()[..BYTES]);
        }
        at += 2 * bits;
    }
    Some(())
}
