//! Who belongs to the job, and how much memory it uses.
//!
//! Counted: anonymous and shared memory of every process, a bounded share of mapped files, page
//! tables and kernel stacks, the supervisor, the keeper and the staging rings. Memory that processes
//! share, since a fork or because they map the same, is counted once, by the kernel's proportional figures, which are
//! dear to read and therefore sampled.

use crate::family::Family;
use crate::ledger::Ledger;
use crate::shared::{lock, Link, Shared};
use crate::supervisor::users::Users;
use crate::unknown::Unknown;
use crate::unshared::Unshared;
use pleat_sys::channel::Channel;
use pleat_sys::keeper::Keeper;
use pleat_sys::pidfd;
use pleat_sys::process;
use pleat_sys::procfs::{self, MinorFaults, StatmReader};
use pleat_sys::ring::Ring;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// Kernel memory of a thread: stack, task, and what else belongs to it.
const THREAD_BYTES: u64 = 28 << 10;
/// Mapped file pages are the kernel's page cache, which gives them up by itself; up to so much is
/// taken for the programs' own text and counted.
const FILES_COUNTED_MAX: u64 = 24 << 20;
/// So many more pages of files and shared memory are worth a closer look.
const SHARED_GROWTH_PAGES: u64 = 32;
/// So much shared memory of a process is worth the question who else has it.
const SHARED_WORTH: u64 = 1 << 20;
/// A dear sample may take this share of the time until the next: one part in so many.
const SAMPLE_SHARE: u32 = 20;
const SAMPLE_PAUSE_MIN: Duration = Duration::from_millis(50);

/// All mappings of a process are read for [`CommonMax`]: again after so long.
const COMMON_MAX_FRESH: Duration = Duration::from_millis(500);

/// How much shared memory a process can have that is not counted once for all, as its mappings told it.
#[derive(Clone, Copy, Debug)]
struct CommonMax {
    bytes: u64,
    /// How much shared memory it had then, and how many segments.
    shared_bytes: u64,
    segments: usize,
    read: Instant,
}

/// How far a process has come on its way to be managed.
pub enum Stage {
    /// It has said hello and waits for commands.
    Ready(Channel),
    /// It has been told to get ready, with these things.
    Preparing(Channel, Lent),
    /// Its agent cannot be made ready; it runs as it is.
    Unmanageable,
    /// A space's thread serves it.
    Managed(Arc<Link>),
    /// It never said hello.
    Silent,
}

/// What a process got to be made ready with.
pub struct Lent {
    /// Its staging ring.
    pub ring: Ring,
    /// It has the userfaultfd that its fork made.
    pub is_forked: bool,
}

/// Who a process is, for people.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Its command name.
    pub name: String,
    /// Its parent.
    pub ppid: i32,
    /// When both were read.
    read: Option<Instant>,
}

/// A process that is younger may just be about to execute its program.
const NAMED_AFTER: Duration = Duration::from_secs(1);

/// One process of the job.
pub struct Process {
    statm: StatmReader,
    /// Stands for the process, for signals.
    pub pidfd: Arc<OwnedFd>,
    /// How far it has come.
    pub stage: Stage,
    /// Its agent's thread id and memory.
    pub agent: (i32, [(u64, u64); 2]),
    /// The space of a forked child that its agent has shown the token of: over this connection, and no other,
    /// goes the userfaultfd of that memory.
    pub claim: Option<Arc<Link>>,
    /// Since when its agent runs ahead of others to get ready.
    pub hurried: Option<Instant>,
    /// Its agent was put into it from outside: it announces nothing.
    pub is_injected: bool,
    /// Its threads whose control blocks its agent keeps, where that is told from outside.
    pub threads_met: HashSet<i32>,
    /// Whose it is, as far as its agent follows.
    pub users: Users,
    /// It has no memory: its first thread has ended, or it is about to execute another program.
    pub is_bare: bool,
    /// Its agent was told that no other thread is left.
    pub is_told_alone: bool,
    /// It came by a fork without exec, or its child did.
    pub shares: bool,
    /// Anonymous bytes at the last look.
    pub anon_bytes: u64,
    /// Most of them at any look.
    pub anon_peak_bytes: u64,
    /// Most shared memory at any look.
    pub common_peak_bytes: u64,
    /// What it has beyond what the engine knows of.
    pub unknown: Unknown,
    /// When it was first seen.
    pub since: Instant,
    /// Its name and parent, as of the last time that its status was read; `None` while it was not.
    pub identity: Option<Identity>,
    /// Why it is not managed, or no longer, where that was said.
    pub why_unmanaged: Option<String>,
    /// Share of its anonymous pages that is its own by the kernel's proportional count.
    own_share: f64,
    /// Page tables and stacks, bytes.
    extra_bytes: u64,
    /// Shared memory that may be another's, too, bytes.
    common_bytes: u64,
    /// How much that was, and how much of it its own by the proportional count, when that was last read.
    common_sampled: (u64, u64),
    /// How much had come since when that was last asked.
    common_come: u64,
    /// How much it can have.
    common_max: Option<CommonMax>,
    /// Minor faults so far, where that is of interest.
    faults: Option<(MinorFaults, u64)>,
    /// Pages of files and shared memory when `extra_bytes` was read.
    shared_pages: u64,
    /// Mapped files, bytes; `None` while never looked at.
    file_bytes: Option<u64>,
    /// Of these, what may be locked.
    locked_file_bytes: u64,
}

