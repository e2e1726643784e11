//! Changing the budget of a job that runs: everything that was made for the one before is told, in the order that nobody
//! is killed for.
//!
//! What stays as it was: the division of the swap file, the staging rings of processes that are managed already, and from
//! which size on programs that have started ask before they fill new memory.

use super::Supervisor;
use crate::budget::{Budget, BUDGET_MIN};
use crate::census::Stage;
use crate::cgroup::Gauge;
use crate::headroom::Headroom;
use crate::ledger::Ledger;
use crate::own_group::OwnGroup;
use crate::reclaim;
use crate::report::Report;
use pleat_sys::inject::is_open;
use pleat_sys::limits::{self, CgroupLimit};
use pleat_sys::pidfd::has_ended;
use pleat_sys::procfs;
use std::time::{Duration, Instant};

/// Whether less of a process is locked is not asked.
const WORTH_A_LOOK: u64 = 1 << 20;
/// A process that is managed since then may have memory that is still to be registered.
const REGISTERS_FOR: Duration = Duration::from_secs(1);

impl Supervisor<'_> {
    /// Gives the job this budget, in bytes.
    ///
    /// # Errors
    /// It cannot hold the job, or more than there are addresses for: a sentence with the remedy.
    pub(super) fn set_budget(&mut self, bytes: u64) -> Result<(), String> {
        if bytes < BUDGET_MIN {
            return Err(format!(
                "a budget of {} MiB is less than any job can have: give at least --memory {}M",
                bytes >> 20,
                BUDGET_MIN >> 20
            ));
        }
        let limit = self.least_limit().map(|limit| limit.bytes);
        if let Some(limit) = limit.filter(|&limit| bytes > limit && bytes > self.budget.bytes) {
            return Err(format!(
                "a budget of {} MiB is more than the memory cgroup of the job allows, so the kernel would kill it: give at most \
                 --memory {}M, or raise that limit first",
                bytes >> 20,
                (limit / 100 * 98) >> 20
            ));
        }
        if bytes > self.budget_max_bytes {
            return Err(format!(
                "a budget of {} MiB is more than the machine has, or addresses were set aside for when the job started: give at \
                 most --memory {}M",
                bytes >> 20,
                self.budget_max_bytes >> 20
            ));
        }
        let (mut least, mut kept) = self.least_budget(bytes);
        if bytes < self.budget.bytes && bytes < least {
            // The last look may be older than the registration of what it did not know.
            self.look_at_memory();
            (least, kept) = self.least_budget(bytes);
        }
        if bytes < self.budget.bytes && bytes < least {
            return Err(format!(
                "{} MiB of the job cannot be folded or written out (shared memory, locked pages, unmanaged programs, pleat itself, \
                 and what has no room in the swap file), and beside them it needs something to run in: give at least --memory {}M",
                kept >> 20,
                least >> 20
            ));
        }
        // The limit first where it rises; where it falls, it is lowered when the job is below it.
        if let Some(group) = &mut self.own_group {
            group.set_budget(bytes);
        }
        self.budget_changes += 1;
        self.take_on(Budget::of(bytes));
        reclaim::kick(&self.shared);
        self.shared.writer.open();
        self.shared.feed_starving();
        Ok(())
    }

    /// The least memory limit that this process is under, or one that it has taken up.
    fn least_limit(&self) -> Option<CgroupLimit> {
        let roots = self.family.roots().iter();
        let given = roots.filter(|root| !has_ended(&root.pidfd));
        let own = std::process::id() as i32;
        let pids: Vec<i32> = given.map(|root| root.pid).chain([own]).collect();
        limits::least_memory_limit_of(&pids)
    }

    pub(super) fn take_on(&mut self, budget: Budget) {
        let now = Instant::now();
        self.budget = budget;
        self.shared.engine().set_budget(
            budget.engine_bytes(),
            budget.reserve_bytes,
            budget.floor_bytes,
        );
        self.cache_room.resize(budget.cache_room_bytes);
        self.gauge = Gauge::follow(self.gauge.take(), budget.bytes, self.used_bytes);
        self.headroom = Headroom::new(budget.bytes, budget.floor_bytes, now);
        if let Some(load) = &mut self.load {
            load.set_budget(budget.bytes);
        }
        if let Some(kills) = &mut self.oom_kills {
            kills.follow(self.own_group.as_ref());
        }
        // Judged anew.
        self.hope = None;
        self.has_told_of_unfoldable = false;
    }

    /// The least budget that holds the job, of those about as large as `bytes`, and what of the job has to stay in memory; in
    /// bytes, as far as is known. What no process was made ready for yet is taken to be like the rest.
    pub(super) fn least_budget(&self, bytes: u64) -> (u64, u64) {
        let is_registering = self
            .managed_at
            .is_some_and(|at| at.elapsed() < REGISTERS_FOR);
        // While memory is plenty not all that is new is announced.
        let foldable = self
            .census
            .processes
            .iter()
            .filter(|(pid, process)| match process.stage {
                Stage::Ready(_) | Stage::Preparing(..) => true,
                Stage::Managed(_) => self.is_at_ease || is_registering,
                Stage::Silent => self.injections.is_hopeful(**pid) && is_open(**pid, &self.socket),
                Stage::Unmanageable => false,
            });
        let to_come: u64 = foldable
            .map(|(pid, one)| to_come(*pid, one.unknown_bytes(&self.shared)))
            .sum();
        let kept = self.unfoldable_bytes.saturating_sub(to_come);
        let kept = kept + self.shared.engine().least_kept_bytes(to_come);
        (Budget::of(bytes).least_for(kept), kept)
    }

    /// Whether the job is within the budget, and so is its limit.
    pub(super) fn is_settled(&self) -> bool {
        let is_set = self.own_group.as_ref().is_none_or(OwnGroup::is_settled);
        is_set && self.used_bytes <= self.budget.bytes
    }

    /// What became of the job's processes.
    pub fn ledger(&self) -> Ledger {
        self.census.ledger()
    }

    /// Every counter as it stands.
    pub fn report(&self) -> Report {
        let wall_us = self.start.elapsed().as_micros() as u64;
        let engine = self.shared.engine().counters();
        Report {
            budget_bytes: self.budget.bytes,
            budget_changes: self.budget_changes,
            latencies: self.shared.latencies.report(),
            ..Report::new(wall_us, self.shared.meters.read(), engine)
        }
    }
}

/// How much of what is not known of a process can be folded once it is: not what is locked.
fn to_come(pid: i32, unknown_bytes: u64) -> u64 {
    if unknown_bytes < WORTH_A_LOOK {
        return unknown_bytes;
    }
    let locked = procfs::status(pid).map_or(0, |status| status.locked_bytes);
    unknown_bytes.saturating_sub(locked)
}
