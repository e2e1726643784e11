//! The main thread: hears from processes, passes signals on, watches memory.
//!
//! It never waits for a single process: every conversation is a step per packet.

use crate::census::{Census, Stage};
use crate::cgroup::{page_cache_room, Gauge};
use crate::job::{Ending, Job};
use crate::reclaim;
use crate::report::Live;
use crate::shared::{lock, AgentLink, Link, Shared, RING_FRAMES_MAX};
use crate::space::Space;
use pleat_sys::channel::{Channel, Listener, Received};
use pleat_sys::keeper::Keeper;
use pleat_sys::process::{readable, wait, Bell};
use pleat_sys::procfs;
use pleat_sys::ring::Ring;
use pleat_sys::signals::{self, Change, Signal, Signals};
use pleat_sys::uffd::Uffd;
use pleat_types::{PageNo, PageRange};
use pleat_wire::message::{self, Hello, Prepare, Prepared};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Processes are managed when less than this is free: a share of the budget, one part in so many, but
/// at least what a program can fill while it is made ready; and never while the budget is nearly empty.
const MANAGE_FREE_SHARE: u64 = 5;
const MANAGE_FREE_MIN: u64 = 32 << 20;
const MANAGE_USED_SHARE: u64 = 4;
/// Processes smaller than this are not worth a userfaultfd.
const MANAGE_MIN: u64 = 1 << 20;
/// Memory that turned up in a managed process without a fault makes us look for new mappings.
const RESCAN_GROWTH: u64 = 512 << 10;
/// A program touches fresh memory at most so fast, in bytes a microsecond.
const GROWTH_BYTES_PER_US: u64 = 6000;
/// Limits of the time between two looks at memory.
const LOOK_MIN: Duration = Duration::from_micros(250);
const LOOK_MAX: Duration = Duration::from_millis(50);
/// Between two looks for processes that never said hello.
const STRAYS_EVERY: Duration = Duration::from_millis(250);
/// A program that has waited for memory most of this time does not fit.
const HOPELESS: Duration = Duration::from_secs(5);
/// At least so many faults answered late in that time, and at least one in so many of all.
const URGENT_MIN: u64 = 8;
const URGENT_SHARE: u64 = 4;
const LIVE_EVERY: Duration = Duration::from_millis(500);
/// How much more than estimated the kernel's count is believed.
const CHARGED_MORE_MAX: u64 = 4 << 20;
/// Frames of a staging ring, unless the budget is small.
const RING_FRAMES: u64 = 256;

/// The main thread's state.
pub struct Supervisor<'a> {
    job: &'a Job,
    shared: Arc<Shared>,
    listener: Listener,
    signals: &'a Signals,
    keeper: &'a Keeper,
    census: Census,
    gauge: Option<Gauge>,
    /// The budget less what is left to the page cache.
    engine_budget: u64,
    /// Connections that have not said hello.
    unnamed: Vec<Channel>,
    /// The program's process id, and how it ended.
    program: i32,
    ending: Option<Ending>,
    start: Instant,
    strays_at: Instant,
    live_at: Instant,
    /// When faults were last counted, how many there were, and how many of them answered late.
    hope: Option<(Instant, (u64, u64))>,
    used_bytes: u64,
    /// Set when a process could not be managed for a reason that concerns all.
    complaint: Option<String>,
}

