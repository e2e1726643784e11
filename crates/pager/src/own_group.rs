//! The job's own memory cgroup: where its limit is to be, and what is done while somebody waits at it.
//!
//! A limit is set only where being killed is the alternative: inside another limit close to the budget, or with
//! `--hard`. It leaves of that other limit what the supervisor and others in it use, and a little more, so that whoever
//! outruns pleat waits just before the kernel would kill. What is kept back is then given in small steps, for some of what
//! may wait is needed to get memory free: an agent, a fork, page tables. When all is given and nothing has got free
//! for long, the OOM killer is put back in its office, and the situation named.

mod resize;
mod steps;

use crate::cgroup::CloseLimit;
use pleat_sys::job_group::{file_bytes, number, JobGroup, Version};
use resize::Resize;
use std::time::{Duration, Instant};
use steps::{Step, Steps};

/// What is kept back of the surrounding limit: a part of the budget, one in so many, within these limits. The supervisor may
/// grow by it between two looks, and it is what can be given to those who wait.
const KEPT_BACK_PART: u64 = 128;
const KEPT_BACK_MIN: u64 = 768 << 10;
const KEPT_BACK_MAX: u64 = 4 << 20;
/// Of that, what is never given: the kernel counts in batches for each CPU.
const NEVER_GIVEN: u64 = 256 << 10;
/// Of what a group has until the end this part, one in so many, may be taken away before the next look, if no more lies beyond its limit.
const TAKING_PART: u64 = 4;
/// What the supervisor needs once it has to manage a job: so much, and of the budget one part in so many. As long as it
/// has less, the difference is kept back, too: it must be there just when somebody waits.
const SUPERVISOR_BYTES: u64 = 4 << 20;
const SUPERVISOR_PART: u64 = 128;
/// And for each process but the first, what its thread and its pages under way take, up to a part of the budget, one in so many. Twelve
/// processes of a database take 5 MB in all, twelve forked children that write all they share 15.8; what is taken from those is
/// limited by the room there is. With 192 KiB the kernel killed one of eight such jobs, with 512 none of 26.
const PROCESS_BYTES: u64 = 512 << 10;
const PROCESSES_PART: u64 = 4;
/// v2 slows more the further a group is beyond its limit: from a hundredth on noticeably, at three hundredths to some
/// 4 MB/s. So there it is lower, by one part in so many, and at half of that somebody is slowed.
const SLOWED_FROM_PART: u64 = 33;
/// With `--hard` the job has so much more than the budget, one part in so many: what the kernel needs beside it.
const HARD_SLACK_PART: u64 = 50;
/// A limit is moved by at least so much.
const MOVED_MIN: u64 = 64 << 10;
/// So near to its limit a group is looked at more closely.
const NEAR: u64 = 8 << 20;
/// Nothing gets free any more when somebody has waited so long at the last step, and nothing was taken away.
const HELPLESS: Duration = Duration::from_secs(5);
/// The same where no process can be managed.
const HELPLESS_ALONE: Duration = Duration::from_millis(200);
/// While somebody waits so much more is wanted than is in use.
const WANTED_BYTES: u64 = 1 << 20;

/// Whether the job is to have a memory cgroup of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnCgroup {
    /// Where it can be had.
    #[default]
    Auto,
    /// In no case.
    Never,
    /// In any case, and its limit is firm: the budget and 2 %.
    Hard,
}

impl OwnCgroup {
    /// As it is written in statistics.
    pub fn name(self) -> &'static str {
        match self {
            OwnCgroup::Auto => "auto",
            OwnCgroup::Never => "never",
            OwnCgroup::Hard => "hard",
        }
    }
}

/// Whether a job can have a memory cgroup of its own here, found out by making one; how it would stop growth.
///
/// # Errors
/// Why not, with what helps.
pub fn try_own_cgroup() -> Result<&'static str, String> {
    let group = JobGroup::make()?;
    group
        .prepare_to_limit()
        .map_err(|error| error.to_string())?;
    Ok(match group.version() {
        Version::V1 => "waits (cgroup v1)",
        Version::V2 => "is slowed (cgroup v2)",
    })
}

