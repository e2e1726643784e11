//! `fold`: pleat's own codec, for exactly one page of a heap.
//!
//! A quick look at the page (how many bytes are zero, how many different ones a sample has, by how much
//! neighbouring numbers differ) decides what is tried: word dictionaries (`words.rs`), differences of
//! numbers (`deltas.rs`), classes of 32-bit numbers (`records.rs`), Lempel-Ziv within the page (`lz.rs`), or nothing,
//! because it will not compress.
//!
//! The words are treated in eight 64-bit lanes at a time (`lanes.rs`); all is written once and compiled for
//! three levels of the CPU, and the form stored does not depend on which.

mod avx2;
mod avx512;
mod bits;
mod deltas;
mod lanes;
mod lz;
mod patterns;
mod records;
mod unlz;
mod unwords;
mod words;

use std::ops::RangeBounds;

use pleat_types::{CodecId, Page, PAGE_SIZE};

use crate::{Codec, CodecError};
use avx2::Avx2;
use avx512::Avx512;
use lanes::Portable;

/// First byte of the stored form: which method follows.
const WORDS: u8 = 1;
const LZ: u8 = 2;
/// Differences of numbers of 8 and of 4 bytes.
const DELTAS_8: u8 = 3;
const DELTAS_4: u8 = 4;
/// Lempel-Ziv of a page of 16-bit characters, the low bytes first.
const LZ_16: u8 = 5;
/// Classes of 32-bit numbers.
const RECORDS: u8 = 6;

/// Zero bytes that a page of words has at least: pointers and small numbers bring two to seven each.
/// Text and code have fewer.
const WORDS_ZEROS_MIN: usize = PAGE_SIZE / 5;
/// A sample of 256 bytes that has more different ones is noise, or numbers without a pattern: of 256
/// random bytes 162 are different on average, of text 50, of machine code 90.
const DISTINCT_MAX: u32 = 132;
const SAMPLE_STARTS: [usize; 4] = [320, 1408, 2496, 3584];
const SAMPLE_BYTES: usize = 64;
/// Of the 28 pairs of neighbours among a sample's words, floating-point numbers have the same top byte
/// (sign and exponent) in nearly all.
const ALIKE_MIN: usize = 20;
/// Differences that are estimated to take more bytes than this are not tried before Lempel-Ziv.
const DELTAS_MAX: usize = PAGE_SIZE / 4 * 3;
/// Words in so few bytes need no looking for anything better.
const WORDS_GOOD: usize = PAGE_SIZE / 8;
/// Words that leave more bytes of literals than this are worth a try with Lempel-Ziv.
const LITERALS_MAX: usize = 1700;

/// Which instructions the CPU has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Portable,
    Avx2,
    Avx512,
}

impl Level {
    fn of_this_cpu() -> Level {
        macro_rules! has {
            ($($feature:tt)*) => { $(std::is_x86_feature_detected!($feature))&&* };
        }
        if !has!("avx2" "bmi1" "bmi2" "lzcnt" "popcnt") {
            Level::Portable
        } else if has!("avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vbmi2") {
            Level::Avx512
        } else {
            Level::Avx2
        }
    }
}

/// The codec with its working memory, about 100 KiB.
pub struct Fold {
    level: Level,
    words: Box<words::Parts>,
    unwords: Box<unwords::Unparts>,
    lz: Box<lz::Lz>,
    unlz: Box<unlz::Unlz>,
    deltas: Box<deltas::Deltas>,
    records: Box<records::Records>,
    other: Box<Page>,
}

impl Fold {
    /// Name on the command line.
    pub const NAME: &'static str = "fold";
    /// Identity stored with pages.
    pub const ID: CodecId = CodecId(7);

    /// Allocates the working memory and looks at the CPU.
    pub fn new() -> Self {
        Fold::with_level(Level::of_this_cpu())
    }

    fn with_level(level: Level) -> Self {
        Fold {
            level,
            words: Box::new(words::Parts::new()),
            unwords: Box::new(unwords::Unparts::new()),
            lz: Box::new(lz::Lz::new()),
            unlz: Box::new(unlz::Unlz::new()),
            deltas: Box::new(deltas::Deltas::new()),
            records: Box::new(records::Records::new()),
            other: Box::new([0; PAGE_SIZE]),
        }
    }
}

impl Default for Fold {
    fn default() -> Self {
        Fold::new()
    }
}

impl Codec for Fold {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn id(&self) -> CodecId {
        Self::ID
    }

    fn compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
        run::compress(self, page, out)
    }

    fn decompress(&mut self, data: &[u8], page: &mut Page) -> Result<(), CodecError> {
        run::decompress(self, data, page).ok_or(CodecError::Damaged { codec: Self::NAME })
    }
}

/// A method and how many bytes it made.
type Made = (u8, usize);

