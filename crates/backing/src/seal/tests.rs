//! What must hold for whoever closes and opens pages.

use super::*;
use std::collections::HashSet;

mod damage;

const BOTH: [Protection; 2] = [Protection::Encrypted, Protection::Checked];
const AT: Identity = Identity {
    serial: 0x0102_0304_0506,
    offset: 0x7_1234_5000,
    codec: 3,
};

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| ((seed + at).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
        .collect()
}

fn seal(protection: Protection) -> Seal {
    Seal::new(protection).expect("8 KiB of locked memory for these tests")
}

/// Room for a page, with the tag behind it or without.
fn room(seal: &Seal, page: &[u8], tag_behind: bool) -> Vec<u8> {
    let behind = if tag_behind {
        seal.overhead_bytes() as usize
    } else {
        0
    };
    [page, &vec![0xEE; behind]].concat()
}

fn closed(seal: &Seal, identity: Identity, page: &[u8], tag_behind: bool) -> Vec<u8> {
    let mut room = room(seal, page, tag_behind);
    seal.close(identity, &mut room, page.len());
    room
}

fn opens(seal: &Seal, identity: Identity, room: &[u8], len: usize) -> bool {
    seal.open(identity, &mut room.to_vec(), len).is_ok()
}

/// Every seal, with the tag behind the page and in the table.
fn every_way(mut check: impl FnMut(&Seal, bool)) {
    for protection in BOTH {
        for tag_behind in [true, false] {
            check(&seal(protection), tag_behind);
        }
    }
}

#[test]
fn pages_of_any_length_come_back() {
    every_way(|seal, tag_behind| {
        for len in 0..=4096 {
            let page = pattern(len as u64, len);
            let identity = Identity {
                serial: len as u64,
                ..AT
            };
            let mut room = closed(seal, identity, &page, tag_behind);
            assert_eq!(seal.open(identity, &mut room, len), Ok(()));
            assert_eq!(room[..len], page);
        }
        assert_eq!(seal.table_bytes() > 0, !tag_behind);
    });
}

#[test]
fn nothing_of_an_encrypted_page_can_be_read() {
    let seal = seal(Protection::Encrypted);
    let text = b"the quick brown fox jumps over the lazy dog, and over 17 others; ".repeat(63);
    for page in [&text[..4090], &[0; 4090], &pattern(3, 4090)] {
        let told: HashSet<&[u8]> = page.windows(8).collect();
        let closed = closed(&seal, AT, page, true);
        assert!(closed.windows(8).all(|bytes| !told.contains(bytes)));
        let blocks: HashSet<&[u8]> = closed.chunks(16).collect();
        assert_eq!(
            blocks.len(),
            closed.len().div_ceil(16),
            "no pattern shows through"
        );
    }
}

#[test]
fn the_same_page_never_looks_the_same_twice() {
    let (job, other_job) = (seal(Protection::Encrypted), seal(Protection::Encrypted));
    let seen: HashSet<Vec<u8>> = [
        closed(&job, AT, &[7; 64], true),
        closed(
            &job,
            Identity {
                serial: AT.serial + 1,
                ..AT
            },
            &[7; 64],
            true,
        ),
        closed(
            &job,
            Identity {
                offset: AT.offset + 64,
                ..AT
            },
            &[7; 64],
            true,
        ),
        closed(&other_job, AT, &[7; 64], true),
    ]
    .into();
    assert_eq!(seen.len(), 4);
}

#[test]
fn checked_pages_stay_plain() {
    let page = pattern(1, 1000);
    assert_eq!(
        closed(&seal(Protection::Checked), AT, &page, true)[..1000],
        page
    );
}

#[test]
fn nothing_is_written_beyond_the_tag() {
    every_way(|seal, _| {
        let want = seal.overhead_bytes() as usize;
        for (behind, written) in [(0, 0), (want - 1, 0), (want, want), (want + 50, want)] {
            let mut room = [pattern(1, 999), vec![0xEE; behind]].concat();
            seal.close(AT, &mut room, 999);
            assert!(room[999 + written..].iter().all(|&byte| byte == 0xEE));
            assert_eq!(written == 0, seal.tags().get(AT.offset).is_some());
            assert_eq!(seal.open(AT, &mut room, 999), Ok(()));
            seal.forget(AT.offset, 1);
        }
    });
}

#[test]
fn a_forgotten_tag_opens_nothing() {
    for protection in BOTH {
        let seal = seal(protection);
        let room = closed(&seal, AT, &pattern(1, 4096), false);
        seal.forget(AT.offset - 4096, 4096);
        seal.forget(AT.offset + 1, 4096);
        assert!(opens(&seal, AT, &room, 4096));
        seal.forget(AT.offset - 4096, 8192);
        assert_eq!(seal.table_bytes(), 0);
        assert!(!opens(&seal, AT, &room, 4096));
    }
}

#[test]
fn threads_share_a_seal() {
    every_way(|seal, tag_behind| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for serial in (thread..2000).step_by(4) {
                        let identity = Identity {
                            serial,
                            offset: serial * 4096,
                            codec: 1,
                        };
                        let page = pattern(serial, 700);
                        let mut room = closed(seal, identity, &page, tag_behind);
                        assert_eq!(seal.open(identity, &mut room, 700), Ok(()));
                        assert_eq!(room[..700], page);
                    }
                });
            }
        });
    });
}
