//! Pages that must never be away: the thread control blocks, and what else the kernel writes when a thread ends (`exits`).
//!
//! When a thread ends, the kernel clears its thread id in the thread's control block and wakes who
//! waits to join it, but it raises no userfault for that (`PF_EXITING`): were the page away, the
//! write would be lost and pthread_join would wait for ever. So every page that holds a control
//! block is remembered here, and take-aways pass over it.

use crate::area;
use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use pleat_wire::PAGE;

/// Bytes after the thread pointer that may hold what the kernel writes: glibc's `struct pthread`
/// with its robust list, thread id and rseq area.
const BLOCK: usize = 4096;
/// A megabyte, of which what is used has memory: enough for 49,000 threads at a time, two pages each. The C library maps new stacks
/// where old ones were, so a program that has had more threads than that one after the other has not used more pages.
const SLOTS: usize = 1 << 17;

/// Page numbers in an open-addressing table; never removed, because stacks are reused.
static PROTECTED: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];
static USED: AtomicUsize = AtomicUsize::new(0);
static OVERFLOW: AtomicBool = AtomicBool::new(false);

/// Has the kernel make the page tables of the table now, one of whose pages is in use: see `Area::get_ready`.
pub fn get_ready() {
    let ends = [&PROTECTED[0], &PROTECTED[SLOTS - 1]];
    let [first, last] = ends.map(|slot| core::ptr::from_ref(slot) as usize);
    if !area::share_a_page_table(first, last) {
        for slot in ends {
            slot.load(Ordering::Relaxed);
        }
    }
}

/// Protects the calling thread's control block.
pub fn protect_current() {
    protect(thread_pointer(), BLOCK);
}

/// Protects up to a page's length of memory. It may be away, or on its way: see `serve::let_moves_end`.
pub fn protect(address: usize, len: usize) {
    insert(address / PAGE);
    insert(address.wrapping_add(len - 1) / PAGE);
}

/// Whether the page at `address` must stay. With the table full every page must.
pub fn is_protected(address: usize) -> bool {
    if OVERFLOW.load(Ordering::Acquire) {
        return true;
    }
    let page = address / PAGE;
    let mut at = slot_of(page);
    loop {
        match PROTECTED[at].load(Ordering::Acquire) {
            0 => return false,
            found if found == page => return true,
            _ => at = (at + 1) % SLOTS,
        }
    }
}

fn insert(page: usize) {
    let mut at = slot_of(page);
    loop {
        match PROTECTED[at].compare_exchange(0, page, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(found) if found == page => return,
            Err(_) => at = (at + 1) % SLOTS,
        }
    }
    if USED.fetch_add(1, Ordering::AcqRel) > SLOTS * 3 / 4 {
        OVERFLOW.store(true, Ordering::Release);
    }
}

fn slot_of(page: usize) -> usize {
    (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % SLOTS
}

/// The thread pointer; glibc keeps its own address in the first word of the control block.
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads fs:0, which the x86-64 ABI defines as the thread pointer itself.
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly)) };
    pointer
}
