//! How much memory a job may have when the user gives a percentage, or nothing.
//!
//! Inside a memory cgroup with a limit, that limit is what there is; elsewhere it is what the
//! kernel says could be used without swapping. The rest is left to everybody else. Processes that run already
//! may have a limit of their own, and what they have is theirs to keep.

use crate::jobs::Outer;
use crate::size::{human, Amount};
use pleat_sys::{limits, procfs};
use std::collections::BTreeSet;
use std::io;

const SHARE_OF_LIMIT_PERCENT: u64 = 90;
const SHARE_OF_AVAILABLE_PERCENT: u64 = 80;

/// What this machine offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineMemory {
    /// Limit of the memory cgroup, if there is one.
    pub cgroup_limit_bytes: Option<u64>,
    /// Whose memory cgroup that is.
    pub limited: Limited,
    /// MemAvailable.
    pub available_bytes: u64,
    /// What the job has already, which MemAvailable is without.
    pub held_bytes: u64,
    /// What a job may have of the budget of the job around it, if there is one.
    pub share_bytes: Option<u64>,
}

/// Who is limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limited {
    /// pleat itself, and with it all that it starts.
    #[default]
    Own,
    /// Processes that run already, in a group where pleat is not.
    Running,
}

/// A budget and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// For everything: processes, compressed store, staging, pleat itself.
    pub bytes: u64,
    /// For messages: "90% of the memory cgroup's limit of 2G".
    pub reason: String,
}

impl MachineMemory {
    /// What is there now.
    ///
    /// # Errors
    /// When the kernel does not say how much memory is available.
    pub fn read() -> io::Result<MachineMemory> {
        Ok(MachineMemory {
            cgroup_limit_bytes: limits::memory_cgroup_limit().map(|limit| limit.bytes),
            available_bytes: limits::mem_available_bytes()?,
            ..MachineMemory::default()
        })
    }

    /// The same for processes that run already: their limits hold beside pleat's own, under which compressed pages are.
    pub fn for_running(self, pids: &[i32]) -> MachineMemory {
        let theirs = limits::least_memory_limit_of(pids).map(|limit| limit.bytes);
        let own = self.cgroup_limit_bytes;
        let (limit, limited) = match (own, theirs) {
            (Some(own), Some(theirs)) if theirs < own => (Some(theirs), Limited::Running),
            (None, Some(theirs)) => (Some(theirs), Limited::Running),
            _ => (own, Limited::Own),
        };
        // The kernel walks all their memory for it.
        let held_bytes = match limit {
            Some(_) => 0,
            None => resident_bytes(pids),
        };
        MachineMemory {
            cgroup_limit_bytes: limit,
            limited,
            held_bytes,
            ..self
        }
    }

    /// What there is for a job that runs: the limits are those of these, its supervisor and the processes that it has taken up.
    ///
    /// # Errors
    /// As of [`MachineMemory::read`].
    pub fn for_job(pids: &[i32], used_bytes: u64) -> io::Result<MachineMemory> {
        Ok(MachineMemory {
            cgroup_limit_bytes: limits::least_memory_limit_of(pids).map(|limit| limit.bytes),
            available_bytes: limits::mem_available_bytes()?,
            held_bytes: used_bytes,
            ..MachineMemory::default()
        })
    }

    /// The same in a job with this budget.
    pub fn inside(self, outer: Option<&Outer>) -> MachineMemory {
        MachineMemory {
            share_bytes: outer.map(|outer| Outer::share_of(outer.budget_bytes)),
            ..self
        }
    }

    fn base(&self) -> (u64, String) {
        if let Some(share) = self.share_bytes {
            let name = format!(
                "the {} that the job around this one has for it",
                human(share)
            );
            return (share, name);
        }
        let (available, held) = (self.available_bytes, self.held_bytes);
        match (self.cgroup_limit_bytes, self.limited) {
            (Some(limit), Limited::Own) => (
                limit,
                format!("the memory cgroup's limit of {}", human(limit)),
            ),
            (Some(limit), Limited::Running) => (
                limit,
                format!(
                    "the limit of {} of the processes' memory cgroup",
                    human(limit)
                ),
            ),
            (None, _) if held == 0 => (available, format!("the {} available", human(available))),
            (None, _) => (
                available + held,
                format!(
                    "the {} that the job has and the {} available",
                    human(held),
                    human(available)
                ),
            ),
        }
    }

