//! Transfers through io_uring: one system call starts one, and its answer appears in memory.
//!
//! The kernel finishes a transfer in the context of the thread that submitted it. It is asked not to
//! interrupt that thread for this (COOP_TASKRUN) but to set a flag (TASKRUN_FLAG): a thread that spins
//! sees the flag and calls the kernel, one that sleeps in the kernel is woken. Not SINGLE_ISSUER: a
//! queue may be made in one thread, used in another and dropped in a third.
//!
//! This is the one place where the kernel writes into memory behind the compiler's back. What makes it
//! sound is the equation
//!
//! ```text
//! a slot is taken  <=>  an entry with its number is with the kernel  =>  nobody touches its buffer
//! ```

use super::open_file::OpenFile;
use super::progress::{Progress, Step};
use super::{BLOCK_BYTES, FAREWELL};
use crate::backing::{Completion, Patience, Queue, Request, Transfer};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{opcode, IoUring};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Calls in a row that the kernel may refuse for lack of memory; the entries stay for the next time.
const REFUSALS_MAX: u32 = 100;
/// Looks between two looks at the clock, about 2 us.
const SPINS_PER_CLOCK: u32 = 64;

/// Whether this process may use io_uring, now.
pub fn is_allowed() -> bool {
    open_ring(1).is_ok()
}

/// The requests of one thread.
pub struct RingQueue {
    ring: IoUring,
    file: Arc<OpenFile>,
    /// Indexed by the number that the kernel's answer carries.
    slots: Vec<Option<Progress>>,
    free_slots: Vec<usize>,
}

impl RingQueue {
    /// # Errors
    /// The kernel or a sandbox refuses it.
    pub fn new(file: Arc<OpenFile>, depth: u32) -> io::Result<RingQueue> {
        Ok(RingQueue {
            ring: open_ring(depth)?,
            file,
            slots: (0..depth).map(|_| None).collect(),
            free_slots: (0..depth as usize).rev().collect(),
        })
    }

    /// Gives the rest of the slot's transfer to the kernel.
    fn start(&mut self, slot: usize, mut progress: Progress) {
        let file = Fd(self.file.as_fd().as_raw_fd());
        let transfer = progress.transfer();
        let (offset, rest) = progress.rest();
        // A request is shorter than 2 GiB.
        let bytes = rest.len() as u32;
        let entry = match transfer {
            Transfer::Read => opcode::Read::new(file, rest.as_mut_ptr(), bytes)
                .offset(offset)
                .build(),
            Transfer::Write => opcode::Write::new(file, rest.as_ptr(), bytes)
                .offset(offset)
                .build(),
        };
        // The buffer does not move with `progress`.
        self.slots[slot] = Some(progress);
        // SAFETY: the buffer stays in its slot, untouched, until the answer with this number has
        // come, and is leaked if it never does (`wind_up`). The file is open as long as `self`, and
        // the kernel holds it from the submission on.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) };
        pushed.expect("a ring has an entry for each slot");
    }

    /// Hands new entries over, and lets the kernel finish what waits for this thread.
    fn enter(&self) {
        for _ in 0..REFUSALS_MAX {
            match self.ring.submit() {
                Err(error) if is_passing(&error) => {}
                // Nothing that would go away at once. Whoever waits for the answer tries again.
                _ => return,
            }
        }
    }

    fn take_answers(&mut self, done: &mut Vec<Completion>) {
        let mut again = false;
        loop {
            let Some(answer) = self.ring.completion().next() else {
                break;
            };
            let slot = answer.user_data() as usize;
            let progress = self.slots[slot].take().expect("one answer to each entry");
            match progress.answered(transferred(answer.result()), self.file.name()) {
                Step::Ended(completion) => {
                    self.free_slots.push(slot);
                    done.push(self.file.settle(completion));
                }
                Step::Again(rest) => {
                    self.start(slot, rest);
                    again = true;
                }
            }
        }
        if again {
            self.enter();
        }
    }

    /// Whether the kernel has something to do that it only does when called.
    fn needs_a_call(&mut self) -> bool {
        let submission = self.ring.submission();
        submission.taskrun() || !submission.is_empty()
    }

    fn spin(&mut self) {
        for _ in 0..SPINS_PER_CLOCK {
            if !self.ring.completion().is_empty() {
                return;
            }
            if self.needs_a_call() {
                return self.enter();
            }
            std::hint::spin_loop();
        }
    }

    fn sleep(&self, limit: Duration) {
        let limit = Timespec::from(limit);
        // Time is up, a signal came, memory is short: the caller looks, and decides by the clock.
        let _ = self
            .ring
            .submitter()
            .submit_with_args(1, &SubmitArgs::new().timespec(&limit));
    }

    /// Waits for what is in flight, and leaks the buffers of what does not end: the kernel may still
    /// read and write them. Says how many.
    pub(super) fn wind_up(&mut self, limit: Duration) -> usize {
        let end = Instant::now() + limit;
        while self.in_flight() > 0 && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            self.complete(Patience::Sleep(left), &mut Vec::new());
        }
        let leaked = self.in_flight();
        std::mem::forget(std::mem::take(&mut self.slots));
        self.free_slots.clear();
        leaked
    }
}

impl Queue for RingQueue {
    fn submit(&mut self, request: Request) {
        request.check(BLOCK_BYTES, self.in_flight(), self.slots.len());
        let slot = self.free_slots.pop().expect("a slot for each request");
        self.start(slot, Progress::new(request));
        self.enter();
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    fn complete(&mut self, patience: Patience, done: &mut Vec<Completion>) {
        if self.in_flight() == 0 {
            return;
        }
        if self.needs_a_call() {
            self.enter();
        }
        let (before, end) = (done.len(), patience.end());
        loop {
            self.take_answers(done);
            let now = Instant::now();
            if done.len() > before || now >= end {
                return;
            }
            match patience {
                Patience::Poll => return,
                Patience::Spin(_) => self.spin(),
                Patience::Sleep(_) => self.sleep(end - now),
            }
        }
    }

    /// A ring itself polls readable while it holds answers.
    fn event(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl Drop for RingQueue {
    fn drop(&mut self) {
        self.wind_up(FAREWELL);
    }
}

/// A ring that has been seen to work: some sandboxes let it be made, but not used.
fn open_ring(depth: u32) -> io::Result<IoUring> {
    let entries = depth.next_power_of_two();
    let mut ring: IoUring = IoUring::builder()
        .dontfork()
        .setup_submit_all()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .build(entries)?;
    if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: it refers to no memory.
    let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
    pushed.map_err(|_| io::ErrorKind::Unsupported)?;
    ring.submit_and_wait(1)?;
    let answer = ring.completion().next();
    let answer = answer.ok_or(io::ErrorKind::Unsupported)?;
    transferred(answer.result()).map(|_| ring)
}

fn transferred(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
    )
}
