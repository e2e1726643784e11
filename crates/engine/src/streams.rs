//! How many neighbours come along with a faulted page: more while faults run in sequence.
//!
//! A few streams per space are followed at once, so that two interleaved sequential readers both
//! get their runs. Pure guesses: any answer is correct, some are faster.

use pleat_types::{PageNo, PageRange};

/// Streams followed per space.
const STREAMS: usize = 4;
/// A fault this many pages past the end of a run still continues it (pages in between may have
/// been resident).
const SLACK_PAGES: u64 = 4;

/// One sequence of runs.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The page after the last run filled.
    end: u64,
    /// Pages that run was allowed to have; 0: this slot was never used.
    window: u32,
    /// When it was last continued.
    used: u64,
}

/// The streams of one space, or of a swap file, whose bytes are counted then instead of pages.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    clock: u64,
    slack: u64,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams::new(SLACK_PAGES)
    }
}

impl Streams {
    /// No stream yet; one goes on where it ended, or less than `slack` behind.
    pub(crate) fn new(slack: u64) -> Streams {
        Streams {
            streams: [Stream::default(); STREAMS],
            clock: 0,
            slack,
        }
    }

    /// Most pages to fill for a fault on `page`, between 1 and `run_max`.
    pub(crate) fn window(&self, page: PageNo, run_max: u32) -> u32 {
        match self.continued_by(page) {
            Some(index) => self.streams[index]
                .window
                .saturating_mul(2)
                .min(run_max)
                .max(1),
            None => 1,
        }
    }

    /// A run was filled: its stream goes on, or the stream unused for longest gives way.
    pub(crate) fn filled(&mut self, range: PageRange, run_max: u32) {
        let window = self.window(range.start, run_max);
        let index = self
            .continued_by(range.start)
            .unwrap_or_else(|| self.least_recent());
        self.clock += 1;
        self.streams[index] = Stream {
            end: range.end.0,
            window,
            used: self.clock,
        };
    }

    fn continued_by(&self, page: PageNo) -> Option<usize> {
        let goes_on = |stream: &Stream| {
            stream.window > 0 && (stream.end..stream.end + self.slack).contains(&page.0)
        };
        self.streams.iter().position(goes_on)
    }

    fn least_recent(&self) -> usize {
        (0..STREAMS)
            .min_by_key(|&index| self.streams[index].used)
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN_MAX: u32 = 16;

    /// Faults at `page`, fills the whole window, returns its length.
    fn run(streams: &mut Streams, page: u64) -> u32 {
        let window = streams.window(PageNo(page), RUN_MAX);
        streams.filled(PageRange::new(PageNo(page), u64::from(window)), RUN_MAX);
        window
    }

    /// Windows of `count` faults in sequence from `page` on.
    fn sequence(streams: &mut Streams, mut page: u64, count: usize) -> Vec<u32> {
        (0..count)
            .map(|_| {
                let window = run(streams, page);
                page += u64::from(window);
                window
            })
            .collect()
    }

    #[test]
    fn a_sequence_doubles_its_window_up_to_the_most_allowed() {
        assert_eq!(
            sequence(&mut Streams::default(), 0, 7),
            [1, 2, 4, 8, 16, 16, 16]
        );
    }

    #[test]
    fn a_fault_elsewhere_starts_with_one_page() {
        let mut streams = Streams::default();
        sequence(&mut streams, 0, 5);
        assert_eq!(run(&mut streams, 1000), 1);
        assert_eq!(run(&mut streams, 900), 1, "backwards is no sequence");
    }

    #[test]
    fn two_interleaved_sequences_both_get_windows() {
        let mut streams = Streams::default();
        let (mut a, mut b) = (0, 1 << 20);
        let mut windows = Vec::new();
        for _ in 0..5 {
            for page in [&mut a, &mut b] {
                let window = run(&mut streams, *page);
                *page += u64::from(window);
                windows.push(window);
            }
        }
        assert_eq!(windows, [1, 1, 2, 2, 4, 4, 8, 8, 16, 16]);
    }

    #[test]
    fn a_small_gap_continues_the_sequence_and_a_large_one_does_not() {
        let mut streams = Streams::default();
        run(&mut streams, 10);
        assert_eq!(streams.window(PageNo(11 + SLACK_PAGES - 1), RUN_MAX), 2);
        assert_eq!(streams.window(PageNo(11 + SLACK_PAGES), RUN_MAX), 1);
    }

    #[test]
    fn asking_twice_changes_nothing() {
        let mut streams = Streams::default();
        run(&mut streams, 0);
        assert_eq!(
            streams.window(PageNo(1), RUN_MAX),
            streams.window(PageNo(1), RUN_MAX)
        );
        assert_eq!(run(&mut streams, 1), 2);
    }

    #[test]
    fn a_limit_of_one_page_never_brings_neighbours() {
        let mut streams = Streams::default();
        for page in 0..10 {
            assert_eq!(streams.window(PageNo(page), 1), 1);
            streams.filled(PageRange::new(PageNo(page), 1), 1);
        }
    }
}
