//! Whether the job still gets on: gives up, or tells why it is slow.

use super::Supervisor;
use crate::census::Process;
use crate::ends::Failure;
use crate::shared::lock;
use pleat_sys::local::effective_user;
use pleat_sys::procfs;
use std::time::{Duration, Instant};

/// A program that has waited for memory most of this time does not fit.
const HOPELESS: Duration = Duration::from_secs(5);
/// At least so many faults answered late in that time, and at least one in so many of all.
const URGENT_MIN: u64 = 8;
const URGENT_SHARE: u64 = 4;
/// What can be folded has next to no memory where it is left less than this part of the budget, one in so
/// many, and is read back so often in a second.
const LEFT_PART: u64 = 8;
const THRASHING: u64 = 1000;
/// It is told where it was so at so large a part of the looks of that time, one in so many: pages that a fork shares
/// refuse to move for a moment, and fill a small budget for as long.
const MOST_PART: u64 = 2;

/// A job that has next to no memory has so long to end when it is told to: what it does then may take for ever. One that has
/// memory at any look in that time is not minded.
const END_MAX: Duration = Duration::from_secs(30);

/// A job that has stood still so much longer than it got on is given up.
const GIVEN_UP: Duration = Duration::from_secs(30);

/// Who looks after a longer time was stopped itself meanwhile, and does not know how it was.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// How long a page was refused while nothing was taken away from anybody.
///
/// A little memory comes free now and then, pleat's own for one; it lets a page or two through, and then the job stands as before.
/// So what counts is the time it stood less the time it got on.
pub(super) struct Standstill {
    stood: Duration,
    at: Instant,
    taken_pages: u64,
    is_told: bool,
}

impl Standstill {
    /// One that begins now, when so many pages were taken until then.
    fn from(now: Instant, taken_pages: u64) -> Standstill {
        Standstill {
            stood: Duration::ZERO,
            at: now,
            taken_pages,
            is_told: false,
        }
    }

    /// Looks again; returns how long the job has stood in all.
    fn look(&mut self, now: Instant, is_refused: bool, taken_pages: u64) -> Duration {
        let passed = now.saturating_duration_since(self.at).min(LOOK_MAX);
        let stands = is_refused && self.taken_pages == taken_pages;
        self.stood = match stands {
            true => self.stood + passed,
            false => self.stood.saturating_sub(passed),
        };
        (self.at, self.taken_pages) = (now, taken_pages);
        self.stood
    }
}

/// The time over which it is judged whether the job gets on.
pub(super) struct Hope {
    since: Instant,
    /// Faults then, and those of them answered late.
    faults: u64,
    urgent_faults: u64,
    /// Looks since, and those at which what cannot be folded had nearly all.
    looks: u64,
    full_looks: u64,
}

