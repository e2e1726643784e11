//! Conversations with agents, a step per packet: hello, get ready, ready. Everything that is heard is data of a
//! process's, and may come at any time: see `trust.rs`.

use super::preparing::{announce, are_its_own, follow, ADDRESSES_END};
use super::trust::{release, Guest};
use super::unmanaged::Obstacle;
use super::Supervisor;
use crate::census::Stage;
use crate::ends::Unservable;
use crate::rings::RING_FRAMES_MAX;
use crate::shared::{lock, AgentLink, Link};
use crate::space::Space;
use pleat_sys::channel::Received;
use pleat_sys::pidfd::has_ended;
use pleat_sys::process::{hurry, relax_like, Bell};
use pleat_sys::procfs;
use pleat_sys::uffd::Uffd;
use pleat_types::PageNo;
use pleat_wire::message::{self, FileRequest, Hello, Prepared};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The thread of a process that it knows by this name. In a PID namespace of its own it has another here.
fn thread_of(pid: i32, name: i32) -> Option<i32> {
    (name != 0)
        .then(|| procfs::thread_called(pid, name))
        .flatten()
}

/// What a process has done that says what no agent says.
const NONSENSE: &str = "sent something that no agent sends";
const FORGERY: &str = "sent what cannot be its userfaultfd or its memory";
/// How long an agent may run ahead of others to get ready.
const HURRIED_MAX: Duration = Duration::from_secs(5);

/// Frames of a staging ring, unless the budget is small.
const RING_FRAMES: u64 = 256;

