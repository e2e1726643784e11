//! Conversations with agents, a step per packet: hello, get ready, ready.

use super::Supervisor;
use crate::census::Stage;
use crate::rings::RING_FRAMES_MAX;
use crate::shared::{lock, AgentLink, Link};
use crate::space::Space;
use pleat_sys::channel::{Channel, Received};
use pleat_sys::process::{hurry, relax_like, Bell};
use pleat_sys::procfs;
use pleat_sys::ring::Ring;
use pleat_sys::uffd::Uffd;
use pleat_types::PageNo;
use pleat_wire::message::{self, FileRequest, Hello, Prepare, Prepared};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
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
        let command = Prepare {
            kind: message::PREPARE,
            ring_frames: ring_frames(self.job.budget_bytes),
            has_uffd: u32::from(link.is_some()),
            fork_events: 1,
            slow_ticks: self
                .shared
                .profile
                .as_ref()
                .map_or(0, |profile| profile.slow_ticks()),
        };
        let uffd = link.map(|link| link.uffd.as_raw_fd());
        // Until it has answered nothing stops the program, which has a head start: behind other load
        // the agent comes too late, when memory is full.
        if let Some(thread) = thread_of(pid, process.agent.0) {
            hurry(thread);
        }
        process.stage = match std::mem::replace(&mut process.stage, Stage::Silent) {
            Stage::Ready(channel) => {
                match channel.send(pleat_sys::bytes_of(&command), uffd) {
                    Ok(()) => Stage::Preparing(channel),
                    // It is just ending; the next look finds it gone.
                    Err(_) => Stage::Ready(channel),
                }
            }
            other => other,
        };
    }

    pub(super) fn hear_processes(&mut self) {
        let talking: Vec<i32> = self
            .census
            .processes
            .iter()
            .filter(|(_, p)| matches!(p.stage, Stage::Ready(_) | Stage::Preparing(_)))
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
        let (Stage::Ready(channel) | Stage::Preparing(channel)) = &process.stage else {
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
                    Some(answer) => self.unmanageable(pid, &answer),
                    None => {}
                }
            }
        }
    }

    fn unmanageable(&mut self, pid: i32, answer: &Prepared) {
        if let Some(process) = self.census.processes.get_mut(&pid) {
            process.stage = Stage::Unmanageable;
        }
        let what = match answer.step {
            message::STEP_USERFAULTFD => "userfaultfd is not allowed",
            message::STEP_API => "userfaultfd lacks a feature (fork events need CAP_SYS_PTRACE)",
            message::STEP_MEMORY => "shared memory cannot be had",
            _ => "memory cannot be registered",
        };
        let error = std::io::Error::from_raw_os_error(answer.error);
        self.shared.fail(format!(
            "process {pid} cannot be managed: {what} ({error}); `pleat doctor` tells the remedy"
        ));
    }

    /// An agent is ready: its address space gets a thread, or the thread it has gets its agent.
    fn manage(&mut self, pid: i32, answer: &Prepared, descriptors: Vec<OwnedFd>) {
        let Some(process) = self.census.processes.get_mut(&pid) else {
            return;
        };
        let Stage::Preparing(channel) = std::mem::replace(&mut process.stage, Stage::Silent) else {
            return;
        };
        let Ok([uffd, memory]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            return;
        };
        let ring = match Ring::map(&memory, ring_frames(self.job.budget_bytes)) {
            Ok(ring) => ring,
            Err(error) => {
                return self
                    .shared
                    .fail(format!("cannot map a staging ring: {error}"))
            }
        };
        self.shared.meters.managed_processes.add(1);
        let slots = self.shared.rings.add(ring);
        let (name, own) = process.agent;
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
            fork_events: answer.fork_events != 0,
            beacon: PageNo::of_address(answer.beacon),
        };
        let known = lock(&self.shared.by_pid).get(&pid).cloned();
        let link = match known.filter(|link| !link.ended.load(Ordering::Acquire)) {
            Some(link) => link,
            None => match self.start_space(pid, uffd) {
                Some(link) => link,
                None => return,
            },
        };
        lock(&link.mail).agent = Some(agent);
        link.rescan();
        if let Some(process) = self.census.processes.get_mut(&pid) {
            process.stage = Stage::Managed(link);
        }
        self.stay_ahead();
    }

    fn start_space(&mut self, pid: i32, uffd: OwnedFd) -> Option<Arc<Link>> {
        let Ok(bell) = Bell::new() else {
            self.shared
                .fail("out of descriptors; raise `ulimit -n`".into());
            return None;
        };
        let id = self.shared.engine().add_space();
        let link = Arc::new(Link::new(id, pid, Uffd::new(uffd), bell, None));
        let run_max = self.job.run_max();
        let space = Space::new(self.shared.clone(), link.clone(), run_max, BTreeMap::new());
        space.start();
        Some(link)
    }
}

/// Frames of a staging ring: 1 MiB, or a 256th of a small budget.
fn ring_frames(budget_bytes: u64) -> u32 {
    (budget_bytes / 256 / 4096).clamp(32, RING_FRAMES.min(u64::from(RING_FRAMES_MAX))) as u32
}