impl Supervisor<'_> {
    /// Whether the job still gets on. When most of its faults are only answered because they have
    /// waited too long, nothing can be freed any more: what is in memory does not compress further,
    /// and the swap file is full, broken or not there.
    pub(super) fn check_hope(&mut self) {
        let meters = &self.shared.meters;
        let now = (meters.faults.get(), meters.urgent_faults.get());
        let is_full = self.unfoldable_share_is_high();
        let hope = self.hope.get_or_insert_with(|| Hope {
            since: Instant::now(),
            faults: now.0,
            urgent_faults: now.1,
            looks: 0,
            full_looks: 0,
        });
        hope.looks += 1;
        hope.full_looks += u64::from(is_full);
        if hope.since.elapsed() < HOPELESS {
            return;
        }
        let (faults, urgent) = (now.0 - hope.faults, now.1 - hope.urgent_faults);
        let was_full = hope.full_looks * MOST_PART > hope.looks;
        self.hope = None;
        let faults_per_s = faults / HOPELESS.as_secs();
        // With next to nothing left it need not come and go often: it may hardly get on at all.
        let is_rest_slow = faults_per_s >= THRASHING || self.overdraft_bytes > 0;
        if is_full && was_full && is_rest_slow {
            self.tell_of_unfoldable(faults_per_s);
            if self.told_to_end.is_some_and(|at| at.elapsed() >= END_MAX) {
                return self.give_up(Failure::CannotEnd {
                    seconds: END_MAX.as_secs(),
                    budget_mib: self.budget.bytes >> 20,
                });
            }
        } else {
            // What it was told then it could do: Ctrl-C ends a query, and not the shell that made it.
            self.told_to_end = None;
        }
        if urgent < URGENT_MIN || faults > urgent * URGENT_SHARE || self.swap_takes_more() {
            return;
        }
        let remedy = match (&self.job.swap, lock(&self.shared.swap_error).clone()) {
            (None, _) => "raise --memory, or allow a swap file (without --no-swap)".into(),
            (Some(_), Some(error)) => error,
            (Some(swap), None) => match swap.max_bytes {
                Some(max) => format!(
                    "the swap file is full at --swap-max {} KiB; raise that, or --memory",
                    max >> 10
                ),
                None => "raise --memory".into(),
            },
        };
        self.give_up(Failure::DoesNotFit {
            budget_mib: self.budget.bytes >> 20,
            remedy,
        });
    }

    /// Whether somebody waits for a page that the kernel refuses at the limit of a memory cgroup, though it is to be filled
    /// whatever memory there is, while nothing can be taken from anybody: from a process whose threads are all stopped, by a
    /// tracer that reads its memory, as LeakSanitizer does. The tracer would wait for ever, and so would who is stopped, whatever
    /// signal it is sent.
    pub(super) fn check_standstill(&mut self) {
        let now = Instant::now();
        let refused = *lock(&self.shared.refused);
        let refused = refused.filter(|refused| refused.is_current(now));
        if refused.is_none() && self.standstill.is_none() {
            return;
        }
        let taken_pages = self.shared.engine().counters().taken_pages;
        let stands = self
            .standstill
            .get_or_insert(Standstill::from(now, taken_pages));
        let stood = stands.look(now, refused.is_some(), taken_pages);
        if stood > GIVEN_UP {
            return self.give_up(Failure::StandsStill {
                budget_mib: self.budget.bytes >> 20,
            });
        }
        let Some(refused) = refused else {
            if stood.is_zero() {
                self.standstill = None;
            }
            return;
        };
        if stood < HOPELESS || std::mem::replace(&mut stands.is_told, true) {
            return;
        }
        let name = procfs::status(refused.pid).map_or("a process".into(), |status| status.name);
        self.warn(&format!(
            "{name} ({}) waits for memory that the kernel refuses at the limit of its memory cgroup, and nothing can be \
             taken away meanwhile, as where a debugger, or LeakSanitizer at the program's end, has stopped its \
             threads; raise --memory and the limit. The job is ended if that lasts for {} s",
            refused.pid,
            GIVEN_UP.as_secs()
        ));
    }

    /// The budget cannot hold the job. One that was started here is ended; processes that were running before are left.
    fn give_up(&mut self, why: Failure) {
        match self.family.is_given() {
            true => self.leave_because(&why),
            false => self.shared.fail(why),
        }
    }

    /// Whether the swap file has room and works: then the job is slow, and not without hope.
    pub(super) fn swap_takes_more(&self) -> bool {
        let takes_more = self.shared.engine().swap_takes_more();
        takes_more && lock(&self.shared.swap_error).is_none()
    }

    /// Whether what cannot be folded has nearly all of the budget now. Not while a process gets its agent, which takes long where that has
    /// no CPU: what it has can be folded soon.
    fn unfoldable_share_is_high(&self) -> bool {
        let budget = self.budget.bytes;
        self.unfoldable_bytes >= budget - budget / LEFT_PART && !self.injections.are_any_expected()
    }

    /// Whether much of what a process has could be compressed as segments are, if only that were asked for.
    fn could_be_segments(&self, pid: i32, process: &Process) -> bool {
        if self.shared.segments.get().is_some() || effective_user() != 0 {
            return false;
        }
        let parts = procfs::nameless_parts(pid).unwrap_or_default();
        let shared = parts.iter().filter(|one| one.part.mapping.shared);
        let mapped: u64 = shared
            .map(|one| one.part.mapping.end - one.part.mapping.start)
            .sum();
        mapped.min(process.common_bytes()) > self.budget.bytes / LEFT_PART
    }

    /// Says once that what cannot be folded has nearly all of the budget, while the rest comes and goes so
    /// many times a second. Nothing is wrong then, and the job would get on so slowly that it seems to hang.
    fn tell_of_unfoldable(&mut self, faults_per_s: u64) {
        let (budget, unfoldable) = (self.budget.bytes, self.unfoldable_bytes);
        if self.has_told_of_unfoldable {
            return;
        }
        self.has_told_of_unfoldable = true;
        let processes = self.census.processes.iter();
        let most = processes.max_by_key(|(_, process)| process.unfoldable_bytes(&self.shared));
        let remedy = match most.is_some_and(|(pid, process)| self.could_be_segments(*pid, process))
        {
            true => ", or give --shared-memory, which compresses what processes share by forks",
            false => "",
        };
        let name = most.and_then(|(pid, _)| Some((procfs::status(*pid).ok()?.name, *pid)));
        let most = name.map_or(String::new(), |(name, pid)| {
            format!(", most in {name} ({pid})")
        });
        self.warn(&format!(
            "{} of --memory {} MiB are in use by what cannot be folded (shared memory, read-only or locked \
             pages, memory of unmanaged programs){most}; the rest has next to no memory, waits for pages \
             {faults_per_s} times a second and gets on slowly: raise --memory to {} MiB or more{remedy}",
            unfoldable >> 20,
            budget >> 20,
            (unfoldable + budget / LEFT_PART * 2) >> 20
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_page_let_through_now_and_then_is_no_end_of_a_standstill() {
        let start = Instant::now();
        let mut stands = Standstill::from(start, 7);
        let mut stood = Duration::ZERO;
        for second in 1..=40 {
            stood = stands.look(after(start, second), second % 10 != 0, 7);
        }
        assert_eq!(stood, Duration::from_secs(32));
    }

    #[test]
    fn a_job_that_gets_on_stands_no_more() {
        let start = Instant::now();
        let mut stands = Standstill::from(start, 7);
        assert_eq!(stands.look(after(start, 2), true, 7).as_secs(), 2);
        assert_eq!(stands.look(after(start, 3), true, 8).as_secs(), 1);
        assert!(stands.look(after(start, 6), false, 8).is_zero());
    }
}