#[inline(always)]
fn compress<V: lanes::Lanes>(fold: &mut Fold, page: &Page, out: &mut [u8]) -> Option<usize> {
    let (method, stored) = out.split_first_mut()?;
    let made = if is_text_of_16_bits(page) {
        let split = low_bytes_first(page);
        lz::encode::<V, lz::Text>(&split, &mut fold.lz, stored).map(|len| (LZ_16, len))
    } else if holds_words(page) {
        compress_words::<V>(fold, page, stored)
    } else {
        compress_others::<V>(fold, page, stored)
    };
    let (made_by, len) = made?;
    *method = made_by;
    Some(1 + len)
}

/// Word dictionaries; where they leave much, the best of them and what else might do.
#[inline(always)]
fn compress_words<V: lanes::Lanes>(fold: &mut Fold, page: &Page, out: &mut [u8]) -> Option<Made> {
    let words = words::encode::<V>(page, &mut fold.words, out);
    let (len, literals) = words.map_or((out.len(), usize::MAX), |w| (w.len, w.literals));
    let made = (literals < usize::MAX).then_some((WORDS, len));
    // What is tried beside has to be shorter, and must not overwrite this before.
    let room = len.min(PAGE_SIZE);
    let differences = (len > WORDS_GOOD).then(|| Differences::estimate(page));
    let much_shorter = len / 4 * 3;
    let mut other = differences.as_ref().and_then(|differences| {
        let room = &mut fold.other[..room];
        differences.encode_within(..much_shorter, page, &mut fold.deltas, room)
    });
    if other.is_none() && literals > LITERALS_MAX {
        let room = &mut fold.other[..room];
        other = encode_records(page, &mut fold.records, room).or_else(|| {
            let lz = lz::encode::<V, lz::Numbers>(page, &mut fold.lz, room);
            lz.map(|len| (LZ, len))
        });
    }
    if let (None, None, Some(differences)) = (made, other, differences) {
        let (room, rest) = (&mut fold.other[..room], much_shorter..DELTAS_MAX);
        other = differences.encode_within(rest, page, &mut fold.deltas, room);
    }
    if let Some((_, len)) = other {
        out[..len].copy_from_slice(&fold.other[..len]);
    }
    other.or(made)
}

/// Pages with few zeros.
#[inline(always)]
fn compress_others<V: lanes::Lanes>(fold: &mut Fold, page: &Page, out: &mut [u8]) -> Option<Made> {
    let differences = Differences::estimate(page);
    let room = out.len().min(differences.bytes());
    let made = encode_records(page, &mut fold.records, &mut out[..room]);
    if made.is_some() {
        return made;
    }
    let made = differences.encode_within(..DELTAS_MAX, page, &mut fold.deltas, out);
    if made.is_some() {
        return made;
    }
    let sample = Sample::of(page);
    if sample.distinct > DISTINCT_MAX {
        return None;
    }
    let len = if sample.is_text {
        lz::encode::<V, lz::Text>(page, &mut fold.lz, out)
    } else if sample.alike < ALIKE_MIN {
        lz::encode::<V, lz::Binary>(page, &mut fold.lz, out)
    } else {
        lz::encode::<V, lz::Numbers>(page, &mut fold.lz, out)
    };
    Some((LZ, len?))
}

/// Records of 32-bit numbers, where a quick look says that it may be these.
#[inline(always)]
fn encode_records(page: &Page, records: &mut records::Records, out: &mut [u8]) -> Option<Made> {
    if !records::suits(page) {
        return None;
    }
    Some((RECORDS, records::encode(page, records, out)?))
}

/// How many bytes differences of numbers of 8 and of 4 bytes would probably take.
struct Differences {
    of_8: usize,
    of_4: usize,
}

impl Differences {
    #[inline(always)]
    fn estimate(page: &Page) -> Self {
        Differences {
            of_8: deltas::estimate::<8>(page),
            of_4: deltas::estimate::<4>(page),
        }
    }

    fn bytes(&self) -> usize {
        self.of_8.min(self.of_4)
    }

    /// Compresses with the size that will probably do better, if it will probably take so many bytes.
    #[inline(always)]
    fn encode_within(
        &self,
        bytes: impl RangeBounds<usize>,
        page: &Page,
        deltas: &mut deltas::Deltas,
        out: &mut [u8],
    ) -> Option<Made> {
        if !bytes.contains(&self.bytes()) {
            return None;
        }
        if self.of_8 <= self.of_4 {
            Some((DELTAS_8, deltas::encode::<8>(page, deltas, out)?))
        } else {
            Some((DELTAS_4, deltas::encode::<4>(page, deltas, out)?))
        }
    }
}

#[inline(always)]
fn decompress<V: lanes::Lanes>(fold: &mut Fold, data: &[u8], page: &mut Page) -> Option<()> {
    match data.split_first()? {
        (&WORDS, stored) => unwords::decode::<V>(stored, &mut fold.unwords, page),
        (&LZ, stored) => unlz::decode::<V>(stored, &mut fold.unlz, page),
        (&DELTAS_8, stored) => deltas::decode::<8>(stored, &mut fold.deltas, page),
        (&DELTAS_4, stored) => deltas::decode::<4>(stored, &mut fold.deltas, page),
        (&RECORDS, stored) => records::decode(stored, &mut fold.records, page),
        (&LZ_16, stored) => {
            unlz::decode::<V>(stored, &mut fold.unlz, page)?;
            *page = characters_of_16_bits(page);
            Some(())
        }
        _ => None,
    }
}