/// The group and its limit.
pub struct OwnGroup {
    group: JobGroup,
    budget_bytes: u64,
    /// A limit around it that is close to the budget.
    around: Option<CloseLimit>,
    is_hard: bool,
    /// The limit now; `None`: none was set.
    limit_bytes: Option<u64>,
    steps: Steps,
    /// The budget is becoming smaller.
    resize: Resize,
    /// What the supervisor used at the last look, and how many processes there were.
    last: (u64, usize),
    /// v2: how often somebody was slowed, at the last look.
    times_slowed: u64,
    /// Nothing else helped: the kernel kills, at this limit if it is firm, else at the one around.
    kills: bool,
}

/// How much more the group may come to use.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Until its own limit: who would take more waits.
    pub until_limit_bytes: u64,
    /// What may be taken away before the next look, of what there is until the limit around the job, or a firm one of its own. What is
    /// taken comes to the supervisor, and somebody in the group may have its place at once, up to the group's limit: so it has what lies beyond that.
    pub for_taking_bytes: u64,
}

/// What the main thread is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strait {
    /// Nothing.
    None,
    /// Somebody waits: so much more is wanted than there is.
    Waiting {
        /// So much.
        wanted_bytes: u64,
        /// The limit was raised for them.
        is_step: bool,
    },
    /// Nothing helps any more: say it, the kernel kills now.
    Helpless,
}

impl OwnGroup {
    /// A group for a job with this budget; `None` where it is not to have one, or cannot.
    ///
    /// # Errors
    /// It must have one, and cannot: why.
    pub fn make(wanted: OwnCgroup, budget_bytes: u64) -> Result<Option<OwnGroup>, String> {
        if wanted == OwnCgroup::Never {
            return Ok(None);
        }
        // Before this process is anywhere else.
        let around = CloseLimit::find(budget_bytes);
        let is_hard = wanted == OwnCgroup::Hard;
        let group = match JobGroup::make() {
            Ok(group) => group,
            Err(why) if is_hard => return Err(why),
            Err(_) => return Ok(None),
        };
        let mut own = OwnGroup {
            group,
            budget_bytes,
            around,
            is_hard,
            limit_bytes: None,
            steps: Steps::default(),
            resize: Resize::default(),
            last: (0, 1),
            times_slowed: 0,
            kills: false,
        };
        if own.has_limit() {
            let prepared = own.group.prepare_to_limit();
            if let (Err(error), true) = (&prepared, is_hard) {
                return Err(format!("its memory cgroup takes no limit ({error})"));
            }
            if prepared.is_err() {
                // Its limit would kill sooner than the one around it.
                own.around = None;
            }
        }
        own.follow(0, 1);
        Ok(Some(own))
    }

    /// The group.
    pub fn group(&self) -> &JobGroup {
        &self.group
    }

    /// What to poll: somebody has begun to wait, or was slowed. Without a limit nobody would make it silent again:
    /// a limit around it, or inside, tells as well.
    pub fn notices(&self) -> Option<libc::pollfd> {
        self.has_limit().then(|| self.group.notices().to_poll())
    }

    /// With `--hard`, how much the job may use in all, the supervisor included.
    pub fn hard_limit(&self) -> Option<u64> {
        let limit = self.budget_bytes + self.budget_bytes / HARD_SLACK_PART;
        self.is_hard.then_some(limit)
    }

    /// All that the group uses, but for file pages that the kernel can drop. 12 us.
    pub fn memory_bytes(&self) -> Option<u64> {
        let files = self.group.file_bytes()?;
        Some(self.group.usage_bytes()?.saturating_sub(files))
    }

    /// How far it is to its limit and to the end, where there are any. What the kernel can drop is not counted.
    pub fn room(&self, own_bytes: u64) -> Option<Room> {
        if !self.has_limit() {
            return None;
        }
        let used = self.group.usage_bytes()?;
        let end = self.end_bytes(used, own_bytes)?;
        let memory = used.saturating_sub(self.group.file_bytes()?);
        let until_end = end.saturating_sub(memory);
        let until_limit = self
            .limit_bytes
            .map_or(u64::MAX, |limit| limit.saturating_sub(memory));
        Some(Room {
            until_limit_bytes: until_limit,
            for_taking_bytes: for_taking(until_limit, until_end),
        })
    }

