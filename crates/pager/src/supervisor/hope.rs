//! Whether the job still gets on: gives up, or tells why it is slow.

use super::Supervisor;
use crate::shared::lock;
use pleat_sys::procfs;
use pleat_types::PAGE_SIZE;
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

impl Supervisor<'_> {
    /// Whether the job still gets on. When most of its faults are only answered because they have
    /// waited too long, nothing can be freed any more: what is in memory does not compress further,
    /// and the swap file is full, broken or not there.
    pub(super) fn check_hope(&mut self) {
        let meters = &self.shared.meters;
        let now = (meters.faults.get(), meters.urgent_faults.get());
        let (since, then) = *self.hope.get_or_insert((Instant::now(), now));
        if since.elapsed() < HOPELESS {
            return;
        }
        self.hope = None;
        let (faults, urgent) = (now.0 - then.0, now.1 - then.1);
        self.tell_of_unfoldable(faults / HOPELESS.as_secs());
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
        self.shared.fail(format!(
            "the job does not fit into --memory {} MiB, and what is too much cannot be put \
             anywhere: {remedy}",
            self.job.budget_bytes >> 20
        ));
    }

    /// Whether the swap file has room and works: then the job is slow, and not without hope.
    fn swap_takes_more(&self) -> bool {
        let takes_more = self.shared.engine().swap_takes_more();
        takes_more && lock(&self.shared.swap_error).is_none()
    }

    /// Says once that what cannot be folded has nearly all of the budget, while the rest comes and goes so
    /// many times a second. Nothing is wrong then, and the job would get on so slowly that it seems to hang.
    fn tell_of_unfoldable(&mut self, faults_per_s: u64) {
        let budget = self.job.budget_bytes;
        let unfoldable = {
            let engine = self.shared.engine();
            let stuck = engine.stuck_pages() * PAGE_SIZE as u64;
            engine.foreign_bytes().max(0) as u64 + stuck
        };
        // With next to nothing left it need not come and go often: it may hardly get on at all.
        let is_rest_slow = faults_per_s >= THRASHING || self.overdraft_bytes > 0;
        let unfoldable = unfoldable + self.overdraft_bytes;
        if self.has_told_of_unfoldable || !is_rest_slow || unfoldable < budget - budget / LEFT_PART
        {
            return;
        }
        self.has_told_of_unfoldable = true;
        let processes = self.census.processes.iter();
        let most = processes.max_by_key(|(_, process)| process.unfoldable_bytes(&self.shared));
        let name = most.and_then(|(pid, _)| Some((procfs::status(*pid).ok()?.name, *pid)));
        let most = name.map_or(String::new(), |(name, pid)| {
            format!(", most in {name} ({pid})")
        });
        self.warn(&format!(
            "{} of --memory {} MiB are in use by what cannot be folded (shared memory, read-only or locked \
             pages, memory of unmanaged programs){most}; the rest has next to no memory, waits for pages \
             {faults_per_s} times a second and gets on slowly: raise --memory to {} MiB or more",
            unfoldable >> 20,
            budget >> 20,
            (unfoldable + budget / LEFT_PART * 2) >> 20
        ));
    }
}
