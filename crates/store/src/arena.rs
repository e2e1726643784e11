//! Memory for layouts: one big reserved mapping that never moves, handed out in runs of contiguous
//! frames and returned to the system as soon as it is released, or soon after, with others: a system call for
//! a few frames interrupts each other CPU on which a thread of this process runs, which takes longer than all the
//! rest of it (20 us in a virtual machine). That call is left to who drives the layout, for when it holds no lock
//! ([`Release`]).
//!
//! The only file of the crate with unsafe code. Every access is bounds-checked against the
//! reservation; what a run holds, and which frames of it are in use, is the layout's business.
#![allow(unsafe_code)]

mod leaving;

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use pleat_types::PAGE_SIZE;

use crate::slab::grow_gently;
use leaving::{bytes_of, Flight, Frames, Leaving};

/// Reserved beyond twice the budget, so that small budgets have room for partly used runs.
const RESERVE_EXTRA_BYTES: usize = 256 << 20;

/// At most so many bytes of frames are to be released soon.
const SOON_BYTES_MAX: usize = 64 * PAGE_SIZE;
/// The caller itself, in place of a descriptor of a process (PIDFD_SELF_THREAD in linux/pidfd.h).
const PIDFD_SELF: i32 = -10_000;

/// A reserved range of addresses. Frames take memory from their first write until they are
/// released; released frames read as zeros.
pub(crate) struct Arena {
    mapping: Arc<Mapping>,
    run_bytes: usize,
    runs_max: u32,
    /// Runs below this number have been handed out at least once.
    runs_seen: u32,
    /// Runs handed out before and given back since.
    runs_free: Vec<u32>,
    /// Frames to be released soon: nobody reads them, and nobody writes them before [`Arena::keep`].
    leaving: Leaving,
}

/// The addresses; they are there for as long as anybody is to release frames of them.
struct Mapping {
    base: NonNull<u8>,
    /// `runs_max * run_bytes`.
    bytes: usize,
    /// The system has not refused to release many ranges at once.
    many_at_once: AtomicBool,
}

// SAFETY: the mapping belongs to this value alone, like the buffer of a Vec; no part of it is tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: what lies in it is reached through the arena that has it, which asks for `&mut self` to write. Its own
// methods only release frames, of which they say that nobody may use them meanwhile.
unsafe impl Sync for Mapping {}

/// Frames of a layout on their way back to the system, which gets them when this is dropped: a system call, for which
/// nobody should hold the lock under which the layout is used.
#[must_use]
pub struct Release {
    mapping: Arc<Mapping>,
    flight: Arc<Flight>,
}

impl Drop for Release {
    fn drop(&mut self) {
        if let Some(frames) = self.flight.begin() {
            self.mapping.release_all(frames);
            self.flight.end();
        }
    }
}

