//! A conversation that the agent does not connect for, but offers.
//!
//! The supervisor's socket has a name in one network namespace, and the process may be in another; and in that one
//! somebody else may have the name. So an agent that was put into its process never connects, nor does one that could not. It makes
//! both ends of a connection in its own descriptor table, says hello into one of them and has its number where the supervisor
//! looks (`pleat_wire::injected::Injected::offer`). The supervisor takes the other end from there, by the right by which it traces the process:
//! so each of the two knows whom it speaks with.
//!
//! Until the other end is taken the agent holds it, too, and would not be told that nobody else does. So it gives it up with the first
//! word of the supervisor's, from which on the end of the connection is the end of the supervisor.

use crate::area::{self, Doorbell};
use crate::raw::{self, Errno};
use crate::{injected, start};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use pleat_wire::injected::Offer;
use syscalls::Sysno;

/// A supervisor that is so slow does not come.
const TAKEN_WITHIN_MS: i32 = 20_000;

/// The supervisor takes what is offered.
static IS_TAKEN_UP: AtomicBool = AtomicBool::new(false);
/// The end that is offered, in the agent's table; -1: none.
static END: AtomicI32 = AtomicI32::new(-1);

/// Notes whether the supervisor takes conversations that are offered.
pub fn note_use(is_taken_up: bool) {
    IS_TAKEN_UP.store(is_taken_up, Ordering::Relaxed);
}

/// Whether it does.
pub fn is_of_use() -> bool {
    IS_TAKEN_UP.load(Ordering::Relaxed)
}

/// In a forked child: its agent offers nothing yet.
pub fn forget_parent() {
    END.store(-1, Ordering::Release);
    injected::set_offer(0);
}

/// Makes a connection in the agent's table; answers the end that is the agent's own.
pub fn make() -> Result<i32, Errno> {
    let mut ends = [-1i32; 2];
    let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as usize;
    let pointer = (&raw mut ends) as usize;
    let wanted = [libc::AF_UNIX as usize, kind, 0, pointer, 0, 0];
    // SAFETY: room for two descriptors.
    raw::with_memory(|| unsafe { raw::call(Sysno::socketpair, wanted) })?;
    let [own, offered] = ends;
    // The supervisor is to know who has said what was said before it took its end.
    let on = 1i32;
    let (option, value) = (libc::SO_PASSCRED as usize, (&raw const on) as usize);
    let level = libc::SOL_SOCKET as usize;
    // SAFETY: the option's value is one integer.
    let named = unsafe {
        let arguments = [offered as usize, level, option, value, size_of::<i32>(), 0];
        raw::with_memory(|| raw::call(Sysno::setsockopt, arguments))
    };
    if let Err(errno) = named {
        raw::close(own);
        raw::close(offered);
        return Err(errno);
    }
    END.store(offered, Ordering::Release);
    Ok(own)
}

/// Offers the connection to whose `own` end this agent, the thread of that number, has said hello, if it has made one, and waits until
/// the supervisor speaks; `false` where it does not.
pub fn await_taken(own: i32, thread: i32) -> bool {
    let descriptor = END.swap(-1, Ordering::AcqRel);
    if descriptor < 0 {
        return true;
    }
    injected::set_offer(Offer { thread, descriptor }.word());
    let limit_ms = match start::is_placed() {
        // Who has had the agent made looks for this, or never will.
        true => TAKEN_WITHIN_MS,
        false => {
            // The supervisor may not know of a child, and that waits for this agent. Others it takes when memory is short.
            area::ring(Doorbell::Offered);
            -1
        }
    };
    let is_taken = await_word(own, limit_ms);
    injected::set_offer(0);
    raw::close(descriptor);
    is_taken
}

/// Waits until there is something to receive, for so many milliseconds at most (-1: however long it takes).
fn await_word(own: i32, limit_ms: i32) -> bool {
    let mut socket = libc::pollfd {
        fd: own,
        events: libc::POLLIN,
        revents: 0,
    };
    loop {
        let pointer = (&raw mut socket) as usize;
        // SAFETY: one `struct pollfd`.
        let polled = unsafe { raw::call(Sysno::poll, [pointer, 1, limit_ms as usize, 0, 0, 0]) };
        match polled {
            // All signals are blocked: by a tracer, or after a stop.
            Err(libc::EINTR) => {}
            polled => return polled == Ok(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_into_an_offer_is_there_for_who_takes_the_other_end() {
        let own = make().unwrap();
        let other = END.load(Ordering::Acquire);
        crate::serve::send(own, &7u64, &[]);
        let mut said = 0u64;
        // SAFETY: a word, which may have any value.
        let received = unsafe { crate::serve::receive(other, (&raw mut said).cast(), 8) };
        assert_eq!((received.map(|(length, _)| length), said), (Some(8), 7));
        assert!(!await_word(own, 1), "nobody has answered");
        crate::serve::send(other, &8u64, &[]);
        assert!(await_taken(own, 1), "somebody has");
        raw::close(own);
    }
}