impl<'a> Supervisor<'a> {
    /// A supervisor for a program just started.
    pub fn new(
        job: &'a Job,
        shared: Arc<Shared>,
        listener: Listener,
        signals: &'a Signals,
        keeper: &'a Keeper,
        program: i32,
        start: Instant,
    ) -> Supervisor<'a> {
        let mut census = Census::new(keeper.pid());
        census.add(program, Stage::Silent, keeper);
        Supervisor {
            job,
            shared,
            listener,
            signals,
            keeper,
            census,
            gauge: Gauge::open(job.budget_bytes),
            engine_budget: job.budget_bytes - page_cache_room(job.budget_bytes),
            unnamed: Vec::new(),
            program,
            ending: None,
            start,
            strays_at: start,
            live_at: start,
            hope: None,
            used_bytes: 0,
            complaint: None,
        }
    }

    /// Until the program has ended and nothing of the job is away.
    pub fn run(&mut self) -> Ending {
        loop {
            let pause = self.look_at_memory();
            self.wait(pause);
            self.hear_signals();
            let failure = lock(&self.shared.failure).take();
            if let Some(message) = failure {
                return self.stop(message);
            }
            self.accept();
            self.hear_unnamed();
            self.hear_processes();
            if self.ending.is_some() && self.release_rest() {
                return self.ending.take().expect("just seen");
            }
        }
    }

    /// Ends the job because pleat cannot keep its promise.
    fn stop(&mut self, message: String) -> Ending {
        self.census.kill_all();
        for pid in procfs::descendants(std::process::id() as i32) {
            if pid != self.keeper.pid() {
                signals::send(pid, libc::SIGKILL);
            }
        }
        Ending::Stopped { message }
    }

    fn wait(&mut self, pause: Duration) {
        let mut fds = vec![
            readable(self.listener.as_raw_fd()),
            readable(self.signals.as_raw_fd()),
            readable(self.shared.main_bell.as_raw_fd()),
        ];
        fds.extend(
            self.unnamed
                .iter()
                .map(|channel| readable(channel.as_raw_fd())),
        );
        fds.extend(
            self.census
                .processes
                .values()
                .filter_map(|p| match &p.stage {
                    Stage::Ready(channel) | Stage::Preparing(channel) => {
                        Some(readable(channel.as_raw_fd()))
                    }
                    _ => None,
                }),
        );
        wait(&mut fds, Some(pause));
        if fds[2].revents != 0 {
            self.shared.main_bell.hush();
        }
    }

    // ---- signals and children

    fn hear_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            match signal.number {
                libc::SIGCHLD => self.reap(),
                // The swap file met a limit; the write has failed and says so.
                libc::SIGXFSZ => {}
                // The whole foreground group has got it, the program included.
                libc::SIGINT | libc::SIGQUIT | libc::SIGTSTP if signal.from_terminal => {}
                libc::SIGWINCH | libc::SIGHUP if signal.from_terminal => {}
                _ => self.pass_on(signal),
            }
        }
    }

    fn pass_on(&self, signal: Signal) {
        if self.ending.is_none() && signal.sender != self.program {
            signals::send(self.program, signal.number);
        }
    }

    fn reap(&mut self) {
        while let Some((pid, change)) = signals::next_change() {
            if pid != self.program {
                continue;
            }
            match change {
                Change::Exited(status) => self.ending = Some(Ending::Exited(status)),
                Change::Killed(signal) => self.ending = Some(Ending::Signalled(signal)),
                // What started us is to see that its job is stopped.
                Change::Stopped(_) => signals::stop_self(),
                Change::Continued => {}
            }
        }
    }

    // ---- conversations

    fn accept(&mut self) {
        while let Ok(Some(channel)) = self.listener.accept() {
            self.unnamed.push(channel);
        }
    }

    fn hear_unnamed(&mut self) {
        for channel in std::mem::take(&mut self.unnamed) {
            let mut packet = [0u8; message::PACKET_MAX];
            match channel.receive(&mut packet) {
                Received::Nothing => self.unnamed.push(channel),
                Received::Closed => {}
                Received::Packet(length, _) => {
                    if let Some(hello) = pleat_sys::read_plain::<Hello>(&packet[..length]) {
                        self.welcome(channel, &hello);
                    }
                }
            }
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
    fn prepare(&mut self, pid: i32) {
        let link = lock(&self.shared.by_pid).get(&pid).cloned();
        let Some(process) = self.census.processes.get_mut(&pid) else {
            return;
        };
        let command = Prepare {
            kind: message::PREPARE,
            ring_frames: ring_frames(self.job.budget_bytes),
            has_uffd: u32::from(link.is_some()),
            fork_events: 1,
        };
        let uffd = link.map(|link| link.uffd.as_raw_fd());
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

    fn hear_processes(&mut self) {
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
        let slots = self.shared.add_ring(ring);
        let (thread, own) = process.agent;
        let agent = AgentLink {
            channel: Arc::new(channel),
            slots,
            thread,
            own,
            fork_events: answer.fork_events != 0,
            beacon: PageNo::of_address(answer.beacon),
            doorbells: PageRange::new(
                PageNo::of_address(answer.beacon).plus(1),
                message::DOORBELLS as u64,
            ),
        };
        let known = lock(&self.shared.by_pid).get(&pid).cloned();
        let link = match known.filter(|link| !link.ended.load(Ordering::Acquire)) {
            Some(link) => link,
            None => match self.start_space(pid, uffd) {
                Some(link) => link,
                None => return,
            },
        };
        {
            let mut mail = lock(&link.mail);
            mail.agent = Some(agent);
            mail.rescan = true;
        }
        link.bell.ring();
        if let Some(process) = self.census.processes.get_mut(&pid) {
            process.stage = Stage::Managed(link);
        }
    }

    fn start_space(&mut self, pid: i32, uffd: OwnedFd) -> Option<Arc<Link>> {
        let Ok(bell) = Bell::new() else {
            self.shared
                .fail("out of descriptors; raise `ulimit -n`".into());
            return None;
        };
        let id = self.shared.engine().add_space();
        let link = Arc::new(Link::new(id, pid, Uffd::new(uffd), bell, None));
        let run_max = self.job.run_max;
        let space = Space::new(self.shared.clone(), link.clone(), run_max, BTreeMap::new())?;
        space.start();
        Some(link)
    }

    /// The program has ended: processes that have nothing away are let go. `true` when none is left
    /// that needs us.
    fn release_rest(&mut self) -> bool {
        let release = Prepare {
            kind: message::RELEASE,
            ..Prepare::default()
        };
        let mut needed = !self.unnamed.is_empty();
        for process in self.census.processes.values_mut() {
            match &process.stage {
                Stage::Ready(channel) => {
                    // If it is gone there is nothing to release.
                    let _ = channel.send(pleat_sys::bytes_of(&release), None);
                    process.stage = Stage::Unmanageable;
                }
                Stage::Preparing(_) => needed = true,
                Stage::Managed(link) => needed |= !link.ended.load(Ordering::Acquire),
                Stage::Silent | Stage::Unmanageable => {}
            }
        }
        !needed && lock(&self.shared.links).is_empty()
    }

    // ---- memory

    /// Measures, acts, and says how long until the next look.
    fn look_at_memory(&mut self) -> Duration {
        self.note_forks();
        let budget = self.job.budget_bytes;
        let near = self.used_bytes > budget / 2;
        let granted = self.shared.engine().granted_pages();
        let reading = self.census.measure(near, self.keeper);
        let measured = reading.bytes + self.shared.staging_bytes();
        self.used_bytes = if reading.is_exact {
            // Processes are read one after the other: what was given out meanwhile may be missing.
            measured + (self.shared.engine().granted_pages() - granted) * 4096
        } else {
            let estimate = measured.max(self.engine_used());
            estimate.max(self.charged_bytes().min(estimate + CHARGED_MORE_MAX))
        };
        if reading.is_exact {
            self.shared.meters.peak_bytes.raise(self.used_bytes);
        }
        let (free, wanted, write) = {
            let mut engine = self.shared.engine();
            engine.measured(self.used_bytes);
            (
                engine.free_bytes(),
                engine.frames_wanted() > 0,
                engine.write_wanted(),
            )
        };
        if wanted {
            reclaim::kick(&self.shared);
        }
        if write {
            self.shared.writer.open();
        }
        if free > 0 {
            self.shared.feed_starving();
        }
        let spare = (budget / MANAGE_FREE_SHARE).max(MANAGE_FREE_MIN);
        let manage_from = (budget / MANAGE_USED_SHARE).max(budget.saturating_sub(spare));
        if self.used_bytes > manage_from {
            self.manage_more();
        }
        self.check_hope();
        self.look_for_strays();
        self.show();
        // Until there is something to do: processes to manage, or no memory left.
        let room = match manage_from.checked_sub(self.used_bytes) {
            Some(room) => room,
            None => free.max(0) as u64,
        };
        let until_full = Duration::from_micros(room / GROWTH_BYTES_PER_US);
        until_full.clamp(LOOK_MIN, LOOK_MAX)
    }

    /// What the kernel counts where it has a limit of its own close to the budget, else 0. Its figure
    /// for file pages, which are taken off, is seconds old: too much while a job reads files.
    fn charged_bytes(&self) -> u64 {
        self.gauge.as_ref().and_then(Gauge::bytes).unwrap_or(0)
    }

    /// Bytes in use by the engine's own account.
    fn engine_used(&self) -> u64 {
        let free = self.shared.engine().free_bytes();
        (self.engine_budget as i64 - free).max(0) as u64
    }

    /// Has processes managed, and mappings of managed ones looked for that grew without a fault.
    fn manage_more(&mut self) {
        let mut ready = Vec::new();
        for (pid, process) in &mut self.census.processes {
            match &process.stage {
                Stage::Ready(_) if process.anon_bytes >= MANAGE_MIN => ready.push(*pid),
                Stage::Managed(link) => {
                    let known = self.shared.engine().space_resident_pages(link.id) * 4096;
                    let unknown = process.anon_bytes.saturating_sub(known);
                    if unknown > process.unknown_at_scan + RESCAN_GROWTH {
                        lock(&link.mail).rescan = true;
                        link.bell.ring();
                    }
                    if unknown > process.unknown_at_scan + RESCAN_GROWTH
                        || unknown < process.unknown_at_scan
                    {
                        process.unknown_at_scan = unknown;
                    }
                }
                _ => {}
            }
        }
        for pid in ready {
            self.prepare(pid);
        }
    }

    /// Whether the job still gets on. When most of its faults are only answered because they have
    /// waited too long, nothing can be freed any more: what is in memory does not compress further,
    /// and the swap file is full, broken or not there.
    fn check_hope(&mut self) {
        let meters = &self.shared.meters;
        let now = (meters.faults.get(), meters.urgent_faults.get());
        let (since, then) = *self.hope.get_or_insert((Instant::now(), now));
        if since.elapsed() < HOPELESS {
            return;
        }
        self.hope = None;
        let (faults, urgent) = (now.0 - then.0, now.1 - then.1);
        if urgent < URGENT_MIN || faults > urgent * URGENT_SHARE || self.swap_takes_more() {
            return;
        }
        let remedy = match (&self.job.swap, lock(&self.shared.swap_error).clone()) {
            (None, _) => "raise --memory, or allow a swap file (without --no-swap)".into(),
            (Some(_), Some(error)) => error,
            (Some(swap), None) => match swap.max_bytes {
                Some(max) => format!(
                    "the swap file is full at --swap-max {} MiB; raise that, or --memory",
                    max >> 20
                ),
                None => "raise --memory".into(),
            },
        };
        self.shared.fail(format!(
            "the job does not fit into --memory {} MiB, and what is too much cannot be put \
             anywhere: {remedy}",
            self.job.budget_bytes >> 20
        ));
    }

    /// Whether the swap file has room and works: then the job is slow, and not without hope.
    fn swap_takes_more(&self) -> bool {
        let Some(swap) = &self.job.swap else {
            return false;
        };
        let used = self.shared.engine().counters().swap_used_bytes;
        let is_full = swap.max_bytes.is_some_and(|max| used > max / 10 * 9);
        !is_full && lock(&self.shared.swap_error).is_none()
    }

    /// Processes that never said hello: static or setuid programs, or a cleared environment.
    fn look_for_strays(&mut self) {
        if self.strays_at.elapsed() < STRAYS_EVERY {
            return;
        }
        self.strays_at = Instant::now();
        for pid in procfs::descendants(std::process::id() as i32) {
            if pid != self.keeper.pid() && !self.census.processes.contains_key(&pid) {
                self.census.add(pid, Stage::Silent, self.keeper);
                // It may have been forked without exec.
                self.share(pid);
            }
        }
        let mut names = Vec::new();
        for (pid, process) in &mut self.census.processes {
            let is_stray = matches!(process.stage, Stage::Silent)
                && process.since.elapsed() > Duration::from_secs(1)
                && process.anon_bytes > MANAGE_MIN;
            if is_stray {
                process.stage = Stage::Unmanageable;
                let name = procfs::status(*pid).map_or(String::new(), |status| status.name);
                names.push(format!("{name} ({pid})"));
            }
        }
        for name in names {
            self.shared.meters.unmanaged_processes.add(1);
            self.warn(&format!(
                "{name} runs unmanaged: a static or setuid program, or one started without \
                 LD_PRELOAD; its memory counts, but cannot be folded"
            ));
        }
    }

    /// Managed children of forks, as soon as their first fault has told who they are: they share
    /// memory with their parents.
    fn note_forks(&mut self) {
        let managed: Vec<i32> = lock(&self.shared.by_pid).keys().copied().collect();
        for pid in managed {
            if !self.census.processes.contains_key(&pid) {
                self.census.add(pid, Stage::Silent, self.keeper);
                self.share(pid);
            }
        }
    }

    /// Notes that a process shares memory with its parent.
    fn share(&mut self, pid: i32) {
        let parent = procfs::status(pid).map_or(0, |status| status.ppid);
        self.census.share(&[pid, parent]);
    }

    fn show(&mut self) {
        let Some(live) = self.job.live else { return };
        if self.live_at.elapsed() < LIVE_EVERY {
            return;
        }
        self.live_at = Instant::now();
        let counters = self.shared.engine().counters();
        live(&Live {
            used_bytes: self.used_bytes,
            budget_bytes: self.job.budget_bytes,
            pages_away: counters.staged_pages
                + counters.stored_pages
                + counters.writing_pages
                + counters.disk_pages
                + counters.same_pages,
            swap_bytes: counters.swap_used_bytes,
            faults: self.shared.meters.faults.get(),
            wall_us: self.start.elapsed().as_micros() as u64,
        });
    }

    fn warn(&mut self, text: &str) {
        if !self.job.quiet && self.complaint.as_deref() != Some(text) {
            eprintln!("pleat: {text}");
            self.complaint = Some(text.into());
        }
    }
}

/// Frames of a staging ring: 1 MiB, or a 256th of a small budget.
fn ring_frames(budget_bytes: u64) -> u32 {
    (budget_bytes / 256 / 4096).clamp(32, RING_FRAMES.min(u64::from(RING_FRAMES_MAX))) as u32
}
