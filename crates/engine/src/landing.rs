//! Folded pages that have just been read from the swap file and wait to be used, and the guess how many to
//! read at once.
//!
//! They are no part of the compressed cache: pages enter that in the order in which they left memory, and
//! what is read ahead would come between (castro03, section 2.3.2). They lie here, few and for a short
//! time, oldest out first, and are still in the swap file.
//!
//! Pages written together left memory together, and programs tend to want them again in that order, however
//! their addresses lie. So reads are followed through the file, as `streams.rs` follows faults through
//! memory, and a read that continues another takes more with it; unless what was read ahead lately was
//! not used.

use std::collections::{HashMap, VecDeque};

use pleat_types::{PageNo, PageRange};

use crate::share::Share;
use crate::streams::Streams;
use crate::BodyId;

/// A read this part of a cluster behind the last one continues it: pages between may be in memory.
const SLACK_PART: u32 = 8;
/// What a landed page costs beside its bytes.
const ENTRY_BYTES: u64 = 64;
/// Outdated entries of the list tolerated whatever the number of pages.
const OUTDATED_MIN: usize = 64;
/// The share of pages read ahead that were used is a running mean over about so many.
const WEIGHT: u32 = 32;
/// Where less than this share is used, nothing is read ahead...
const LEAST_USED: u32 = 256 / 4;
/// ... but for one try in so many.
const TRY_EVERY: u32 = 32;

struct Landed {
    bytes: Box<[u8]>,
    /// Which landing it was: the list may name the body for an earlier one.
    stamp: u64,
    /// Nobody has asked for it yet.
    is_ahead: bool,
}

/// Pages just read.
///
/// ```text
/// bytes() <= max_bytes, but for one page
/// pages <= oldest_first <= 2 * pages + OUTDATED_MIN
/// ```
pub(crate) struct Landing {
    pages: HashMap<BodyId, Landed>,
    /// Each page once with its stamp, and outdated entries of pages that were taken out of turn.
    oldest_first: VecDeque<(BodyId, u64)>,
    bytes: u64,
    max_bytes: u64,
    stamp: u64,
    streams: Streams,
    /// Share of pages read ahead that were used.
    used: Share<WEIGHT>,
    /// Chances to read ahead that were not taken since the last try.
    passed: u32,
    pub(crate) ahead_used: u64,
    pub(crate) ahead_wasted: u64,
}

impl Landing {
    /// For a file of such clusters, of which a few find room.
    pub(crate) fn new(max_bytes: u64, cluster_bytes: u32) -> Landing {
        Landing {
            pages: HashMap::new(),
            oldest_first: VecDeque::new(),
            bytes: 0,
            max_bytes,
            stamp: 0,
            streams: Streams::new(cluster_bytes / SLACK_PART),
            used: Share::default(),
            passed: 0,
            ahead_used: 0,
            ahead_wasted: 0,
        }
    }

    /// How many pages to read, beginning at this place in the order of writing; at least 1.
    pub(crate) fn window(&mut self, position: u64, most: u32) -> u32 {
        let window = self.streams.window(PageNo(position), most);
        if window == 1 || self.used.is_at_least(LEAST_USED) {
            return window;
        }
        self.passed += 1;
        match self.passed.is_multiple_of(TRY_EVERY) {
            true => window,
            false => 1,
        }
    }

    /// So many bytes are going to be read from there on.
    pub(crate) fn reads(&mut self, position: u64, bytes: u64, most: u32) {
        self.streams
            .filled(PageRange::new(PageNo(position), bytes), most);
    }

    /// A folded page was read; `is_ahead` when nobody has asked for it.
    pub(crate) fn add(&mut self, body: BodyId, bytes: &[u8], is_ahead: bool) {
        if self.pages.contains_key(&body) {
            return;
        }
        self.stamp += 1;
        let stamp = self.stamp;
        self.bytes += bytes.len() as u64 + ENTRY_BYTES;
        let bytes = bytes.into();
        self.pages.insert(
            body,
            Landed {
                bytes,
                stamp,
                is_ahead,
            },
        );
        self.oldest_first.push_back((body, stamp));
        while self.bytes > self.max_bytes && self.oldest_first.len() > 1 {
            self.drop_oldest();
        }
    }