impl Supervisor<'_> {
    pub(super) fn hear_unnamed(&mut self) {
        for guest in std::mem::take(&mut self.unnamed) {
            if let Some(silent) = self.hear_guest(guest) {
                self.unnamed.push(silent);
            }
        }
    }

    /// Hears a connection that has said nothing yet; gives it back if it still has not.
    pub(super) fn hear_guest(&mut self, guest: Guest) -> Option<Guest> {
        let mut packet = [0u8; message::PACKET_MAX];
        match guest.channel.receive(&mut packet) {
            Received::Nothing => return Some(guest),
            Received::Closed => {}
            Received::Garbled => self.dismiss(guest.peer.pid, &guest.channel, NONSENSE),
            Received::Packet(length, descriptors) => {
                self.hear_first(guest, &packet[..length], descriptors);
            }
        }
        None
    }

    /// The first packet of a connection: an agent's hello, or what a thread of a program asks.
    fn hear_first(&mut self, guest: Guest, packet: &[u8], descriptors: Vec<OwnedFd>) {
        let kind = packet.first_chunk().map(|kind| u32::from_ne_bytes(*kind));
        let is_of_files = matches!(
            kind,
            Some(
                message::MAP_FILE
                    | message::ASK_FILE
                    | message::BORROW
                    | message::MAP_STAND_IN
                    | message::ASK_STAND_IN
                    | message::MAP_MEMORY
                    | message::REMOVE_SHARED
            )
        );
        let request = pleat_sys::read_plain::<FileRequest>(packet).filter(|_| is_of_files);
        let hello = pleat_sys::read_plain::<Hello>(packet).filter(|_| kind == Some(message::HELLO));
        match (request, hello) {
            (Some(request), _) => self.hear_file_request(guest, request, descriptors),
            (None, Some(hello)) => self.welcome(guest, &hello),
            (None, None) => self.dismiss(guest.peer.pid, &guest.channel, NONSENSE),
        }
    }

    fn welcome(&mut self, guest: Guest, hello: &Hello) {
        let Guest { channel, peer } = guest;
        let pid = peer.pid;
        if hello.version != pleat_wire::VERSION {
            return self.dismiss(pid, &channel, "an agent of another version");
        }
        // Whoever executes another program has lost the connection of before by now.
        if self.is_speaking(pid) {
            // And that may be heard after the new one. (A shell's child says hello and executes within microseconds.)
            if channel.is_closed() {
                return;
            }
            if hello.agent_thread == 0 || self.injections.is_expected(pid) {
                // Its own library was late, and another agent put there meanwhile.
                return release(&channel);
            }
            return self.dismiss(pid, &channel, "said hello twice");
        }
        let claim = match hello.token {
            [0, 0] => None,
            token => match self.claim(&peer, token) {
                Some(link) => Some(link),
                None => return self.dismiss(pid, &channel, "claimed memory that is not its own"),
            },
        };
        if claim.is_none() {
            // Exec: the address space of before is gone, or another process's that shares it.
            let before = lock(&self.shared.by_pid).remove(&pid);
            before
                .filter(|link| link.uffd.is_dead())
                .iter()
                .for_each(|link| link.end());
        }
        let is_expected = hello.agent_thread != 0 && self.injections.is_expected(pid);
        let met = self.census.processes.get_mut(&pid);
        let met = met.filter(|process| is_expected && !has_ended(&process.pidfd));
        let process = match met {
            // It has not executed another program since: with the old one the agent would be gone.
            Some(process) => {
                process.stage = Stage::Ready(channel);
                // A copy of the library has not announced itself before.
                self.shared.meters.processes.add(u64::from(hello.injected));
                process
            }
            None => {
                self.shared.meters.processes.add(1);
                let stage = match hello.agent_thread {
                    0 => Stage::Silent,
                    _ => Stage::Ready(channel),
                };
                let keeper = self.keeper;
                match self.census.add_known(pid, peer.pidfd, stage, keeper) {
                    Some(process) => process,
                    None => return,
                }
            }
        };
        let own = [
            (hello.area_start, hello.area_end),
            (hello.data_start, hello.data_end),
        ];
        process.agent = (hello.agent_thread, own.map(within_addresses));
        process.claim = claim;
        process.is_injected = hello.injected != 0;
        // Its parent was managed, so it is from its first instruction.
        let is_claimed = process.claim.is_some();
        if hello.forked != 0 {
            self.share(pid);
        }
        if is_claimed || is_expected {
            self.prepare(pid);
        }
    }

    fn is_injected(&self, pid: i32) -> bool {
        let process = self.census.processes.get(&pid);
        process.is_some_and(|process| process.is_injected)
    }

    /// Whether a process has an agent that is connected.
    fn is_speaking(&self, pid: i32) -> bool {
        match self
            .census
            .processes
            .get(&pid)
            .map(|process| &process.stage)
        {
            Some(Stage::Ready(channel) | Stage::Preparing(channel, _)) => !channel.is_closed(),
            Some(Stage::Managed(link)) => link.has_agent(),
            _ => false,
        }
    }

    /// Tells a process's agent to get ready.
    pub(super) fn prepare(&mut self, pid: i32) {
        let Some(process) = self.census.processes.get_mut(&pid) else {
            return;
        };
        // The one descriptor that gives power over memory goes to the process whose memory that is: by this
        // connection the token was shown that was put there. The agent cannot do without it: the kernel lets
        // pages be moved (UFFDIO_MOVE) by their own process alone.
        let uffd = process.claim.as_ref().map(|link| link.uffd.clone());
        // Until it has answered nothing stops the program, which has a head start: behind other load
        // the agent comes too late, when memory is full.
        if let Some(thread) = thread_of(pid, process.agent.0) {
            hurry(thread);
            process.hurried = Some(Instant::now());
        }
        self.hand_over(pid, uffd);
    }

    pub(super) fn hear_processes(&mut self) {
        let talking: Vec<i32> = self
            .census
            .processes
            .iter()
            .filter(|(_, p)| matches!(p.stage, Stage::Ready(_) | Stage::Preparing(..)))
            .map(|(pid, _)| *pid)
            .collect();
        for pid in talking {
            self.hear_process(pid);
        }
    }

    fn hear_process(&mut self, pid: i32) {
        let Some(process) = self.census.processes.get_mut(&pid) else {
            return;
        };
        let (Stage::Ready(channel) | Stage::Preparing(channel, _)) = &process.stage else {
            return;
        };
        let mut packet = [0u8; message::PACKET_MAX];
        let is_asked = matches!(process.stage, Stage::Preparing(..));
        match channel.receive(&mut packet) {
            Received::Nothing => self.stop_hurrying(pid),
            // Exec or exit. After an exec the process is silent until its new agent says hello.
            Received::Closed => self.lose(pid),
            Received::Packet(length, descriptors) => {
                let answer = pleat_sys::read_plain::<Prepared>(&packet[..length]);
                match answer.filter(|answer| answer.kind == message::PREPARED && is_asked) {
                    Some(answer) if answer.error == 0 => self.manage(pid, &answer, descriptors),
                    Some(answer) => self.unmanageable(pid, &Obstacle::of_answer(&answer)),
                    None => self.part_with(pid, NONSENSE),
                }
            }
            Received::Garbled => self.part_with(pid, NONSENSE),
        }
    }

    /// The connection to an agent that is not ready is closed. If the process has a space already, that goes on
    /// without an agent: its faults are answered, and nothing is taken. Or the space of a process is gone, which executes another
    /// program.
    pub(super) fn lose(&mut self, pid: i32) {
        if let Some(process) = self.census.processes.get_mut(&pid) {
            process.stage = Stage::Silent;
            process.claim = None;
            process.since = Instant::now();
        }
    }

    /// Closes the connection of a process that is not managed yet. One whose memory is away already, because its
    /// parent's was, is ended.
    fn part_with(&mut self, pid: i32, what: &str) {
        let Some(process) = self.census.processes.get_mut(&pid) else {
            return;
        };
        let stage = std::mem::replace(&mut process.stage, Stage::Unmanageable);
        let claim = process.claim.take();
        if let Stage::Ready(channel) | Stage::Preparing(channel, _) = stage {
            self.dismiss(pid, &channel, what);
        }
        if let Some(link) = claim {
            link.condemn(Unservable::CannotInherit);
        }
    }

    /// An agent that does not get ready, because its process is stopped or for no good reason, does not run ahead
    /// of others for ever.
    fn stop_hurrying(&mut self, pid: i32) {
        let Some(process) = self.census.processes.get_mut(&pid) else {
            return;
        };
        if process.hurried.is_some_and(|at| at.elapsed() > HURRIED_MAX) {
            process.hurried = None;
            if let Some(thread) = thread_of(pid, process.agent.0) {
                relax_like(thread, pid);
            }
        }
    }

    /// An agent is ready: its address space gets a thread, or the thread it has gets its agent.
    fn manage(&mut self, pid: i32, answer: &Prepared, descriptors: Vec<OwnedFd>) {
        let Some(process) = self.census.processes.get_mut(&pid) else {
            return;
        };
        let (name, own) = process.agent;
        let Stage::Preparing(_, lent) = &process.stage else {
            return;
        };
        let is_placed = are_its_own(answer, own[0]);
        let followed = match lent.is_forked {
            _ if !is_placed => Err(Obstacle::Nonsense),
            true => Ok(None),
            false => follow(&self.grant, answer, descriptors).map(Some),
        };
        let known = (pid, process.pidfd.clone());
        let claim = process.claim.clone();
        let started = match (followed, claim) {
            // The kernel has reported the fork that this one came by.
            (Ok(None), Some(link)) => Ok((link, true)),
            (Ok(Some((uffd, forks))), None) => {
                self.start_space(known, uffd).map(|link| (link, forks))
            }
            (Ok(_), _) => Err(Obstacle::Nonsense),
            (Err(cause), _) => Err(cause),
        };
        let (link, fork_events) = match started {
            Ok(started) => started,
            Err(Obstacle::Nonsense) => return self.part_with(pid, FORGERY),
            // It has ended or executed another program, which says hello by itself.
            Err(Obstacle::Gone) => return self.lose(pid),
            Err(cause) => return self.unmanageable(pid, &cause),
        };
        let Some((channel, ring)) = self.take_prepared(pid) else {
            return;
        };
        self.shared.meters.managed_processes.add(1);
        let slots = self.shared.rings.add(ring);
        let is_injected = self.is_injected(pid);
        self.keep_control_blocks(pid, &link, &channel);
        announce(&channel, &slots, fork_events);
        let thread = thread_of(pid, name);
        if let Some(thread) = thread {
            relax_like(thread, pid);
        }
        let agent = AgentLink {
            channel: Arc::new(channel),
            slots,
            name,
            thread,
            own,
            fork_events,
            beacon: PageNo::of_address(answer.beacon),
            staging: answer.staging,
            is_injected,
        };
        lock(&link.mail).agent = Some(agent);
        link.rescan();
        if let Some(process) = self.census.processes.get_mut(&pid) {
            process.stage = Stage::Managed(link);
            process.claim = None;
            process.hurried = None;
            process.why_unmanaged = None;
        }
        self.managed_at = Some(Instant::now());
        self.stay_ahead();
    }

    fn start_space(
        &mut self,
        process: (i32, Arc<OwnedFd>),
        uffd: Uffd,
    ) -> Result<Arc<Link>, Obstacle> {
        let bell = Bell::new().map_err(Obstacle::Supervisor)?;
        let id = self.shared.engine().add_space();
        let machine = self.shared.machine.clone();
        let link = Arc::new(Link::new(
            id,
            process,
            Arc::new(uffd),
            Box::new(bell),
            machine,
        ));
        let space = Space::new(self.shared.clone(), link.clone(), BTreeMap::new());
        space.start();
        Ok(link)
    }
}

/// A range of addresses as a process tells it, or none.
fn within_addresses((start, end): (u64, u64)) -> (u64, u64) {
    match start <= end && end < ADDRESSES_END {
        true => (start, end),
        false => (0, 0),
    }
}

/// Frames of a staging ring: 1 MiB, or a 256th of a small budget.
pub(super) fn ring_frames(budget_bytes: u64) -> u32 {
    (budget_bytes / 256 / 4096).clamp(32, RING_FRAMES.min(u64::from(RING_FRAMES_MAX))) as u32
}