/// What a look at the job's memory gave.
pub struct Reading {
    /// Bytes in use.
    pub bytes: u64,
    /// Of these, of mapped files.
    pub file_bytes: u64,
    /// Of these, what the kernel cannot give up.
    pub locked_file_bytes: u64,
    /// Of these, of the supervisor and its helpers.
    pub own_bytes: u64,
    /// Read just now; otherwise an estimate from an earlier sample, to be trusted only upwards.
    pub is_exact: bool,
}

/// All processes of the job, by process id.
pub struct Census {
    /// Who belongs to the job.
    family: Family,
    /// By process id.
    pub processes: HashMap<i32, Process>,
    /// The supervisor, the keeper and helpers of companions.
    own: Vec<StatmReader>,
    /// Page tables and stacks of the supervisor.
    own_kernel_bytes: u64,
    /// When the dear figures were last read, and how long they are to be left alone.
    sampled: Option<(Instant, Duration)>,
    /// What is not seen between two samples, where processes share memory.
    unshared: Unshared,
    /// What became of processes that are gone.
    gone: Ledger,
}

impl Census {
    /// A census of a job of which no process is known yet; these processes are ours, beside the one that runs.
    pub fn new(family: Family, helpers: &[i32]) -> Census {
        let own = [std::process::id() as i32];
        let own = own.iter().chain(helpers);
        Census {
            family,
            processes: HashMap::new(),
            own: own.flat_map(|&pid| StatmReader::open(pid)).collect(),
            own_kernel_bytes: 0,
            sampled: None,
            unshared: Unshared::new(),
            gone: Ledger::default(),
        }
    }

    /// Adds a process known by its number, if it is one of the job's; `None` when it is gone already.
    pub fn add(&mut self, pid: i32, stage: Stage, keeper: &Keeper) -> Option<&mut Process> {
        let pidfd = self.open(pid)?;
        self.add_known(pid, pidfd, stage, keeper)
    }

    /// Whether a process of this number is known, and alive.
    fn is_met(&self, pid: i32) -> bool {
        let met = self.processes.get(&pid);
        met.is_some_and(|met| !pidfd::has_ended(&met.pidfd))
    }

    /// The ancestors of the process behind `pidfd`, whose number is `pid`; `None` where it is none of the job's, or has ended.
    pub fn line_of(&self, pid: i32, pidfd: &OwnedFd) -> Option<Vec<i32>> {
        self.family.line_of(pid, pidfd, &|pid| self.is_met(pid))
    }

    /// A descriptor for a process of the job; `None` if it is none of it, or gone.
    pub fn open(&self, pid: i32) -> Option<OwnedFd> {
        self.family.open(pid, &|pid| self.is_met(pid))
    }

    /// All processes of the job that are found, known or not.
    pub fn members(&self) -> Vec<i32> {
        self.family.members(&mut self.processes.keys().copied())
    }

    /// Adds a process of the job's; `None` when it is gone already.
    pub fn add_known(
        &mut self,
        pid: i32,
        pidfd: OwnedFd,
        stage: Stage,
        keeper: &Keeper,
    ) -> Option<&mut Process> {
        let statm = StatmReader::open(pid).ok()?;
        // Alive after that was opened: it is this process's.
        if pidfd::has_ended(&pidfd) {
            return None;
        }
        let process = Process {
            statm,
            pidfd: Arc::new(pidfd),
            stage,
            agent: (0, [(0, 0); 2]),
            claim: None,
            hurried: None,
            is_injected: false,
            threads_met: HashSet::new(),
            users: Users::default(),
            is_bare: false,
            is_told_alone: false,
            shares: false,
            anon_bytes: 0,
            anon_peak_bytes: 0,
            common_peak_bytes: 0,
            unknown: Unknown::default(),
            since: Instant::now(),
            identity: None,
            why_unmanaged: None,
            own_share: 1.0,
            extra_bytes: 0,
            common_bytes: 0,
            common_sampled: (0, 0),
            common_come: 0,
            common_max: None,
            faults: None,
            shared_pages: 0,
            file_bytes: None,
            locked_file_bytes: 0,
        };
        self.remove(pid, keeper);
        keeper.add(pid, process.pidfd.as_raw_fd());
        Some(self.processes.entry(pid).or_insert(process))
    }

