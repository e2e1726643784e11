//! Fingerprints of whole pages: two are equal when the pages are.
//!
//! A fingerprint is 96 bits of the tag that AES-128-GCM gives the page, under a key made for the job and always the same
//! nonce. Neither what that encrypts nor the tag ever leaves memory, so that a nonce serves twice tells nobody
//! anything. What counts is that GHASH is a universal hash (McGrew and Viega, INDOCRYPT 2004): whatever two different
//! pages are, chosen without knowledge of the key, they have the same fingerprint under one key in 2^87.
#![forbid(unsafe_code)]

use super::error::SealError;
use ring::aead::{Aad, LessSafeKey, Nonce, UnboundKey, AES_128_GCM, NONCE_LEN};
use ring::rand::{SecureRandom, SystemRandom};

/// What tells one page's bytes from any other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 12]);

/// Makes the fingerprints of one job: those of another are not comparable.
pub struct Fingerprints {
    key: LessSafeKey,
}

impl Fingerprints {
    /// Under a new key.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new() -> Result<Fingerprints, SealError> {
        let mut secret = [0; 16];
        let filled = SystemRandom::new().fill(&mut secret);
        filled.map_err(|_| SealError::Random)?;
        let key = UnboundKey::new(&AES_128_GCM, &secret).expect("16 bytes are a key");
        Ok(Fingerprints {
            key: LessSafeKey::new(key),
        })
    }

    /// The fingerprint of a page. Half a microsecond.
    #[must_use]
    pub fn of(&self, page: &[u8; 4096]) -> Fingerprint {
        // Encrypted in place, which is faster than to authenticate without encryption.
        let mut scratch = *page;
        let nonce = Nonce::assume_unique_for_key([0; NONCE_LEN]);
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::empty(), &mut scratch);
        let tag = tag.expect("a page is smaller than the 64 GiB that GCM can take");
        let mut print = [0; 12];
        print.copy_from_slice(&tag.as_ref()[..12]);
        Fingerprint(print)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_differ_in_one_bit_or_in_order_have_different_fingerprints() {
        let prints = Fingerprints::new().unwrap();
        let mut page = [0; 4096];
        for (nth, byte) in page.iter_mut().enumerate() {
            *byte = (nth / 16) as u8;
        }
        let print = prints.of(&page);
        assert_eq!(prints.of(&page), print);
        for bit in (0..4096 * 8).step_by(101) {
            let mut other = page;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(prints.of(&other), print, "bit {bit}");
        }
        for block in 1..256 {
            let mut other = page;
            other[..16].copy_from_slice(&page[16 * block..][..16]);
            other[16 * block..][..16].copy_from_slice(&page[..16]);
            assert_ne!(prints.of(&other), print, "block {block}");
        }
    }

    #[test]
    fn jobs_have_different_keys() {
        let print = || Fingerprints::new().unwrap().of(&[7; 4096]);
        assert_ne!(print(), print());
    }
}
