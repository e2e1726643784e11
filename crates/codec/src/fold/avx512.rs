//! [`Lanes`] in one AVX-512 register, with the byte compress and expand of VBMI2.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::bits::Bmi2;
use super::lanes::{Lanes, Mask, LANES};

/// One 512-bit register. Values exist only inside `words.rs` functions compiled for AVX-512, which
/// `mod.rs` calls only where the CPU has it.
#[derive(Clone, Copy)]
pub struct Avx512(__m512i);

// SAFETY of every block below: the CPU has AVX-512 F, BW, DQ, VL, VBMI2 and BMI2 (see the type's
// documentation); loads and stores are unaligned ones of exactly the size of the array referred to.
impl Lanes for Avx512 {
    type Bits = Bmi2;

    #[inline(always)]
    fn load(from: &[u64; LANES]) -> Self {
        // SAFETY: above.
        Avx512(unsafe { _mm512_loadu_si512(from.as_ptr().cast()) })
    }

    #[inline(always)]
    fn store(self, to: &mut [u64; LANES]) {
        // SAFETY: above.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), self.0) }
    }

    #[inline(always)]
    fn gather(lanes: [u64; LANES]) -> Self {
        let [a, b, c, d, e, f, g, h] = lanes.map(|lane| lane as i64);
        // SAFETY: above.
        Avx512(unsafe { _mm512_setr_epi64(a, b, c, d, e, f, g, h) })
    }

    #[inline(always)]
    fn splat(value: u64) -> Self {
        // SAFETY: above.
        Avx512(unsafe { _mm512_set1_epi64(value as i64) })
    }

    #[inline(always)]
    fn from_bytes(bytes: u64) -> Self {
        // SAFETY: above.
        Avx512(unsafe { _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(bytes as i64)) })
    }

    #[inline(always)]
    fn to_bytes(self) -> u64 {
        // SAFETY: above.
        unsafe { _mm_cvtsi128_si64(_mm512_cvtepi64_epi8(self.0)) as u64 }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: above.
        Avx512(unsafe { _mm512_and_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        // SAFETY: above.
        Avx512(unsafe { _mm512_or_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: above.
        Avx512(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn shl<const BITS: u32>(self) -> Self {
        // SAFETY: above.
        Avx512(unsafe { _mm512_slli_epi64::<BITS>(self.0) })
    }

    #[inline(always)]
    fn shr<const BITS: u32>(self) -> Self {
        // SAFETY: above.
        Avx512(unsafe { _mm512_srli_epi64::<BITS>(self.0) })
    }

    #[inline(always)]
    fn mul_low(self, other: Self) -> Self {
        // SAFETY: above.
        Avx512(unsafe { _mm512_mul_epu32(self.0, other.0) })
    }

    #[inline(always)]
    fn any(self, bits: Self) -> Mask {
        // SAFETY: above.
        unsafe { _mm512_test_epi64_mask(self.0, bits.0) }
    }

    #[inline(always)]
    fn or_else(self, mask: Mask, other: Self) -> Self {
        // SAFETY: above.
        Avx512(unsafe { _mm512_mask_mov_epi64(self.0, mask, other.0) })
    }

    #[inline(always)]
    fn compress(self, mask: Mask, to: &mut [u64; LANES]) {
        // SAFETY: above.
        Avx512(unsafe { _mm512_maskz_compress_epi64(mask, self.0) }).store(to);
    }

    #[inline(always)]
    fn expand(mask: Mask, from: &[u64; LANES]) -> Self {
        // SAFETY: above.
        Avx512(unsafe { _mm512_maskz_expand_epi64(mask, Self::load(from).0) })
    }

    #[inline(always)]
    fn compress_bytes(self, mask: u64, to: &mut [u8; 8 * LANES]) {
        // SAFETY: above.
        unsafe {
            let packed = _mm512_maskz_compress_epi8(mask, self.0);
            _mm512_storeu_si512(to.as_mut_ptr().cast(), packed);
        }
    }

    #[inline(always)]
    fn expand_bytes(mask: u64, from: &[u8; 8 * LANES]) -> Self {
        // SAFETY: above.
        unsafe {
            let packed = _mm512_loadu_si512(from.as_ptr().cast());
            Avx512(_mm512_maskz_expand_epi8(mask, packed))
        }
    }
}
