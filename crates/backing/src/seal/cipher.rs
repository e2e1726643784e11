//! Encryption with AES-256-GCM, under a key that lives as long as the job and never leaves memory.
//!
//! GCM is safe only as long as no nonce serves twice under one key. The nonce of 96 bits is
//!
//! ```text
//!   | serial, 64 bits | offset modulo 2^32, 32 bits |      little endian
//! ```
//!
//! A serial is that of one write, or of several that fill one cluster one behind the other, and never used again, so
//! nonces of others differ in it. Pages with the same serial are less than 4 GiB apart, because a cluster
//! is smaller than that, and no two lie at the same place, so they differ in the rest. To
//! close the same bytes twice under one identity gives the same ciphertext and tells nobody anything;
//! other bytes need another serial, also when a write failed and is tried again. The key is new for
//! each job and is wiped in forked children, so nobody else counts serials under it.
//!
//! Authenticated along with the page: offset, length and codec. A page that comes back from anywhere
//! but its place, or as another version of itself, is refused.
#![forbid(unsafe_code)]

use super::error::SealError;
use super::locked::Locked;
use super::page::Identity;
use super::tags::Tag;
use ring::aead::{Aad, LessSafeKey, Nonce, UnboundKey, AES_256_GCM, NONCE_LEN};
use ring::rand::{SecureRandom, SystemRandom};

/// The key of one job.
pub struct Cipher {
    key: Locked<LessSafeKey>,
}

impl Cipher {
    pub fn new() -> Result<Cipher, SealError> {
        let key = Locked::new(|secret| {
            let random = SystemRandom::new();
            random.fill(secret).map_err(|_| SealError::Random)?;
            let key = UnboundKey::new(&AES_256_GCM, secret).expect("32 bytes are a key");
            Ok(LessSafeKey::new(key))
        })?;
        Ok(Cipher { key })
    }

    pub fn encrypt(&self, identity: Identity, page: &mut [u8]) -> Tag {
        let (nonce, aad) = nonce_and_aad(identity, page.len());
        let tag = self.key().seal_in_place_separate_tag(nonce, aad, page);
        let tag = tag.expect("a page is smaller than the 64 GiB that GCM can take");
        tag.as_ref().try_into().expect("tags of GCM have 16 bytes")
    }

    /// Whether `page` is what was encrypted; it is undefined if not.
    pub fn decrypt(&self, identity: Identity, page: &mut [u8], tag: Tag) -> bool {
        let (nonce, aad) = nonce_and_aad(identity, page.len());
        self.key()
            .open_in_place_separate_tag(nonce, aad, tag.into(), page, 0..)
            .is_ok()
    }

    fn key(&self) -> &LessSafeKey {
        let key = self.key.get();
        key.expect("the key of the swap file stays with the process that made it")
    }
}

fn nonce_and_aad(identity: Identity, len: usize) -> (Nonce, Aad<[u8; 13]>) {
    let bytes = identity.bytes(len);
    let mut nonce = [0; NONCE_LEN];
    nonce.copy_from_slice(&bytes[..NONCE_LEN]);
    let mut aad = [0; 13];
    aad.copy_from_slice(&bytes[8..]);
    (Nonce::assume_unique_for_key(nonce), Aad::from(aad))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_one_write_and_of_different_writes_have_different_nonces() {
        let nonce = |serial, offset| {
            let identity = Identity {
                serial,
                offset,
                codec: 0,
            };
            *nonce_and_aad(identity, 100).0.as_ref()
        };
        let begin = 0xFFFF_F000;
        assert_eq!(
            nonce(7, 0x1_2345_6789),
            [7, 0, 0, 0, 0, 0, 0, 0, 0x89, 0x67, 0x45, 0x23]
        );
        for distance in [1, 4096, 0xFFFF_FFFF] {
            assert_ne!(nonce(7, begin), nonce(7, begin + distance));
        }
        assert_ne!(nonce(7, begin), nonce(8, begin));
        assert_ne!(nonce(7, begin), nonce(7 + (1 << 32), begin));
    }
}
