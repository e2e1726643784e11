//! Memory for layouts: one big reserved mapping that never moves, handed out in runs of contiguous
//! frames and returned to the system as soon as it is released, or soon after, with others: a system call for
//! a few frames interrupts each other CPU on which a thread of this process runs, which takes longer than all the
//! rest of it (20 us in a virtual machine).
//!
//! The only file of the crate with unsafe code. Every access is bounds-checked against the
//! reservation; what a run holds, and which frames of it are in use, is the layout's business.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};

use pleat_types::PAGE_SIZE;

use crate::slab::grow_gently;

/// Reserved beyond twice the budget, so that small budgets have room for partly used runs.
const RESERVE_EXTRA_BYTES: usize = 256 << 20;

/// At most so many bytes of frames are to be released soon.
const SOON_BYTES_MAX: usize = 64 * PAGE_SIZE;
/// The caller itself, in place of a descriptor of a process (PIDFD_SELF_THREAD in linux/pidfd.h).
const PIDFD_SELF: i32 = -10_000;

/// A reserved range of addresses. Frames take memory from their first write until they are
/// released; released frames read as zeros.
pub(crate) struct Arena {
    base: NonNull<u8>,
    /// `runs_max * run_bytes`: the length of the mapping.
    reserved_bytes: usize,
    run_bytes: usize,
    runs_max: u32,
    /// Runs below this number have been handed out at least once.
    runs_seen: u32,
    /// Runs handed out before and given back since.
    runs_free: Vec<u32>,
    /// Frames to be released soon: nobody reads them, and nobody writes them before [`Arena::keep`].
    soon: Vec<Range<usize>>,
    /// The system has not refused to release many ranges at once.
    many_at_once: bool,
}

// SAFETY: the mapping belongs to this value alone and is reached only through `&self` and
// `&mut self`, like the buffer of a Vec; no part of it is tied to a thread.
unsafe impl Send for Arena {}

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
        let reserved_bytes = runs_max as usize * run_bytes;
        Ok(Arena {
            base: reserve(reserved_bytes)?,
            reserved_bytes,
            run_bytes,
            runs_max,
            runs_seen: 0,
            runs_free: Vec::new(),
            soon: Vec::new(),
            many_at_once: true,
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
        assert!(at.is_multiple_of(PAGE_SIZE) && len.is_multiple_of(PAGE_SIZE));
        let start = self.checked(at, len);
        // SAFETY: the range lies in the mapping that this value owns, and `&mut self` means that
        // no slice of it is alive.
        let result = unsafe { libc::madvise(start.cast(), len, libc::MADV_DONTNEED) };
        // It fails only for wrong arguments, or for locked memory, which pleat never asks for.
        assert_eq!(result, 0, "madvise: {}", io::Error::last_os_error());
    }

    /// As [`Arena::release`], but together with others, once these frames come to more than `most_bytes` or
    /// 256 KiB. Until then they hold memory, and what they read as is not defined. Before one of them is written
    /// again it must be taken back, by [`Arena::keep`].
    pub(crate) fn release_soon(&mut self, at: usize, len: usize, most_bytes: usize) {
        assert!(at.is_multiple_of(PAGE_SIZE) && len.is_multiple_of(PAGE_SIZE));
        self.checked(at, len);
        debug_assert!(!self.is_leaving(at, len), "released twice");
        self.soon.push(at..at + len);
        if self.leaving_bytes() > most_bytes.min(SOON_BYTES_MAX) {
            self.release_all();
        }
    }

    /// The frames of a range are not to be released soon, as far as any of them were.
    pub(crate) fn keep(&mut self, at: usize, len: usize) {
        let mut nth = 0;
        while nth < self.soon.len() {
            let Range { start, end } = self.soon[nth];
            if end <= at || at + len <= start {
                nth += 1;
                continue;
            }
            self.soon.swap_remove(nth);
            // What is left of it lies outside, and so is passed over when its turn comes.
            let left = [start..at.max(start), (at + len).min(end)..end];
            self.soon
                .extend(left.into_iter().filter(|rest| !rest.is_empty()));
        }
    }

    /// Releases what was to be released soon.
    fn release_all(&mut self) {
        let soon = std::mem::take(&mut self.soon);
        if !self.release_at_once(&soon) {
            soon.iter()
                .for_each(|range| self.release(range.start, range.len()));
        }
    }

    /// Whether the system has released all these ranges with one call. Where it did not it may have released some.
    fn release_at_once(&mut self, ranges: &[Range<usize>]) -> bool {
        if !self.many_at_once {
            return false;
        }
        let of = |range: &Range<usize>| libc::iovec {
            iov_base: self.checked(range.start, range.len()).cast(),
            iov_len: range.len(),
        };
        let vector: Vec<libc::iovec> = ranges.iter().map(of).collect();
        // SAFETY: the ranges lie in the mapping that this value owns, and `&mut self` means that no slice of it is
        // alive. The address space is the caller's, so the one that the mapping is in.
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
        self.many_at_once = released >= 0;
        usize::try_from(released).is_ok_and(|bytes| bytes == bytes_of(ranges))
    }

    fn is_leaving(&self, at: usize, len: usize) -> bool {
        self.soon
            .iter()
            .any(|range| range.start < at + len && at < range.end)
    }

    /// Bytes of frames that still hold memory, but not for long.
    fn leaving_bytes(&self) -> usize {
        bytes_of(&self.soon)
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
            + self.soon.capacity() * size_of::<Range<usize>>()
            + self.leaving_bytes()
    }

    /// The address of `at`, once `at..at + len` is known to be in the reservation.
    fn checked(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= self.reserved_bytes && len <= self.reserved_bytes - at);
        // SAFETY: just checked to stay within the mapping.
        unsafe { self.base.as_ptr().add(at) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, of this length; nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.reserved_bytes) };
    }
}

fn bytes_of(ranges: &[Range<usize>]) -> usize {
    ranges.iter().map(Range::len).sum()
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
                arena.base.as_ptr().cast(),
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
        arena.release_soon(at + 6 * PAGE_SIZE, 2 * PAGE_SIZE, 3 * PAGE_SIZE);
        assert_eq!(resident(&arena, 8), 8);
        assert_eq!(arena.leaving_bytes(), 2 * PAGE_SIZE);
        arena.release_soon(at + PAGE_SIZE, 2 * PAGE_SIZE, 3 * PAGE_SIZE);
        assert_eq!(arena.leaving_bytes(), 0);
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
            arena.many_at_once = many_at_once;
            let at = written(&mut arena);
            arena.release_soon(at, 6 * PAGE_SIZE, 7 * PAGE_SIZE);
            arena.keep(at + PAGE_SIZE, PAGE_SIZE);
            arena.keep(at + 4 * PAGE_SIZE, 4 * PAGE_SIZE);
            assert_eq!(arena.leaving_bytes(), 3 * PAGE_SIZE);
            arena.write(at + PAGE_SIZE, &[8; PAGE_SIZE]);
            arena.release_all();
            assert_eq!(arena.leaving_bytes(), 0);
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
        arena.release_soon(at, 2 * PAGE_SIZE, 7 * PAGE_SIZE);
        arena.give_back_run((at / (8 * PAGE_SIZE)) as u32);
        assert_eq!((arena.leaving_bytes(), resident(&arena, 8)), (0, 0));
        assert_eq!(written(&mut arena), at);
        arena.release_all();
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
        arena.bytes(arena.reserved_bytes - 1, 2);
    }
}
