//! The agent's own memory: one mapping for its stack and staging areas, one page as beacon.
//!
//! ```text
//! area:  guard | stack | staging (process's userfaultfd) | staging (second userfaultfd)
//! ```
//!
//! The area is not inherited by a forked child, which makes its own. The beacon page is inherited
//! but wiped: reading it in the child raises a fault on the child's userfaultfd, which tells the
//! supervisor whose userfaultfd that is.

use crate::raw::{self, Errno};
use crate::serve;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use pleat_wire::message::{Token, DOORBELLS, DOORBELL_KINDS, DOORBELL_PAGES, TAKE_MAX};
use pleat_wire::{control, injected, PAGE};
use syscalls::Sysno;

const STACK: usize = injected::AREA_STACK;
/// What the agent uses of it: one page was seen, over forks and take-aways.
const STACK_USED: usize = 2 * PAGE;
const STAGING: usize = TAKE_MAX * PAGE;
const LENGTH: usize = injected::AREA_LEN;

extern "C" {
    /// The library's own ELF header; the linker defines it, hidden, in every object.
    static __ehdr_start: libc::Elf64_Ehdr;
}

/// Where this library is loaded.
pub fn base() -> usize {
    // SAFETY: only its address is taken.
    core::ptr::from_ref(unsafe { &__ehdr_start }) as usize
}

/// The copy of this library that the supervisor has made, as start and end; zeros where it was loaded.
static IMAGE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Notes that this is a copy in memory of the process's own.
pub fn note_image(start: usize, end: usize) {
    IMAGE[0].store(start, Ordering::Release);
    IMAGE[1].store(end, Ordering::Release);
}

/// The pages of this library's variables, as `(start, end)`: writable memory of the library, which
/// the agent uses and which therefore must never be away. Of a copy that the supervisor has made all is such memory.
pub fn data() -> (usize, usize) {
    let [start, end] = [0, 1].map(|at: usize| IMAGE[at].load(Ordering::Acquire));
    if start != 0 {
        return (start, end);
    }
    // SAFETY: the header and the program headers behind it are part of the first mapped segment.
    unsafe {
        let header = &__ehdr_start;
        let base = base();
        let table = (base + header.e_phoff as usize) as *const libc::Elf64_Phdr;
        let (mut start, mut end) = (usize::MAX, 0);
        for at in 0..usize::from(header.e_phnum) {
            let segment = &*table.add(at);
            if segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_W != 0 {
                start = start.min(base + segment.p_vaddr as usize);
                end = end.max(base + (segment.p_vaddr + segment.p_memsz) as usize);
            }
        }
        (start / PAGE * PAGE, end.next_multiple_of(PAGE))
    }
}

/// Doorbells touched so far, by kind.
static TOUCHED: [AtomicUsize; DOORBELL_KINDS] = [const { AtomicUsize::new(0) }; DOORBELL_KINDS];

/// Address of the beacon page; 0 before the first pressure, and until the supervisor hears of it.
static BEACON: AtomicUsize = AtomicUsize::new(0);

/// The same, from when there is one.
static DARK: AtomicUsize = AtomicUsize::new(0);

/// Whether the kernel has both addresses in one page table, which is there as soon as one of them is used.
pub fn share_a_page_table(one: usize, other: usize) -> bool {
    const COVERED: usize = 512 * PAGE;
    one / COVERED == other / COVERED
}

/// Where the agent's memory is.
#[derive(Clone, Copy)]
pub struct Area {
    /// First address.
    pub start: usize,
}

