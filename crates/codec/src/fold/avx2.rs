//! [`Lanes`] in two AVX2 registers, with BMI2 for packing bytes.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::bits::{Bits, Bmi2};
use super::lanes::{Lanes, Mask, LANES};

/// For each choice of four words, as the permutation of eight halves that has them: side by side, in front; and from there to their places.
const TOGETHER: [[u32; 8]; 16] = orders(true);
const APART: [[u32; 8]; 16] = orders(false);

const fn orders(is_together: bool) -> [[u32; 8]; 16] {
    let mut orders = [[0; 8]; 16];
    let mut choice = 0;
    while choice < orders.len() {
        let (mut word, mut chosen) = (0, 0);
        while word < 4 {
            if choice >> word & 1 == 1 {
                let (to, from) = if is_together {
                    (chosen, word)
                } else {
                    (word, chosen)
                };
                orders[choice][2 * to] = 2 * from as u32;
                orders[choice][2 * to + 1] = 2 * from as u32 + 1;
                chosen += 1;
            }
            word += 1;
        }
        choice += 1;
    }
    orders
}

/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn order(order: &[u32; 8]) -> __m256i {
    // SAFETY: the caller's, and the load is of the array's size.
    unsafe { _mm256_loadu_si256(order.as_ptr().cast()) }
}

/// Two 256-bit registers. Values exist only inside `words.rs` functions compiled for AVX2, which
/// `mod.rs` calls only where the CPU has it.
#[derive(Clone, Copy)]
pub struct Avx2(__m256i, __m256i);

impl Avx2 {
    #[inline(always)]
    fn to_array(self) -> [u64; LANES] {
        let mut lanes = [0; LANES];
        self.store(&mut lanes);
        lanes
    }
}

// SAFETY of every block below: the CPU has AVX2, BMI1 and BMI2 (see the type's documentation); loads
// and stores are unaligned ones of exactly the size of the array referred to.
impl Lanes for Avx2 {
    type Bits = Bmi2;

    #[inline(always)]
    fn load(from: &[u64; LANES]) -> Self {
        let at: *const __m256i = from.as_ptr().cast();
        // SAFETY: above.
        unsafe { Avx2(_mm256_loadu_si256(at), _mm256_loadu_si256(at.add(1))) }
    }

    #[inline(always)]
    fn store(self, to: &mut [u64; LANES]) {
        let at: *mut __m256i = to.as_mut_ptr().cast();
        // SAFETY: above.
        unsafe {
            _mm256_storeu_si256(at, self.0);
            _mm256_storeu_si256(at.add(1), self.1);
        }
    }

    #[inline(always)]
    fn gather(lanes: [u64; LANES]) -> Self {
        let [a, b, c, d, e, f, g, h] = lanes.map(|lane| lane as i64);
        // SAFETY: above.
        unsafe {
            Avx2(
                _mm256_setr_epi64x(a, b, c, d),
                _mm256_setr_epi64x(e, f, g, h),
            )
        }
    }

    #[inline(always)]
    fn splat(value: u64) -> Self {
        // SAFETY: above.
        let all = unsafe { _mm256_set1_epi64x(value as i64) };
        Avx2(all, all)
    }

    #[inline(always)]
    fn from_bytes(bytes: u64) -> Self {
        // SAFETY: above.
        unsafe {
            let low = _mm_cvtsi64_si128(bytes as i64);
            let high = _mm_srli_si128::<4>(low);
            Avx2(_mm256_cvtepu8_epi64(low), _mm256_cvtepu8_epi64(high))
        }
    }

    #[inline(always)]
    fn to_bytes(self) -> u64 {
        // SAFETY: above. Each half's four low bytes end in its two quarters' first four bytes.
        unsafe {
            let first = _mm256_setr_epi8(
                0, 8, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 8, -1, -1,
                -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
            );
            let four = |half| {
                let bytes = _mm256_shuffle_epi8(half, first);
                let both = _mm_or_si128(
                    _mm256_castsi256_si128(bytes),
                    _mm256_extracti128_si256::<1>(bytes),
                );
                _mm_cvtsi128_si32(both) as u32
            };
            u64::from(four(self.0)) | u64::from(four(self.1)) << 32
        }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: above.
        unsafe {
            Avx2(
                _mm256_and_si256(self.0, other.0),
                _mm256_and_si256(self.1, other.1),
            )
        }
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        // SAFETY: above.
        unsafe {
            Avx2(
                _mm256_or_si256(self.0, other.0),
                _mm256_or_si256(self.1, other.1),
            )
        }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: above.
        unsafe {
            Avx2(
                _mm256_xor_si256(self.0, other.0),
                _mm256_xor_si256(self.1, other.1),
            )
        }
    }