/// Whether a sample's every second byte is zero and the others are not.
#[inline(always)]
fn is_text_of_16_bits(page: &Page) -> bool {
    SAMPLE_STARTS.iter().all(|&start| {
        let line = &page[start..start + SAMPLE_BYTES];
        line.chunks_exact(2)
            .all(|pair| pair[0] != 0 && pair[1] == 0)
    })
}

#[inline(always)]
fn low_bytes_first(page: &Page) -> Page {
    let mut split = [0; PAGE_SIZE];
    let (low, high) = split.split_at_mut(PAGE_SIZE / 2);
    for (pair, (low, high)) in page.chunks_exact(2).zip(low.iter_mut().zip(high)) {
        (*low, *high) = (pair[0], pair[1]);
    }
    split
}

/// The reverse of [`low_bytes_first`].
#[inline(always)]
fn characters_of_16_bits(split: &Page) -> Page {
    let mut page = [0; PAGE_SIZE];
    let (low, high) = split.split_at(PAGE_SIZE / 2);
    for (pair, (low, high)) in page.chunks_exact_mut(2).zip(low.iter().zip(high)) {
        (pair[0], pair[1]) = (*low, *high);
    }
    page
}

/// Whether the page looks like one of words: by its zeros, which 64 counters count, of which none can
/// overflow, because vectors do that best.
#[inline(always)]
pub(crate) fn holds_words(page: &Page) -> bool {
    let mut counts = [0u8; 64];
    for line in page.chunks_exact(counts.len()) {
        for (count, &byte) in counts.iter_mut().zip(line) {
            *count += u8::from(byte == 0);
        }
    }
    counts.into_iter().map(usize::from).sum::<usize>() >= WORDS_ZEROS_MIN
}

/// How many of the bytes are 1, where all others are 0.
#[inline(always)]
fn how_many(seen: &[u8; 256]) -> u32 {
    seen.chunks_exact(64)
        .map(|some| u32::from(some.iter().sum::<u8>()))
        .sum()
}

/// What a few lines of the page look like.
struct Sample {
    /// How many different bytes there are.
    distinct: u32,
    /// Whether all are 7-bit characters.
    is_text: bool,
    /// Words with the same top byte as the one before.
    alike: usize,
}

impl Sample {
    #[inline(always)]
    fn of(page: &Page) -> Sample {
        // A byte each: bits in words would make each step wait for the one before.
        let mut seen = [0u8; 256];
        let (mut alike, mut all) = (0, 0);
        for start in SAMPLE_STARTS {
            let line = &page[start..start + SAMPLE_BYTES];
            for &byte in line {
                seen[usize::from(byte)] = 1;
                all |= byte;
            }
            let pairs = (7..SAMPLE_BYTES - 8).step_by(8);
            alike += pairs.filter(|&top| line[top] == line[top + 8]).count();
        }
        Sample {
            distinct: how_many(&seen),
            is_text: all < 0x80,
            alike,
        }
    }
}

/// The same two functions compiled for each level.
mod run {
    #![allow(unsafe_code)]

    use super::*;

    macro_rules! compiled_for {
        ($module:ident, $lanes:ty, $features:literal) => {
            mod $module {
                use super::super::*;

                #[target_feature(enable = $features)]
                pub fn compress(fold: &mut Fold, page: &Page, out: &mut [u8]) -> Option<usize> {
                    super::super::compress::<$lanes>(fold, page, out)
                }

                #[target_feature(enable = $features)]
                pub fn decompress(fold: &mut Fold, data: &[u8], page: &mut Page) -> Option<()> {
                    super::super::decompress::<$lanes>(fold, data, page)
                }
            }
        };
    }
    compiled_for!(for_avx2, Avx2, "avx2,bmi1,bmi2,lzcnt,popcnt");
    compiled_for!(
        for_avx512,
        Avx512,
        "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt"
    );

    pub fn compress(fold: &mut Fold, page: &Page, out: &mut [u8]) -> Option<usize> {
        match fold.level {
            Level::Portable => super::compress::<Portable>(fold, page, out),
            // SAFETY: this level is only made where the CPU has its features.
            Level::Avx2 => unsafe { for_avx2::compress(fold, page, out) },
            // SAFETY: this level is only made where the CPU has its features.
            Level::Avx512 => unsafe { for_avx512::compress(fold, page, out) },
        }
    }

    pub fn decompress(fold: &mut Fold, data: &[u8], page: &mut Page) -> Option<()> {
        match fold.level {
            Level::Portable => super::decompress::<Portable>(fold, data, page),
            // SAFETY: this level is only made where the CPU has its features.
            Level::Avx2 => unsafe { for_avx2::decompress(fold, data, page) },
            // SAFETY: this level is only made where the CPU has its features.
            Level::Avx512 => unsafe { for_avx512::decompress(fold, data, page) },
        }
    }
}

#[cfg(test)]
mod tests;