impl Area {
    /// Maps a fresh area.
    pub fn map() -> Result<Area, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = raw::map(LENGTH, libc::PROT_READ | libc::PROT_WRITE, flags, -1)?;
        // SAFETY: mapped just now.
        let area = unsafe { Area::set_up(start) }?;
        area.get_ready(0);
        Ok(area)
    }

    /// Makes an area of fresh memory, of which at most the stack is in use.
    ///
    /// # Safety
    /// It is mapped, readable and writable, and nobody else knows it.
    pub unsafe fn set_up(start: usize) -> Result<Area, Errno> {
        // SAFETY: the caller's.
        unsafe {
            let arguments = [start, PAGE, libc::PROT_NONE as usize, 0, 0, 0];
            raw::with_memory(|| raw::call(Sysno::mprotect, arguments))?;
            raw::advise_own(start, LENGTH, libc::MADV_DONTFORK)?;
            // A program may have asked for all that it maps to be in memory (mlockall).
            raw::unlock_memory(start, LENGTH)?;
            let staging = start + PAGE + STACK;
            raw::advise_own(staging, 2 * STAGING, libc::MADV_DONTNEED)?;
            // Fails where huge pages are not built in, which is as good.
            let _ = raw::advise_own(start, LENGTH, libc::MADV_NOHUGEPAGE);
        }
        Ok(Area { start })
    }

    /// Has the kernel give now what it takes to take pages away: when memory is full it may have none, and taking pages
    /// away is what makes some free. That is the top of the stack, and the page tables of the staging areas.
    ///
    /// Of the stack so many pages are in use.
    pub fn get_ready(self, stack_used: usize) {
        let (first, last) = (self.staging(), self.end() - PAGE);
        // SAFETY: the area is fresh, and of the stack nobody uses what is below. Read pages have no memory; they are dropped
        // because the kernel moves no page to where one is.
        unsafe {
            for page in 1 + stack_used..=STACK_USED / PAGE {
                core::ptr::write_volatile((self.stack_top() - page * PAGE) as *mut u8, 0);
            }
            for page in [first, last] {
                if !share_a_page_table(page, self.stack_top() - PAGE) {
                    core::ptr::read_volatile(page as *const u8);
                    let _ = raw::advise_own(page, PAGE, libc::MADV_DONTNEED);
                }
            }
        }
    }

    /// First address after the area.
    pub fn end(self) -> usize {
        self.start + LENGTH
    }

    /// Top of the agent's stack.
    pub fn stack_top(self) -> usize {
        self.start + PAGE + STACK
    }

    /// Where pages land that are moved out of the program: registered with the process's
    /// userfaultfd, so that the kernel refuses the move while an event is pending.
    pub fn staging(self) -> usize {
        self.stack_top()
    }

    /// Where they go next: registered with a userfaultfd without events, so that freeing them
    /// raises none.
    pub fn outbox(self) -> usize {
        self.staging() + STAGING
    }

    /// Bytes of a staging area.
    pub const fn staging_len() -> usize {
        STAGING
    }
}

