//! Eight 64-bit lanes: the operations that `words.rs` is written in.
//!
//! The code above is written once, over this trait. Each implementation gives the same bytes; which
//! one runs is chosen when a codec is made (`mod.rs`). [`Portable`] is plain Rust, which the compiler
//! turns into whatever vectors it may use.

use super::bits::{Bits, PortableBits};
use crate::bytes::window;

/// Lanes of one vector.
pub const LANES: usize = 8;

/// Lanes as flags, lane 0 in the lowest bit.
pub type Mask = u8;

/// A vector of eight 64-bit lanes.
pub trait Lanes: Copy {
    /// Bit operations of the same level.
    type Bits: Bits;

    /// Reads a vector.
    fn load(from: &[u64; LANES]) -> Self;
    /// Writes the vector.
    fn store(self, to: &mut [u64; LANES]);
    /// A vector of values that were computed one by one. (To [`load`](Self::load) what was written
    /// piecemeal just before costs a vector unit some 20 cycles.)
    fn gather(lanes: [u64; LANES]) -> Self;
    /// `value` in every lane.
    fn splat(value: u64) -> Self;
    /// The bytes of `bytes` as lanes, the lowest first.
    fn from_bytes(bytes: u64) -> Self;
    /// The low bytes of the lanes, the first the lowest.
    fn to_bytes(self) -> u64;
    /// Bitwise and.
    fn and(self, other: Self) -> Self;
    /// Bitwise or.
    fn or(self, other: Self) -> Self;
    /// Bitwise exclusive or.
    fn xor(self, other: Self) -> Self;
    /// Every lane shifted up.
    fn shl<const BITS: u32>(self) -> Self;
    /// Every lane shifted down, zeros coming in.
    fn shr<const BITS: u32>(self) -> Self;
    /// Product of the low halves.
    fn mul_low(self, other: Self) -> Self;
    /// Lanes that have a bit in common with `bits`.
    fn any(self, bits: Self) -> Mask;
    /// This, but `other` in the lanes of `mask`.
    fn or_else(self, mask: Mask, other: Self) -> Self;

    /// The lanes of `mask` side by side at the start of `to`; what follows them is any value.
    fn compress(self, mask: Mask, to: &mut [u64; LANES]);
    /// The reverse: the first values of `from` to the lanes of `mask`, zero in the others.
    fn expand(mask: Mask, from: &[u64; LANES]) -> Self;
    /// The bytes of the vector whose bit is set in `mask`, side by side at the start of `to`; what
    /// follows them is any value.
    fn compress_bytes(self, mask: u64, to: &mut [u8; 8 * LANES]);
    /// The reverse: the first bytes of `from` to the bytes of `mask`, zero in the others.
    fn expand_bytes(mask: u64, from: &[u8; 8 * LANES]) -> Self;
}

/// Packs the low 4 bits of `count` values, two to a byte, in place; how many bytes that makes. Values
/// up to the next multiple of eight are overwritten.
#[inline(always)]
pub fn pack_nibbles<V: Lanes>(values: &mut [u8], count: usize) -> usize {
    values[count..count.next_multiple_of(8)].fill(0);
    for at in (0..count).step_by(8) {
        let packed = V::Bits::pack4(u64::from_le_bytes(*window(values, at)));
        *window(values, at / 2) = packed.to_le_bytes();
    }
    count.div_ceil(2)
}

/// The reverse of [`pack_nibbles`]; reads and writes up to a multiple of eight values.
#[inline(always)]
pub fn unpack_nibbles<V: Lanes>(bytes: &mut [u8], values: &mut [u8], count: usize) {
    for at in (0..count).step_by(8) {
        let packed = u32::from_le_bytes(*window(bytes, at / 2));
        *window(values, at) = V::Bits::unpack4(packed).to_le_bytes();
    }
}

/// As [`pack_nibbles`] with 6 bits, four to three bytes.
#[inline(always)]
pub fn pack_slots<V: Lanes>(values: &mut [u8], count: usize) -> usize {
    values[count..count.next_multiple_of(8)].fill(0);
    for at in (0..count).step_by(8) {
        let packed = V::Bits::pack6(u64::from_le_bytes(*window(values, at)));
        // Its two upper bytes are zero and fall on values that were read already.
        *window(values, at / 8 * 6) = packed.to_le_bytes();
    }
    slot_bytes(count)
}

