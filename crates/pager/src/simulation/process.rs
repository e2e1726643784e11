//! What is known of a process, and how its agent speaks with the supervisor.

use super::kernel::{Mm, Page, Thread};
use crate::rings::Slots;
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The connection of who has none.
pub const NO_SOCKET: usize = usize::MAX;

/// A process.
#[derive(Default)]
pub struct Process {
    pub mm: Mm,
    /// Who has forked it, or 0.
    pub parent: i32,
    /// By this it is told apart: the supervisor's descriptor for it.
    pub descriptor: Option<Arc<OwnedFd>>,
    pub threads: BTreeSet<Thread>,
    /// Those that were killed, and whose memory is not gone yet.
    pub ending: BTreeSet<Thread>,
    pub agent: Thread,
    /// Where the agent's own memory is, once it is ready; a fork leaves the beacon.
    pub staging: Page,
    pub beacon: Option<Page>,
    /// It may ring: the supervisor follows it.
    pub is_lit: bool,
    /// Doorbells touched so far, by kind.
    pub touched: [u64; pleat_wire::message::DOORBELL_KINDS],
    /// Ranges that forks wipe, at some time.
    pub wiped: Vec<(Page, Page)>,
    pub has_guards: bool,
    pub slots: Option<Arc<Slots>>,
    /// [`NO_SOCKET`]: it has no agent.
    pub socket: usize,
    /// The supervisor has managed it.
    pub is_managed: bool,
    /// It has claimed memory that a fork made.
    pub is_claimed: bool,
    /// It was told that its agent is ready.
    pub is_ready: bool,
    pub is_asleep: bool,
    pub is_stopped: bool,
    pub is_ended: bool,
    /// Its agents are put in from outside, and its program announces nothing.
    pub is_injected: bool,
    /// What its agent was told to let stay: these pages are not taken.
    pub kept: BTreeSet<Page>,
    /// Nobody answers for its memory: it lies, or was forked by one that does.
    pub is_tainted: bool,
}

/// A connection between supervisor and agent.
#[derive(Default)]
pub struct Socket {
    pub to_agent: VecDeque<Vec<u8>>,
    pub to_supervisor: VecDeque<Vec<u8>>,
    pub is_closed: bool,
}

/// What an agent says first.
pub struct Hello {
    pub pid: i32,
    pub token: [u64; 2],
}
