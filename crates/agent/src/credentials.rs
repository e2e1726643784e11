//! With whose rights the agent acts: no capability is in effect while it waits and takes pages, and once the program
//! has given up a user for good, so has the agent.
//!
//! Credentials are each thread's own, and setuid() of the C library changes those of the threads that it knows. A
//! program that gives up root would so keep a thread that has not, and whoever took over its memory could use
//! that. The supervisor sees what the program did, and says so ([`Shed`]).
//!
//! Fewer capabilities leave the process as dumpable as it was; another user does not, so that is never taken on
//! before the program did.

use crate::raw::{self, Errno};
use pleat_wire::message::{Shed, SHED_GROUPS_MAX};
use syscalls::Sysno;

const VERSION: u32 = 0x2008_0522; // _LINUX_CAPABILITY_VERSION_3

/// A set of capabilities, of the first 32.
#[derive(Clone, Copy)]
pub struct Rights(u32);

impl Rights {
    /// To open what the program has as its standard error.
    pub const FILES: Rights = Rights(1 << 1); // CAP_DAC_OVERRIDE
    const USERS: Rights = Rights(1 << 6 | 1 << 7); // CAP_SETGID, CAP_SETUID
    /// To make a userfaultfd where there is no device.
    pub const USERFAULTFD: Rights = Rights(1 << 19); // CAP_SYS_PTRACE
}

/// Lets go of all that the agent never needs, and puts the rest aside. Who has none is left alone: so no filter of
/// system calls is met by programs that are bound by one.
pub fn put_aside() {
    let before = sets();
    if before == Sets::default() {
        return;
    }
    let mut aside = Sets::default();
    aside[PERMITTED] =
        before[PERMITTED] & (Rights::FILES.0 | Rights::USERS.0 | Rights::USERFAULTFD.0);
    set(&aside);
    // Whoever had this thread execute a program would have root's capabilities back.
    // SAFETY: plain numbers.
    let _ = unsafe {
        raw::call(
            Sysno::prctl,
            [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0, 0],
        )
    };
}

/// Has these in effect for the time of `work`, as far as the calling thread may. Afterwards all is as before.
pub fn with<T>(rights: Rights, work: impl FnOnce() -> T) -> T {
    let before = sets();
    let mut raised = before;
    raised[EFFECTIVE] |= rights.0 & before[PERMITTED];
    if raised == before {
        return work();
    }
    set(&raised);
    let result = work();
    // Not what another user is not permitted any more.
    set(&before);
    result
}

/// Becomes the users and groups that the program has become, and keeps no capability.
pub fn shed(command: &Shed) -> Result<(), Errno> {
    let dumpable = is_dumpable();
    let [real, effective, saved] = command.users.map(|id| id as usize);
    let [real_group, effective_group, saved_group] = command.groups.map(|id| id as usize);
    let count = command.more_count as usize;
    let more = command.more.as_ptr() as usize;
    with(Rights::USERS, || {
        // SAFETY: the list has that many numbers, and the rest is plain.
        unsafe {
            if count <= SHED_GROUPS_MAX {
                raw::with_memory(|| raw::call(Sysno::setgroups, [count, more, 0, 0, 0, 0]))?;
            }
            let groups = [real_group, effective_group, saved_group, 0, 0, 0];
            raw::with_memory(|| raw::call(Sysno::setresgid, groups))?;
            let users = [real, effective, saved, 0, 0, 0];
            raw::with_memory(|| raw::call(Sysno::setresuid, users))
        }
    })?;
    if sets() != Sets::default() {
        set(&Sets::default());
    }
    // The kernel took it from the whole process, which may have asked for it since it gave up its user.
    if dumpable && !is_dumpable() {
        // SAFETY: plain numbers.
        let _ = unsafe {
            raw::call(
                Sysno::prctl,
                [libc::PR_SET_DUMPABLE as usize, 1, 0, 0, 0, 0],
            )
        };
    }
    Ok(())
}

fn is_dumpable() -> bool {
    // SAFETY: plain numbers.
    unsafe {
        raw::call(
            Sysno::prctl,
            [libc::PR_GET_DUMPABLE as usize, 0, 0, 0, 0, 0],
        ) == Ok(1)
    }
}

/// Places in the sets: the low words of effective, permitted and inheritable ones, then the high words.
const EFFECTIVE: usize = 0;
const PERMITTED: usize = 1;
type Sets = [u32; 6];

/// The calling thread's capabilities; none where that may not be asked.
fn sets() -> Sets {
    let mut header = [VERSION, 0];
    let mut sets = Sets::default();
    let (header, pointer) = ((&raw mut header) as usize, (&raw mut sets) as usize);
    // SAFETY: the structures of this version.
    match unsafe { raw::call(Sysno::capget, [header, pointer, 0, 0, 0, 0]) } {
        Ok(_) => sets,
        Err(_) => Sets::default(),
    }
}

fn set(sets: &Sets) {
    let header = [VERSION, 0];
    let (header, pointer) = ((&raw const header) as usize, sets.as_ptr() as usize);
    // SAFETY: the structures of this version. Nothing is asked for that is not permitted.
    let _ = raw::with_memory(|| unsafe { raw::call(Sysno::capset, [header, pointer, 0, 0, 0, 0]) });
}
