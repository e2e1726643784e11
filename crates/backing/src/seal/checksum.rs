//! Checksums: XXH3 with 64 bits, which finds accidents of any kind except one in 2^64.
#![forbid(unsafe_code)]

use super::page::Identity;
use super::tags::Tag;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// XXH3-64 of `bytes`, the same on every machine.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Checksums of one job's pages.
pub struct Checksum {
    /// Tells this job from an earlier one, whose blocks a disk may still answer with.
    salt: u64,
}

impl Checksum {
    pub fn new() -> Checksum {
        let salt = RandomState::new().hash_one("pleat swap file");
        Checksum { salt }
    }

    /// The checksum in the first 8 bytes, zeros behind.
    pub fn tag(&self, identity: Identity, page: &[u8]) -> Tag {
        let seed = xxh3_64_with_seed(&identity.bytes(page.len()), self.salt);
        let mut tag = Tag::default();
        tag[..8].copy_from_slice(&xxh3_64_with_seed(page, seed).to_le_bytes());
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_reference_implementation() {
        assert_eq!(checksum(b""), 0x2D06_8005_38D3_94C2);
        assert_eq!(checksum(b"abc"), 0x78AF_5F94_892F_3950);
    }
}
