//! What comes back from a disk that damages, exchanges, forgets or tears is never taken for a page.

use super::*;
use proptest::prelude::*;

#[test]
fn any_flipped_bit_is_found() {
    every_way(|seal, tag_behind| {
        for len in [1, 5, 13, 100, 240, 241, 1300, 4096] {
            let mut room = closed(seal, AT, &pattern(9, len), tag_behind);
            for bit in 0..room.len() * 8 {
                room[bit / 8] ^= 1 << (bit % 8);
                let answer = seal.open(AT, &mut room.clone(), len);
                assert_eq!(
                    answer,
                    Err(Damaged { offset: AT.offset }),
                    "{len} bytes, bit {bit}"
                );
                room[bit / 8] ^= 1 << (bit % 8);
            }
            assert!(opens(seal, AT, &room, len));
        }
    });
}

#[test]
fn a_flipped_bit_of_a_tag_in_the_table_is_found() {
    for (protection, bits) in [(Protection::Encrypted, 128), (Protection::Checked, 64)] {
        let seal = seal(protection);
        let room = closed(&seal, AT, &pattern(9, 4096), false);
        let good = seal.tags().get(AT.offset).unwrap();
        for bit in 0..bits {
            let mut tag = good;
            tag[bit / 8] ^= 1 << (bit % 8);
            seal.tags().keep(AT.offset, tag);
            assert!(!opens(&seal, AT, &room, 4096), "bit {bit}");
        }
    }
}

#[test]
fn exchanged_pages_are_found() {
    every_way(|seal, tag_behind| {
        let other = Identity {
            offset: AT.offset + 4096,
            ..AT
        };
        let first = closed(seal, AT, &pattern(1, 4096), tag_behind);
        let second = closed(seal, other, &pattern(2, 4096), tag_behind);
        assert!(!opens(seal, AT, &second, 4096));
        assert!(!opens(seal, other, &first, 4096));
    });
}

#[test]
fn an_old_version_is_found_even_with_the_same_content() {
    every_way(|seal, tag_behind| {
        for page in [pattern(1, 2000), pattern(2, 2000)] {
            let new = Identity {
                serial: AT.serial + 1,
                ..AT
            };
            let old_room = closed(seal, AT, &pattern(1, 2000), tag_behind);
            let new_room = closed(seal, new, &page, tag_behind);
            assert!(opens(seal, new, &new_room, 2000));
            // With a table and a checksum, the same plain bytes are the new version, too.
            let plain = !tag_behind && seal.overhead_bytes() == 8 && old_room == new_room;
            assert_eq!(opens(seal, new, &old_room, 2000), plain);
        }
    });
}

#[test]
fn another_codec_or_length_or_place_or_seal_is_found() {
    every_way(|seal, tag_behind| {
        let room = closed(seal, AT, &pattern(1, 3000), tag_behind);
        for wrong in [
            Identity { codec: 4, ..AT },
            Identity {
                serial: AT.serial ^ 1 << 63,
                ..AT
            },
            Identity {
                offset: AT.offset ^ 1 << 12,
                ..AT
            },
            // The same nonce: only the authenticated data tell.
            Identity {
                offset: AT.offset ^ 1 << 32,
                ..AT
            },
        ] {
            if let (false, Some(tag)) = (tag_behind, seal.tags().get(AT.offset)) {
                seal.tags().keep(wrong.offset, tag);
            }
            assert!(!opens(seal, wrong, &room, 3000), "{wrong:?}");
        }
        for len in [0, 1, 2999, 3001, 3000 + 8, 3000 + 16, 3000 + 17] {
            assert!(!opens(seal, AT, &room, len), "{len} bytes");
        }
        assert!(!opens(seal, AT, &[], 0));
        let protection = BOTH[usize::from(seal.overhead_bytes() == 8)];
        let other_job = super::seal(protection);
        other_job
            .tags()
            .keep(AT.offset, seal.tags().get(AT.offset).unwrap_or_default());
        assert!(!opens(&other_job, AT, &room, 3000));
    });
}

#[test]
fn a_torn_write_is_found() {
    every_way(|seal, tag_behind| {
        for sector in (512..4096).step_by(512) {
            let old = closed(seal, AT, &pattern(1, 4096), tag_behind);
            let now = Identity {
                serial: AT.serial + 1,
                ..AT
            };
            let new = closed(seal, now, &pattern(2, 4096), tag_behind);
            assert!(!opens(
                seal,
                now,
                &[&new[..sector], &old[sector..]].concat(),
                4096
            ));
            assert!(!opens(
                seal,
                now,
                &[&old[..sector], &new[sector..]].concat(),
                4096
            ));
        }
    });
}

#[test]
fn a_hole_in_the_file_is_no_page() {
    every_way(|seal, tag_behind| {
        for page in [pattern(1, 4096), vec![0; 4096]] {
            let mut hole = closed(seal, AT, &page, tag_behind);
            hole.fill(0);
            // Zeros are what was closed if the tag is elsewhere and the page was plain zeros.
            let same = !tag_behind && seal.overhead_bytes() == 8 && page == hole;
            assert_eq!(opens(seal, AT, &hole, 4096), same);
        }
    });
}

fn identities() -> impl Strategy<Value = Identity> {
    (any::<u64>(), any::<u64>(), any::<u8>()).prop_map(|(serial, offset, codec)| Identity {
        serial,
        offset,
        codec,
    })
}

proptest! {
    #[test]
    fn what_was_closed_opens_and_nothing_else(
        page in prop::collection::vec(any::<u8>(), 0..5000),
        (identity, other) in (identities(), identities()),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        tag_behind in any::<bool>(),
    ) {
        for protection in BOTH {
            let seal = seal(protection);
            let room = closed(&seal, identity, &page, tag_behind);
            let mut back = room.clone();
            prop_assert_eq!(seal.open(identity, &mut back, page.len()), Ok(()));
            prop_assert_eq!(&back[..page.len()], &page[..]);
            let mut damaged = room.clone();
            for (at, byte) in &damage {
                if !damaged.is_empty() {
                    let at = at.index(damaged.len());
                    damaged[at] = *byte;
                }
            }
            prop_assert_eq!(opens(&seal, identity, &damaged, page.len()), damaged == room);
            prop_assert_eq!(opens(&seal, other, &room, page.len()), other == identity);
        }
    }
}