    #[inline(always)]
    fn shl<const BITS: u32>(self) -> Self {
        // SAFETY: above.
        unsafe {
            let by = _mm_cvtsi32_si128(BITS as i32);
            Avx2(_mm256_sll_epi64(self.0, by), _mm256_sll_epi64(self.1, by))
        }
    }

    #[inline(always)]
    fn shr<const BITS: u32>(self) -> Self {
        // SAFETY: above.
        unsafe {
            let by = _mm_cvtsi32_si128(BITS as i32);
            Avx2(_mm256_srl_epi64(self.0, by), _mm256_srl_epi64(self.1, by))
        }
    }

    #[inline(always)]
    fn mul_low(self, other: Self) -> Self {
        // SAFETY: above.
        unsafe {
            Avx2(
                _mm256_mul_epu32(self.0, other.0),
                _mm256_mul_epu32(self.1, other.1),
            )
        }
    }

    #[inline(always)]
    fn any(self, bits: Self) -> Mask {
        let common = self.and(bits);
        // SAFETY: above.
        unsafe {
            let none = |half| {
                let zero = _mm256_cmpeq_epi64(half, _mm256_setzero_si256());
                _mm256_movemask_pd(_mm256_castsi256_pd(zero))
            };
            !((none(common.0) | none(common.1) << 4) as Mask)
        }
    }

    #[inline(always)]
    fn or_else(self, mask: Mask, other: Self) -> Self {
        // SAFETY: above.
        unsafe {
            let bits = _mm256_set1_epi64x(mask.into());
            let pick = |own| _mm256_cmpeq_epi64(_mm256_and_si256(bits, own), own);
            let low = pick(_mm256_setr_epi64x(1, 2, 4, 8));
            let high = pick(_mm256_setr_epi64x(16, 32, 64, 128));
            Avx2(
                _mm256_blendv_epi8(self.0, other.0, low),
                _mm256_blendv_epi8(self.1, other.1, high),
            )
        }
    }

    #[inline(always)]
    fn compress(self, mask: Mask, to: &mut [u64; LANES]) {
        let (low, high) = (usize::from(mask & 15), usize::from(mask >> 4));
        let to: *mut u64 = to.as_mut_ptr();
        // SAFETY: above; four words at most are before the second half, which is stored as a whole as well.
        unsafe {
            let low_first = _mm256_permutevar8x32_epi32(self.0, order(&TOGETHER[low]));
            let high_first = _mm256_permutevar8x32_epi32(self.1, order(&TOGETHER[high]));
            _mm256_storeu_si256(to.cast(), low_first);
            _mm256_storeu_si256(to.add(low.count_ones() as usize).cast(), high_first);
        }
    }

    #[inline(always)]
    fn expand(mask: Mask, from: &[u64; LANES]) -> Self {
        let (low, high) = (usize::from(mask & 15), usize::from(mask >> 4));
        let from: *const u64 = from.as_ptr();
        // SAFETY: above; four words at most are before those of the second half.
        let spread = unsafe {
            let low_ones = _mm256_loadu_si256(from.cast());
            let high_ones = _mm256_loadu_si256(from.add(low.count_ones() as usize).cast());
            Avx2(
                _mm256_permutevar8x32_epi32(low_ones, order(&APART[low])),
                _mm256_permutevar8x32_epi32(high_ones, order(&APART[high])),
            )
        };
        Self::splat(0).or_else(mask, spread)
    }

    #[inline(always)]
    fn compress_bytes(self, mask: u64, to: &mut [u8; 8 * LANES]) {
        // Eight bytes at a time, of which the next overwrite those that are too many. The last ones begin at 56 at most.
        let mut at = 0;
        for (i, lane) in self.to_array().into_iter().enumerate() {
            let mask = (mask >> (8 * i)) as Mask;
            to[at..at + 8].copy_from_slice(&Bmi2::compress_word(lane, mask).to_le_bytes());
            at += mask.count_ones() as usize;
        }
    }

    #[inline(always)]
    fn expand_bytes(mask: u64, from: &[u8; 8 * LANES]) -> Self {
        let mut at = 0;
        let mut lanes = [0; LANES];
        for (i, lane) in lanes.iter_mut().enumerate() {
            let mask = (mask >> (8 * i)) as Mask;
            let mut bytes = [0; 8];
            // They begin at 56 at most.
            bytes.copy_from_slice(&from[at..at + 8]);
            at += mask.count_ones() as usize;
            *lane = Bmi2::expand_word(mask, u64::from_le_bytes(bytes));
        }
        Self::gather(lanes)
    }
}
