//! Pages of text, code and other bytes without words: Lempel-Ziv with a window of one page. What is
//! special to a page: positions are 12 bits, so that a sequence takes 3 bytes; lengths that do not fit
//! there are rare, and the parts are stored apart, so that neither side branches on where the last
//! one ended; characters of 7 bits are packed when nothing else is left.
//!
//! Stored form (all little-endian):
//!
//! | bytes | what |
//! |---|---|
//! | 2, 2 | sequences; literals, the top bit set when they are packed |
//! | 3 each sequence | 12 bits distance, 6 bits length of the match less 4, 6 bits literals before it |
//! | 2 each 63 literals | how many there are |
//! | 1 each literal | or 7 bytes each 8, the last 8 filled up |

use pleat_types::{Page, PAGE_SIZE};

use super::bits::Bits;
use super::lanes::Lanes;
use crate::bytes::window;

/// Zeros before and after the page, for reads past its ends.
const ROOM: usize = 64;
const TABLE_BITS: u32 = 12;
/// Shortest match that can be stored.
pub const LENGTH_MIN: usize = 4;
/// Look-ups without a match after which the step grows by one.
const PATIENCE: usize = 8;
/// Sequences of a page that makes as many as possible.
const SEQUENCES_MAX: usize = PAGE_SIZE / LENGTH_MIN;
pub const HEADER: usize = 4;
/// Bytes of a sequence.
pub const SEQUENCE: usize = 3;
/// Flag of packed literals.
pub const SEVEN_BITS: u16 = 1 << 15;
/// What 6 bits say of literals when there are as many or more.
pub const LONG: usize = 63;
/// Longest match of one sequence.
const LENGTH_MAX: usize = LENGTH_MIN + 63;

/// Working memory of both directions.
pub struct Lz {
    table: [u16; 1 << TABLE_BITS],
    page: [u8; ROOM + PAGE_SIZE + ROOM],
    sequences: [u8; SEQUENCE * SEQUENCES_MAX + 8],
    long: [[u8; 2]; PAGE_SIZE / LONG + 1],
    literals: [u8; PAGE_SIZE + ROOM],
}

impl Lz {
    pub fn new() -> Self {
        Lz {
            table: [0; 1 << TABLE_BITS],
            page: [0; ROOM + PAGE_SIZE + ROOM],
            sequences: [0; SEQUENCE * SEQUENCES_MAX + 8],
            long: [[0; 2]; PAGE_SIZE / LONG + 1],
            literals: [0; PAGE_SIZE + ROOM],
        }
    }

    #[inline(always)]
    pub fn begin(&mut self, page: &Page) {
        self.page[ROOM..ROOM + PAGE_SIZE].copy_from_slice(page);
        self.table.fill(ROOM as u16);
    }
}

/// How much of the parts is filled.
#[derive(Default)]
struct Counts {
    sequences: usize,
    long: usize,
    literals: usize,
}

#[inline(always)]
fn load64(page: &mut [u8], at: usize) -> u64 {
    u64::from_le_bytes(*window(page, at))
}

#[inline(always)]
fn load128(page: &mut [u8], at: usize) -> u128 {
    u128::from_le_bytes(*window(page, at))
}

/// How matches are looked for.
pub trait Search {
    /// Shortest match looked for. One of 4 or 5 saves a byte or two and takes as long as one of 20.
    const MATCH_MIN: usize;
    /// Positions from one look-up to the next, to begin with; at least 2.
    const STEP: usize;

    /// Table index of the [`MATCH_MIN`](Self::MATCH_MIN) low bytes.
    #[inline(always)]
    fn hash(bytes: u64) -> usize {
        let key = bytes << (64 - 8 * Self::MATCH_MIN);
        (key.wrapping_mul(0x9E37_79B1_85EB_CA87) >> (64 - TABLE_BITS)) as usize
    }
}

/// For text, in which what repeats is words and phrases.
pub struct Text;

impl Search for Text {
    const MATCH_MIN: usize = 8;
    const STEP: usize = 3;
}

/// For machine code and other bytes, with shorter matches.
pub struct Binary;

impl Search for Binary {
    const MATCH_MIN: usize = 6;
    const STEP: usize = 3;
}

/// For words that no dictionary knows: often a few bytes and zeros, again and again.
pub struct Numbers;

impl Search for Numbers {
    const MATCH_MIN: usize = 5;
    const STEP: usize = 2;
}

/// Compresses `page`; `None` when it does not fit into `out`.
#[inline(always)]
pub fn encode<V: Lanes, S: Search>(page: &Page, lz: &mut Lz, out: &mut [u8]) -> Option<usize> {
    lz.begin(page);
    let counts = parse::<S>(lz, out.len())?;
    assemble::<V>(lz, &counts, out)
}