    /// Whether who takes more than there is waits there, or is slowed.
    pub fn has_limit(&self) -> bool {
        self.is_hard || self.around.is_some()
    }

    /// To be called at every look: has the limit follow what others use, of which `own_bytes` are the supervisor's,
    /// and minds those who wait. `taken` counts what was taken away so far; `None`: there is nobody to take from.
    /// `processes` is how many the job has; `lacks`: one of them stands still and has no memory for its agent.
    pub fn look(
        &mut self,
        own_bytes: u64,
        processes: usize,
        lacks: bool,
        taken: impl FnOnce() -> Option<u64>,
    ) -> Strait {
        self.last = (own_bytes, processes);
        self.go_on_resizing();
        if !self.has_limit() {
            return Strait::None;
        }
        self.group.notices().hush();
        self.follow(own_bytes, processes);
        if !self.is_waiting() && !lacks {
            if self.steps.calm(Instant::now()) && self.kills {
                self.take_up_again(own_bytes);
            }
            return Strait::None;
        }
        let most = kept_back(self.budget_bytes) - NEVER_GIVEN;
        let taken = taken();
        let patience = taken.map_or(HELPLESS_ALONE, |_| HELPLESS);
        let step = self
            .steps
            .note(Instant::now(), taken.unwrap_or(0), most, patience);
        match step {
            Step::GiveUp if !self.kills => {
                self.give_up();
                Strait::Helpless
            }
            step => {
                self.follow(own_bytes, processes);
                Strait::Waiting {
                    wanted_bytes: WANTED_BYTES,
                    is_step: step == Step::Further,
                }
            }
        }
    }

    /// Has the kernel decide: at this limit if it is firm, else at the one around, as if there were no group.
    fn give_up(&mut self) {
        self.kills = true;
        if self.is_hard {
            // Where it fails they wait on.
            let _ = self.group.spare(false);
        } else {
            self.group.place().lift();
            self.limit_bytes = None;
        }
    }

    /// Stops growth again, if there is so much less in use that it can.
    fn take_up_again(&mut self, own_bytes: u64) {
        let used = self.group.usage_bytes();
        let end = used.and_then(|used| self.end_bytes(used, own_bytes));
        let has_room = used.zip(end).is_some_and(|(used, end)| used + NEAR < end);
        if has_room && self.group.spare(true).is_ok() {
            self.kills = false;
        }
    }

    fn is_waiting(&mut self) -> bool {
        match self.group.version() {
            Version::V1 => self.group.notices().is_waiting(),
            // Who was slowed since the last look would have waited.
            Version::V2 => {
                let times = self.group.notices().times_slowed();
                let is_new = times != std::mem::replace(&mut self.times_slowed, times);
                let slowed = self
                    .limit_bytes
                    .map(|limit| limit - limit / (2 * SLOWED_FROM_PART));
                let used = self.group.usage_bytes();
                is_new && used.zip(slowed).is_some_and(|(used, slowed)| used > slowed)
            }
        }
    }

    /// Moves the limit to where it is to be.
    fn follow(&mut self, own_bytes: u64, processes: usize) {
        if self.kills && !self.is_hard {
            return;
        }
        let Some(used) = self.group.usage_bytes() else {
            return;
        };
        let Some(end) = self.end_bytes(used, own_bytes) else {
            return;
        };
        let kept = kept_back(self.budget_bytes).saturating_sub(self.steps.given_bytes);
        let others = processes.saturating_sub(1) as u64 * PROCESS_BYTES;
        let others = others.min(self.budget_bytes / PROCESSES_PART);
        let to_come = SUPERVISOR_BYTES + self.budget_bytes / SUPERVISOR_PART + others;
        let kept = kept + to_come.saturating_sub(own_bytes);
        let (now, in_use) = self.limit_and_use(used);
        let limit = next_limit(now, end.saturating_sub(kept), in_use);
        let is_moved = self
            .limit_bytes
            .is_none_or(|now| now.abs_diff(limit) >= MOVED_MIN);
        if !is_moved {
            return;
        }
        let set = match self.group.version() {
            Version::V1 => self.group.limit(limit),
            Version::V2 => {
                let slowed = limit - limit / SLOWED_FROM_PART;
                let killed = if self.is_hard {
                    self.group.kill_from(self.end_now(end, in_use))
                } else {
                    Ok(())
                };
                killed.and_then(|()| self.group.limit(slowed))
            }
        };
        self.note_set(set.is_ok(), limit <= end.saturating_sub(kept));
        if set.is_ok() {
            self.limit_bytes = Some(limit);
        }
    }