impl Arena {
    /// Reserves over twice `max_bytes` of addresses, to be handed out `frames_per_run` at a time.
    ///
    /// # Errors
    /// The error of mmap, when the system refuses the addresses.
    pub(crate) fn new(max_bytes: u64, frames_per_run: usize) -> io::Result<Self> {
        let run_bytes = frames_per_run * PAGE_SIZE;
        let wish = usize::try_from(max_bytes)
            .unwrap_or(usize::MAX)
            .saturating_mul(2)
            .saturating_add(RESERVE_EXTRA_BYTES);
        let runs_max = u32::try_from(wish / run_bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let bytes = runs_max as usize * run_bytes;
        let mapping = Mapping {
            base: reserve(bytes)?,
            bytes,
            many_at_once: AtomicBool::new(true),
        };
        Ok(Arena {
            mapping: Arc::new(mapping),
            run_bytes,
            runs_max,
            runs_seen: 0,
            runs_free: Vec::new(),
            leaving: Leaving::default(),
        })
    }

    /// Hands out a run: its number, for [`Arena::run_at`]. `None` when the addresses are used up.
    pub(crate) fn take_run(&mut self) -> Option<u32> {
        if let Some(run) = self.runs_free.pop() {
            return Some(run);
        }
        let run = self.runs_seen;
        (run < self.runs_max).then(|| {
            self.runs_seen += 1;
            run
        })
    }

    /// How often [`Arena::take_run`] will find one.
    pub(crate) fn runs_left(&self) -> usize {
        self.runs_free.len() + (self.runs_max - self.runs_seen) as usize
    }

    /// Takes back a run; its memory goes to the system now.
    pub(crate) fn give_back_run(&mut self, run: u32) {
        self.keep(self.run_at(run), self.run_bytes);
        self.release(self.run_at(run), self.run_bytes);
        grow_gently(&mut self.runs_free);
        self.runs_free.push(run);
    }

    /// Where a run starts, in bytes from the start of the arena.
    pub(crate) fn run_at(&self, run: u32) -> usize {
        run as usize * self.run_bytes
    }

    /// Returns the memory of the frames in `at..at + len`, both multiples of the page size, to
    /// the system now. Costs about 1 us, and as much again to touch such a frame later.
    pub(crate) fn release(&mut self, at: usize, len: usize) {
        self.mapping.release(&(at..at + len));
    }

    /// As [`Arena::release`], but together with others, once these frames come to more than `most_bytes` or
    /// 256 KiB: by [`Arena::take_release`], or here, where nobody calls that or they are about twice as many. Until then
    /// they hold memory, and what they read as is not defined. Before one of them is written again it must be
    /// taken back, by [`Arena::keep`].
    pub(crate) fn release_soon(&mut self, at: usize, len: usize, most_bytes: usize) {
        let frames = at..at + len;
        self.mapping.check(&frames);
        self.leaving.add(frames, most_bytes.min(SOON_BYTES_MAX));
        if let Some(frames) = self.leaving.overdue() {
            self.mapping.release_all(&frames);
        }
    }

    /// The frames of a range are not to be released soon, as far as any of them were.
    pub(crate) fn keep(&mut self, at: usize, len: usize) {
        self.leaving.keep(&(at..at + len));
    }

    /// Frames to be released now, if enough of them wait.
    pub(crate) fn take_release(&mut self) -> Option<Release> {
        let flight = self.leaving.depart()?;
        let mapping = self.mapping.clone();
        Some(Release { mapping, flight })
    }

    /// The `len` bytes from `at` on.
    pub(crate) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        let start = self.checked(at, len);
        // SAFETY: in bounds; anonymous memory is always initialised (zeros before the first
        // write); written only through `&mut self`.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Writes `bytes` at `at`.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        debug_assert!(!self.is_leaving(at, bytes.len()), "written, but not kept");
        let start = self.checked(at, bytes.len());
        // SAFETY: in bounds; `bytes` cannot lie in the arena, which is borrowed exclusively.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) }
    }

    /// Copies `len` bytes to `to` from `from`; the two may overlap.
    pub(crate) fn copy(&mut self, from: usize, to: usize, len: usize) {
        debug_assert!(!self.is_leaving(to, len), "written, but not kept");
        let (source, dest) = (self.checked(from, len), self.checked(to, len));
        // SAFETY: both ranges are in bounds, and `ptr::copy` allows overlap.
        unsafe { ptr::copy(source, dest, len) }
    }

    /// Bytes of tables, and of frames that are to be released soon.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.runs_free.capacity() * size_of::<u32>()
            + self.leaving.metadata_bytes()
            + self.leaving.bytes()
    }

    fn is_leaving(&self, at: usize, len: usize) -> bool {
        self.leaving.has_any_of(&(at..at + len))
    }

    fn checked(&self, at: usize, len: usize) -> *mut u8 {
        self.mapping.checked(at, len)
    }
}

impl Mapping {
    /// Releases the frames of all ranges. Nobody reads them or writes to them meanwhile.
    fn release_all(&self, ranges: &[Frames]) {
        if !self.release_at_once(ranges) {
            ranges.iter().for_each(|range| self.release(range));
        }
    }

