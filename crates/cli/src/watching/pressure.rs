//! When a job is near its end: which shares are so large that somebody should be told, and how often he is.

use crate::pager::control::Detail;
use crate::size::human;
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Stalls are judged over so much time: a job that reads its data for the first time stalls, too.
const WINDOW_US: u64 = 10_000_000;

/// What there is too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The swap file is nearly full.
    Swap,
    /// Threads wait for pages much of the time.
    Stall,
    /// What cannot be compressed fills the budget.
    Unfoldable,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Swap, Kind::Stall, Kind::Unfoldable];

    /// As it is written in `--pressure`, and in the environment of a command.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Swap => "swap",
            Kind::Stall => "stall",
            Kind::Unfoldable => "unfoldable",
        }
    }
}

/// From which share on; `None`: it is not looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds([Option<f64>; Kind::ALL.len()]);

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds([Some(0.9), Some(0.5), Some(0.9)])
    }
}

impl FromStr for Thresholds {
    type Err = String;

    fn from_str(text: &str) -> Result<Thresholds, String> {
        let mut all = Thresholds::default();
        for word in text.split(',') {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
            let share = match value {
                "off" => Some(None),
                _ => share(value).map(Some),
            };
            match (kind, share) {
                (Some(kind), Some(share)) => all.0[kind as usize] = share,
                _ => {
                    return Err("give swap=PERCENT, stall=PERCENT or unfoldable=PERCENT, several with commas between them, or off \
                                for a percentage: swap=80%,stall=off".into())
                }
            }
        }
        Ok(all)
    }
}

/// `80%`; a stall may be of several threads.
fn share(text: &str) -> Option<f64> {
    let percent: f64 = text.strip_suffix('%').unwrap_or(text).parse().ok()?;
    (percent > 0.0 && percent <= 100_000.0).then_some(percent / 100.0)
}

impl fmt::Display for Thresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Kind::ALL.map(|kind| match self.0[kind as usize] {
            Some(share) => format!("{}={:.0}%", kind.name(), share * 100.0),
            None => format!("{}=off", kind.name()),
        });
        f.write_str(&words.join(","))
    }
}

/// How much the swap file holds, and may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// What may still be written: the disk's free space, or what `--swap-max` leaves.
    pub free_bytes: u64,
    /// By what it is limited, and so what helps.
    pub remedy: &'static str,
}

/// Somebody should be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Of what.
    pub kind: Kind,
    /// How much, and what helps, in one line.
    pub message: String,
}

/// Looks at a job again and again.
pub struct Pressures {
    thresholds: Thresholds,
    period: Duration,
    told: [Option<Instant>; Kind::ALL.len()],
    /// Time and stalls, the oldest first.
    stalls: VecDeque<(u64, u64)>,
}

impl Pressures {
    /// With these thresholds; each kind is told of once in `period` at most.
    pub fn new(thresholds: Thresholds, period: Duration) -> Pressures {
        Pressures {
            thresholds,
            period,
            told: Default::default(),
            stalls: VecDeque::new(),
        }
    }

    /// What is to be told now. `room`: that of the swap file, if there is one.
    pub fn look(&mut self, now: Instant, detail: &Detail, room: Option<Room>) -> Vec<Pressure> {
        let stalled = self.stalled(detail);
        let mut pressures = Vec::new();
        for kind in Kind::ALL {
            let found = match kind {
                Kind::Swap => room.and_then(|room| swap(detail, room)),
                Kind::Stall => stalled.map(|share| (share, stall(share))),
                Kind::Unfoldable => unfoldable(detail),
            };
            let threshold = self.thresholds.0[kind as usize];
            let Some((share, message)) = found else {
                continue;
            };
            let told = &mut self.told[kind as usize];
            let is_due = told.is_none_or(|at| now.saturating_duration_since(at) >= self.period);
            if is_due && threshold.is_some_and(|threshold| share >= threshold) {
                *told = Some(now);
                pressures.push(Pressure { kind, message });
            }
        }
        pressures
    }

    /// Threads that waited for pages, on average over the window; `None` until that has passed.
    fn stalled(&mut self, detail: &Detail) -> Option<f64> {
        let now = (detail.status.wall_us, detail.totals.stall_us);
        self.stalls.push_back(now);
        // The last that is a whole window old stays.
        while self
            .stalls
            .get(1)
            .is_some_and(|(at, _)| now.0.saturating_sub(*at) >= WINDOW_US)
        {
            self.stalls.pop_front();
        }
        let first = self.stalls.front()?;
        let passed_us = now.0.checked_sub(first.0).filter(|us| *us >= WINDOW_US)?;
        Some(now.1.saturating_sub(first.1) as f64 / passed_us as f64)
    }
}