    /// The budget when the user gives none.
    pub fn default_budget(&self) -> Budget {
        if let Some(share) = self.share_bytes {
            let reason = format!("all of {}", self.base().1);
            return Budget {
                bytes: share,
                reason,
            };
        }
        let percent = match self.cgroup_limit_bytes {
            Some(_) => SHARE_OF_LIMIT_PERCENT,
            None => SHARE_OF_AVAILABLE_PERCENT,
        };
        let (base_bytes, name) = self.base();
        Budget {
            bytes: base_bytes / 100 * percent,
            reason: format!("{percent}% of {name}"),
        }
    }

    /// The budget the user asked for in `text`, which has been read as `amount`.
    pub fn budget_for(&self, amount: Amount, text: &str) -> Budget {
        match amount {
            Amount::Bytes(bytes) => Budget {
                bytes,
                reason: "as given".to_owned(),
            },
            Amount::Share(share) => {
                let (base_bytes, name) = self.base();
                let bytes = share.percent_of(base_bytes);
                Budget {
                    bytes,
                    reason: format!("{} of {name}", text.trim()),
                }
            }
        }
    }
}

/// Memory of these processes and all that they have started, of which no file holds a copy.
fn resident_bytes(pids: &[i32]) -> u64 {
    let below = pids.iter().flat_map(|pid| procfs::descendants(*pid));
    let all: BTreeSet<i32> = below.chain(pids.iter().copied()).collect();
    let rollups = all.into_iter().filter_map(|pid| procfs::rollup(pid).ok());
    rollups
        .map(|rollup| rollup.pss_anon_bytes + rollup.pss_shmem_bytes)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::parse_amount;

    const LIMITED: MachineMemory = MachineMemory {
        cgroup_limit_bytes: Some(2000 << 20),
        limited: Limited::Own,
        available_bytes: 500 << 20,
        held_bytes: 0,
        share_bytes: None,
    };
    const FREE: MachineMemory = MachineMemory {
        cgroup_limit_bytes: None,
        limited: Limited::Own,
        available_bytes: 1000 << 20,
        held_bytes: 0,
        share_bytes: None,
    };

    fn asked(memory: MachineMemory, text: &str) -> Budget {
        memory.budget_for(parse_amount(text).unwrap(), text)
    }

    #[test]
    fn the_default_is_90_percent_of_a_limit_else_80_percent_of_what_is_available() {
        assert_eq!(LIMITED.default_budget().bytes, 1800 << 20);
        assert_eq!(FREE.default_budget().bytes, 800 << 20);
    }

    #[test]
    fn a_percentage_is_of_the_same_base_as_the_default() {
        assert_eq!(asked(LIMITED, "50%").bytes, 1000 << 20);
        assert_eq!(asked(FREE, "50%").bytes, 500 << 20);
        assert_eq!(asked(FREE, "50%").reason, "50% of the 1000M available");
    }

    #[test]
    fn in_another_job_all_is_of_that_jobs_budget() {
        let outer = Outer {
            pid: None,
            budget_bytes: 1000 << 20,
        };
        let inner = LIMITED.inside(Some(&outer));
        assert_eq!(inner.default_budget().bytes, 900 << 20);
        assert_eq!(asked(inner, "50%").bytes, 450 << 20);
    }

    #[test]
    fn what_a_job_has_already_is_there_for_it_unless_a_limit_holds() {
        let held = |memory: MachineMemory| MachineMemory {
            held_bytes: 3 << 30,
            ..memory
        };
        let all = (3 << 30) + (1000 << 20);
        assert_eq!(held(FREE).default_budget().bytes, all / 100 * 80);
        let half = asked(held(FREE), "50%");
        assert_eq!(half.bytes, all / 2);
        assert_eq!(
            half.reason,
            "50% of the 3G that the job has and the 1000M available"
        );
        assert_eq!(asked(held(LIMITED), "50%").bytes, 1000 << 20);
    }

    #[test]
    fn processes_that_run_have_what_they_have_and_no_more_than_pleats_own_limit_holds() {
        let own = std::process::id() as i32;
        let tight = MachineMemory {
            cgroup_limit_bytes: Some(1),
            ..FREE
        };
        assert_eq!(tight.for_running(&[own]), tight);
        let running = FREE.for_running(&[own]);
        match limits::memory_cgroup_limit() {
            Some(limit) => {
                assert_eq!(running.cgroup_limit_bytes, Some(limit.bytes));
                assert_eq!(running.limited, Limited::Running);
            }
            None => assert!(running.held_bytes > 64 << 10, "{running:?}"),
        }
    }

    #[test]
    fn a_size_is_taken_as_it_is() {
        assert_eq!(asked(LIMITED, "340M").bytes, 340 << 20);
    }
}