    /// Releases the frames of a range. Nobody reads them or writes to them meanwhile.
    fn release(&self, frames: &Frames) {
        let start = self.check(frames);
        // SAFETY: the range lies in the mapping that this value owns, and nobody uses these frames: they hold no item, and
        // whoever is to write an item there has called `Arena::keep` before, which waits until this is over.
        let result = unsafe { libc::madvise(start.cast(), frames.len(), libc::MADV_DONTNEED) };
        // It fails only for wrong arguments, or for locked memory, which pleat never asks for.
        assert_eq!(result, 0, "madvise: {}", io::Error::last_os_error());
    }

    /// Whether the system has released all these ranges with one call. Where it did not it may have released some.
    fn release_at_once(&self, ranges: &[Frames]) -> bool {
        if !self.many_at_once.load(Ordering::Relaxed) {
            return false;
        }
        let of = |range: &Frames| libc::iovec {
            iov_base: self.check(range).cast(),
            iov_len: range.len(),
        };
        let vector: Vec<libc::iovec> = ranges.iter().map(of).collect();
        // SAFETY: as in `release`. The address space is the caller's, so the one that the mapping is in.
        let released = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                PIDFD_SELF,
                vector.as_ptr(),
                vector.len(),
                libc::MADV_DONTNEED,
                0,
            )
        };
        // Older kernels do not know the caller by that name, and some containers refuse the call.
        self.many_at_once.store(released >= 0, Ordering::Relaxed);
        usize::try_from(released).is_ok_and(|bytes| bytes == bytes_of(ranges))
    }

    /// The address of whole frames in the reservation.
    fn check(&self, frames: &Frames) -> *mut u8 {
        assert!(frames.start.is_multiple_of(PAGE_SIZE) && frames.end.is_multiple_of(PAGE_SIZE));
        self.checked(frames.start, frames.len())
    }

    /// The address of `at`, once `at..at + len` is known to be in the reservation.
    fn checked(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= self.bytes && len <= self.bytes - at);
        // SAFETY: just checked to stay within the mapping.
        unsafe { self.base.as_ptr().add(at) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `Arena::new`, of this length; nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Maps `len` bytes that take no memory yet, without huge pages: a huge page would hold memory
/// that the account does not know of.
fn reserve(len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing else.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping just made. A kernel without huge pages refuses the advice: no matter.
    unsafe { libc::madvise(start, len, libc::MADV_NOHUGEPAGE) };
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of the arena's first `frames` that hold memory now, as the kernel sees it.
    fn resident(arena: &Arena, frames: usize) -> usize {
        let mut seen = vec![0u8; frames];
        // SAFETY: the range is mapped and `seen` has a byte for each of its pages.
        let result = unsafe {
            libc::mincore(
                arena.mapping.base.as_ptr().cast(),
                frames * PAGE_SIZE,
                seen.as_mut_ptr(),
            )
        };
        assert_eq!(result, 0);
        seen.iter().filter(|&&flags| flags & 1 == 1).count()
    }

    #[test]
    fn memory_is_held_from_first_write_until_release() {
        let mut arena = Arena::new(1 << 20, 4).expect("reserve");
        let run = arena.take_run().expect("room");
        let at = arena.run_at(run);
        assert_eq!(resident(&arena, 8), 0);
        arena.write(at + PAGE_SIZE - 1, &[7; 2]);
        assert_eq!(resident(&arena, 8), 2);
        arena.release(at, PAGE_SIZE);
        assert_eq!(resident(&arena, 8), 1);
        assert_eq!(arena.bytes(at + PAGE_SIZE - 1, 2), [0, 7]);
        arena.give_back_run(run);
        assert_eq!(resident(&arena, 8), 0);
    }

    /// A run of eight frames, all written.
    fn written(arena: &mut Arena) -> usize {
        let run = arena.take_run().expect("room");
        let at = arena.run_at(run);
        arena.write(at, &[7; 8 * PAGE_SIZE]);
        at
    }

    #[test]
    fn what_is_released_soon_goes_once_it_is_too_much() {
        let mut arena = Arena::new(1 << 20, 8).expect("reserve");
        let at = written(&mut arena);
        assert!(arena.take_release().is_none());
        arena.release_soon(at + 6 * PAGE_SIZE, 2 * PAGE_SIZE, 3 * PAGE_SIZE);
        assert_eq!(arena.leaving.bytes(), 2 * PAGE_SIZE);
        arena.release_soon(at + PAGE_SIZE, 2 * PAGE_SIZE, 3 * PAGE_SIZE);
        let release = arena.take_release().expect("more than three frames");
        assert_eq!(
            (arena.leaving.bytes(), resident(&arena, 8)),
            (4 * PAGE_SIZE, 8)
        );
        drop(release);
        assert_eq!(arena.leaving.bytes(), 0);
        assert_eq!(resident(&arena, 8), 4);
        for frame in 0..8 {
            let is_left = ![1, 2, 6, 7].contains(&frame);
            let first = arena.bytes(at + frame * PAGE_SIZE, 1)[0];
            assert_eq!(first == 7, is_left, "frame {frame}");
        }
    }

    #[test]
    fn frames_that_are_kept_do_not_go_with_the_others() {
        for many_at_once in [true, false] {
            let mut arena = Arena::new(1 << 20, 8).expect("reserve");
            let many = &arena.mapping.many_at_once;
            many.store(many_at_once, Ordering::Relaxed);
            let at = written(&mut arena);
            assert!(arena.take_release().is_none());
            arena.release_soon(at, 6 * PAGE_SIZE, 2 * PAGE_SIZE);
            let called_off = arena.take_release();
            arena.keep(at + PAGE_SIZE, PAGE_SIZE);
            arena.keep(at + 4 * PAGE_SIZE, 4 * PAGE_SIZE);
            drop(called_off);
            assert_eq!(arena.leaving.bytes(), 3 * PAGE_SIZE);
            arena.write(at + PAGE_SIZE, &[8; PAGE_SIZE]);
            drop(arena.take_release());
            assert_eq!(arena.leaving.bytes(), 0);
            let firsts: Vec<u8> = (0..8)
                .map(|frame| arena.bytes(at + frame * PAGE_SIZE, 1)[0])
                .collect();
            assert_eq!(firsts, [0, 8, 0, 0, 7, 7, 7, 7]);
        }
    }

    #[test]
    fn a_run_given_back_is_not_released_again_when_it_is_in_use() {
        let mut arena = Arena::new(1 << 20, 8).expect("reserve");
        let at = written(&mut arena);
        assert!(arena.take_release().is_none());
        arena.release_soon(at, 2 * PAGE_SIZE, PAGE_SIZE);
        let release = arena.take_release();
        arena.give_back_run((at / (8 * PAGE_SIZE)) as u32);
        assert_eq!((arena.leaving.bytes(), resident(&arena, 8)), (0, 0));
        assert_eq!(written(&mut arena), at);
        drop(release);
        assert_eq!(resident(&arena, 8), 8);
    }

    #[test]
    #[should_panic(expected = "not kept")]
    #[cfg(debug_assertions)]
    fn a_frame_that_is_to_go_must_be_kept_before_it_is_written() {
        let mut arena = Arena::new(1 << 20, 8).expect("reserve");
        let at = written(&mut arena);
        arena.release_soon(at, PAGE_SIZE, 7 * PAGE_SIZE);
        arena.write(at, &[1]);
    }

    #[test]
    fn runs_given_back_are_handed_out_again_and_never_twice() {
        let mut arena = Arena::new(0, 2).expect("reserve");
        let (a, b) = (arena.take_run(), arena.take_run());
        assert_ne!(a, b);
        arena.give_back_run(a.expect("room"));
        assert_eq!(arena.take_run(), a);
        assert!(![a, b].contains(&arena.take_run()));
    }

    #[test]
    fn used_up_addresses_give_none() {
        let mut arena = Arena::new(0, 1024).expect("reserve");
        let left = arena.runs_left();
        let runs = std::iter::from_fn(|| arena.take_run()).count();
        assert_eq!((runs, arena.runs_left()), (left, 0));
        assert_eq!(runs * 1024 * PAGE_SIZE, RESERVE_EXTRA_BYTES);
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn access_past_the_reservation_panics() {
        let arena = Arena::new(0, 1).expect("reserve");
        arena.bytes(arena.mapping.bytes - 1, 2);
    }
}