/// The beacon page, mapped at the first call.
pub fn beacon() -> Result<usize, Errno> {
    let known = BEACON.load(Ordering::Acquire);
    if known != 0 {
        return Ok(known);
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let page = raw::map(BEACON_LEN, libc::PROT_READ | libc::PROT_WRITE, flags, -1)?;
    // SAFETY: mapped just now.
    unsafe {
        raw::advise_own(page, BEACON_LEN, libc::MADV_WIPEONFORK)?;
        // A program may have asked for all that is mapped to be in memory (mlockall), and these are not to be.
        raw::unlock_memory(page, BEACON_LEN)?;
        raw::advise_own(page, BEACON_LEN, libc::MADV_DONTNEED)?;
    }
    Ok(page)
}

/// Where the beacon and the doorbells are, as `(start, end)`; nothing while there are none.
pub fn beacon_range() -> (usize, usize) {
    match DARK.load(Ordering::Acquire) {
        0 => (0, 0),
        start => (start, start + BEACON_LEN),
    }
}

/// Bytes of the beacon page and the doorbell pages.
pub const BEACON_LEN: usize = (1 + DOORBELLS) * PAGE;

/// What a doorbell announces.
#[derive(Clone, Copy)]
pub enum Doorbell {
    /// This process is about to fork.
    Fork = 0,
    /// It has made a mapping.
    Mapping = 1,
    /// It has forked, or failed to.
    Forked = 2,
    /// It is the child of a fork, and its program is about to run.
    Born = 3,
    /// It has got memory, where the control page says.
    Grown = 4,
    /// It is a child without a control page, and forks of its own are to find memory wiped.
    Wiping = 5,
    /// It is a child whose agent offers its conversation.
    Offered = 6,
}

/// Lets the supervisor get ready for what is announced; returns when it is.
pub fn ring(doorbell: Doorbell) {
    let beacon = BEACON.load(Ordering::Acquire);
    if beacon == 0 {
        return;
    }
    let (kind, pages) = (doorbell as usize, DOORBELL_PAGES * PAGE);
    let first = beacon + PAGE + kind * pages;
    let touched = TOUCHED[kind].fetch_add(1, Ordering::AcqRel);
    if touched.is_multiple_of(DOORBELL_PAGES) && touched > 0 {
        // All have been touched: they become fresh again. This raises an event, that is all.
        // SAFETY: the pages are the agent's own, and hold nothing.
        let _ = unsafe { raw::advise(first, pages, libc::MADV_DONTNEED) };
    }
    // SAFETY: mapped for the life of the process. If several threads ring at once, one may find its
    // page present and go on at once, which costs exactness of the account and nothing else.
    unsafe { core::ptr::read_volatile((first + touched % DOORBELL_PAGES * PAGE) as *const u8) };
}

/// Notes where the beacon is that the supervisor is to register.
pub fn note_beacon(page: usize) {
    DARK.store(page, Ordering::Release);
}

/// In a forked child whose parent was managed, and which has no variables of the parent's: this is where its beacon is.
pub fn inherit_beacon(page: usize) {
    DARK.store(page, Ordering::Release);
    BEACON.store(page, Ordering::Release);
}

/// From now on forked children announce themselves by reading the beacon. `forks`: they are reported.
pub fn light_beacon(forks: bool) {
    FORK_EVENTS.store(forks, Ordering::Release);
    BEACON.store(DARK.load(Ordering::Acquire), Ordering::Release);
}

/// Lights the beacon if the supervisor follows the process by now, though the agent has not heard yet. For threads
/// of the program that are about to do what the supervisor would miss.
pub fn light_if_followed() {
    if is_managed() {
        return;
    }
    match serve::followed() {
        control::FOLLOWED_WITH_FORKS => light_beacon(true),
        control::FOLLOWED_WITHOUT_FORKS => light_beacon(false),
        _ => {}
    }
}

/// Whether the kernel reports this process's forks to the supervisor.
static FORK_EVENTS: AtomicBool = AtomicBool::new(true);

/// Whether this process may fork: not while memory of it may be away and the child could not be
/// served.
pub fn may_fork() -> bool {
    light_if_followed();
    !is_managed() || FORK_EVENTS.load(Ordering::Acquire)
}

/// Whether this process has been made ready for take-aways (or is the child of one that was).
pub fn is_managed() -> bool {
    BEACON.load(Ordering::Acquire) != 0
}

/// In a forked child: lets the supervisor say by which token this memory is claimed. The kernel wiped the
/// page at the fork, so reading it waits until the supervisor has put the token there. It does not stay: who
/// comes to see this memory later finds nothing to claim it by.
pub fn read_beacon() -> Token {
    let page = BEACON.load(Ordering::Acquire);
    TOUCHED
        .iter()
        .for_each(|touched| touched.store(0, Ordering::Release));
    match page {
        0 => [0; 2],
        // SAFETY: the beacon stays mapped for the life of the process, and is the agent's own.
        page => unsafe {
            let token = core::ptr::read_volatile(page as *const Token);
            core::ptr::write_volatile(page as *mut Token, [0; 2]);
            token
        },
    }
}
