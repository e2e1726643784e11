//! How many neighbours come along with a faulted page: more while faults run in sequence.
//!
//! Many streams per space are followed at once, so that interleaved sequential readers, as the threads of a program on as many
//! CPUs, all get their runs. Most faults at random begin a stream that nothing continues; such streams share a few
//! slots, so that where a program goes through memory without order, what looks like a sequence seldom is none.
//! Pure guesses: any answer is correct, some are faster.

use pleat_types::{PageNo, PageRange};

/// Streams followed per space. Each fault looks at all of them two or three times, with the engine locked: 8 ns each.
const STREAMS: usize = 32;
/// Of these, the first are for streams that were not continued yet.
const NEW: usize = 8;
/// A fault this many pages past the end of a run still continues it (pages in between may have
/// been resident).
const SLACK_PAGES: u32 = 4;

/// The streams of one space, or of a swap file, whose bytes are counted then instead of pages.
///
/// In columns and with numbers of 32 bits, so that wide instructions look at several streams at once. Upper
/// bits are left out: a page 16 TiB away may be taken for the next, and so may a place in the swap file 4 GiB away.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    /// The page after the last run filled.
    ends: [u32; STREAMS],
    /// Pages that run was allowed to have; 0: this slot was never used.
    windows: [u32; STREAMS],
    /// The slot of the newest of those that were not continued yet.
    newest: usize,
    /// A bit for each of the others that was continued since the hand came by.
    continued: u32,
    /// It goes round over these; where it finds no bit the stream is forgotten.
    hand: usize,
    slack: u32,
}

const _: () = assert!(STREAMS == u32::BITS as usize);

impl Default for Streams {
    fn default() -> Streams {
        Streams::new(SLACK_PAGES)
    }
}

impl Streams {
    /// No stream yet; one goes on where it ended, or less than `slack` behind.
    pub(crate) fn new(slack: u32) -> Streams {
        Streams {
            ends: [0; STREAMS],
            windows: [0; STREAMS],
            newest: 0,
            continued: 0,
            hand: NEW,
            slack,
        }
    }

    /// Most pages to fill for a fault on `page`, between 1 and `run_max`.
    pub(crate) fn window(&self, page: PageNo, run_max: u32) -> u32 {
        self.next_window(self.continued_by(page), run_max)
    }

    /// A run was filled: its stream goes on, or one begins.
    pub(crate) fn filled(&mut self, range: PageRange, run_max: u32) {
        let continued = self.continued_by(range.start);
        let window = self.next_window(continued, run_max);
        let index = match continued {
            Some(index) if index >= NEW => {
                self.continued |= 1 << index;
                index
            }
            Some(index) => {
                self.windows[index] = 0;
                self.room()
            }
            None => self.room_for_new(),
        };
        self.ends[index] = range.end.0 as u32;
        self.windows[index] = window;
    }

    fn next_window(&self, stream: Option<usize>, run_max: u32) -> u32 {
        match stream {
            Some(index) => self.windows[index].saturating_mul(2).min(run_max).max(1),
            None => 1,
        }
    }

    fn continued_by(&self, page: PageNo) -> Option<usize> {
        let page = page.0 as u32;
        let goes_on = |end: u32| page.wrapping_sub(end) < self.slack;
        // Of faults at random none does: that is found out without a branch for each, several at once.
        let ends = self.ends.iter();
        if !ends.fold(false, |does, &end| does | goes_on(end)) {
            return None;
        }
        let mut streams = self.ends.iter().zip(&self.windows);
        streams.position(|(&end, &window)| window > 0 && goes_on(end))
    }

    /// A slot for a stream that is continued for the first time.
    fn room(&mut self) -> usize {
        loop {
            if let Some(index) = self.forget_next() {
                return index;
            }
        }
    }

    fn room_for_new(&mut self) -> usize {
        self.newest = (self.newest + 1) % NEW;
        if self.newest == 0 {
            // What goes on no more is forgotten though nobody needs its slot.
            self.forget_next();
        }
        self.newest
    }

