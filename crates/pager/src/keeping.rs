//! What must stay in memory of threads that no library of their process tells of: the agent is told, and has it be there.
//!
//! For that it may wait for what is away, and that comes only from the thread that serves its address space. So no command to take
//! pages may wait behind it in the connection: that thread waits for commands' answers when a fork has happened, and would for 40 s,
//! and then give the process up (seen when a process was attached to that forked eight times a second on a busy machine).

use crate::link::Link;
use crate::ports::AgentSocket;
use crate::shared::lock;
use pleat_wire::message::{Keep, KEEP, KEEP_MAX};
use std::time::Instant;

/// Addresses and lengths.
pub type Ranges = Vec<(u64, u64)>;

/// Sends what waits to be kept, as much as one packet has room for, unless a command or a packet before is not answered. If the
/// process is just ending it is lost, which is as good.
pub fn send_next(link: &Link, channel: &dyn AgentSocket, now: Instant) {
    // Noted there before it is sent, so no command is made meanwhile, and none waits behind it. (The lock is not held over the sending,
    // as `ports` has it.)
    let next = lock(&link.take).next_kept(KEEP_MAX, now);
    let Some(ranges) = next else {
        return;
    };
    let mut keep = Keep {
        kind: KEEP,
        count: ranges.len() as u32,
        ranges: [[0; 2]; KEEP_MAX],
    };
    for (place, (address, len)) in keep.ranges.iter_mut().zip(ranges) {
        *place = [address, len];
    }
    let _ = channel.send(pleat_sys::bytes_of(&keep), None);
}

/// Has the link's agent keep these ranges, if it has one.
pub fn keep_by_agent(link: &Link, ranges: Ranges, now: Instant) {
    let agent = lock(&link.take).agent.clone();
    if let Some(agent) = agent {
        keep(link, &*agent.channel, ranges, now);
    }
}

/// Has these ranges kept, as soon as nothing is in the way.
pub fn keep(link: &Link, channel: &dyn AgentSocket, ranges: Ranges, now: Instant) {
    lock(&link.take).add_kept(ranges);
    send_next(link, channel, now);
}
