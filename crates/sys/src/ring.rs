//! The memory shared with an agent: its control page, and the frames of its staging ring.
//!
//! The agent writes a frame before it answers a take-away, and the supervisor reads it afterwards;
//! a frame is handed out again only when the supervisor is done with it.

use pleat_wire::control::{self, Control};
use pleat_wire::PAGE;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The supervisor's mapping of an agent's shared memory. Every byte of it is data of the process's, which may
/// change at any time: whoever uses a frame more than once copies it first.
#[derive(Debug)]
pub struct Ring {
    start: *mut u8,
    frames: u32,
}

// SAFETY: the control page is atomics; frames are read only by whoever holds their slot.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// Makes the memory to be shared with one agent, a control page and `frames` frames, and the descriptor by
    /// which the agent is to map it. Made here, its size is known and no limit of the program's process matters.
    ///
    /// # Errors
    /// When there is no memory, no descriptor, or no leave for a file of that size (RLIMIT_FSIZE).
    pub fn shared(frames: u32) -> io::Result<(Ring, OwnedFd)> {
        let len = (1 + frames as usize) * PAGE;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a static name and plain arguments; the descriptor is fresh, and the mapping disturbs nothing.
        unsafe {
            let fd = libc::memfd_create(c"pleat".as_ptr(), flags);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let memory = OwnedFd::from_raw_fd(fd);
            if libc::ftruncate(fd, len as libc::off_t) < 0 {
                return Err(io::Error::last_os_error());
            }
            // Or a program that truncates it could end the supervisor with SIGBUS.
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
            if libc::fcntl(fd, libc::F_ADD_SEALS, seals) < 0 {
                return Err(io::Error::last_os_error());
            }
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(
                std::ptr::null_mut(),
                len,
                protection,
                libc::MAP_SHARED,
                fd,
                0,
            );
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let start = start.cast();
            Ok((Ring { start, frames }, memory))
        }
    }

    /// A ring that nobody shares, for pages that this process takes itself.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn private(frames: u32) -> io::Result<Ring> {
        let len = (1 + frames as usize) * PAGE;
        // SAFETY: no pointers in; an anonymous mapping touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring {
            start: start.cast(),
            frames,
        })
    }

    /// Puts a page into a frame; what is missing to a whole page is zeros.
    ///
    /// The caller has claimed the frame, and nobody was told of it yet.
    ///
    /// # Panics
    /// When there is no such frame, or the bytes are more than a page.
    pub fn put(&self, slot: u32, bytes: &[u8]) {
        assert!(slot < self.frames && bytes.len() <= PAGE);
        // SAFETY: inside the mapping, and nobody else looks at a frame that was claimed and not yet
        // named to anybody.
        unsafe {
            let frame = self.start.add((1 + slot as usize) * PAGE);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), frame, bytes.len());
            std::ptr::write_bytes(frame.add(bytes.len()), 0, PAGE - bytes.len());
        }
    }

    /// Gives back the memory of all frames: they read as zeros, and have memory again when they are touched. `false`: they
    /// have kept it.
    ///
    /// The caller has claimed all of them, or nobody else can.
    pub fn empty(&self) -> bool {
        let len = self.frames as usize * PAGE;
        // MADV_REMOVE is for shared memory, MADV_DONTNEED for our own.
        [libc::MADV_REMOVE, libc::MADV_DONTNEED]
            .iter()
            // SAFETY: inside the mapping, and nobody looks at a frame that is not claimed; the agent, whose mapping of the shared
            // memory it is as well, writes to none that it was not told of.
            .any(|&advice| unsafe { libc::madvise(self.start.add(PAGE).cast(), len, advice) == 0 })
    }

    /// Frames in the ring.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// The control page.
    pub fn control(&self) -> &Control {
        // SAFETY: the first page of the mapping, aligned, valid for the mapping's life; all fields
        // are atomics.
        unsafe { &*self.start.cast::<Control>() }
    }

    /// A frame as it is now, and as it stays.
    ///
    /// # Panics
    /// When there is no such frame.
    pub fn copy_frame(&self, slot: u32, to: &mut [u8; PAGE]) {
        assert!(slot < self.frames);
        // SAFETY: inside the mapping, and `to` is a page. Should the process write meanwhile, it spoils its own
        // page.
        unsafe {
            let from = self.start.add((1 + slot as usize) * PAGE);
            std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), PAGE);
        }
    }

    /// The bytes of a frame.
    ///
    /// # Panics
    /// When there is no such frame.
    pub fn frame(&self, slot: u32) -> &[u8; PAGE] {
        assert!(slot < self.frames);
        // SAFETY: inside the mapping. The agent does not write the frame between its answer and
        // the next command that names it; a program that scribbles over it on purpose spoils its
        // own page and nothing else.
        unsafe {
            &*self
                .start
                .add((1 + slot as usize) * PAGE)
                .cast::<[u8; PAGE]>()
        }
    }

    /// Takes the control lock. `false` when `give_up` says so while waiting (the process died with
    /// the lock held).
    pub fn lock(&self, give_up: &dyn Fn() -> bool) -> bool {
        let word = &self.control().lock;
        let taken =
            |to| word.compare_exchange(control::FREE, to, Ordering::Acquire, Ordering::Relaxed);
        if taken(control::HELD).is_ok() {
            return true;
        }
        while word.swap(control::CONTENDED, Ordering::Acquire) != control::FREE {
            wait(word, control::CONTENDED, Duration::from_millis(100));
            if word.load(Ordering::Relaxed) != control::FREE && give_up() {
                return false;
            }
        }
        true
    }

    /// Lets go of the control lock.
    pub fn unlock(&self) {
        let word = &self.control().lock;
        if word.swap(control::FREE, Ordering::Release) == control::CONTENDED {
            // SAFETY: the word is valid; FUTEX_WAKE takes no other pointer.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
        }
    }
}

fn wait(word: &AtomicU32, value: u32, limit: Duration) {
    let timeout = libc::timespec {
        tv_sec: 0,
        tv_nsec: limit.subsec_nanos().into(),
    };
    // SAFETY: the word and the timeout are valid through the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            &raw const timeout,
        )
    };
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference outlives `self`.
        unsafe { libc::munmap(self.start.cast(), (1 + self.frames as usize) * PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn whoever_has_the_memory_cannot_cut_it_short() {
        let (ring, memory) = Ring::shared(4).unwrap();
        // SAFETY: plain numbers.
        let resized = [0, 9 * PAGE]
            .map(|len| unsafe { libc::ftruncate(memory.as_raw_fd(), len as libc::off_t) });
        assert_eq!(resized, [-1, -1]);
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: plain numbers. This takes pages out, and leaves zeros to be read.
        unsafe { libc::fallocate(memory.as_raw_fd(), mode, 0, 5 * PAGE as libc::off_t) };
        assert_eq!(ring.frame(3), &[0; PAGE]);
    }
}
