//! What is taken out is what was written last, by whomever, and what must stay stays.

use super::*;
use crate::uffd::Uffd;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

/// How long a pin lasts that ends, and how long one is waited for that does not.
const WAIT: Duration = Duration::from_millis(20);
/// For what comes to be true, on a machine however busy.
const LONG: Duration = Duration::from_secs(60);

/// A mapping of the memory, as a program has one.
struct Mapping {
    at: *mut u8,
    bytes: usize,
}

// SAFETY: it is memory like any other; the tests write to it by atomic operations.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(memory: &MemoryFile, pages: usize) -> Mapping {
        let (bytes, access) = (pages * PAGE, libc::PROT_READ | libc::PROT_WRITE);
        let fd = memory.as_raw_fd();
        // SAFETY: a new mapping, where the kernel likes.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Mapping {
            at: at.cast(),
            bytes,
        }
    }

    fn page(&self, page: usize) -> *mut libc::c_void {
        assert!(page * PAGE < self.bytes);
        // SAFETY: within the mapping.
        unsafe { self.at.add(page * PAGE).cast() }
    }

    /// The first word of a page.
    fn word(&self, page: usize) -> &AtomicU64 {
        // SAFETY: mapped as long as `self` lives, aligned, and only used atomically.
        unsafe { &*self.page(page).cast() }
    }

    /// Has the kernel hold a page as long as the pipe lives.
    fn pin(&self, page: usize) -> Pipe {
        let pipe = Pipe::new(1).unwrap();
        let part = libc::iovec {
            iov_base: self.page(page),
            iov_len: PAGE,
        };
        // SAFETY: a page of the mapping.
        let got = unsafe { libc::vmsplice(pipe.into.as_raw_fd(), &part, 1, 0) };
        assert_eq!(got, PAGE as isize);
        pipe
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`.
        unsafe { libc::munmap(self.at.cast(), self.bytes) };
    }
}

/// A taker, and memory of so many pages that hold their numbers; nothing, after a SKIP line, where nobody may ask who holds a page.
fn taker(pages: usize) -> Option<(TakeOut, MemoryFile, Mapping)> {
    let taker = match TakeOut::new() {
        Ok(taker) => taker,
        Err(error) => {
            pleat_testing::skip(format!("who holds a page cannot be asked here ({error})"));
            return None;
        }
    };
    let memory = MemoryFile::new("test", (pages * PAGE) as u64).unwrap();
    let mapping = Mapping::of(&memory, pages);
    for page in 0..pages {
        mapping.word(page).store(page as u64 + 1, Ordering::Relaxed);
    }
    // Pages that are new are in a batch of this CPU or, if the thread has moved on, of another.
    taker.steps.empty_all_cpus();
    Some((taker, memory, mapping))
}

/// Where these pages are.
fn places(pages: std::ops::Range<usize>) -> Vec<u64> {
    pages.map(|page| (page * PAGE) as u64).collect()
}

fn word_of(bytes: &[u8], page: usize) -> u64 {
    let bytes = &bytes[page * PAGE..page * PAGE + 8];
    u64::from_ne_bytes(bytes.try_into().unwrap())
}

/// May come to be true a moment later: CPUs put pages into batches.
fn stay_in_the_end(held: &Held<'_>, expected: &[Option<Stays>]) {
    let start = Instant::now();
    while held.stays().unwrap() != expected && start.elapsed() < LONG {
        held.pages.taker.steps.empty_all_cpus();
    }
    assert_eq!(held.stays().unwrap(), expected);
}

#[test]
fn pages_that_do_not_lie_side_by_side_go_together() {
    let Some((mut taker, memory, mapping)) = taker(9) else {
        return;
    };
    let at: Vec<u64> = [0, 3, 4, 8].map(|page| (page * PAGE) as u64).into();
    let held = taker.hold(&memory, &at).unwrap();
    stay_in_the_end(&held, &[None; 4]);
    let removed = held.remove().unwrap();
    let mut bytes = vec![0; 4 * PAGE];
    removed.read(LONG, &mut bytes).unwrap();
    assert_eq!([0, 1, 2, 3].map(|page| word_of(&bytes, page)), [1, 4, 5, 9]);
    let left = [1, 2, 5, 6, 7].map(|page| mapping.word(page).load(Ordering::Relaxed));
    assert_eq!(left, [2, 3, 6, 7, 8]);
    let page = PAGE as u64;
    assert_eq!(
        memory.runs().unwrap(),
        [(page, 2 * page), (5 * page, 3 * page)]
    );
}

#[test]
fn what_is_written_while_a_page_is_held_is_taken_along() {
    let Some((mut taker, memory, mapping)) = taker(8) else {
        return;
    };
    let held = taker.hold(&memory, &places(2..5)).unwrap();
    stay_in_the_end(&held, &[None; 3]);
    mapping.word(3).store(1234, Ordering::Relaxed);
    let removed = held.remove().unwrap();
    let mut bytes = vec![0; 3 * PAGE];
    removed.read(LONG, &mut bytes).unwrap();
    let words = [0, 1, 2].map(|page| word_of(&bytes, page));
    assert_eq!(words, [3, 1234, 5]);
    assert!(!memory.is_present(2 * PAGE as u64, 1));
    assert!(memory.is_present(5 * PAGE as u64, PAGE as u64));
}

#[test]
fn pages_that_were_only_held_stay_where_they_are() {
    let Some((mut taker, memory, mapping)) = taker(64) else {
        return;
    };
    for _ in 0..3 {
        drop(taker.hold(&memory, &places(0..64)).unwrap());
    }
    assert!(memory.is_present(0, 64 * PAGE as u64));
    assert_eq!(mapping.word(63).load(Ordering::Relaxed), 64);
    // The pipe has nothing left of them.
    let held = taker.hold(&memory, &places(7..8)).unwrap();
    let mut bytes = vec![0; PAGE];
    held.remove().unwrap().read(LONG, &mut bytes).unwrap();
    assert_eq!(word_of(&bytes, 0), 8);
}

#[test]
fn pinned_and_locked_pages_are_known_and_others_are_not_taken_for_such() {
    let Some((mut taker, memory, mapping)) = taker(6) else {
        return;
    };
    let second = Mapping::of(&memory, 6);
    assert_eq!(second.word(0).load(Ordering::Relaxed), 1);
    let pin = mapping.pin(1);
    // SAFETY: a page of the mapping.
    if unsafe { libc::mlock(mapping.page(3), PAGE) } != 0 {
        return pleat_testing::skip("no memory may be locked here");
    }
    let held = taker.hold(&memory, &places(0..6)).unwrap();
    let (busy, locked) = (Some(Stays::Busy), Some(Stays::Locked));
    stay_in_the_end(&held, &[None, busy, None, locked, None, None]);
    drop(pin);
    stay_in_the_end(&held, &[None, None, None, locked, None, None]);
}

#[test]
fn who_pins_a_page_at_the_last_moment_is_waited_for() {
    let Some((mut taker, memory, mapping)) = taker(2) else {
        return;
    };
    let held = taker.hold(&memory, &places(0..1)).unwrap();
    let pin = mapping.pin(0);
    let removed = held.remove().unwrap();
    let release = std::thread::spawn(move || {
        std::thread::sleep(WAIT);
        drop(pin);
    });
    let mut bytes = vec![0; PAGE];
    removed.read(LONG, &mut bytes).unwrap();
    release.join().unwrap();

    let held = taker.hold(&memory, &places(1..2)).unwrap();
    let _pin = mapping.pin(1);
    let removed = held.remove().unwrap();
    assert!(removed.read(WAIT, &mut bytes).is_err());
    assert_eq!(word_of(&bytes, 0), 2);
}

fn userfaultfd() -> Option<Uffd> {
    // SAFETY: a number; the descriptor is fresh.
    let uffd = unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK);
        (fd >= 0).then(|| Uffd::new(OwnedFd::from_raw_fd(fd as i32)))
    };
    uffd.filter(|uffd| uffd.shake_hands(0).is_ok())
}

/// Threads count in all pages, by two mappings, while these are taken out and put back.
#[test]
fn no_count_is_lost_while_pages_are_taken_out_and_put_back() {
    const PAGES: usize = 32;
    const TAKES: usize = 4000;
    let Some((mut taker, memory, first)) = taker(PAGES) else {
        return;
    };
    let Some(uffd) = userfaultfd() else {
        return pleat_testing::skip("no userfaultfd may be made here");
    };
    let mappings = Arc::new([first, Mapping::of(&memory, PAGES)]);
    for mapping in mappings.iter() {
        let at = mapping.at as u64;
        uffd.register_read_only(at, (PAGES * PAGE) as u64).unwrap();
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let counters: Vec<_> = (0..4)
        .map(|number: usize| {
            let (mappings, is_over) = (mappings.clone(), is_over.clone());
            std::thread::spawn(move || {
                let mut added = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let word = mappings[added % 2].word((added * 7 + number) % PAGES);
                    word.fetch_add(1, Ordering::Relaxed);
                    added += 1;
                }
                added as u64
            })
        })
        .collect();
    let mut bytes = vec![0; PAGE];
    let (mut taken, start) = (0, Instant::now());
    while taken < TAKES && start.elapsed() < Duration::from_secs(20) {
        let page = taken % PAGES;
        let held = taker.hold(&memory, &places(page..page + 1)).unwrap();
        if held.stays().unwrap() != [None] {
            drop(held);
            taker.steps.empty_all_cpus();
            continue;
        }
        held.remove().unwrap().read(LONG, &mut bytes).unwrap();
        // Wakes those who have found the hole by the first mapping; the others next.
        let addresses = [0, 1].map(|mapping: usize| mappings[mapping].page(page) as u64);
        assert_eq!(uffd.copy(addresses[0], &bytes).unwrap(), 1);
        uffd.wake(addresses[1], PAGE as u64);
        taken += 1;
    }
    is_over.store(true, Ordering::Relaxed);
    let added: u64 = counters
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    let words = (0..PAGES).map(|page| mappings[0].word(page).load(Ordering::Relaxed));
    let began_with: u64 = (1..=PAGES as u64).sum();
    assert_eq!(words.sum::<u64>(), added + began_with);
    assert!(taken > 0);
}
