//! The agent's start from outside, when memory has become short.
//!
//! The supervisor traces a thread of the process for that moment, and has it make another by [`pleat_start`]. Until then the
//! process has no thread that it has not made itself.
//!
//! In a process that has not loaded this library (a static program, one of another C library, or one that runs since before
//! pleat knew of it) the supervisor maps memory, copies the library there and relocates it first. Nothing else of the copy
//! runs: no constructor, none of the functions that are put in the place of the C library's. So such a process announces
//! nothing: not its forks, nor ranges that its children are to find wiped, nor guards, nor new memory. Guards
//! are taken to be there; what else must be known of these the supervisor finds out.
//!
//! The copy and the area are kept from forked children, into which another copy is put.

use crate::area::{self, Area};
use crate::{offer, raw, serve, start};
use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};
use pleat_wire::injected::{Injected, Stage, State, NAME_MAX};

/// A place that the supervisor writes to before this code has a thread.
#[repr(transparent)]
pub struct Place(UnsafeCell<Injected>);

// SAFETY: it is written to before there is a thread of this library, and by nobody of the process.
unsafe impl Sync for Place {}

/// What the supervisor leaves for this copy; see `pleat_wire::injected::GIVEN_SYMBOL`.
#[no_mangle]
#[allow(non_upper_case_globals)]
pub static pleat_given: Place = Place(UnsafeCell::new(Injected::NONE));

/// The call by which a traced thread makes the agent's; see `pleat_wire::injected::START_SYMBOL`. The caller is stopped when
/// it comes back from it, and goes on elsewhere.
///
/// # Safety
/// The registers are those of a call of clone(2) that makes a thread with all signals blocked, on the area's stack.
#[no_mangle]
#[unsafe(naked)]
pub unsafe extern "C" fn pleat_start() {
    naked_asm!(
        "syscall",
        "test rax, rax",
        "jnz 2f",
        "xor ebp, ebp",
        "call {begin}",
        "2:",
        "ud2",
        begin = sym begin,
    )
}

/// The word of the state, to which the supervisor writes only while a thread of the process stands still.
fn state() -> &'static AtomicU64 {
    // SAFETY: it is there for good, and within the process nobody uses it but by this.
    unsafe { AtomicU64::from_ptr(&raw mut (*pleat_given.0.get()).state) }
}

/// This process at a stage.
fn own(stage: Stage) -> u64 {
    let pid = raw::process();
    State { stage, pid }.word()
}

/// Says in a process that has loaded the library how far that has come.
pub fn set_stage(stage: Stage) {
    state().store(own(stage), Ordering::Release);
}

/// The library begins its work at an exec. `false` where an agent was put into this process before.
///
/// SAFETY: an agent is put into a process only if this word, after a thread has come to stand still, is what it was before
/// (`pleat_sys::inject`), and a new process has no other thread that runs this. So either that has been already, and has changed the word, or
/// who looks finds that the library works.
pub fn begin_work() -> bool {
    go_on_from(Injected::NONE.state)
}

/// As [`begin_work`], in a child, where the word is still as its parent had it.
pub fn begin_work_in_child() -> bool {
    let found = state().load(Ordering::Acquire);
    let from_outside = [Stage::Placed, Stage::Unfit].map(own);
    !from_outside.contains(&found) && go_on_from(found)
}

/// The library goes to work, unless it was at another stage by now.
fn go_on_from(found: u64) -> bool {
    let works = own(Stage::Works);
    let (changed, kept) = (Ordering::AcqRel, Ordering::Acquire);
    state()
        .compare_exchange(found, works, changed, kept)
        .is_ok()
}

/// Shows the supervisor what conversation the agent offers; 0: none.
pub fn set_offer(word: u64) {
    let place = pleat_given.0.get();
    // SAFETY: a word of its own, which others read.
    unsafe { (&raw mut (*place).offer).write_volatile(word) };
}

/// Whether an agent was to be put into this process; it is not any more.
pub fn stop_waiting() -> bool {
    go_on_from(own(Stage::Waits))
}

extern "C" fn begin() -> ! {
    // SAFETY: written before this thread was made. Volatile, for nobody in this library has done that.
    let given = unsafe { pleat_given.0.get().read_volatile() };
    let [image, image_end] = given.image.map(|address| address as usize);
    let is_copy = image != 0;
    // SAFETY: the supervisor has mapped them for this thread.
    let area = unsafe {
        if is_copy {
            let _ = raw::advise_own(image, image_end - image, libc::MADV_DONTFORK);
        }
        Area::set_up(given.area as usize)
    };
    let Ok(area) = area else {
        raw::end_thread(0);
    };
    area.get_ready(1);
    offer::note_use(given.is_to_offer != 0);
    if !is_copy {
        set_stage(Stage::Works);
        start::run_late(area, false);
    }
    area::note_image(image, image_end);
    start::note_name(&given.name[..(given.name_length as usize).min(NAME_MAX)]);
    // Nobody would tell of any.
    serve::note_guards();
    if given.beacon != 0 {
        area::inherit_beacon(given.beacon as usize);
    }
    start::note_copy();
    start::run_late(area, given.beacon != 0)
}
