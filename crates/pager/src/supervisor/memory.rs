//! What the main thread does about memory: measures, and has processes managed.

use super::unmanaged::Obstacle;
use super::Supervisor;
use crate::census::Stage;
use crate::cgroup::Gauge;
use crate::own_group::OwnGroup;
use crate::page_cache::Prices;
use crate::reclaim;
use crate::record::Recorder;
use crate::shared::{lock, Shared};
use crate::unknown::Cause;
use pleat_sys::process::{keep_ahead, relax, share_memory};
use pleat_sys::procfs;
use pleat_types::PAGE_SIZE;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Processes are managed when less than this is free: a share of the budget, one part in so many, but
/// at least what a program can fill while it is made ready; and never while the budget is nearly empty.
const MANAGE_FREE_SHARE: u64 = 5;
const MANAGE_FREE_MIN: u64 = 64 << 20;
const MANAGE_USED_SHARE: u64 = 4;
/// Processes smaller than this are not worth a userfaultfd.
const MANAGE_MIN: u64 = 1 << 20;
/// Memory that turned up in a managed process without a fault makes us look for new mappings: this part of
/// the budget, one in so many, for a hard limit leaves no more than a small part either. What a process
/// has is read before what the engine knows of it, so pages that are just being taken look like such
/// memory, too: no more of them than a command has, and of these fewer in a small budget.
const RESCAN_GROWTH_PART: u64 = 128;
const RESCAN_GROWTH_MIN: u64 = 128 << 10;
const RESCAN_GROWTH_MAX: u64 = 512 << 10;
/// The same while recording, when every page that comes without a fault is missing from the trace.
const RESCAN_GROWTH_RECORDING: u64 = 32 << 10;
/// Where this part of the budget, one in so many, stays unknown, mappings are looked for again and again.
const RESCAN_AGAIN_PART: u64 = 16;
/// A program touches fresh memory at most so fast, in bytes a microsecond.
const GROWTH_BYTES_PER_US: u64 = 6000;
/// Limits of the time between two looks at memory.
const LOOK_MIN: Duration = Duration::from_micros(250);
/// The same for a job that takes next to nothing without asking: a look costs 20 us.
const LOOK_MIN_CALM: Duration = Duration::from_micros(1000);
const LOOK_MAX: Duration = Duration::from_millis(50);
/// The same while less than half of the budget is in use: without pressure looks are all that pleat costs.
const LOOK_MAX_FAR: Duration = Duration::from_millis(100);
const LOOK_MAX_RECORDING: Duration = Duration::from_millis(2);
/// While a job does nothing, so many looks are for each at processes that are new and at figures that are dear.
const OTHER_LOOKS: u32 = 10;
/// Looking for processes that have not said hello may take this share of the time: one part in so many. A program that loads
/// nothing can fill memory as fast as any.
const STRAYS_SHARE: u32 = 50;
const STRAYS_PAUSE_MIN: Duration = Duration::from_millis(2);
const STRAYS_PAUSE_MAX: Duration = Duration::from_millis(250);
/// Between two looks at users and threads of processes.
const USERS_EVERY: Duration = Duration::from_millis(250);
/// Between two tries to take what refused to be taken: the first, and, when it is refused again, the last.
const STUCK_PAUSE_MIN: Duration = Duration::from_millis(10);
const STUCK_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Between two looks for staging memory that nobody uses.
const TRIM_EVERY: Duration = Duration::from_secs(1);
/// So large a part of the pages that refuse to be taken, one in so many, may lie where the page cache has
/// its room: where those are many there is no other place.
const LENT_PART: u64 = 8;
/// Memory that the kernel seems to need for something else takes at most this part, one in so many, of what
/// companions hold: so much less, and the kernel need not drop any of it.
const STRAIN_PART: u64 = 2;
/// After growth that nobody announced, this thread runs ahead of other load for so long.
const AHEAD_FOR: Duration = Duration::from_millis(250);
/// Mapped files count only as far as they leave this part of the budget, one in so many, to what can be folded. They are
/// page cache, which the kernel drops where it is short of it; without them a server in a small budget, of which
/// programs' text is a large part, has nothing left for its data.
const FOLDABLE_PART: u64 = 4;
/// Of what is between the budget and a hard limit close to it so much is not touched for that.
const LIMIT_CLEARANCE: u64 = 512 << 10;
/// A peak that is not known exactly is looked at again when it is more by this part, one in so many.
const PEAK_PART: u64 = 32;
/// A read of the swap file takes so long, in microseconds, before there was one.
const READ_US: u64 = 150;
/// A read of a file brings about so many pages, with what the kernel reads ahead.
const READ_PAGES: u64 = 16;
/// How much more than estimated the kernel's count is believed.
const CHARGED_MORE_MAX: u64 = 4 << 20;

