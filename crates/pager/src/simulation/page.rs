//! Pages by number: what a page holds is told by its last eight bytes, and all others follow from them.
//!
//! A number may say that there is a robust lock at the beginning of the page, as the GNU C library has them, and who has it.

use super::Random;
use pleat_types::{Page, PAGE_SIZE};

/// What is not about a lock.
const PLAIN: u64 = (1 << 44) - 1;
/// There is a lock.
const LOCK: u64 = 1 << 63;
/// Its owner, a thread.
const OWNER_SHIFT: u32 = 44;
const OWNER_MAX: u64 = 0xffff;
/// The library has noted the owner, too.
const NOTED: u64 = 1 << 60;
/// Its owner has ended, and it was marked.
const ORPHANED: u64 = 1 << 61;
/// Kind of such a lock: robust, and for several processes.
const KIND: u32 = 16 | 128;

/// The page of a number. 0 is a page of zeros; others shrink to anything between nothing and not at all.
pub fn page_of(number: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    if number == 0 {
        return page;
    }
    let mut random = Random::new(number & PLAIN);
    let full = match number % 8 {
        0 => PAGE_SIZE / 2,
        1 if number % 16 == 1 => PAGE_SIZE - 8,
        _ => random.below(40) as usize * 8,
    };
    for word in page[..full].chunks_exact_mut(8) {
        word.copy_from_slice(&random.next().to_ne_bytes());
    }
    if number & LOCK != 0 {
        let orphaned = match number & ORPHANED {
            0 => 0,
            _ => libc::FUTEX_OWNER_DIED,
        };
        let owner = owner_of(number) as u32;
        let noted = if number & NOTED == 0 { 0 } else { owner };
        let words = [owner | orphaned, 0, noted, 0, KIND];
        for (to, word) in page.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
    }
    page[PAGE_SIZE - 8..].copy_from_slice(&number.to_ne_bytes());
    page
}

/// The number of a page. `None`: it is no page of any number, so its bytes were lost.
pub fn number_of(page: &[u8]) -> Option<u64> {
    let last = page.last_chunk::<8>()?;
    let number = u64::from_ne_bytes(*last);
    (page_of(number)[..] == *page).then_some(number)
}

/// A page with another content, and the lock that it had.
pub fn rewritten(page: u64, content: u64) -> u64 {
    page & !PLAIN | content & PLAIN
}

/// Who has the lock in a page; 0: nobody.
pub fn owner_of(page: u64) -> i32 {
    (page >> OWNER_SHIFT & OWNER_MAX) as i32
}

/// A page whose lock this thread has; 0: nobody.
pub fn owned_by(page: u64, owner: i32) -> u64 {
    assert!(owner as u64 <= OWNER_MAX, "no lock knows thread {owner}");
    page & PLAIN | LOCK | (owner as u64) << OWNER_SHIFT
}

/// The same, where that has been noted.
pub fn noted(page: u64) -> u64 {
    page | NOTED
}

/// The same, where that is noted no more.
pub fn unnoted(page: u64) -> u64 {
    page & !NOTED
}

/// A page whose lock was marked, for its owner has ended.
pub fn orphaned(page: u64) -> u64 {
    owned_by(page, 0) | ORPHANED
}