    /// From now on no more than so many bytes.
    pub(crate) fn set_max(&mut self, max_bytes: u64) {
        self.max_bytes = max_bytes;
        while self.bytes > max_bytes && self.oldest_first.len() > 1 {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some((body, stamp)) = self.oldest_first.pop_front() else {
            return;
        };
        if self
            .pages
            .get(&body)
            .is_some_and(|page| page.stamp == stamp)
        {
            self.forget(body);
        }
    }

    pub(crate) fn get(&self, body: BodyId) -> Option<&[u8]> {
        self.pages.get(&body).map(|page| &*page.bytes)
    }

    /// The page of this body is in memory now, or gone.
    pub(crate) fn remove(&mut self, body: BodyId, was_used: bool) {
        if self.take(body) {
            self.learn(was_used);
        }
    }

    /// The page of this body is in memory now, and whether it was of use nobody knows. Answers whether it was read
    /// ahead.
    pub(crate) fn take(&mut self, body: BodyId) -> bool {
        let Some(page) = self.pages.remove(&body) else {
            return false;
        };
        self.bytes -= page.bytes.len() as u64 + ENTRY_BYTES;
        self.sweep();
        page.is_ahead
    }

    /// Takes outdated entries out of the list: those at its old end always, the others when there are many. One
    /// page that nobody ever asks for would keep all that came after it.
    fn sweep(&mut self) {
        let pages = &self.pages;
        let is_there = |&(body, stamp): &(BodyId, u64)| {
            let page = pages.get(&body);
            page.is_some_and(|page| page.stamp == stamp)
        };
        while self.oldest_first.front().is_some_and(|one| !is_there(one)) {
            self.oldest_first.pop_front();
        }
        if self.oldest_first.len() > 2 * pages.len() + OUTDATED_MIN {
            self.oldest_first.retain(is_there);
        }
    }

    /// The body is not wanted any more.
    pub(crate) fn forget(&mut self, body: BodyId) {
        self.remove(body, false);
    }

    fn learn(&mut self, was_used: bool) {
        self.ahead_used += u64::from(was_used);
        self.ahead_wasted += u64::from(!was_used);
        self.used.learn(was_used);
    }

    /// Memory that the pages take.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the account is right.
    pub(crate) fn is_valid(&self) -> bool {
        let bytes = self.pages.values();
        let bytes: u64 = bytes
            .map(|page| page.bytes.len() as u64 + ENTRY_BYTES)
            .sum();
        let (pages, listed) = (self.pages.len(), self.oldest_first.len());
        bytes == self.bytes && (pages..=2 * pages + OUTDATED_MIN).contains(&listed)
    }

    /// Bodies that have landed.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = BodyId> + '_ {
        self.pages.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_nobody_asks_for_does_not_keep_the_places_of_those_after_it() {
        let mut landing = Landing::new(1 << 20, 128 << 10);
        landing.add(BodyId(0), &[1; 100], true);
        for body in 1..10_000 {
            landing.add(BodyId(body), &[1; 100], true);
            landing.remove(BodyId(body), true);
            assert!(landing.is_valid());
        }
        assert!(landing.oldest_first.capacity() < 1000);
        assert_eq!(landing.get(BodyId(0)), Some(&[1; 100][..]));
    }

    #[test]
    fn pages_are_dropped_in_the_order_they_came_also_among_outdated_entries() {
        let mut landing = Landing::new(5 * (100 + ENTRY_BYTES), 128 << 10);
        for body in 0..5 {
            landing.add(BodyId(body), &[1; 100], true);
        }
        landing.remove(BodyId(1), true);
        landing.add(BodyId(1), &[1; 100], true);
        landing.add(BodyId(5), &[1; 100], true);
        let left: Vec<bool> = (0..6).map(|b| landing.get(BodyId(b)).is_some()).collect();
        assert_eq!(left, [false, true, true, true, true, true]);
        landing.add(BodyId(6), &[1; 100], true);
        assert!(landing.get(BodyId(2)).is_none() && landing.get(BodyId(1)).is_some());
        assert!(landing.is_valid());
    }
}