    /// Takes a process out.
    pub fn remove(&mut self, pid: i32, keeper: &Keeper) {
        if let Some(process) = self.processes.remove(&pid) {
            keeper.remove(process.pidfd.as_raw_fd());
            self.gone.note(&process);
        }
    }

    /// What became of all processes, those that run included.
    pub fn ledger(&self) -> Ledger {
        let mut all = self.gone.clone();
        self.processes
            .values()
            .for_each(|process| all.note(process));
        all
    }

    /// What counts how has changed: the dear figures are read at the next look that may.
    pub fn sample_anew(&mut self) {
        self.sampled = None;
    }

    /// The dear figures need not be read again before this time has passed.
    pub fn sample_rarely(&mut self, least: Duration) {
        if let Some((_, pause)) = &mut self.sampled {
            *pause = (*pause).max(least);
        }
    }

    /// Bytes the job and pleat use now, without the staging rings. Processes that are gone drop out;
    /// `dear` allows the samples that cost.
    ///
    /// A page shared after a fork that one side writes to becomes two, without any event: `unshared.rs`
    /// bounds that growth between two samples of the proportional figures.
    pub fn measure(&mut self, dear: bool, keeper: &Keeper) -> Reading {
        let gone: Vec<i32> = self
            .processes
            .iter_mut()
            .filter_map(|(pid, p)| (!p.look(*pid)).then_some(*pid))
            .collect();
        for pid in gone {
            self.remove(pid, keeper);
        }
        let due = self.sampled.is_none_or(|(at, pause)| at.elapsed() >= pause);
        let sampling = dear && due;
        if sampling {
            let start = Instant::now();
            self.processes
                .iter_mut()
                .for_each(|(pid, process)| process.sample(*pid));
            self.own_kernel_bytes =
                procfs::status(std::process::id() as i32).map_or(0, |status| kernel_bytes(&status));
            let pause = (start.elapsed() * SAMPLE_SHARE).max(SAMPLE_PAUSE_MIN);
            self.sampled = Some((Instant::now(), pause));
        }
        let own: u64 = self.own.iter().filter_map(anon_bytes_of).sum();
        let files: u64 = self.processes.values().filter_map(|p| p.file_bytes).sum();
        let programs: u64 = self.processes.values().map(Process::bytes).sum();
        let own = own + self.own_kernel_bytes;
        let file_bytes = files.min(FILES_COUNTED_MAX);
        let locked: u64 = self.processes.values().map(|p| p.locked_file_bytes).sum();
        let total = programs + self.new_common_bytes(sampling) + file_bytes + own;
        let reading = |bytes, is_exact| Reading {
            bytes,
            file_bytes,
            locked_file_bytes: locked.min(file_bytes),
            own_bytes: own,
            is_exact,
        };
        if !self.processes.values().any(|process| process.shares) {
            self.unshared.reset();
            let has_common = self.processes.values().any(Process::has_common);
            return reading(total, sampling || !has_common);
        }
        let unseen_bytes = self.unseen_bytes();
        let processes = &mut self.processes;
        let mut faults = || {
            let unseen = processes
                .iter_mut()
                .filter(|(_, process)| process.unseen_bytes() > 0);
            unseen.map(|(pid, process)| process.new_faults(*pid)).sum()
        };
        if sampling {
            // From here on.
            let _: u64 = faults();
            self.unshared.sampled(total);
            return reading(total, true);
        }
        let grown = self.unshared.total_bytes(unseen_bytes, faults);
        reading(grown.map_or(total, |grown| grown.max(total)), false)
    }

    /// Shared memory that has come since it was last known whose it is, as far as it may be new.
    fn new_common_bytes(&mut self, sampling: bool) -> u64 {
        let all = self.processes.values().map(Process::unsampled_bytes).sum();
        if sampling {
            self.unshared.sampled_common();
        }
        if all == 0 {
            return 0;
        }
        let processes = self.processes.values_mut();
        let new = self
            .unshared
            .new_common_bytes(|| processes.map(Process::common_come).sum());
        new.map_or(all, |new| new.min(all))
    }

