//! How much memory to keep free for what the job takes without asking.
//!
//! Kernel memory, stacks, a process that was just started: all that is only seen when it is measured next. How
//! much that can be is learnt from how much it was. A job that is the same all the time needs little headroom, one
//! that starts processes needs what it is given.

use std::time::{Duration, Instant};

/// Free memory below which pages are taken away is a hundredth of the budget, within these limits, and more where
/// the floor is more.
const RESERVE_MIN: u64 = 3 << 20;
const RESERVE_MAX: u64 = 64 << 20;
/// So much can be kept free, with what is between the budget and a hard limit of 2 % more: a program fills
/// it in the time that a look may be late.
const FLOOR_WITH_SLACK_BYTES: u64 = 4 << 20;
/// Always expected: pages that an agent is just taking are seen twice or not at all.
const LEAST_BYTES: u64 = 512 << 10;
/// So much must be there in any case, with what is between the budget and a hard limit of 2 % more.
const WITH_SLACK_BYTES: u64 = 5 << 19;
/// That limit is above the budget by this part of it, one in so many.
const SLACK_PART: u64 = 50;
/// What growth was seen is expected so many times over.
const FACTOR: u64 = 2;
/// Growth up to this is next to nothing.
const CALM_BYTES: u64 = 1 << 20;
/// The largest growth seen is forgotten by half in this time.
const HALVED_AFTER: Duration = Duration::from_millis(500);

/// Free memory below which pages are taken away.
pub fn reserve_bytes(budget_bytes: u64) -> u64 {
    floor_bytes(budget_bytes) + reserve_share(budget_bytes) / 4
}

/// What of that is kept free at most for memory that the job takes without asking.
pub fn floor_bytes(budget_bytes: u64) -> u64 {
    let least = beside_slack(FLOOR_WITH_SLACK_BYTES, budget_bytes);
    (reserve_share(budget_bytes) / 4 * 3).max(least)
}

/// What is missing to so many bytes where a hard limit is 2 % above the budget.
fn beside_slack(bytes: u64, budget_bytes: u64) -> u64 {
    bytes.saturating_sub(budget_bytes / SLACK_PART)
}

fn reserve_share(budget_bytes: u64) -> u64 {
    (budget_bytes / 100).clamp(RESERVE_MIN, RESERVE_MAX)
}

/// The growth to expect between two measurements.
#[derive(Debug)]
pub struct Headroom {
    least_bytes: u64,
    most_bytes: u64,
    growth_bytes: u64,
    last: Option<(i64, usize)>,
    halved: Instant,
}

impl Headroom {
    /// As much as there is to give of this budget, until more is known.
    pub fn new(budget_bytes: u64, most_bytes: u64, now: Instant) -> Headroom {
        let least = beside_slack(WITH_SLACK_BYTES, budget_bytes);
        Headroom {
            least_bytes: least.max(LEAST_BYTES).min(most_bytes),
            most_bytes,
            growth_bytes: most_bytes,
            last: None,
            halved: now,
        }
    }

    /// So much unaccounted memory was measured in a job of so many processes. Answers how much more to expect.
    pub fn note(&mut self, now: Instant, foreign_bytes: i64, processes: usize) -> u64 {
        let grown = self.last.map_or(0, |(last, _)| foreign_bytes - last);
        let is_changed = self.last.is_some_and(|(_, count)| count != processes);
        self.last = Some((foreign_bytes, processes));
        if now - self.halved >= HALVED_AFTER {
            self.halved = now;
            self.growth_bytes /= 2;
        }
        // Programs that have just begun take what they need, and so does what a process left that ended.
        let seen = match is_changed {
            true => self.most_bytes,
            false => grown.max(0) as u64,
        };
        self.growth_bytes = self.growth_bytes.max(seen);
        (self.growth_bytes * FACTOR).clamp(self.least_bytes, self.most_bytes)
    }

    /// Whether next to nothing has come unasked lately.
    pub fn is_calm(&self) -> bool {
        self.growth_bytes <= CALM_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: u64 = 400 << 20;
    const MOST: u64 = 4 << 20;

    /// What is expected after looks half a second apart at so many MiB in so many processes, in KiB.
    fn expected(looks: &[(i64, usize)]) -> Vec<u64> {
        let mut now = Instant::now();
        let mut headroom = Headroom::new(BUDGET, MOST, now);
        let notes = looks.iter().map(|&(foreign, processes)| {
            now += HALVED_AFTER;
            headroom.note(now, foreign << 20, processes) >> 10
        });
        notes.collect()
    }

    #[test]
    fn a_job_that_stays_as_it_is_needs_little() {
        let quiet = expected(&[(5, 1); 8]);
        assert_eq!(quiet, [4096, 2048, 1024, 512, 512, 512, 512, 512]);
    }

    #[test]
    fn where_the_hard_limit_is_near_more_is_kept() {
        let least = |budget| Headroom::new(budget, MOST, Instant::now()).least_bytes >> 10;
        assert_eq!(
            [1, 25, 50, 100, 125].map(|mib| least(mib << 20)),
            [2539, 2048, 1536, 512, 512]
        );
    }

    #[test]
    fn a_small_budget_can_keep_more_free_for_a_look_that_is_late() {
        let kept = |mib: u64| (floor_bytes(mib << 20) >> 10, reserve_bytes(mib << 20) >> 10);
        let kept: Vec<_> = [25, 50, 100, 400, 8000].into_iter().map(kept).collect();
        let expected = [
            (3584, 4352),
            (3072, 3840),
            (2304, 3072),
            (3072, 4096),
            (49152, 65536),
        ];
        assert_eq!(kept, expected);
    }

    #[test]
    fn growth_is_expected_again_twice_over() {
        let mut looks = [(5, 1); 10];
        looks[8..].fill((6, 1));
        assert_eq!(expected(&looks)[7..], [512, 2048, 1024]);
    }

    #[test]
    fn shrinking_is_no_growth_and_a_new_process_may_be_anything() {
        let mut looks = [(5, 1); 10];
        looks[8] = (1, 1);
        looks[9] = (1, 2);
        assert_eq!(expected(&looks)[7..], [512, 512, 4096]);
    }
}