impl Supervisor<'_> {
    /// Measures, acts, and says how long until the next look.
    pub(super) fn look_at_memory(&mut self) -> Duration {
        self.note_forks();
        let budget = self.budget.bytes;
        let near = self.used_bytes > budget / 2;
        // Where processes share memory, what they use is known by a sample only; far from the budget it takes one to
        // tell a new peak.
        let peak = self.shared.meters.peak_bytes.get();
        let is_more = |bytes: u64| bytes > peak + peak / PEAK_PART;
        let is_peak = is_more(self.used_bytes);
        let (granted, kept) = {
            let engine = self.shared.engine();
            (engine.granted_pages(), engine.kept_bytes())
        };
        // Before the rest is measured: what is granted from now on is added below.
        let held = self.shared.held();
        let segments = self.shared.segments.get();
        let counts = segments.map_or(0, |segments| segments.counts());
        if std::mem::replace(&mut self.segment_counts, counts) != counts {
            self.census.sample_anew();
        }
        self.census.sample_rarely(self.other_looks_pause);
        let mut reading = self.census.measure(near || is_peak, self.keeper);
        if !reading.is_exact && is_more(reading.bytes) {
            // The next look may find it gone.
            reading = self.census.measure(true, self.keeper);
        }
        self.own_bytes = reading.own_bytes;
        let gauge = self.gauge.as_ref();
        let room = self.budget.cache_room_bytes;
        // Mapped files are page cache: they have its room first. What others are charged for needs none.
        let charged_files = reading.file_bytes.min(self.group_files.most_bytes());
        let others = self
            .unfoldable_bytes
            .saturating_sub(self.files_beyond_bytes);
        let share = file_share(budget, others).max(reading.locked_file_bytes);
        let extra = self.cache_room.extra_bytes();
        let files_beyond = charged_files.saturating_sub(room + extra).min(share);
        let group_files = &mut self.group_files;
        let may_lend = files_beyond.saturating_sub(reading.locked_file_bytes);
        let shared = &self.shared;
        let prices = || prices(shared);
        let lent = self.cache_room.lend(Instant::now(), may_lend, prices, || {
            let files = gauge?.files()?;
            group_files.note(files);
            Some(files)
        });
        let files_beyond = files_beyond - lent.beyond_bytes;
        let lent = lent.room_bytes;
        self.files_beyond_bytes = files_beyond;
        let programs = reading.bytes - reading.file_bytes;
        let measured = programs + files_beyond + self.shared.staging_bytes() + held.bytes;
        let wanted_by_waiting = self.mind_own_group(reading.own_bytes);
        let own_group = self.own_group.as_ref();
        let group_room = own_group.and_then(|group| group.room(reading.own_bytes));
        self.limit_taking(group_room);
        let strain = self.strain.note(held.lost_pages, held.bytes / STRAIN_PART);
        self.used_bytes = if reading.is_exact {
            // Processes are read one after the other: what was given out meanwhile may be missing.
            measured + (self.shared.engine().granted_pages() - granted) * 4096
        } else {
            let beside =
                reading.own_bytes + files_beyond + self.shared.staging_bytes() + held.bytes;
            let estimate = self.bounded(measured, beside).max(self.engine_used());
            let beside = held.bytes - held.charged_bytes;
            let charged = self.charged_bytes().map_or(0, |charged| charged + beside);
            estimate.max(charged.min(estimate + CHARGED_MORE_MAX))
        };
        if reading.is_exact {
            self.shared.meters.peak_bytes.raise(self.used_bytes);
        }
        self.used_bytes = self.used_bytes.max(wanted_by_waiting.unwrap_or(0));
        let (free, wanted, write, release) = {
            let mut engine = self.shared.engine();
            // It may have come or gone meanwhile.
            let own = reading
                .own_bytes
                .saturating_sub(kept.max(engine.kept_bytes()));
            if reading.is_exact {
                let away = engine.away_pages() * PAGE_SIZE as u64;
                let in_memory =
                    measured.saturating_sub(reading.own_bytes + self.shared.staging_bytes());
                self.shared.meters.needed_peak_bytes.raise(in_memory + away);
            }
            self.shared.meters.own_peak_bytes.raise(own);
            let set_aside = self.shared.set_aside_bytes.load(Ordering::Relaxed);
            // Pages that cannot be taken must be somewhere: they have the page cache's room first.
            let stuck_bytes = engine.stuck_pages() * PAGE_SIZE as u64;
            self.lent_bytes = (stuck_bytes / LENT_PART).min(room).max(lent);
            self.left_to_others_bytes = set_aside + strain + self.cache_room.extra_bytes();
            let used = self.used_bytes + self.left_to_others_bytes;
            engine.measured(used.saturating_sub(self.lent_bytes));
            let processes = self.census.processes.len();
            let foreign = engine.foreign_bytes() + self.lent_bytes as i64;
            let growth = self.headroom.note(Instant::now(), foreign, processes);
            engine.expect_growth(growth);
            self.foreign_bytes = foreign;
            let unfoldable = foreign.max(0) as u64 + stuck_bytes;
            self.unfoldable_bytes = unfoldable.saturating_sub(self.lent_bytes);
            self.overdraft_bytes = self.budget.overdraft(unfoldable, growth);
            if let (Some(gauge), true) = (&self.gauge, unfoldable < budget) {
                // It would be killed for it.
                let most = gauge.limit_bytes().saturating_sub(budget + LIMIT_CLEARANCE);
                self.overdraft_bytes = self.overdraft_bytes.min(most);
            }
            if self.overdraft_bytes > 0 {
                engine.measured(used.saturating_sub(self.lent_bytes + self.overdraft_bytes));
            }
            if let Some(room) = group_room {
                // System calls fail where the job waits: it must not get there only because something is kept back of the limit
                // that the budget knows nothing of.
                let until = room.until_limit_bytes.min(budget) as i64;
                let beyond = (engine.free_bytes() - until).max(0) as u64;
                self.left_to_others_bytes += beyond;
                let known = self.lent_bytes + self.overdraft_bytes;
                engine.measured((used + beyond).saturating_sub(known));
            }
            (
                engine.free_bytes(),
                engine.frames_wanted() > 0,
                engine.write_wanted() || engine.collect_wanted(),
                engine.take_release(),
            )
        };
        drop(release);
        self.note_ease(free);
        // From when on memory could not hold twice what is shared.
        if self.used_bytes + self.census.unseen_bytes() > budget {
            self.census.protect_shared();
        }
        if wanted {
            reclaim::kick(&self.shared);
        }
        if write {
            self.shared.writer.open();
        }
        if free > 0 {
            self.shared.feed_starving();
        }
        let manage_from = manage_from(budget);
        if self.used_bytes > manage_from || self.is_recording() {
            self.manage_more();
        }
        self.fall_back();
        self.control_load();
        self.retry_stuck();
        self.trim();
        self.check_hope();
        self.check_standstill();
        self.hear_recorder();
        self.look_for_strays();
        let offers_pause = self.hear_offers();
        self.end_last_threads();
        self.show();
        // Until there is something to do: processes to manage, or no memory left.
        let room = match manage_from.checked_sub(self.used_bytes) {
            Some(room) => room,
            None => free.max(0) as u64,
        };
        let until_full = Duration::from_micros(room / GROWTH_BYTES_PER_US);
        until_full
            .max(self.pause_of_stillness())
            .clamp(
                if self.headroom.is_calm() {
                    LOOK_MIN_CALM
                } else {
                    LOOK_MIN
                },
                match (self.is_recording(), near) {
                    (true, _) => LOOK_MAX_RECORDING,
                    (false, true) => LOOK_MAX,
                    (false, false) => LOOK_MAX_FAR,
                },
            )
            .min(offers_pause)
    }

    /// How rarely a job that does nothing need be looked at: where a limit is near that the kernel kills at, no more rarely than another.
    fn pause_of_stillness(&mut self) -> Duration {
        let faults = self.shared.meters.faults.get();
        let processes = self.census.processes.len();
        let still = self
            .stillness
            .note(Instant::now(), faults, self.foreign_bytes, processes);
        let is_waited_for = self.own_group.as_ref().is_some_and(OwnGroup::has_limit);
        let may_be_killed = self.gauge.is_some() && !is_waited_for;
        let somebody_waits = self.shared.starving.load(Ordering::Relaxed) > 0;
        let pause = match may_be_killed || somebody_waits || self.is_recording() {
            true => Duration::ZERO,
            false => still,
        };
        // What else is looked at now and then: rarely while nothing happens, and at once when something does.
        if pause.is_zero() && !self.other_looks_pause.is_zero() {
            self.census.sample_anew();
            self.strays_pause = Duration::ZERO;
        }
        self.other_looks_pause = pause * OTHER_LOOKS;
        pause
    }

    /// Whether references are to be recorded, or were: then every process is managed from its start.
    pub(super) fn is_recording(&self) -> bool {
        self.shared.recorder.is_some()
    }

    /// Recording has come to an early end: pages may stay in memory again.
    fn hear_recorder(&mut self) {
        let news = self.shared.recorder.as_ref().and_then(Recorder::news);
        if let Some(why) = news {
            self.shared.engine().limit_resident(None);
            self.warn(&format!("recording has stopped, the job goes on: {why}"));
        }
    }

    /// What the kernel counts, without file pages, where it has a limit of its own close to the budget.
    /// Its figure for file pages, which are taken off, is seconds old: too much while a job reads files.
    fn charged_bytes(&self) -> Option<u64> {
        self.gauge.as_ref().and_then(Gauge::bytes)
    }

    /// Bytes in use by the engine's own account, as the last look told it and as it has changed since. What that look
    /// added to what was in use is taken off: it is added again, and would grow from look to look.
    fn engine_used(&self) -> u64 {
        let free = self.shared.engine().free_bytes();
        let taken = (self.budget.engine_bytes() as i64 - free).max(0) as u64;
        (taken + self.lent_bytes + self.overdraft_bytes).saturating_sub(self.left_to_others_bytes)
    }

    /// Has processes managed, and mappings of managed ones looked for that grew without a fault.
    fn manage_more(&mut self) {
        let (min, growth) = match self.is_recording() {
            true => (0, RESCAN_GROWTH_RECORDING),
            false => (MANAGE_MIN, rescan_growth(self.budget.bytes)),
        };
        self.part_with_executed();
        self.inject_agents(min);
        let (now, much) = (Instant::now(), self.budget.bytes / RESCAN_AGAIN_PART);
        let mut ready = Vec::new();
        let mut shut_in = Vec::new();
        let mut is_growing = false;
        for (pid, process) in &mut self.census.processes {
            match &process.stage {
                Stage::Ready(_) if process.foldable_bytes(&self.shared) >= min => ready.push(*pid),
                Stage::Managed(link) => {
                    if link.is_shut_in.swap(false, Ordering::AcqRel) {
                        shut_in.push(*pid);
                    }
                    let unknown = process.unknown_bytes(&self.shared);
                    let look = process.unknown.note(now, unknown, growth, much);
                    if look == Some(Cause::Growth) {
                        is_growing = true;
                        link.grows.store(true, Ordering::Release);
                    }
                    if look.is_some() {
                        link.rescan();
                    }
                }
                _ => {}
            }
        }
        for pid in ready {
            self.prepare(pid);
        }
        for pid in shut_in {
            self.name_unmanaged(pid, "is managed no longer", &Obstacle::ShutIn);
        }
        if is_growing {
            self.stay_ahead();
        }
    }

    /// Processes that were managed and execute another program by now, which has not said hello, are to be managed like any other:
    /// it may load no library, or not reach us.
    fn part_with_executed(&mut self) {
        let processes = self.census.processes.iter();
        let executed = processes.filter(|(_, process)| match &process.stage {
            Stage::Managed(link) => link.is_over() && !process.is_bare,
            _ => false,
        });
        let executed: Vec<i32> = executed.map(|(pid, _)| *pid).collect();
        for pid in executed {
            self.lose(pid);
        }
    }

    /// Looks at memory in time, though other load has all CPUs, for as long as the job takes it unasked.
    pub(super) fn stay_ahead(&mut self) {
        if self.ahead_since.replace(Instant::now()).is_none() {
            keep_ahead();
        }
    }

    /// Competes like any other again once growth is long ago.
    fn fall_back(&mut self) {
        if self.ahead_since.is_some_and(|at| at.elapsed() > AHEAD_FOR) {
            self.ahead_since = None;
            relax();
        }
    }

    /// Has pages that refused to be taken tried again when nothing else is left, in vain ever less often.
    ///
    /// A page of a read-only mapping cannot be moved, and nobody tells when the mapping becomes writable.
    /// Left alone for good, such pages were all that memory held while every fault waited until it was
    /// urgent.
    fn retry_stuck(&mut self) {
        let (at, pause) = self.stuck_retry;
        if at.elapsed() < pause || !self.shared.engine().needs_stuck() {
            return;
        }
        let is_in_vain = at.elapsed() < pause * 2;
        let pause = match is_in_vain {
            true => (pause * 2).min(STUCK_PAUSE_MAX),
            false => STUCK_PAUSE_MIN,
        };
        self.stuck_retry = (Instant::now(), pause);
        if let Some(segments) = self.shared.segments.get() {
            segments.retry_stuck(&self.shared);
        }
        for link in lock(&self.shared.links).iter() {
            lock(&link.mail).retry_stuck = true;
            link.bell.ring();
        }
    }

    /// Memory that processes need to be taken from is given back by those that sleep.
    fn trim(&mut self) {
        if self.trimmed_at.elapsed() >= TRIM_EVERY {
            self.trimmed_at = Instant::now();
            self.shared.rings.trim();
        }
    }

    /// Processes that have not said hello, which those do that load the agent's library.
    pub(super) fn look_for_strays(&mut self) {
        if self.strays_at.elapsed() < self.strays_pause {
            return;
        }
        let start = Instant::now();
        for pid in self.census.members() {
            let is_known = self.helpers.contains(&pid) || self.census.processes.contains_key(&pid);
            if !is_known && !self.is_left(pid) && !is_in_memory_of_parent(pid) {
                self.census.add(pid, Stage::Silent, self.keeper);
                // It may have been forked without exec.
                self.share(pid);
            }
        }
        self.strays_at = Instant::now();
        let taken = (self.strays_at - start) * STRAYS_SHARE;
        let pause = taken.max(self.other_looks_pause);
        self.strays_pause = pause.clamp(STRAYS_PAUSE_MIN, STRAYS_PAUSE_MAX);
        if self.users_at.elapsed() >= USERS_EVERY {
            self.users_at = self.strays_at;
            self.part_users();
            self.follow_users();
            self.meet_threads();
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
    pub(super) fn share(&mut self, pid: i32) {
        let parent = procfs::status(pid).map_or(0, |status| status.ppid);
        self.census.share(&[pid, parent]);
    }
}

/// What too little memory costs the job, until now. Files are taken to be on a disk as fast as that of the swap file.
fn prices(shared: &Shared) -> Prices {
    let (counters, meters) = (shared.engine().counters(), &shared.meters);
    let returned_pages = counters.returned_pages();
    let read_us = match meters.swap_reads.get() {
        0 => READ_US,
        reads => meters.swap_read_us.get() / reads,
    };
    Prices {
        stall_us: meters.stall_us.get(),
        filled_pages: returned_pages + counters.filled_zero_pages + counters.filled_resident_pages,
        returned_pages,
        reread_us: (read_us / READ_PAGES).max(1),
    }
}

/// What mapped files have at most where `others` is in use by what neither can be folded nor dropped.
fn file_share(budget: u64, others: u64) -> u64 {
    (budget - budget / FOLDABLE_PART).saturating_sub(others)
}

/// Whether what a process has is counted already, as its parent's.
fn is_in_memory_of_parent(pid: i32) -> bool {
    procfs::status(pid).is_ok_and(|status| share_memory(pid, status.ppid))
}

/// Of so many bytes in use on memory is short, and processes are managed.
pub(super) fn manage_from(budget_bytes: u64) -> u64 {
    let spare = (budget_bytes / MANAGE_FREE_SHARE).max(MANAGE_FREE_MIN);
    (budget_bytes / MANAGE_USED_SHARE).max(budget_bytes.saturating_sub(spare))
}

/// Bytes that may turn up without a fault before new mappings are looked for.
fn rescan_growth(budget_bytes: u64) -> u64 {
    (budget_bytes / RESCAN_GROWTH_PART).clamp(RESCAN_GROWTH_MIN, RESCAN_GROWTH_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn mapped_files_leave_a_part_to_what_can_be_folded() {
        let share = |others| file_share(64 * MIB, others * MIB) / MIB;
        assert_eq!([10, 40, 48, 60].map(share), [38, 8, 0, 0]);
    }
}
