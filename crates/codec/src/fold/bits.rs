//! Bit operations on 64-bit words that the CPU may have instructions for. [`PortableBits`] is plain
//! Rust; [`Bmi2`] gives the same words.
#![allow(unsafe_code)]

use std::arch::x86_64::{_pdep_u64, _pext_u64};

use super::lanes::Mask;

/// Moves bytes and the low bits of bytes together and apart.
pub trait Bits {
    /// Eight bytes of 0xFF or 0, one for each bit of `mask`.
    fn spread(mask: Mask) -> u64;
    /// The bytes of `bytes` whose bit is set in `mask`, side by side in the low bytes.
    fn compress_word(bytes: u64, mask: Mask) -> u64;
    /// The reverse: the low bytes of `bytes` to the bytes of `mask`, zero in the others.
    fn expand_word(mask: Mask, bytes: u64) -> u64;

    /// The low 7 bits of eight bytes side by side in 56 bits.
    #[inline(always)]
    fn pack7(x: u64) -> u64 {
        let x = x & 0x007F_007F_007F_007F | (x & 0x7F00_7F00_7F00_7F00) >> 1;
        let x = x & 0x0000_3FFF_0000_3FFF | (x & 0x3FFF_0000_3FFF_0000) >> 2;
        x & 0x0FFF_FFFF | (x & 0x0FFF_FFFF_0000_0000) >> 4
    }

    /// The reverse of [`pack7`](Self::pack7).
    #[inline(always)]
    fn unpack7(x: u64) -> u64 {
        let x = x & 0x0FFF_FFFF | (x << 4) & 0x0FFF_FFFF_0000_0000;
        let x = x & 0x0000_3FFF_0000_3FFF | (x << 2) & 0x3FFF_0000_3FFF_0000;
        x & 0x007F_007F_007F_007F | (x << 1) & 0x7F00_7F00_7F00_7F00
    }

    /// The low 6 bits of eight bytes side by side in 48 bits.
    #[inline(always)]
    fn pack6(x: u64) -> u64 {
        let x = x & 0x003F_003F_003F_003F | (x & 0x3F00_3F00_3F00_3F00) >> 2;
        let x = x & 0x0000_0FFF_0000_0FFF | (x & 0x0FFF_0000_0FFF_0000) >> 4;
        x & 0x00FF_FFFF | (x & 0x00FF_FFFF_0000_0000) >> 8
    }

    /// The reverse of [`pack6`](Self::pack6).
    #[inline(always)]
    fn unpack6(x: u64) -> u64 {
        let x = x & 0x00FF_FFFF | (x << 8) & 0x00FF_FFFF_0000_0000;
        let x = x & 0x0000_0FFF_0000_0FFF | (x << 4) & 0x0FFF_0000_0FFF_0000;
        x & 0x003F_003F_003F_003F | (x << 2) & 0x3F00_3F00_3F00_3F00
    }

    /// The low 4 bits of eight bytes side by side.
    #[inline(always)]
    fn pack4(x: u64) -> u32 {
        let x = x & 0x0F0F_0F0F_0F0F_0F0F;
        let x = (x | x >> 4) & 0x00FF_00FF_00FF_00FF;
        let x = (x | x >> 8) & 0x0000_FFFF_0000_FFFF;
        (x | x >> 16) as u32
    }

    /// The reverse of [`pack4`](Self::pack4).
    #[inline(always)]
    fn unpack4(x: u32) -> u64 {
        let x = u64::from(x);
        let x = (x | x << 16) & 0x0000_FFFF_0000_FFFF;
        let x = (x | x << 8) & 0x00FF_00FF_00FF_00FF;
        (x | x << 4) & 0x0F0F_0F0F_0F0F_0F0F
    }
}

/// Shifts and masks.
pub struct PortableBits;

impl Bits for PortableBits {
    #[inline(always)]
    fn spread(mask: Mask) -> u64 {
        // Each byte gets the mask, keeps its own bit, and the sum carries into the top bit when it is set.
        let own = (u64::from(mask).wrapping_mul(0x0101_0101_0101_0101)) & 0x8040_2010_0804_0201;
        let set = (own + 0x7F7F_7F7F_7F7F_7F7F) >> 7 & 0x0101_0101_0101_0101;
        set.wrapping_mul(0xFF)
    }

    #[inline(always)]
    fn compress_word(bytes: u64, mask: Mask) -> u64 {
        let (mut packed, mut at) = (0, 0);
        for i in 0..8 {
            let has = u64::from(mask >> i & 1);
            packed |= (bytes >> (8 * i) & 0xFF & has.wrapping_neg()) << (at & 63);
            at += 8 * has as u32;
        }
        packed
    }

    #[inline(always)]
    fn expand_word(mask: Mask, bytes: u64) -> u64 {
        let (mut spread, mut rest) = (0, bytes);
        for i in 0..8 {
            let has = u64::from(mask >> i & 1);
            spread |= (rest & 0xFF & has.wrapping_neg()) << (8 * i);
            rest >>= 8 * has;
        }
        spread
    }
}

/// Parallel extract and deposit. Called only from functions compiled for CPUs that have them, as are the
/// lanes that name it.
pub struct Bmi2;

// SAFETY of every block below: the CPU has BMI2 (see the type's documentation); no memory is accessed.
impl Bits for Bmi2 {
    #[inline(always)]
    fn spread(mask: Mask) -> u64 {
        // SAFETY: above.
        unsafe { _pdep_u64(mask.into(), 0x0101_0101_0101_0101) }.wrapping_mul(0xFF)
    }

    #[inline(always)]
    fn compress_word(bytes: u64, mask: Mask) -> u64 {
        // SAFETY: above.
        unsafe { _pext_u64(bytes, Self::spread(mask)) }
    }

    #[inline(always)]
    fn expand_word(mask: Mask, bytes: u64) -> u64 {
        // SAFETY: above.
        unsafe { _pdep_u64(bytes, Self::spread(mask)) }
    }

    #[inline(always)]
    fn pack7(x: u64) -> u64 {
        // SAFETY: above.
        unsafe { _pext_u64(x, 0x7F7F_7F7F_7F7F_7F7F) }
    }

    #[inline(always)]
    fn unpack7(x: u64) -> u64 {
        // SAFETY: above.
        unsafe { _pdep_u64(x, 0x7F7F_7F7F_7F7F_7F7F) }
    }

    #[inline(always)]
    fn pack6(x: u64) -> u64 {
        // SAFETY: above.
        unsafe { _pext_u64(x, 0x3F3F_3F3F_3F3F_3F3F) }
    }

    #[inline(always)]
    fn unpack6(x: u64) -> u64 {
        // SAFETY: above.
        unsafe { _pdep_u64(x, 0x3F3F_3F3F_3F3F_3F3F) }
    }

    #[inline(always)]
    fn pack4(x: u64) -> u32 {
        // SAFETY: above.
        unsafe { _pext_u64(x, 0x0F0F_0F0F_0F0F_0F0F) as u32 }
    }

    #[inline(always)]
    fn unpack4(x: u32) -> u64 {
        // SAFETY: above.
        unsafe { _pdep_u64(x.into(), 0x0F0F_0F0F_0F0F_0F0F) }
    }
}