    /// Bytes that may become two without being seen, because they are shared since a fork and not protected.
    pub fn unseen_bytes(&self) -> u64 {
        self.processes.values().map(Process::unseen_bytes).sum()
    }

    /// Has what is shared since a fork write-protected, as far as processes are managed.
    pub fn protect_shared(&self) {
        let sharing = self.processes.values().filter(|process| process.shares);
        for process in sharing {
            if let Stage::Managed(link) = &process.stage {
                link.protect();
            }
        }
    }

    /// Bytes that the job could come to use by touching what it has mapped: private writable memory of all
    /// processes.
    pub fn mapped_bytes(&self) -> u64 {
        let processes = self.processes.values();
        let mapped = processes.filter_map(|process| process.statm.read().ok());
        mapped.map(|statm| statm.data_pages * PAGE).sum()
    }

    /// Notes that these processes share memory. The proportional figures are due at once.
    pub fn share(&mut self, pids: &[i32]) {
        for pid in pids {
            if let Some(process) = self.processes.get_mut(pid) {
                process.shares = true;
                self.sampled = None;
            }
        }
    }

    /// Kills every process of the job.
    pub fn kill_all(&self) {
        for process in self.processes.values() {
            process::signal(process.pidfd.as_raw_fd(), libc::SIGKILL);
        }
    }

    /// Kills every process of the job, known or not, but for ours.
    pub fn kill_everybody(&self, ours: &[i32]) {
        self.family.kill(ours);
        self.kill_all();
    }
}

/// What the kernel holds for a process besides its pages.
fn kernel_bytes(status: &procfs::Status) -> u64 {
    status.page_table_bytes + u64::from(status.threads) * THREAD_BYTES
}

fn anon_bytes_of(reader: &StatmReader) -> Option<u64> {
    let statm = reader.read().ok()?;
    Some(statm.resident_pages.saturating_sub(statm.shared_pages) * PAGE)
}

impl Process {
    /// Anonymous bytes at the last look that the engine does not know of.
    pub fn unknown_bytes(&self, shared: &Shared) -> u64 {
        let known = match &self.stage {
            Stage::Managed(link) => shared.engine().space_resident_pages(link.id),
            _ => 0,
        };
        self.anon_bytes.saturating_sub(known * PAGE)
    }

    /// Memory for which it is worth to be managed: its own, and what it shares where that can be taken away.
    pub fn foldable_bytes(&self, shared: &Shared) -> u64 {
        let has_segments = shared.segments.get().is_some();
        self.anon_bytes + if has_segments { self.common_bytes } else { 0 }
    }

    /// Bytes that cannot be compressed, as far as that is known here: shared memory counts whole.
    pub fn unfoldable_bytes(&self, shared: &Shared) -> u64 {
        self.unknown_bytes(shared) + self.common_bytes
    }

    /// What the process uses of the budget, mapped files apart.
    fn bytes(&self) -> u64 {
        (self.anon_bytes as f64 * self.own_share) as u64
            + self.common_sampled.1.min(self.common_bytes)
            + self.extra_bytes
    }

    /// Brings the cheap figure up to date; `false` when the process is gone.
    fn look(&mut self, pid: i32) -> bool {
        let Ok(statm) = self.statm.read() else {
            return false;
        };
        self.is_bare = statm.resident_pages == 0;
        if self.is_bare {
            // A zombie, or the moment of an exec: pidfd tells which.
            let mut fds = [process::readable(self.pidfd.as_raw_fd())];
            process::wait(&mut fds, Some(Duration::ZERO));
            if fds[0].revents != 0 {
                return false;
            }
        }
        self.anon_bytes = statm.resident_pages.saturating_sub(statm.shared_pages) * PAGE;
        self.anon_peak_bytes = self.anon_peak_bytes.max(self.anon_bytes);
        if statm.shared_pages >= self.shared_pages + SHARED_GROWTH_PAGES {
            // Mapped files or shared memory; which of them, the dearer file tells.
            self.sample_status(pid);
            self.shared_pages = statm.shared_pages;
        }
        self.shared_pages = self.shared_pages.min(statm.shared_pages);
        true
    }

