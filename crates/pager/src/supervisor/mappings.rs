//! Threads of programs that have mapped a file: whether the mapping is to become memory; or fresh memory:
//! whether their process is to be managed before they fill it.
//!
//! Each comes over a connection of its own and waits for the answer. Here is decided whether its process
//! is managed, or to be; the rest is up to the space's thread.
//!
//! The rule: a mapping is converted when its process is managed already, for then memory has been short,
//! or when the mapping is large beside the budget, for then it will be: its process is managed at once.
//! Otherwise it stays the kernel's, whose page cache costs the job nothing until then. One that is shared and only read
//! counts as large only if memory would be short once all of it, and all others that were left to the kernel, had been
//! read: the kernel can drop those pages whenever it likes, and a program that must have one thread while it
//! starts others (Chromium's) maps such files first.
//!
//! The rule for fresh memory: a process that has just mapped a large piece, in a job that has mapped more than
//! the budget, is managed before it goes on. It could fill the budget in some 20 ms, and on a busy machine
//! this thread may not run for longer: left to looks alone, one job in some hundreds that filled 64 MiB in a
//! budget of 44 was killed at a hard limit.

use super::memory::manage_from;
use super::trust::Guest;
use super::Supervisor;
use crate::census::Stage;
use crate::files::{answer, FileRequested};
use crate::shared::{lock, Link};
use crate::standins::StandIns;
use pleat_sys::channel::Channel;
use pleat_sys::{procfs, source};
use pleat_wire::message::{
    FileRequest, ASK_FILE, ASK_STAND_IN, BORROW, MAP_FILE, MAP_MEMORY, MAP_STAND_IN, REMOVE_SHARED,
};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A mapping is large from this share of the budget on: one part in so many.
const LARGE_SHARE: u64 = 16;
/// How long a process may take to say hello or to become ready. Its mapping stays as it is then.
const PATIENCE: Duration = Duration::from_secs(2);

/// Requests that wait, of all processes and of one. A thread has one at a time.
const ASKED_MAX: usize = 256;
const ASKED_OF_ONE_MAX: usize = 64;
/// Requests that wait for a space's thread.
const PASSED_MAX: usize = 256;

/// The size from which on new mappings of fresh memory are to be asked about, in bytes.
pub fn ask_from(budget_bytes: u64) -> u64 {
    budget_bytes / LARGE_SHARE
}

/// Files that are mapped shared to be read, and were left to the kernel while memory was plenty: the most bytes that were
/// asked about of each. They are large beside the budget, so there is room for few before memory would be short.
#[derive(Default)]
pub(super) struct LeftToKernel(HashMap<(u64, u64), u64>);

impl LeftToKernel {
    /// Notes a file, unless all of them would have more than `room` bytes then. Answers whether it has.
    fn note(&mut self, file: (u64, u64), len: u64, room: u64) -> bool {
        let others = self.0.iter().filter(|(other, _)| **other != file);
        let others: u64 = others.map(|(_, len)| len).sum();
        let is_fitting = others.saturating_add(len) <= room;
        if is_fitting {
            let known = self.0.entry(file).or_default();
            *known = len.max(*known);
        }
        is_fitting
    }
}

/// A request that has not been passed on.
pub(super) struct Asked {
    pid: i32,
    /// Of the process, when it connected.
    user: u32,
    request: FileRequest,
    file: Option<OwnedFd>,
    channel: Channel,
    since: Instant,
}

/// What is to become of a request.
enum Verdict {
    /// The process is on its way to be managed.
    Wait,
    /// The mapping stays as it is; nothing of the range is filled from a file.
    No,
    /// It cannot be told.
    Unknown,
    /// The process is managed, which is all that was asked for.
    Yes,
    /// Up to the space's thread.
    Pass(Arc<Link>),
}