    /// Forgets the stream that comes next, unless it was continued since the hand came by.
    fn forget_next(&mut self) -> Option<usize> {
        self.hand = match self.hand + 1 {
            STREAMS => NEW,
            next => next,
        };
        let bit = 1 << self.hand;
        if self.continued & bit != 0 {
            self.continued &= !bit;
            return None;
        }
        self.windows[self.hand] = 0;
        Some(self.hand)
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

    /// Where a sequence of `count` faults from `page` on ends.
    fn sequence_end(streams: &mut Streams, page: u64, count: usize) -> u64 {
        let windows = sequence(streams, page, count);
        page + windows.into_iter().map(u64::from).sum::<u64>()
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

    /// The windows of sequences that take turns, by turn.
    fn interleaved(streams: &mut Streams, mut pages: Vec<u64>, turns: usize) -> Vec<Vec<u32>> {
        let turn = |_| {
            let step = |page: &mut u64| {
                let window = run(streams, *page);
                *page += u64::from(window);
                window
            };
            pages.iter_mut().map(step).collect()
        };
        (0..turns).map(turn).collect()
    }

    #[test]
    fn interleaved_sequences_all_get_windows() {
        for count in [2, 4, NEW] {
            let starts = (0..count as u64).map(|nth| nth << 20).collect();
            let windows = interleaved(&mut Streams::default(), starts, 5);
            let expected = [1, 2, 4, 8, 16].map(|window| vec![window; count]);
            assert_eq!(windows, expected, "{count}");
        }
    }

    #[test]
    fn sixteen_threads_in_any_order_get_windows() {
        let mut streams = Streams::default();
        let mut pages: Vec<u64> = (0..16).map(|nth| nth << 20).collect();
        let mut random = 1u64;
        let mut fault = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let page = &mut pages[(random >> 60) as usize];
            let window = run(&mut streams, *page);
            *page += u64::from(window);
            window
        };
        (0..16 * 12).for_each(|_| {
            fault();
        });
        assert!((0..1000).all(|_| fault() == RUN_MAX));
    }

    #[test]
    fn a_stream_that_goes_on_outlives_faults_elsewhere_and_one_that_has_ended_does_not() {
        let mut streams = Streams::default();
        let mut elsewhere = (1..).map(|nth| nth << 20);
        let mut page = sequence_end(&mut streams, 0, 2);
        for window in [4, 8, 16, 16] {
            elsewhere.by_ref().take(100).for_each(|page| {
                assert_eq!(run(&mut streams, page), 1);
            });
            assert_eq!(run(&mut streams, page), window);
            page += u64::from(window);
        }
        elsewhere.take(2 * NEW * (STREAMS - NEW)).for_each(|page| {
            run(&mut streams, page);
        });
        assert_eq!(run(&mut streams, page), 1);
    }

    #[test]
    fn a_fault_that_nothing_continued_soon_begins_no_sequence() {
        let mut streams = Streams::default();
        run(&mut streams, 7);
        (1..=NEW as u64).for_each(|nth| {
            run(&mut streams, nth << 20);
        });
        assert_eq!(streams.window(PageNo(8), RUN_MAX), 1);
    }

    #[test]
    fn a_slot_that_was_never_used_is_no_stream_that_ended_at_page_0() {
        assert_eq!(Streams::default().window(PageNo(0), RUN_MAX), 1);
        assert_eq!(Streams::default().window(PageNo(3), RUN_MAX), 1);
    }

    #[test]
    fn a_small_gap_continues_the_sequence_and_a_large_one_does_not() {
        let mut streams = Streams::default();
        let slack = u64::from(SLACK_PAGES);
        run(&mut streams, 10);
        assert_eq!(streams.window(PageNo(11 + slack - 1), RUN_MAX), 2);
        assert_eq!(streams.window(PageNo(11 + slack), RUN_MAX), 1);
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