    /// How much the group can come to use in all.
    fn end_bytes(&self, used: u64, own_bytes: u64) -> Option<u64> {
        let hard = self.hard_limit();
        let hard = hard.map(|limit| limit.saturating_sub(own_bytes));
        let around = self
            .around
            .as_ref()
            .and_then(|around| around.leaves(used, &self.group));
        hard.into_iter().chain(around).min()
    }
}

impl CloseLimit {
    /// What others leave to a group that uses so much.
    fn leaves(&self, used: u64, group: &JobGroup) -> Option<u64> {
        let others = number(&self.usage)?.saturating_sub(used);
        let left = self.bytes.saturating_sub(others);
        if used + NEAR < left {
            return Some(left);
        }
        // Others' file pages are dropped before anybody is killed. Not free to ask: 20 us.
        let files = file_bytes(&self.stat)?.saturating_sub(group.file_bytes()?);
        Some(left + files.min(others))
    }
}

/// Where a limit goes that is to be at `wanted`. Less than is in use would be refused, after the kernel has dropped all
/// file pages for it; and more than there was is not given for that.
fn next_limit(now: Option<u64>, wanted: u64, used: u64) -> u64 {
    match now {
        Some(now) if wanted < now => wanted.max(used + MOVED_MIN).min(now),
        _ => wanted,
    }
}

/// What may be taken away at once: see [`Room::for_taking_bytes`]. Where the group has far to go to its limit, it does not come all the way in
/// one look.
fn for_taking(until_limit: u64, until_end: u64) -> u64 {
    let beyond = until_end.saturating_sub(until_limit);
    beyond
        .max(until_end / TAKING_PART)
        .saturating_sub(NEVER_GIVEN)
}

fn kept_back(budget_bytes: u64) -> u64 {
    (budget_bytes / KEPT_BACK_PART).clamp(KEPT_BACK_MIN, KEPT_BACK_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_falls_to_what_is_in_use_at_most_and_does_not_creep_up_with_it() {
        let mib = 1 << 20;
        assert_eq!(next_limit(None, 50 * mib, 0), 50 * mib);
        assert_eq!(next_limit(Some(50 * mib), 60 * mib, 50 * mib), 60 * mib);
        assert_eq!(next_limit(Some(50 * mib), 40 * mib, 20 * mib), 40 * mib);
        let fallen = next_limit(Some(50 * mib), 40 * mib, 45 * mib);
        assert_eq!(fallen, 45 * mib + MOVED_MIN);
        assert_eq!(next_limit(Some(50 * mib), 40 * mib, 50 * mib), 50 * mib);
    }

    #[test]
    fn what_is_taken_and_what_may_have_its_place_do_not_come_to_more_than_there_is() {
        let kib = 1 << 10;
        // A group that fills up to its limit at once.
        for (until_limit, beyond) in [(0, 768), (100, 768), (2000, 768), (0, 256), (500, 4096)] {
            let taken = for_taking(until_limit * kib, (until_limit + beyond) * kib);
            assert!(
                taken + until_limit * kib
                    <= (until_limit + beyond) * kib - NEVER_GIVEN.min(beyond * kib)
            );
        }
        // Far from it, or without any, there is room for both.
        assert!(for_taking(79 << 20, 80 << 20) > 16 << 20);
        assert!(for_taking(u64::MAX, 80 << 20) > 16 << 20);
        assert_eq!(for_taking(0, 200 * kib), 0);
    }

    #[test]
    fn what_is_kept_back_grows_with_the_budget() {
        let kept = [24, 105, 417, 4000].map(|mib: u64| kept_back(mib << 20) >> 10);
        assert_eq!(kept, [768, 840, 3336, 4096]);
        assert!(kept_back(0) > NEVER_GIVEN);
    }
}
