//! Pages of records of 32-bit numbers: nodes of trees and graphs that name each other by index, tables of offsets,
//! columns of integers. Such a number has two or three low bytes that say something, and a top byte of which there are
//! few; one number is far more frequent than others (nobody, nothing, not yet); some fields count up from
//! record to record, or differ little.
//!
//! Stored form (all little-endian):
//!
//! | bytes | what |
//! |---|---|
//! | 4 | the usual number |
//! | 3 | three usual top bytes |
//! | 1 | the stride: numbers in a record, 1 to 8, as far as can be told |
//! | 384 | of which class each number is, 3 bits each, eight to three bytes |
//! | 0 to 4 each | what its class says (below) |
//!
//! | class | bytes | the number |
//! |---|---|---|
//! | 0 | 0 | is the usual one |
//! | 1 | 0 | is by one more than that a stride before (before the page there are zeros) |
//! | 2 | 1 | differs from that by -128 to 127: the difference plus 128 |
//! | 3 | 1 | is below 256 |
//! | 4 to 6 | 3 | has a usual top byte: the others |
//! | 7 | 4 | is none of these |

use pleat_types::{Page, PAGE_SIZE};

use super::{how_many, SAMPLE_BYTES, SAMPLE_STARTS};
use crate::bytes::window;

/// Numbers in a page.
const NUMBERS: usize = PAGE_SIZE / 4;
const STRIDE_MAX: usize = 8;

const USUAL: u8 = 0;
const NEXT: u8 = 1;
const NEAR: u8 = 2;
const SMALL: u8 = 3;
/// The first of three.
const TOP: u8 = 4;
const TOPS: usize = 3;
const LITERAL: u8 = 7;
/// What is added to a difference so that none is below zero.
const NEAR_BIAS: u32 = 128;
/// Differences, with that, that take one byte.
const NEAR_END: u32 = 256;
/// Bytes stored of a number of each class.
const LENS: [u8; 8] = [0, 0, 1, 1, 3, 3, 3, 4];

const USUAL_AT: usize = 0;
const TOPS_AT: usize = 4;
const STRIDE_AT: usize = 7;
const CLASSES_AT: usize = 8;
const HEADER: usize = CLASSES_AT + NUMBERS / 8 * 3;
/// The longest form, and what the last number of a damaged one may be read beyond it.
const FORM: usize = HEADER + PAGE_SIZE + 4;

/// A sample of 64 numbers with more different top bytes is of something else.
const SAMPLE_TOPS_MAX: u32 = 12;

/// Working memory of both directions.
pub struct Records {
    /// The numbers, with those before the page.
    numbers: [u32; STRIDE_MAX + NUMBERS],
    classes: [u8; NUMBERS],
    form: [u8; FORM],
}

impl Records {
    pub fn new() -> Self {
        Records {
            numbers: [0; STRIDE_MAX + NUMBERS],
            classes: [0; NUMBERS],
            form: [0; FORM],
        }
    }
}

/// Whether the page may be one of records, by a few of its numbers.
#[inline(always)]
pub fn suits(page: &Page) -> bool {
    let mut seen = [0u8; 256];
    for start in SAMPLE_STARTS {
        let line = &page[start..start + SAMPLE_BYTES];
        for number in line.chunks_exact(4) {
            seen[usize::from(number[3])] = 1;
        }
    }
    how_many(&seen) <= SAMPLE_TOPS_MAX
}

/// What is the same for all numbers of a page.
struct Common {
    usual: u32,
    stride: usize,
    tops: [u8; TOPS],
}

/// Compresses `page`; `None` when it does not fit into `out`.
#[inline(always)]
pub fn encode(page: &Page, records: &mut Records, out: &mut [u8]) -> Option<usize> {
    let Records {
        numbers,
        classes,
        form,
    } = records;
    for (number, bytes) in numbers[STRIDE_MAX..].iter_mut().zip(page.chunks_exact(4)) {
        *number = u32::from_le_bytes(*bytes.first_chunk().expect("four bytes"));
    }
    let mut common = Common {
        usual: most_frequent(numbers),
        stride: stride_of(numbers),
        tops: [0; TOPS],
    };
    classify(numbers, &common, classes);
    common.tops = usual_tops(&numbers[STRIDE_MAX..], classes);
    classify_by_tops(&numbers[STRIDE_MAX..], &common, classes);
    let end = HEADER + lens_of(classes);
    let out = out.get_mut(..end)?;

    form[USUAL_AT..TOPS_AT].copy_from_slice(&common.usual.to_le_bytes());
    form[TOPS_AT..STRIDE_AT].copy_from_slice(&common.tops);
    form[STRIDE_AT] = common.stride as u8;
    let packed = form[CLASSES_AT..HEADER].chunks_exact_mut(3);
    for (three, eight) in packed.zip(classes.chunks_exact(8)) {
        three.copy_from_slice(&pack3(eight));
    }
    let mut at = HEADER;
    for (i, &class) in classes.iter().enumerate() {
        let number = numbers[STRIDE_MAX + i];
        let before = numbers[STRIDE_MAX + i - common.stride];
        // Both are made, one is kept: a branch would often be wrong.
        let near = difference(number, before);
        let item = if class == NEAR { near } else { number };
        *window(form, at) = item.to_le_bytes();
        at += usize::from(LENS[usize::from(class & 7)]);
    }
    out.copy_from_slice(&form[..end]);
    Some(end)
}

