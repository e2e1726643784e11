//! Taking pages away: out of the program, into the shared ring, and freed.
//!
//! For each page, in this order: moved into the staging area (atomic for the program: a thread that
//! touches the page afterwards waits in the kernel), copied into its ring frame, moved on into the
//! outbox and freed there. The second move is for the free: freeing in the staging area, which is
//! registered with the process's userfaultfd, would raise an event.
//!
//! The budget of the whole is about 1.5 us a page where no other CPU runs the program, of which the
//! copy is 0.15 us and the rest TLB flushes.

use crate::area::Area;
use crate::prepare::Tools;
use crate::raw;
use crate::serve;
use crate::threads;
use crate::timer::Timer;
use core::sync::atomic::Ordering;
use pleat_wire::message::{self, Take, TakeItem, TakeTimes, Taken, TAKE_MAX};
use pleat_wire::{control, uffd, PAGE};
use syscalls::Sysno;

/// Most pages moved under one hold of the lock, so that the supervisor never waits long for it.
const RUN_MAX: usize = 32;

/// Obeys one command.
pub fn take(tools: &Tools, command: &Take) -> Taken {
    let mut timer = Timer::start(tools.slow_ticks);
    let count = (command.count as usize).min(TAKE_MAX);
    let mut answer = Taken {
        kind: message::TAKEN,
        count: count as u32,
        status: [message::STALE; TAKE_MAX],
        times: TakeTimes::default(),
    };
    let items = &command.items[..count];
    let status = &mut answer.status[..count];
    if command.has_leftovers != 0 {
        drop_leftovers(tools);
    }
    move_out(tools, command.generation, items, status, &mut timer);
    retry_busy(tools, command.generation, items, status, &mut timer);
    timer.moved_all();
    empty_staging(tools, items, status, &mut timer);
    answer.times = timer.end();
    answer
}

/// The supervisor has revoked the command before, and looked for its pages in the staging area meanwhile: where none was
/// any more, the kernel has put one of zeros. Dropping it raises an event, which makes this command stale.
fn drop_leftovers(tools: &Tools) {
    // SAFETY: the staging area is ours, and what was in it was taken over by the supervisor.
    unsafe { drop_staged(tools.area.staging(), Area::staging_len()) }
}

/// Frees part of the staging area where it is. That raises an event, so it waits for the supervisor.
///
/// # Safety
/// The range is in the staging area, and no page in it is needed any more.
unsafe fn drop_staged(start: usize, len: usize) {
    // SAFETY: the caller's.
    if unsafe { raw::advise(start, len, libc::MADV_DONTNEED) }.is_err() {
        // Anything left in the staging area would be taken for the next command's pages.
        raw::die(b"pleat: the agent cannot free its staging area; ending the process\n");
    }
}

/// Whether a system call failed because a filter (seccomp) refuses it: UFFDIO_MOVE itself has no such answers. Such a
/// call has done nothing.
fn is_forbidden(errno: i32) -> bool {
    matches!(errno, libc::EPERM | libc::EACCES | libc::ENOSYS)
}

/// First pass: everything that moves at once.
fn move_out(
    tools: &Tools,
    generation: u64,
    items: &[TakeItem],
    status: &mut [u8],
    timer: &mut Timer,
) {
    let mut at = 0;
    while at < items.len() {
        let run = run_length(&items[at..]);
        match move_run(tools, generation, at, items[at].address, run, timer) {
            Moved::Pages(moved) => {
                status[at..at + moved].fill(message::TOOK);
                at += moved;
            }
            Moved::Failed(why) => {
                status[at] = why;
                at += 1;
            }
            Moved::Stale => return,
        }
    }
}

/// Pages still shared after a fork are refused (as are pinned ones). A write access that leaves the
/// bytes as they are makes the page this process's own; a pinned one is refused again.
fn retry_busy(
    tools: &Tools,
    generation: u64,
    items: &[TakeItem],
    status: &mut [u8],
    timer: &mut Timer,
) {
    for at in 0..items.len() {
        if status[at] != message::BUSY {
            continue;
        }
        let address = items[at].address as usize;
        if !raw::make_own(address) && !own_protected(tools, generation, address) {
            continue;
        }
        note_progress(tools, at, control::RETRIED);
        match move_run(tools, generation, at, address as u64, 1, timer) {
            Moved::Pages(_) => status[at] = message::TOOK_SHARED,
            Moved::Failed(why) => status[at] = why,
            Moved::Stale => return,
        }
    }
}

