//! How much memory a job may have when the user gives a percentage, or nothing.
//!
//! Inside a memory cgroup with a limit, that limit is what there is; elsewhere it is what the
//! kernel says could be used without swapping. The rest is left to everybody else.

use crate::jobs::Outer;
use crate::size::{human, Amount};
use pleat_sys::limits;
use std::io;

const SHARE_OF_LIMIT_PERCENT: u64 = 90;
const SHARE_OF_AVAILABLE_PERCENT: u64 = 80;

/// What this machine offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineMemory {
    /// Limit of the memory cgroup, if there is one.
    pub cgroup_limit_bytes: Option<u64>,
    /// MemAvailable.
    pub available_bytes: u64,
    /// What a job may have of the budget of the job around it, if there is one.
    pub share_bytes: Option<u64>,
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
            share_bytes: None,
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
        match self.cgroup_limit_bytes {
            Some(limit) => (
                limit,
                format!("the memory cgroup's limit of {}", human(limit)),
            ),
            None => (
                self.available_bytes,
                format!("the {} available", human(self.available_bytes)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::parse_amount;

    const LIMITED: MachineMemory = MachineMemory {
        cgroup_limit_bytes: Some(2000 << 20),
        available_bytes: 500 << 20,
        share_bytes: None,
    };
    const FREE: MachineMemory = MachineMemory {
        cgroup_limit_bytes: None,
        available_bytes: 1000 << 20,
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
    fn a_size_is_taken_as_it_is() {
        assert_eq!(asked(LIMITED, "340M").bytes, 340 << 20);
    }
}