/// By how much a number differs from the one a stride before, plus [`NEAR_BIAS`].
#[inline(always)]
fn difference(number: u32, before: u32) -> u32 {
    number.wrapping_sub(before).wrapping_add(NEAR_BIAS)
}

/// The number that is probably the most frequent, by every fourth.
#[inline(always)]
fn most_frequent(numbers: &[u32; STRIDE_MAX + NUMBERS]) -> u32 {
    let mut counts = [0u16; 256];
    let (mut most, mut usual) = (0, 0);
    for line in numbers[STRIDE_MAX..].chunks_exact(16) {
        // Each field of a record of four once.
        for number in [line[0], line[5], line[10], line[15]] {
            let count = &mut counts[(number.wrapping_mul(0x9E37_79B1) >> 24) as usize];
            *count += 1;
            if *count > most {
                (most, usual) = (*count, number);
            }
        }
    }
    usual
}

/// The distance at which most bytes are spared.
#[inline(always)]
fn stride_of(numbers: &[u32; STRIDE_MAX + NUMBERS]) -> usize {
    const LINE: usize = 128;
    let (mut best, mut stride) = (0, 1);
    for candidate in 1..=STRIDE_MAX {
        let mut spared = 0;
        for start in (STRIDE_MAX + LINE / 2..NUMBERS).step_by(2 * LINE) {
            let line = &numbers[start..start + LINE];
            let before = &numbers[start - candidate..start - candidate + LINE];
            for (number, before) in line.iter().zip(before) {
                let difference = difference(*number, *before);
                let is_near = difference < NEAR_END && difference != NEAR_BIAS;
                spared += 2 * u32::from(is_near) + u32::from(difference == NEAR_BIAS + 1);
            }
        }
        if spared > best {
            (best, stride) = (spared, candidate);
        }
    }
    stride
}

/// The classes, of which [`TOP`] stands for itself and all that follow.
#[inline(always)]
fn classify(numbers: &[u32; STRIDE_MAX + NUMBERS], common: &Common, classes: &mut [u8; NUMBERS]) {
    let before = &numbers[STRIDE_MAX - common.stride..][..NUMBERS];
    let with_before = numbers[STRIDE_MAX..].iter().zip(before);
    for (class, (&number, &before)) in classes.iter_mut().zip(with_before) {
        let difference = difference(number, before);
        let others = if number < 256 { SMALL } else { TOP };
        let others = if difference < NEAR_END { NEAR } else { others };
        let others = if difference == NEAR_BIAS + 1 {
            NEXT
        } else {
            others
        };
        *class = if number == common.usual {
            USUAL
        } else {
            others
        };
    }
}

/// The most frequent top bytes of numbers that are still of class [`TOP`].
#[inline(always)]
fn usual_tops(numbers: &[u32], classes: &[u8; NUMBERS]) -> [u8; TOPS] {
    // Two of each, for the same byte often comes twice in a row and the second would wait for the first.
    let mut counts = [[0u16; 256]; 2];
    for (numbers, classes) in numbers.chunks_exact(2).zip(classes.chunks_exact(2)) {
        for i in 0..2 {
            counts[i][(numbers[i] >> 24) as usize] += u16::from(classes[i] == TOP);
        }
    }
    // With its byte below, so that the largest says which it is.
    let mut ranked = [0u32; 256];
    for (top, rank) in ranked.iter_mut().enumerate() {
        *rank = u32::from(counts[0][top] + counts[1][top]) << 8 | top as u32;
    }
    std::array::from_fn(|_| {
        let most = ranked.iter().fold(0, |most, &rank| most.max(rank));
        let top = most as u8;
        ranked[usize::from(top)] = 0;
        top
    })
}