/// As [`raw::make_own`], for a page that the supervisor has write-protected after a fork.
fn own_protected(tools: &Tools, generation: u64, address: usize) -> bool {
    let mut argument = uffd::WriteProtect {
        range: uffd::Range {
            start: address as u64,
            len: PAGE as u64,
        },
        mode: 0,
    };
    // SAFETY: the control page is mapped for the life of the process.
    let control = unsafe { &*tools.control };
    raw::lock(&control.lock, serve::look_for_supervisor);
    let current = control.generation.load(Ordering::Acquire) == generation;
    // SAFETY: the structure of this request; the kernel refuses pages that are not managed.
    let freed =
        current && unsafe { raw::ioctl(tools.uffd, uffd::IOC_WRITEPROTECT, &mut argument) }.is_ok();
    raw::unlock(&control.lock);
    freed && raw::make_own(address)
}

/// How many of the first items are neighbours in memory.
fn run_length(items: &[TakeItem]) -> usize {
    let first = items[0].address;
    items
        .iter()
        .take(RUN_MAX)
        .enumerate()
        .take_while(|(at, item)| item.address == first + (at * PAGE) as u64)
        .count()
}

enum Moved {
    /// The first so many pages of the run.
    Pages(usize),
    /// Not the first page, because of this status.
    Failed(u8),
    /// The address space has changed: stop.
    Stale,
}

/// Moves a run into the staging area, at the place of its first item, up to the first page that must stay.
fn move_run(
    tools: &Tools,
    generation: u64,
    at: usize,
    address: u64,
    pages: usize,
    timer: &mut Timer,
) -> Moved {
    // SAFETY: the control page is mapped for the life of the process.
    let control = unsafe { &*tools.control };
    raw::lock(&control.lock, serve::look_for_supervisor);
    if control.generation.load(Ordering::Acquire) != generation {
        raw::unlock(&control.lock);
        return Moved::Stale;
    }
    // Under the lock: who has a page protected waits for it once, and knows that nothing moves there any more.
    let is_free = |page: &usize| !threads::is_protected(address as usize + page * PAGE);
    let pages = (0..pages).take_while(is_free).count();
    if pages == 0 {
        raw::unlock(&control.lock);
        return Moved::Failed(message::UNMOVABLE);
    }
    let mut argument = uffd::Move {
        dst: (tools.area.staging() + at * PAGE) as u64,
        src: address,
        len: (pages * PAGE) as u64,
        mode: uffd::MODE_DONTWAKE,
        moved: 0,
    };
    let began = timer.now();
    // SAFETY: the structure of this request. The destination is our own and empty; the source is
    // what the command means, because no event was read since it was made (the generation, checked
    // under the lock) and none is pending (else the kernel answers EAGAIN).
    let result = unsafe { raw::ioctl(tools.uffd, uffd::IOC_MOVE, &mut argument) };
    timer.moved(began);
    raw::unlock(&control.lock);
    let errno = match result {
        Ok(_) => return Moved::Pages(pages),
        Err(errno) if is_forbidden(errno) => return Moved::Failed(message::FORBIDDEN),
        Err(errno) => errno,
    };
    // What the kernel says it has moved is not all (see `present_pages`), and what it has moved must
    // not be left behind.
    let moved = present_pages(argument.dst as usize, pages);
    match errno {
        _ if moved > 0 => Moved::Pages(moved),
        libc::EAGAIN => Moved::Stale,
        libc::ENOENT => Moved::Failed(message::GONE),
        libc::EINVAL => Moved::Failed(message::UNMOVABLE),
        _ => Moved::Failed(message::BUSY),
    }
}