    /// The dear figures.
    fn sample(&mut self, pid: i32) {
        self.sample_status(pid);
        if !self.has_common() {
            // Too little to ask: all its own.
            self.common_sampled = (self.common_bytes, self.common_bytes);
            self.common_come = 0;
        }
        if self.shares || self.has_common() || self.file_bytes.is_none() {
            if let Ok(rollup) = procfs::rollup(pid) {
                self.file_bytes = Some(rollup.pss_file_bytes);
                self.locked_file_bytes = rollup.locked_bytes.min(rollup.pss_file_bytes);
                let anon = rollup.anonymous_bytes.max(1) as f64;
                self.own_share = (rollup.pss_anon_bytes as f64 / anon).clamp(0.0, 1.0);
                let staging = self.staging_bytes();
                // The ring is mapped here, too.
                let share = rollup.pss_shmem_bytes.saturating_sub(staging / 2);
                self.common_sampled = (self.common_bytes, share.min(self.common_bytes));
                self.common_come = 0;
            }
        }
    }

    /// Shared memory that has come since its own part was last read.
    fn unsampled_bytes(&self) -> u64 {
        self.common_bytes.saturating_sub(self.common_sampled.0)
    }

    /// The same, as far as it has come since this was last asked.
    fn common_come(&mut self) -> u64 {
        let come = self.unsampled_bytes();
        let before = std::mem::replace(&mut self.common_come, come);
        come.saturating_sub(before)
    }

    /// Whether it has shared memory to speak of.
    fn has_common(&self) -> bool {
        self.common_bytes >= SHARED_WORTH
    }

    /// Bytes that it shares since a fork, counted as others' for their part, and that may become its own unseen.
    fn unseen_bytes(&self) -> u64 {
        let is_seen = match &self.stage {
            Stage::Managed(link) => link.is_protected.load(Ordering::Acquire),
            _ => false,
        };
        match self.shares && !is_seen {
            true => (self.anon_bytes as f64 * (1.0 - self.own_share)) as u64,
            false => 0,
        }
    }

    /// Minor faults since this was last asked.
    fn new_faults(&mut self, pid: i32) -> u64 {
        if self.faults.is_none() {
            self.faults = MinorFaults::open(pid).ok().map(|reader| (reader, 0));
        }
        let Some((reader, before)) = &mut self.faults else {
            return 0;
        };
        // Gone: the next look takes it out.
        let faults = reader.read().unwrap_or(*before);
        faults - std::mem::replace(before, faults).min(faults)
    }

    /// How much shared memory the process can have at most that is not counted once for all: as what stands in for files, or
    /// as a segment.
    fn common_max(&mut self, pid: i32, shared_bytes: u64) -> u64 {
        let Stage::Managed(link) = &self.stage else {
            return u64::MAX;
        };
        let segments = lock(&link.counted).clone();
        if segments.is_empty() && !link.has_stand_ins.load(Ordering::Acquire) {
            return u64::MAX;
        }
        if let Some(max) = self.common_max.filter(|max| {
            max.read.elapsed() < COMMON_MAX_FRESH
                && max.segments == segments.len()
                && shared_bytes < max.shared_bytes + SHARED_WORTH
        }) {
            return max.bytes;
        }
        let is_segment = |identity| segments.contains(&identity);
        let max = procfs::shared_memory_beside(pid, "pleat", &is_segment).unwrap_or(u64::MAX);
        self.common_max = Some(CommonMax {
            bytes: max,
            shared_bytes,
            segments: segments.len(),
            read: Instant::now(),
        });
        max
    }

    /// Whether its name is not known yet, or was read when the process was so young that it may have got another since.
    pub fn wants_name(&self) -> bool {
        let read = self.identity.as_ref().and_then(|who| who.read);
        let named_from = self.since + NAMED_AFTER;
        read.is_none_or(|read| read < named_from && Instant::now() >= named_from)
    }

    /// Shared memory, whoever else has it, as far as it is not pleat's.
    pub fn common_bytes(&self) -> u64 {
        self.common_bytes
    }

    /// Reads its status, which brings its name and parent up to date, too.
    pub fn sample_status(&mut self, pid: i32) {
        if let Ok(status) = procfs::status(pid) {
            let shared = status.rss_shmem_bytes.saturating_sub(self.staging_bytes());
            self.common_bytes = shared.min(self.common_max(pid, shared));
            self.common_peak_bytes = self.common_peak_bytes.max(self.common_bytes);
            self.extra_bytes = kernel_bytes(&status);
            self.identity = Some(Identity {
                name: status.name,
                ppid: status.ppid,
                read: Some(Instant::now()),
            });
        }
    }

    /// What it has touched of its staging ring.
    fn staging_bytes(&self) -> u64 {
        let Stage::Managed(link) = &self.stage else {
            return 0;
        };
        let take = lock(&link.take);
        let agent = take.agent.as_ref();
        agent.map_or(0, |agent| agent.slots.touched_bytes())
    }
}