/// The reverse of [`pack_slots`].
#[inline(always)]
pub fn unpack_slots<V: Lanes>(bytes: &mut [u8], values: &mut [u8], count: usize) {
    for at in (0..count).step_by(8) {
        let packed = u64::from_le_bytes(*window(bytes, at / 8 * 6));
        *window(values, at) = V::Bits::unpack6(packed).to_le_bytes();
    }
}

/// Bytes that so many packed slots take.
#[inline(always)]
pub fn slot_bytes(count: usize) -> usize {
    (6 * count).div_ceil(8)
}

/// Plain arrays.
#[derive(Clone, Copy)]
pub struct Portable([u64; LANES]);

impl Portable {
    #[inline(always)]
    fn map(self, f: impl Fn(u64) -> u64) -> Self {
        Portable(self.0.map(f))
    }

    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Portable(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }

    #[inline(always)]
    fn bytes(self) -> [u8; 8 * LANES] {
        let mut bytes = [0; 8 * LANES];
        for (to, lane) in bytes.chunks_exact_mut(8).zip(self.0) {
            to.copy_from_slice(&lane.to_le_bytes());
        }
        bytes
    }
}

impl Lanes for Portable {
    type Bits = PortableBits;

    #[inline(always)]
    fn load(from: &[u64; LANES]) -> Self {
        Portable(*from)
    }

    #[inline(always)]
    fn store(self, to: &mut [u64; LANES]) {
        *to = self.0;
    }

    #[inline(always)]
    fn gather(lanes: [u64; LANES]) -> Self {
        Portable(lanes)
    }

    #[inline(always)]
    fn splat(value: u64) -> Self {
        Portable([value; LANES])
    }

    #[inline(always)]
    fn from_bytes(bytes: u64) -> Self {
        Portable(bytes.to_le_bytes().map(u64::from))
    }

    #[inline(always)]
    fn to_bytes(self) -> u64 {
        u64::from_le_bytes(self.0.map(|lane| lane as u8))
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self.zip(other, |a, b| a ^ b)
    }

    #[inline(always)]
    fn shl<const BITS: u32>(self) -> Self {
        self.map(|lane| lane << BITS)
    }

    #[inline(always)]
    fn shr<const BITS: u32>(self) -> Self {
        self.map(|lane| lane >> BITS)
    }

    #[inline(always)]
    fn mul_low(self, other: Self) -> Self {
        self.zip(other, |a, b| u64::from(a as u32) * u64::from(b as u32))
    }

    #[inline(always)]
    fn any(self, bits: Self) -> Mask {
        let mut mask = 0;
        for i in 0..LANES {
            mask |= Mask::from(self.0[i] & bits.0[i] != 0) << i;
        }
        mask
    }

    #[inline(always)]
    fn or_else(self, mask: Mask, other: Self) -> Self {
        let pick = |i: usize| u64::from(mask >> i & 1).wrapping_neg();
        Portable(std::array::from_fn(|i| {
            self.0[i] & !pick(i) | other.0[i] & pick(i)
        }))
    }

    #[inline(always)]
    fn compress(self, mask: Mask, to: &mut [u64; LANES]) {
        let mut at = 0;
        for i in 0..LANES {
            to[at & 7] = self.0[i];
            at += usize::from(mask >> i & 1);
        }
    }

    #[inline(always)]
    fn expand(mask: Mask, from: &[u64; LANES]) -> Self {
        let mut at = 0;
        Portable(std::array::from_fn(|i| {
            let has = mask >> i & 1;
            let lane = from[at & 7] & u64::from(has).wrapping_neg();
            at += usize::from(has);
            lane
        }))
    }

    #[inline(always)]
    fn compress_bytes(self, mask: u64, to: &mut [u8; 8 * LANES]) {
        let mut at = 0;
        for (i, byte) in self.bytes().into_iter().enumerate() {
            to[at & 63] = byte;
            at += (mask >> i & 1) as usize;
        }
    }

    #[inline(always)]
    fn expand_bytes(mask: u64, from: &[u8; 8 * LANES]) -> Self {
        let mut at = 0;
        Portable(std::array::from_fn(|lane| {
            let bytes = std::array::from_fn(|i| {
                let has = mask >> (8 * lane + i) & 1;
                let byte = from[at & 63] & (has as u8).wrapping_neg();
                at += has as usize;
                byte
            });
            u64::from_le_bytes(bytes)
        }))
    }
}