/// How many pages from `start` on are present, in a row; at most `pages`, which is TAKE_MAX at most.
///
/// Linux 6.18 moves pages in batches. If it has to try a page again (because its page table entry
/// changed at that very moment, as write protection does), it forgets to count the batch that follows:
/// those pages are moved, and UFFDIO_MOVE reports EEXIST, or only what it had counted before. So
/// wherever a move was not complete, the page tables are asked.
fn present_pages(start: usize, pages: usize) -> usize {
    let mut present = [0u8; TAKE_MAX];
    let vector = present.as_mut_ptr() as usize;
    // SAFETY: the vector has room for a byte for each page, of which there are TAKE_MAX at most.
    let asked = unsafe { raw::call(Sysno::mincore, [start, pages * PAGE, vector, 0, 0, 0]) };
    if asked.is_err() {
        raw::die(b"pleat: the agent cannot tell which pages it has taken; ending the process\n");
    }
    let known = &present[..pages.min(TAKE_MAX)];
    known.iter().take_while(|page| **page & 1 == 1).count()
}

/// Copies what was taken into the ring and frees it.
fn empty_staging(tools: &Tools, items: &[TakeItem], status: &[u8], timer: &mut Timer) {
    let mut at = 0;
    let mut any = false;
    while at < items.len() {
        let run = status[at..].iter().take_while(|s| is_taken(**s)).count();
        if run == 0 {
            at += 1;
            continue;
        }
        let began = timer.now();
        for (offset, item) in items[at..at + run].iter().enumerate() {
            copy_to_ring(tools, at + offset, item.slot);
        }
        timer.copied(began);
        pass_on(tools, at, run);
        (at, any) = (at + run, true);
    }
    if any {
        // SAFETY: the outbox is ours, and what was in it is in the ring by now.
        let freed = unsafe {
            raw::advise(
                tools.area.outbox(),
                Area::staging_len(),
                libc::MADV_DONTNEED,
            )
        };
        if freed.is_err() {
            raw::die(b"pleat: the agent cannot free its outbox; ending the process\n");
        }
    }
}

fn is_taken(status: u8) -> bool {
    matches!(status, message::TOOK | message::TOOK_SHARED)
}

fn copy_to_ring(tools: &Tools, at: usize, slot: u32) {
    let from = (tools.area.staging() + at * PAGE) as *const u8;
    let to = (tools.control as usize + (1 + slot as usize) * PAGE) as *mut u8;
    // SAFETY: the page was moved into the staging area just now, so it is present; the supervisor
    // names only frames of the ring, and reads this one only after our answer.
    unsafe { core::ptr::copy_nonoverlapping(from, to, PAGE) };
    note_progress(tools, at, control::COPIED);
}

/// How far the page at this place of the command has come, for a supervisor that revokes it.
fn note_progress(tools: &Tools, at: usize, done: u8) {
    // SAFETY: the control page is mapped for the life of the process.
    let control = unsafe { &*tools.control };
    control.progress[at].fetch_or(done, Ordering::Release);
}

/// Moves a run, which is in its frames by now, from the staging area to the outbox.
fn pass_on(tools: &Tools, at: usize, pages: usize) {
    let mut done = 0;
    while done < pages {
        let mut argument = uffd::Move {
            dst: (tools.area.outbox() + (at + done) * PAGE) as u64,
            src: (tools.area.staging() + (at + done) * PAGE) as u64,
            len: ((pages - done) * PAGE) as u64,
            mode: uffd::MODE_DONTWAKE,
            moved: 0,
        };
        // SAFETY: the structure of this request; both ranges are the agent's own.
        match unsafe { raw::ioctl(tools.outbox_uffd, uffd::IOC_MOVE, &mut argument) } {
            Ok(_) => return,
            // Another thread has put a filter on all since the pages were moved here: this was the last command.
            Err(errno) if is_forbidden(errno) => {
                // SAFETY: the rest of the run, which is in its frames.
                return unsafe { drop_staged(argument.src as usize, argument.len as usize) };
            }
            Err(_) => {}
        }
        match present_pages(argument.dst as usize, pages - done) {
            0 => raw::die(b"pleat: the agent cannot clear its staging area; ending the process\n"),
            moved => done += moved,
        }
    }
}

#[cfg(test)]
mod tests;