/// Finds the matches; positions count from the start of the room before the page. `None` when it
/// is clear that more than `limit` bytes remain.
#[inline(always)]
fn parse<S: Search>(lz: &mut Lz, limit: usize) -> Option<Counts> {
    let mut counts = Counts::default();
    let end = ROOM + PAGE_SIZE;
    let (mut at, mut done) = (ROOM + 1, ROOM);
    while let Some((found, source)) = search::<S>(lz, at) {
        let change = load64(&mut lz.page, found - 8) ^ load64(&mut lz.page, source - 8);
        let before = (change.leading_zeros() / 8) as usize;
        let before = before.min(found - done).min(source - ROOM);
        let after = common(&mut lz.page, found, source, end - found);
        let start = found - before;
        put(lz, &mut counts, done, start, found - source, before + after);
        at = found + after;
        done = at;
        if counts.literals + SEQUENCE * counts.sequences > limit {
            return None;
        }
        let inside = load64(&mut lz.page, at - 2);
        lz.table[S::hash(inside)] = (at - 2) as u16;
    }
    put_literals(lz, &mut counts, done, end);
    Some(counts)
}

/// The next position from `at` on that has a match, and where that is.
#[inline(always)]
fn search<S: Search>(lz: &mut Lz, mut at: usize) -> Option<(usize, usize)> {
    let mut patience = S::STEP * PATIENCE;
    while at < ROOM + PAGE_SIZE - 12 {
        let bytes = load64(&mut lz.page, at);
        let slot = &mut lz.table[S::hash(bytes)];
        let source = usize::from(*slot);
        *slot = at as u16;
        let next = load64(&mut lz.page, at + 1);
        lz.table[S::hash(next)] = (at + 1) as u16;
        let change = bytes ^ load64(&mut lz.page, source);
        if change << (64 - 8 * S::MATCH_MIN) == 0 {
            return Some((at, source));
        }
        at += patience / PATIENCE;
        patience += 1;
    }
    None
}

/// How many bytes, at most `left`, are equal.
#[inline(always)]
fn common(page: &mut [u8], a: usize, b: usize, left: usize) -> usize {
    let mut len = 0;
    while len < left {
        let change = load128(page, a + len) ^ load128(page, b + len);
        if change != 0 {
            return (len + change.trailing_zeros() as usize / 8).min(left);
        }
        len += 16;
    }
    left
}

#[inline(always)]
fn put(lz: &mut Lz, counts: &mut Counts, from: usize, to: usize, distance: usize, length: usize) {
    let literals = to - from;
    put_literals(lz, counts, from, to);
    if literals >= LONG {
        lz.long[counts.long] = (literals as u16).to_le_bytes();
        counts.long += 1;
    }
    let mut left = length;
    // What is left over must not be shorter than what can be stored.
    while left > LENGTH_MAX {
        let some = LENGTH_MAX.min(left - LENGTH_MIN);
        let before = if left == length { literals } else { 0 };
        put_sequence(lz, counts, before, distance, some);
        left -= some;
    }
    let before = if left == length { literals } else { 0 };
    put_sequence(lz, counts, before, distance, left);
}

#[inline(always)]
fn put_sequence(lz: &mut Lz, counts: &mut Counts, literals: usize, distance: usize, length: usize) {
    let item = distance | (length - LENGTH_MIN) << 12 | literals.min(LONG) << 18;
    *window(&mut lz.sequences, SEQUENCE * counts.sequences) = (item as u32).to_le_bytes();
    counts.sequences += 1;
}

#[inline(always)]
fn put_literals(lz: &mut Lz, counts: &mut Counts, from: usize, to: usize) {
    let few: [u8; 16] = *window(&mut lz.page, from);
    *window(&mut lz.literals, counts.literals) = few;
    if to - from > few.len() {
        lz.literals[counts.literals..counts.literals + (to - from)]
            .copy_from_slice(&lz.page[from..to]);
    }
    counts.literals += to - from;
}

/// Puts the parts one behind the other.
#[inline(always)]
fn assemble<V: Lanes>(lz: &mut Lz, counts: &Counts, out: &mut [u8]) -> Option<usize> {
    let literals = &mut lz.literals[..counts.literals.next_multiple_of(8)];
    literals[counts.literals..].fill(0);
    let seven_bits = literals.iter().fold(0, |all, byte| all | byte) < 0x80;
    let literal_bytes = if seven_bits {
        pack_characters::<V>(&mut lz.literals, counts.literals)
    } else {
        counts.literals
    };
    let flag = if seven_bits { SEVEN_BITS } else { 0 };
    let pieces: [&[u8]; 5] = [
        &(counts.sequences as u16).to_le_bytes(),
        &(counts.literals as u16 | flag).to_le_bytes(),
        &lz.sequences[..SEQUENCE * counts.sequences],
        lz.long[..counts.long].as_flattened(),
        &lz.literals[..literal_bytes],
    ];
    let mut at = 0;
    for piece in pieces {
        out.get_mut(at..at + piece.len())?.copy_from_slice(piece);
        at += piece.len();
    }
    Some(at)
}

/// Eight characters to seven bytes, in place; how many bytes that makes.
#[inline(always)]
fn pack_characters<V: Lanes>(characters: &mut [u8], count: usize) -> usize {
    let groups = count.div_ceil(8);
    for group in 0..groups {
        let packed = V::Bits::pack7(load64(characters, 8 * group));
        // Its eighth byte is zero and falls on one that was read already.
        *window(characters, 7 * group) = packed.to_le_bytes();
    }
    7 * groups
}