impl Supervisor<'_> {
    /// Takes up a request.
    pub(super) fn hear_file_request(
        &mut self,
        guest: Guest,
        request: FileRequest,
        descriptors: Vec<OwnedFd>,
    ) {
        let Guest { channel, peer } = guest;
        let file = descriptors.into_iter().next();
        let asked = Asked {
            pid: peer.pid,
            user: peer.uid,
            request,
            file,
            channel,
            since: Instant::now(),
        };
        let of_one = self.asked.iter().filter(|other| other.pid == peer.pid);
        // Nothing is opened that the process may not read itself, and nothing that may never answer.
        let is_fit = |file: &OwnedFd| source::may_read(file) && source::is_served_here(file);
        if !asked.file.as_ref().is_none_or(is_fit) {
            answer(&asked.channel, false, None);
        } else if of_one.count() >= ASKED_OF_ONE_MAX || self.asked.len() >= ASKED_MAX {
            self.shared.meters.dropped_peers.add(1);
            asked.leave_as_it_is();
        } else {
            self.asked.push(asked);
        }
    }

    /// Deals with every request that can be dealt with.
    pub(super) fn answer_file_requests(&mut self) {
        for asked in std::mem::take(&mut self.asked) {
            match self.judge(&asked) {
                Verdict::Wait if asked.since.elapsed() < PATIENCE => self.asked.push(asked),
                Verdict::No => answer(&asked.channel, false, None),
                Verdict::Yes => answer(&asked.channel, true, None),
                Verdict::Wait | Verdict::Unknown => asked.leave_as_it_is(),
                Verdict::Pass(_) if asked.request.kind == BORROW => self.lend(&asked),
                Verdict::Pass(link) => self.pass_file_request(&link, asked),
            }
        }
    }

    fn judge(&mut self, asked: &Asked) -> Verdict {
        let is_question = asked.is_question();
        let is_fresh = asked.request.kind == MAP_MEMORY;
        if asked
            .file
            .as_ref()
            .is_some_and(|file| self.is_served_by_us(file))
        {
            return Verdict::No;
        }
        let is_removal = asked.request.kind == REMOVE_SHARED;
        let is_of_file = !is_question && !is_fresh && !is_removal;
        if is_of_file && (!self.job.file_maps || self.is_recording()) {
            return Verdict::No;
        }
        let Some(process) = self.census.processes.get(&asked.pid) else {
            return Verdict::Wait;
        };
        let is_of_this = match asked.request.agent_thread {
            // It had no agent when it asked. Gone, another of its threads has perhaps executed another program.
            0 => !asked.channel.is_closed(),
            thread => process.agent.0 == thread,
        };
        if !is_of_this {
            // Its agent has not said hello; or it has executed another program, and nobody waits.
            return Verdict::Wait;
        }
        match &process.stage {
            Stage::Managed(link) if !link.ended.load(Ordering::Acquire) => match is_fresh {
                true => Verdict::Yes,
                false => Verdict::Pass(link.clone()),
            },
            Stage::Preparing(..) => Verdict::Wait,
            // Nothing of a process is converted that never was managed.
            // A child that was forked past the C library may have anything.
            Stage::Silent if self.is_served(asked.pid) => Verdict::Unknown,
            Stage::Ready(_) | Stage::Silent if is_question || is_removal => Verdict::No,
            Stage::Ready(_) => self.judge_unmanaged(asked, Self::prepare),
            Stage::Silent => self.judge_unmanaged(asked, Self::want_agent),
            _ => Verdict::Unknown,
        }
    }

    /// Has the process managed by `manage` if the request is worth it.
    fn judge_unmanaged(&mut self, asked: &Asked, manage: fn(&mut Self, i32)) -> Verdict {
        if !self.is_worth_it(asked) {
            return Verdict::No;
        }
        manage(self, asked.pid);
        Verdict::Wait
    }

    /// Whether a companion serves this file. Its pages are never filled by threads of ours: they would wait
    /// for the companion, which may itself wait until memory is free. (The agent does not even ask, because
    /// to close such a file may wait for the program.)
    fn is_served_by_us(&self, file: &OwnedFd) -> bool {
        let device = source::device_of(file).unwrap_or(0);
        let mut companions = self.companions.iter();
        device != 0 && companions.any(|companion| companion.device() == device)
    }

    /// Whether a process without pressure is to be managed for this mapping. Not where the kernel would not
    /// report its forks: it could not fork any more.
    fn is_worth_it(&mut self, asked: &Asked) -> bool {
        let budget = self.budget.bytes;
        let is_large = asked.request.len >= budget / LARGE_SHARE;
        let is_needed = match asked.request.kind {
            MAP_MEMORY => self.census.mapped_bytes() > budget,
            BORROW => is_large && self.would_be_short(asked),
            _ => is_large,
        };
        is_needed && self.grant.reports_forks()
    }

    /// Whether memory would be short once this file, and those left to the kernel before, had been read.
    fn would_be_short(&mut self, asked: &Asked) -> bool {
        let identity = asked.file.as_ref().map(source::identity_of);
        let Some(Ok(identity)) = identity else {
            return true;
        };
        let room = manage_from(self.budget.bytes).saturating_sub(self.used_bytes);
        !self.left_to_kernel.note(identity, asked.request.len, room)
    }

    fn pass_file_request(&mut self, link: &Arc<Link>, asked: Asked) {
        if lock(&link.mail).files.len() >= PASSED_MAX {
            self.shared.meters.dropped_peers.add(1);
            return asked.leave_as_it_is();
        }
        let stand_in = match (asked.request.kind, &self.stand_ins, &asked.file) {
            (MAP_STAND_IN, Some(Ok(stand_ins)), Some(file)) => stand_ins.find(file, asked.user),
            _ => None,
        };
        let is_private = asked.request.kind == MAP_FILE;
        let open = |file: &OwnedFd| self.shared.readers.open(file).ok().map(Arc::new);
        // Without threads to read them no file is an origin, and the space's thread says no.
        let origin = match self.shared.readers.start(&self.shared) {
            Ok(()) => asked.file.as_ref().filter(|_| is_private).and_then(open),
            Err(_) => None,
        };
        lock(&link.mail).files.push(FileRequested {
            request: asked.request,
            origin,
            stand_in,
            channel: asked.channel,
        });
        link.bell.ring();
    }

    /// Where processes of several users run in the job, no memory stands in for files any more: one that has given
    /// up its user's rights has still mapped what his others see, and could write to it (`crate::standins`).
    pub(super) fn part_users(&mut self) {
        let Some(Ok(stand_ins)) = &self.stand_ins else {
            return;
        };
        let pids = self.census.processes.keys();
        let users: BTreeSet<u32> = pids.filter_map(|pid| procfs::real_uid(*pid).ok()).collect();
        if users.len() > 1 {
            stand_ins.give_up_all(&self.shared);
            self.stand_ins = Some(Err(io::ErrorKind::PermissionDenied.into()));
        }
    }

    /// Lends memory to stand in for a file, if a lease on that can be had.
    fn lend(&mut self, asked: &Asked) {
        let shared = &self.shared;
        // Without threads to read it nothing stands in for a file.
        let start = || {
            shared
                .readers
                .start(shared)
                .and_then(|()| StandIns::start(shared))
        };
        let stand_ins = self.stand_ins.get_or_insert_with(start).as_ref();
        let open = |file: &OwnedFd| stand_ins.ok()?.open(shared, file, asked.user).ok();
        match asked.file.as_ref().and_then(open) {
            Some(lent) => answer(&asked.channel, true, Some(lent.memory.as_raw_fd())),
            None => answer(&asked.channel, false, None),
        }
    }
}

impl Asked {
    /// To a question the careful answer is yes; a mapping stays as it is.
    fn leave_as_it_is(&self) {
        answer(&self.channel, self.is_question(), None);
    }

    fn is_question(&self) -> bool {
        matches!(self.request.kind, ASK_FILE | ASK_STAND_IN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_left_to_the_kernel_as_long_as_all_of_them_fit() {
        let mut left = LeftToKernel::default();
        assert!(left.note((1, 1), 40, 100));
        assert!(left.note((1, 1), 40, 100), "the same file counts once");
        assert!(left.note((1, 2), 60, 100));
        assert!(!left.note((2, 1), 1, 100));
        assert!(!left.note((1, 1), 41, 100), "more of it than before");
        assert!(!left.note((1, 2), 60, 99), "memory is in use otherwise");
    }
}
