//! What a job does in a second: the difference of two looks at it, by its own clock.

use crate::pager::control::{Detail, Totals};
use serde::Serialize;

/// So much a second, on average between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Seconds between the two.
    pub seconds: f64,
    /// Faults answered.
    pub faults: f64,
    /// Pages filled with zeros at first touch.
    pub zero_pages: f64,
    /// Pages filled with what a mapped file holds.
    pub file_pages: f64,
    /// Pages that came back before they were compressed.
    pub staged_pages: f64,
    /// Pages that came back from compressed memory.
    pub compressed_pages: f64,
    /// Pages that came back from the swap file.
    pub swap_pages: f64,
    /// Pages taken away.
    pub taken_pages: f64,
    /// How many threads waited for pages, on average. 0.5: one thread, half of the time.
    pub stalled_threads: f64,
    /// Bytes read from the swap file.
    pub swap_read_bytes: f64,
    /// Bytes written to the swap file.
    pub swap_written_bytes: f64,
}

impl Rates {
    /// Between two looks at one job; `None` where no time has passed: then both are the same answer.
    pub fn between(before: &Detail, after: &Detail) -> Option<Rates> {
        let us = after.status.wall_us.checked_sub(before.status.wall_us)?;
        (us > 0).then(|| Rates::of(&before.totals, &after.totals, us))
    }

    /// Since the job began.
    pub fn since_start(now: &Detail) -> Rates {
        Rates::of(&Totals::default(), &now.totals, now.status.wall_us.max(1))
    }

    fn of(before: &Totals, after: &Totals, us: u64) -> Rates {
        let seconds = us as f64 / 1e6;
        let rate = |of: fn(&Totals) -> u64| of(after).saturating_sub(of(before)) as f64 / seconds;
        Rates {
            seconds,
            faults: rate(|t| t.faults),
            zero_pages: rate(|t| t.zero_pages),
            file_pages: rate(|t| t.file_pages),
            staged_pages: rate(|t| t.staged_pages),
            compressed_pages: rate(|t| t.compressed_pages),
            swap_pages: rate(|t| t.swap_pages),
            taken_pages: rate(|t| t.taken_pages),
            stalled_threads: rate(|t| t.stall_us) / 1e6,
            swap_read_bytes: rate(|t| t.swap_read_bytes),
            swap_written_bytes: rate(|t| t.swap_written_bytes),
        }
    }
}

/// How far the pages that are in compressed memory were compressed, as 2.5 for 2.5 : 1; `None` while there are none.
pub fn ratio(totals: &Totals) -> Option<f64> {
    let pages = totals.kept_pages as f64 * 4096.0;
    (totals.kept_pages > 0 && totals.kept_bytes > 0).then(|| pages / totals.kept_bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pager::control::Status;

    fn at(wall_us: u64, faults: u64, stall_us: u64) -> Detail {
        Detail {
            status: Status {
                wall_us,
                ..Status::default()
            },
            totals: Totals {
                faults,
                stall_us,
                ..Totals::default()
            },
            ..Detail::default()
        }
    }

    #[test]
    fn a_rate_is_by_the_jobs_own_clock() {
        let rates = Rates::between(&at(1_000_000, 10, 0), &at(3_000_000, 110, 500_000)).unwrap();
        assert_eq!((rates.faults, rates.stalled_threads), (50.0, 0.25));
        let since = Rates::since_start(&at(4_000_000, 100, 0));
        assert_eq!((since.seconds, since.faults), (4.0, 25.0));
    }

    #[test]
    fn the_same_answer_given_twice_has_no_rate() {
        assert_eq!(Rates::between(&at(5, 1, 1), &at(5, 1, 1)), None);
        assert_eq!(
            Rates::between(&at(6, 1, 1), &at(5, 1, 1)),
            None,
            "another job of that number"
        );
    }

    #[test]
    fn a_ratio_is_of_what_is_compressed_now() {
        let mut totals = Totals::default();
        assert_eq!(ratio(&totals), None);
        (totals.kept_pages, totals.kept_bytes) = (10, 20480);
        assert_eq!(ratio(&totals), Some(2.0));
    }
}
