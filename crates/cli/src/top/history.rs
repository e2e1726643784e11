//! What was seen of a job in the last minutes: a point for each look.

use crate::jobs::{ratio, Rates};
use crate::pager::control::Detail;
use std::collections::VecDeque;

/// Points that are kept: ten minutes at one a second, and more than any terminal is wide.
const POINTS_MAX: usize = 600;

/// One look at a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    pub used_bytes: u64,
    pub budget_bytes: u64,
    pub away_bytes: u64,
    /// `None` where nothing is compressed.
    pub ratio: Option<f64>,
    pub rates: Rates,
}

impl Point {
    /// A look with what has happened since the one before.
    pub fn of(detail: &Detail, rates: Rates) -> Point {
        Point {
            used_bytes: detail.status.used_bytes,
            budget_bytes: detail.status.budget_bytes,
            away_bytes: detail.status.pages_away.saturating_mul(4096),
            ratio: ratio(&detail.totals),
            rates,
        }
    }
}

/// The last points, the oldest first.
#[derive(Default)]
pub struct History(VecDeque<Point>);

impl History {
    /// Adds the latest.
    pub fn push(&mut self, point: Point) {
        if self.0.len() == POINTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(point);
    }

    /// The last so many values of a figure, the oldest first.
    pub fn last(&self, most: usize, of: impl Fn(&Point) -> f64) -> Vec<f64> {
        let skip = self.0.len().saturating_sub(most);
        self.0.iter().skip(skip).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_forgets_the_oldest() {
        let mut history = History::default();
        for used_bytes in 0..POINTS_MAX as u64 + 5 {
            history.push(Point {
                used_bytes,
                ..Point::default()
            });
        }
        let all = history.last(usize::MAX, |point| point.used_bytes as f64);
        assert_eq!((all.len(), all[0]), (POINTS_MAX, 5.0));
        assert_eq!(history.last(2, |point| point.used_bytes as f64)[1], 604.0);
    }
}