fn swap(detail: &Detail, room: Room) -> Option<(f64, String)> {
    let used = detail.tiers.swap_file_bytes;
    let share = used as f64 / (used + room.free_bytes) as f64;
    let message = format!(
        "the swap file has {} and can have {} more: {}, or raise --memory",
        human(used),
        human(room.free_bytes),
        room.remedy
    );
    (used > 0).then_some((share, message))
}

fn stall(share: f64) -> String {
    format!(
        "threads have waited for pages {:.0} % of the last 10 s: raise --memory",
        share * 100.0
    )
}

fn unfoldable(detail: &Detail) -> Option<(f64, String)> {
    let (part, budget) = (detail.tiers.unfoldable_bytes, detail.status.budget_bytes);
    let message = format!(
        "{} of {} are in use by what cannot be compressed: raise --memory",
        human(part),
        human(budget)
    );
    (budget > 0).then(|| (part as f64 / budget as f64, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pager::control::{Status, Tiers, Totals};

    fn detail(wall_s: u64, stall_s: u64) -> Detail {
        Detail {
            status: Status {
                wall_us: wall_s * 1_000_000,
                budget_bytes: 100 << 20,
                ..Status::default()
            },
            tiers: Tiers {
                swap_file_bytes: 90 << 20,
                unfoldable_bytes: 89 << 20,
                ..Tiers::default()
            },
            totals: Totals {
                stall_us: stall_s * 1_000_000,
                ..Totals::default()
            },
            ..Detail::default()
        }
    }

    fn names(pressures: &[Pressure]) -> Vec<&'static str> {
        pressures.iter().map(|one| one.kind.name()).collect()
    }

    #[test]
    fn thresholds_are_what_was_said_and_else_as_ever() {
        let parse = |text: &str| text.parse::<Thresholds>().map(|all| all.to_string());
        assert_eq!(
            parse("swap=80%"),
            Ok("swap=80%,stall=50%,unfoldable=90%".into())
        );
        assert_eq!(
            parse("stall=off,unfoldable=50"),
            Ok("swap=90%,stall=off,unfoldable=50%".into())
        );
        for wrong in [
            "", "swap", "swap=", "swap=x", "swap=-1", "swap=0", "disk=5%", "swap=5%,",
        ] {
            assert!(parse(wrong).unwrap_err().contains("stall=off"), "{wrong}");
        }
    }

    #[test]
    fn each_kind_is_told_of_from_its_share_on_and_once_a_period() {
        let mut all = Pressures::new(Thresholds::default(), Duration::from_secs(60));
        let start = Instant::now();
        let room = |free_mib: u64| {
            Some(Room {
                free_bytes: free_mib << 20,
                remedy: "free some space",
            })
        };
        assert!(all.look(start, &detail(1, 0), room(11)).is_empty());
        let found = all.look(start, &detail(2, 0), room(10));
        assert_eq!(names(&found), ["swap"]);
        assert!(found[0]
            .message
            .contains("90M and can have 10M more: free some space"));
        let later = start + Duration::from_secs(59);
        assert!(all.look(later, &detail(3, 0), room(0)).is_empty());
        let later = start + Duration::from_secs(60);
        assert_eq!(names(&all.look(later, &detail(4, 0), room(0))), ["swap"]);
        let mut full = detail(5, 0);
        full.tiers.unfoldable_bytes = 90 << 20;
        assert_eq!(names(&all.look(later, &full, None)), ["unfoldable"]);
    }

    #[test]
    fn a_stall_counts_over_ten_seconds_and_not_before() {
        let mut all = Pressures::new(Thresholds::default(), Duration::ZERO);
        let start = Instant::now();
        // One thread that waits all the time.
        for second in 0..10 {
            assert!(all.look(start, &detail(second, second), None).is_empty());
        }
        assert_eq!(names(&all.look(start, &detail(10, 10), None)), ["stall"]);
        // It waits no longer: what was before is forgotten.
        for second in 11..=15 {
            all.look(start, &detail(second, 10), None);
        }
        assert!(all.look(start, &detail(16, 10), None).is_empty());
    }
}
