//! While the agent maps a file in the place of memory that stood in for it, no thread of the program may
//! unmap, move or protect that memory: what comes to its place would be replaced instead.
//!
//! A thread that changes mappings by the C library is inside for the time of the call; the agent freezes
//! the mappings when nobody is. A signal handler that comes in between and changes mappings itself gets
//! in, for nobody waits at the door but the agent. Calls that bypass the C library do not come by here:
//! one that removes such a mapping in the very moment of its replacement is not kept from it.

use crate::raw::{self, Errno};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use pleat_wire::message::Replace;
use syscalls::Sysno;

/// How many are inside, or [`FROZEN`].
static INSIDE: AtomicU32 = AtomicU32::new(0);
const FROZEN: u32 = 1 << 31;
/// The process that is frozen. A child that inherits this in the moment has no agent to thaw it, if it was
/// not forked by the C library.
static FROZEN_PROCESS: AtomicI32 = AtomicI32::new(0);
/// So many tenths of a second such a child waits: one of vfork, whose memory is the parent's, is let go by
/// the parent's agent.
const CHILD_WAITS: u32 = 20;
/// How long the agent waits until nobody is inside: so many times a millisecond of its own running time,
/// for a process may be stopped.
const PATIENCE: u32 = 20_000;

/// Being inside.
pub struct Inside(());

/// Waits until mappings may be changed.
pub fn enter() -> Inside {
    let mut waits = 0;
    loop {
        let inside = INSIDE.load(Ordering::Acquire);
        if inside & FROZEN != 0 {
            raw::wait_while(&INSIDE, inside, 100);
            waits += 1;
            if waits > CHILD_WAITS && FROZEN_PROCESS.load(Ordering::Acquire) != raw::process() {
                forget_parent();
            }
            continue;
        }
        let entered =
            INSIDE.compare_exchange_weak(inside, inside + 1, Ordering::AcqRel, Ordering::Relaxed);
        if entered.is_ok() {
            return Inside(());
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::AcqRel);
    }
}

/// By the agent: waits until nobody is inside, and lets nobody in.
pub fn freeze() -> Result<(), Errno> {
    FROZEN_PROCESS.store(raw::process(), Ordering::Release);
    for _ in 0..PATIENCE {
        match INSIDE.compare_exchange(0, FROZEN, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Ok(()),
            Err(inside) => {
                raw::wait_while(&INSIDE, inside, 1);
            }
        }
    }
    Err(libc::ETIMEDOUT)
}

/// By the agent: lets everybody in.
pub fn thaw() {
    INSIDE.store(0, Ordering::Release);
    raw::wake_all(&INSIDE);
}

/// In a forked child: whoever was inside in the parent is not here.
pub fn forget_parent() {
    INSIDE.store(0, Ordering::Release);
}

/// By the agent, with the mappings frozen: maps a file over these ranges.
pub fn replace(command: &Replace, file: i32) -> Result<(), Errno> {
    let count = (command.count as usize).min(command.items.len());
    for item in &command.items[..count] {
        let arguments = [
            item.address as usize,
            item.len as usize,
            item.protection as usize,
            (libc::MAP_SHARED | libc::MAP_FIXED) as usize,
            file as usize,
            item.offset as usize,
        ];
        // SAFETY: the supervisor has found memory there that stands in for this file, and since then
        // nobody was let in to change that.
        unsafe { raw::call(Sysno::mmap, arguments) }?;
    }
    Ok(())
}
