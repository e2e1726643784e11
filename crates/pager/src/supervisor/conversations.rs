//! Conversations with agents, a step per packet: hello, get ready, ready.

use super::preparing::{announce, follow};
use super::unmanaged::Obstacle;
use super::Supervisor;
use crate::census::Stage;
use crate::rings::RING_FRAMES_MAX;
use crate::shared::{lock, AgentLink, Link};
use crate::space::Space;
use pleat_sys::channel::{Channel, Received};
use pleat_sys::process::{hurry, relax_like, Bell};
use pleat_sys::procfs;
use pleat_sys::uffd::Uffd;
use pleat_types::PageNo;
use pleat_wire::message::{self, FileRequest, Hello, Prepared};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// The thread of a process that it knows by this name, if that is its name here, too: in a PID namespace of its own it
/// is somebody else's.
fn thread_of(pid: i32, name: i32) -> Option<i32> {
    procfs::is_thread_of(pid, name).then_some(name)
}

/// Frames of a staging ring, unless the budget is small.
const RING_FRAMES: u64 = 256;

impl Supervisor<'_> {
    pub(super) fn accept(&mut self) {
        while let Ok(Some(channel)) = self.listener.accept() {
            self.unnamed.push(channel);
        }
    }

    pub(super) fn hear_unnamed(&mut self) {
        for channel in std::mem::take(&mut self.unnamed) {
            let mut packet = [0u8; message::PACKET_MAX];
            match channel.receive(&mut packet) {
                Received::Nothing => self.unnamed.push(channel),
                Received::Closed => {}
                Received::Packet(length, descriptors) => {
                    self.hear_first(channel, &packet[..length], descriptors);
                }
            }
        }
    }

    /// The first packet of a connection: an agent's hello, or what a thread of a program asks.
    fn hear_first(&mut self, channel: Channel, packet: &[u8], descriptors: Vec<OwnedFd>) {
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
            )
        );
        if is_of_files {
            if let Some(request) = pleat_sys::read_plain::<FileRequest>(packet) {
                self.hear_file_request(channel, request, descriptors);
            }
        } else if let Some(hello) = pleat_sys::read_plain::<Hello>(packet) {
            self.welcome(channel, &hello);
        }
    }

    fn welcome(&mut self, channel: Channel, hello: &Hello) {
        let Ok((pid, _)) = channel.peer() else { return };
        if hello.kind != message::HELLO || hello.version != pleat_wire::VERSION {
            self.warn(&format!(
                "process {pid} has an agent of another version; it runs unmanaged"
            ));
            return;
        }
        self.shared.meters.processes.add(1);
        if hello.token != 0 {
            self.name_child(hello.token, pid);
        }
        let link = lock(&self.shared.by_pid).get(&pid).cloned();
        if let (Some(link), 0) = (&link, hello.forked) {
            // Exec: the address space of before is gone.
            link.end();
        }
        let Some(process) = self.census.add(pid, Stage::Ready(channel), self.keeper) else {
            return;
        };
        let own = [
            (hello.area_start, hello.area_end),
            (hello.data_start, hello.data_end),
        ];
        process.agent = (hello.agent_thread, own);
        if hello.forked != 0 {
            self.share(pid);
            if link.is_some() {
                // The parent was managed, so the child is from its first instruction.
                self.prepare(pid);
            }
        }
    }

    /// A forked child has found its space's name in the beacon: now the space's process is known, by
    /// the kernel's word for who is at the other end of the connection.
    fn name_child(&mut self, token: u32, pid: i32) {
        let links = lock(&self.shared.links);
        let named = links.iter().find(|link| {
            link.id.0.wrapping_add(1) == token && link.pid.load(Ordering::Acquire) == 0
        });
        let Some(link) = named.cloned() else { return };
        drop(links);
        link.pid.store(pid, Ordering::Release);
        lock(&self.shared.by_pid).insert(pid, link.clone());
        lock(&link.mail).process = Some(pid);
        link.bell.ring();
    }

    /// Tells a process's agent to get ready.
    pub(super) fn prepare(&mut self, pid: i32) {
        let known = lock(&self.shared.by_pid).get(&pid).cloned();
        // After an exec its thread may not have left yet, and the userfaultfd is the old memory's.
        let link = known.filter(|link| !link.ended.load(Ordering::Acquire));
        let Some(process) = self.census.processes.get_mut(&pid) else {
            return;
        };
        let uffd = link.map(|link| link.uffd.clone());
        // Until it has answered nothing stops the program, which has a head start: behind other load
        // the agent comes too late, when memory is full.
        if let Some(thread) = thread_of(pid, process.agent.0) {
            hurry(thread);
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
        match channel.receive(&mut packet) {
            Received::Nothing => {}
            // Exec or exit. After an exec the process is silent until its new agent says hello.
            Received::Closed => process.stage = Stage::Silent,
            Received::Packet(length, descriptors) => {
                let answer = pleat_sys::read_plain::<Prepared>(&packet[..length]);
                match answer {
                    Some(answer) if answer.kind == message::PREPARED && answer.error == 0 => {
                        self.manage(pid, &answer, descriptors);
                    }
                    Some(answer) => self.unmanageable(pid, &Obstacle::of_answer(&answer)),
                    None => {}
                }
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
        let followed = match lent.is_forked {
            true => Ok(None),
            false => follow(&self.grant, answer, descriptors, own[0]).map(Some),
        };
        let known = lock(&self.shared.by_pid).get(&pid).cloned();
        let known = known.filter(|link| !link.ended.load(Ordering::Acquire));
        let started = match (followed, known) {
            (Ok(None), Some(link)) => Ok((link, true)),
            // Its space has just ended, and so has the process.
            (Ok(None), None) => return,
            (Ok(Some((uffd, forks))), _) => self.start_space(pid, uffd).map(|link| (link, forks)),
            (Err(cause), _) => Err(cause),
        };
        let (link, fork_events) = match started {
            Ok(started) => started,
            Err(cause) => return self.unmanageable(pid, &cause),
        };
        let Some((channel, ring)) = self.take_prepared(pid) else {
            return;
        };
        self.shared.meters.managed_processes.add(1);
        let slots = self.shared.rings.add(ring);
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
        };
        lock(&link.mail).agent = Some(agent);
        link.rescan();
        if let Some(process) = self.census.processes.get_mut(&pid) {
            process.stage = Stage::Managed(link);
        }
        self.stay_ahead();
    }

    fn start_space(&mut self, pid: i32, uffd: Uffd) -> Result<Arc<Link>, Obstacle> {
        let bell = Bell::new().map_err(Obstacle::Supervisor)?;
        let id = self.shared.engine().add_space();
        let link = Arc::new(Link::new(id, pid, uffd, bell, None));
        let run_max = self.job.run_max();
        let space = Space::new(self.shared.clone(), link.clone(), run_max, BTreeMap::new());
        space.start();
        Ok(link)
    }
}

/// Frames of a staging ring: 1 MiB, or a 256th of a small budget.
pub(super) fn ring_frames(budget_bytes: u64) -> u32 {
    (budget_bytes / 256 / 4096).clamp(32, RING_FRAMES.min(u64::from(RING_FRAMES_MAX))) as u32
}