/// Tells apart what [`classify`] has left.
#[inline(always)]
fn classify_by_tops(numbers: &[u32], common: &Common, classes: &mut [u8; NUMBERS]) {
    let [first, second, third] = common.tops.map(u32::from);
    for (class, &number) in classes.iter_mut().zip(numbers) {
        let top = number >> 24;
        let by_top = if top == third { TOP + 2 } else { LITERAL };
        let by_top = if top == second { TOP + 1 } else { by_top };
        let by_top = if top == first { TOP } else { by_top };
        *class = if *class == TOP { by_top } else { *class };
    }
}

/// Bytes that numbers of these classes take.
#[inline(always)]
fn lens_of(classes: &[u8; NUMBERS]) -> usize {
    let mut sum = 0;
    for line in classes.chunks_exact(32) {
        let lens = line.iter().map(|&class| {
            let of_one = u8::from(class == NEAR || class == SMALL);
            let of_three = if class >= TOP { 3 } else { 0 };
            of_one + of_three + u8::from(class == LITERAL)
        });
        sum += usize::from(lens.sum::<u8>());
    }
    sum
}

/// Eight classes side by side in 24 bits.
#[inline(always)]
fn pack3(eight: &[u8]) -> [u8; 3] {
    let x = u64::from_le_bytes(*eight.first_chunk().expect("eight classes"));
    let x = x & 0x0007_0007_0007_0007 | (x & 0x0700_0700_0700_0700) >> 5;
    let x = x & 0x0000_003F_0000_003F | (x & 0x003F_0000_003F_0000) >> 10;
    let x = x & 0x0FFF | x >> 20 & 0xFF_F000;
    let [a, b, c, ..] = x.to_le_bytes();
    [a, b, c]
}

/// The reverse of [`pack3`].
#[inline(always)]
fn unpack3(three: &[u8]) -> [u8; 8] {
    let x = u64::from(three[0]) | u64::from(three[1]) << 8 | u64::from(three[2]) << 16;
    let x = x & 0x0FFF | (x & 0xFF_F000) << 20;
    let x = x & 0x0000_003F_0000_003F | (x & 0x0000_0FC0_0000_0FC0) << 10;
    let x = x & 0x0007_0007_0007_0007 | (x & 0x0038_0038_0038_0038) << 5;
    x.to_le_bytes()
}

/// Decompresses `data` into `page`; `None` when it is damaged, `page` then holds anything.
#[inline(always)]
pub fn decode(data: &[u8], records: &mut Records, page: &mut Page) -> Option<()> {
    let Records {
        numbers,
        classes,
        form,
    } = records;
    if data.len() < HEADER || data.len() > HEADER + PAGE_SIZE {
        return None;
    }
    form[..data.len()].copy_from_slice(data);
    let packed = form[CLASSES_AT..HEADER].chunks_exact(3);
    for (eight, three) in classes.chunks_exact_mut(8).zip(packed) {
        eight.copy_from_slice(&unpack3(three));
    }
    let stride = usize::from(form[STRIDE_AT]);
    if !(1..=STRIDE_MAX).contains(&stride) || HEADER + lens_of(classes) != data.len() {
        return None;
    }
    // A number is what is stored of it, and what is added, and for some what is a stride before.
    let usual = u32::from_le_bytes(*window(form, USUAL_AT));
    let tops: [u8; TOPS] = *window(form, TOPS_AT);
    let [first, second, third] = tops.map(|top| u32::from(top) << 24);
    let added = [
        usual,
        1,
        NEAR_BIAS.wrapping_neg(),
        0,
        first,
        second,
        third,
        0,
    ];
    const STORED: [u32; 8] = [0, 0, 0xFF, 0xFF, 0xFF_FFFF, 0xFF_FFFF, 0xFF_FFFF, u32::MAX];
    const BEFORE: [u32; 8] = [0, u32::MAX, u32::MAX, 0, 0, 0, 0, 0];
    numbers[..STRIDE_MAX].fill(0);
    let mut at = HEADER;
    for (i, &class) in classes.iter().enumerate() {
        let class = usize::from(class & 7);
        let stored = u32::from_le_bytes(*window(form, at)) & STORED[class];
        let before = numbers[STRIDE_MAX + i - stride] & BEFORE[class];
        numbers[STRIDE_MAX + i] = stored.wrapping_add(added[class]).wrapping_add(before);
        at += usize::from(LENS[class]);
    }
    for (bytes, number) in page.chunks_exact_mut(4).zip(&numbers[STRIDE_MAX..]) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    Some(())
}
