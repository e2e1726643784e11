//! Memory that malloc gets from the kernel is registered before it is touched.
//!
//! The kernel tells nobody of new mappings. Those that a program makes by calling `mmap` come by `interpose`; what
//! malloc asks for comes by here, from inside the C library (see `patch`), after the kernel has given it and before malloc
//! has it. In a managed process the thread says where the memory is and touches a doorbell: that is a fault, which the
//! supervisor answers when it has registered the range. From then on the first touch of each page asks, too, and waits
//! if there is no memory, however late the supervisor's looks come.
//!
//! So a thread may wait here with malloc's locks held. It does the same at any touch of memory that is away, and the
//! supervisor needs nothing of the process meanwhile but what the agent does, which uses no lock of the program's. If
//! the supervisor is gone, so is the process.
//!
//! While memory is plenty, only what is large is announced: the rest is found by looking, as what came before the process
//! was managed.
//!
//! The control page is not mapped in forked children, and the C library may call malloc there before the agent's own fork
//! handler has run, or without that (clone(2)). So its address is in a page that the kernel wipes in every child.

use crate::area::{self, Doorbell};
use crate::raw::{self, Errno};
use crate::stubs::Registers;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use pleat_wire::control::Control;
use pleat_wire::PAGE;
use syscalls::Sysno;

/// Less is not managed in any case: what a program has in small mappings is little.
const ANNOUNCED_MIN: usize = 64 << 10;
/// The same while memory is plenty.
const ANNOUNCED_MIN_AT_EASE: usize = 4 << 20;

/// Up to here the heap was announced; 0: it is not known where it began.
static HEAP_END: AtomicUsize = AtomicUsize::new(0);
/// A page with the control page's address, empty in children; 0: there is none yet.
static WAY: AtomicUsize = AtomicUsize::new(0);
/// Whether a thread's range is in the control page.
static IS_TAKEN: AtomicU32 = AtomicU32::new(0);

/// Notes where the heap begins. By the constructor.
pub fn begin() {
    // SAFETY: the call that changes nothing.
    if let Ok(end) = unsafe { raw::call(Sysno::brk, [0; 6]) } {
        HEAP_END.store(end, Ordering::Release);
    }
}

/// By the agent, when it has mapped its control page.
pub fn note_control(control: *const Control) -> Result<(), Errno> {
    let page = match WAY.load(Ordering::Acquire) {
        0 => {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let page = raw::map(PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1)?;
            // SAFETY: mapped just now.
            unsafe { raw::advise_own(page, PAGE, libc::MADV_WIPEONFORK)? };
            page
        }
        page => page,
    };
    // SAFETY: mapped for the life of the process, and never managed, for it is small.
    unsafe { core::ptr::write_volatile(page as *mut usize, control as usize) };
    WAY.store(page, Ordering::Release);
    Ok(())
}

/// Where the page with that address is, as `(start, end)`; nothing while there is none.
pub fn way_range() -> (usize, usize) {
    match WAY.load(Ordering::Acquire) {
        0 => (0, 0),
        start => (start, start + PAGE),
    }
}

/// In a forked child: what threads of the parent's were at is not here.
pub fn forget_parent() {
    IS_TAKEN.store(0, Ordering::Release);
}

/// The C library has asked for another end of the heap.
pub extern "C" fn after_brk(registers: &Registers) -> isize {
    let end = registers.rax;
    let known = HEAP_END.load(Ordering::Acquire);
    if known != 0 && end < known {
        // What comes there again is new.
        HEAP_END.store(end, Ordering::Release);
    } else if known != 0 && announce_if_much(known / PAGE * PAGE, end.next_multiple_of(PAGE)) {
        HEAP_END.store(end, Ordering::Release);
    }
    end as isize
}

/// The C library has asked for a mapping.
pub extern "C" fn after_mmap(registers: &Registers) -> isize {
    let (len, protection, flags) = (registers.rsi, registers.rdx as i32, registers.r10 as i32);
    if let Ok(start) = raw::answer(registers.rax) {
        if is_for_malloc(protection, flags) {
            announce_if_much(start, start.saturating_add(len).next_multiple_of(PAGE));
        }
    }
    registers.rax as isize
}

/// Memory to be filled now, or room for an arena, of which mprotect makes more and more memory. Stacks are hardly ever
/// filled, and there may be thousands.
fn is_for_malloc(protection: i32, flags: i32) -> bool {
    let wanted = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let unwanted = libc::MAP_STACK | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB;
    flags & (wanted | unwanted) == wanted
        && (protection == libc::PROT_NONE || protection & libc::PROT_WRITE != 0)
}

/// Announces memory unless it is too little to be; answers whether it did.
fn announce_if_much(start: usize, end: usize) -> bool {
    let len = end.saturating_sub(start);
    if len < ANNOUNCED_MIN || !area::is_managed() {
        return false;
    }
    let Some(control) = control() else {
        return false;
    };
    let is_at_ease = control.at_ease.load(Ordering::Relaxed) != 0;
    if is_at_ease && len < ANNOUNCED_MIN_AT_EASE {
        return false;
    }
    announce_in(control, start, end);
    true
}

/// Has new memory of a managed process registered; returns when it is.
pub fn announce(start: usize, end: usize) {
    match control() {
        Some(control) => announce_in(control, start, end.next_multiple_of(PAGE)),
        None => area::ring(Doorbell::Mapping),
    }
}

fn announce_in(control: &Control, start: usize, end: usize) {
    let claimed = IS_TAKEN.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
    if claimed.is_err() {
        // Another thread's range is there, or that of one that was interrupted by this signal handler: all mappings
        // are looked at instead.
        return area::ring(Doorbell::Mapping);
    }
    let [from, to] = &control.grown;
    from.store(start as u64, Ordering::Relaxed);
    to.store(end as u64, Ordering::Release);
    area::ring(Doorbell::Grown);
    IS_TAKEN.store(0, Ordering::Release);
}

/// This process's own control page. A child that was forked past the C library has none, whatever its variables say.
pub fn control() -> Option<&'static Control> {
    let page = WAY.load(Ordering::Acquire);
    if page == 0 {
        return None;
    }
    // SAFETY: the page is mapped for the life of the process. In a child its content is not what it was in the parent, but zeros.
    let control = unsafe { core::ptr::read_volatile(page as *const usize) } as *const Control;
    // SAFETY: what is noted there is mapped for the life of the process that has noted it.
    unsafe { control.as_ref() }
}
