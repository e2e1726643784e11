//! Locality by the LRU stack model: how long ago a page was touched last decides how likely it is
//! touched next. The share of misses of an LRU with any memory follows from the parameters, which
//! makes this the generator to check a simulator with; `matlab` and `mummer` are settings of it.

use super::parameters::{parameters, COUNT_MAX};
use super::walk::{Generated, Step, Walk};
use super::zipf::Ranks;
use super::Generator;
use crate::random::{Chance, Random};
use crate::{Common, RegionKind, RegionNo, Source, SpecError};
use std::collections::VecDeque;

/// The most pages: each takes up to 20 bytes here.
const STACK_PAGES_MAX: u64 = 1 << 28;

parameters! {
    /// Touches the page that is k-th in the order of recency with a probability of k^-alpha, and now
    /// and then a page from outside the working set, which replaces its least recent one. All pages
    /// are written before, in order, which comes on top of `refs`.
    pub struct Stack {
        /// Pages of anonymous memory.
        pages: u64 = 65536 in 1..=STACK_PAGES_MAX,
        /// Pages among which touches choose; at most all of them.
        working_set: u64 = 32768 in 1..=STACK_PAGES_MAX,
        /// How much recent pages are preferred; 0 prefers none.
        alpha: f64 = 0.8 in 0.0..=8.0,
        /// Share of the touches that bring in a page from outside the working set.
        drift: f64 = 0.001 in 0.0..=1.0,
        /// How many touches.
        refs: u64 = 1048576 in 1..=COUNT_MAX,
        /// Share of them that write.
        write: f64 = 0.3 in 0.0..=1.0,
    }
}

impl Generator for Stack {
    fn source(&self, common: &Common) -> Result<Box<dyn Source + Send>, SpecError> {
        let working_set = self.working_set.min(self.pages);
        let walk = Recent {
            filled: 0,
            pages: self.pages,
            left: self.refs,
            // The working set begins as the pages written last, so that the model holds from the start.
            outside: (0..(self.pages - working_set) as u32).collect(),
            order: Recency::new((self.pages - working_set) as u32..self.pages as u32),
            ranks: Ranks::new(working_set, self.alpha),
            drifts: Chance::new(self.drift),
            writes: Chance::new(self.write),
            random: Random::new(common.seed, 0),
        };
        Generated::source(vec![walk], &[RegionKind::Anonymous], common)
    }
}

struct Recent {
    /// Pages written so far; all of them before the first touch by recency.
    filled: u64,
    pages: u64,
    left: u64,
    order: Recency,
    /// Pages that are not in the working set, the one that has been out longest first.
    outside: VecDeque<u32>,
    ranks: Ranks,
    drifts: Chance,
    writes: Chance,
    random: Random,
}

impl Walk for Recent {
    fn step(&mut self) -> Option<Step> {
        if self.filled < self.pages {
            self.filled += 1;
            return Some(Step::write(RegionNo(0), self.filled - 1));
        }
        self.left = self.left.checked_sub(1)?;
        let page = match self.drifts.draw(&mut self.random) {
            true => self.bring_in(),
            false => self.order.touch(self.ranks.draw(&mut self.random) as u32),
        };
        Some(match self.writes.draw(&mut self.random) {
            true => Step::write(RegionNo(0), u64::from(page)),
            false => Step::read(RegionNo(0), u64::from(page)),
        })
    }
}

impl Recent {
    /// The page that comes in for the least recent one; that one itself when there is no other.
    fn bring_in(&mut self) -> u32 {
        let least_recent = self.order.len() - 1;
        let Some(page) = self.outside.pop_front() else {
            return self.order.touch(least_recent);
        };
        let gone = self.order.replace(least_recent, page);
        self.outside.push_back(gone);
        page
    }
}

/// Pages in the order in which they were touched, any rank of which is found in logarithmic time:
/// pages lie in the places of a line, later touched ones further on, and a tree of counts (Fenwick
/// 1994) tells how many are taken up to each.
struct Recency {
    /// The page in each place, where one is; there are twice as many places as pages.
    places: Vec<u32>,
    /// Node n counts the pages in the n & -n places up to n; from 1.
    counts: Vec<u32>,
    pages: u32,
    /// The first place that no page has been put to yet.
    next: usize,
}

const EMPTY: u32 = u32::MAX;

impl Recency {
    /// These pages, the last one most recent.
    fn new(pages: std::ops::Range<u32>) -> Recency {
        let mut order = Recency {
            places: vec![EMPTY; 2 * pages.len()],
            counts: vec![0; 2 * pages.len() + 1],
            pages: pages.len() as u32,
            next: 0,
        };
        for (place, page) in order.places.iter_mut().zip(pages) {
            *place = page;
        }
        order.count_anew();
        order
    }

    fn len(&self) -> u32 {
        self.pages
    }

    /// Makes the page of this rank, 0 the most recent, the most recent one.
    fn touch(&mut self, rank: u32) -> u32 {
        let page = self.remove(rank);
        self.push(page);
        page
    }

    /// Takes the page of this rank out and makes `page` the most recent one instead.
    fn replace(&mut self, rank: u32, page: u32) -> u32 {
        let gone = self.remove(rank);
        self.push(page);
        gone
    }

    fn remove(&mut self, rank: u32) -> u32 {
        let place = self.place_of(self.pages - rank);
        self.add(place, u32::MAX);
        std::mem::replace(&mut self.places[place], EMPTY)
    }

    fn push(&mut self, page: u32) {
        if self.next == self.places.len() {
            self.compact();
        }
        self.places[self.next] = page;
        self.add(self.next, 1);
        self.next += 1;
    }

    /// The place of the `nth` page in the line, from 1.
    fn place_of(&self, mut nth: u32) -> usize {
        let (mut node, mut step) = (0, self.places.len().next_power_of_two());
        while step > 0 {
            let ahead = node + step;
            if ahead < self.counts.len() && self.counts[ahead] < nth {
                node = ahead;
                nth -= self.counts[ahead];
            }
            step /= 2;
        }
        node
    }

    /// Adds `change`, 1 or (wrapping) -1, to the count at a place.
    fn add(&mut self, place: usize, change: u32) {
        let mut node = place + 1;
        while node < self.counts.len() {
            self.counts[node] = self.counts[node].wrapping_add(change);
            node += node & node.wrapping_neg();
        }
    }

    /// Moves all pages to the beginning of the line: once for as many touches as there are pages.
    fn compact(&mut self) {
        let mut kept = 0;
        for place in 0..self.places.len() {
            let page = std::mem::replace(&mut self.places[place], EMPTY);
            if page != EMPTY {
                self.places[kept] = page;
                kept += 1;
            }
        }
        self.count_anew();
    }

    fn count_anew(&mut self) {
        let taken = |page: &u32| u32::from(*page != EMPTY);
        self.next = self.places.iter().filter(|page| **page != EMPTY).count();
        for node in 1..self.counts.len() {
            self.counts[node] = taken(&self.places[node - 1]);
        }
        for node in 1..self.counts.len() {
            let parent = node + (node & node.wrapping_neg());
            if parent < self.counts.len() {
                self.counts[parent] += self.counts[node];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::testing::pages;

    #[test]
    fn ranks_are_those_of_a_plain_list() {
        let mut random = Random::new(5, 0);
        for size in [1, 2, 7, 64] {
            let mut list: Vec<u32> = (0..size).rev().collect();
            let mut order = Recency::new(0..size);
            for fresh in size..size + 500 {
                let rank = random.below(u64::from(size)) as u32;
                let expected = list.remove(rank as usize);
                match fresh % 5 {
                    0 => {
                        assert_eq!(order.replace(rank, fresh), expected);
                        list.insert(0, fresh);
                    }
                    _ => {
                        assert_eq!(order.touch(rank), expected);
                        list.insert(0, expected);
                    }
                }
            }
        }
    }

    /// How often an LRU with this many pages misses, after the filling pass.
    fn lru_misses(order: &[u64], memory: usize, skip: usize) -> f64 {
        let mut recent: Vec<u64> = Vec::new();
        let mut misses = 0;
        for (number, page) in order.iter().enumerate() {
            match recent.iter().position(|other| other == page) {
                Some(at) => drop(recent.remove(at)),
                None => misses += usize::from(number >= skip),
            }
            recent.insert(0, *page);
            recent.truncate(memory);
        }
        misses as f64 / (order.len() - skip) as f64
    }

    #[test]
    fn the_miss_ratio_of_lru_follows_from_the_parameters() {
        let spec = "stack:pages=100,working_set=100,alpha=0.8,drift=0,refs=40000";
        let order = pages(spec);
        let weight = |ranks: u32| (1..=ranks).map(|k| f64::from(k).powf(-0.8)).sum::<f64>();
        for memory in [5, 20, 60] {
            let expected = 1.0 - weight(memory) / weight(100);
            let found = lru_misses(&order, memory as usize, 100);
            assert!(
                (found - expected).abs() < 0.02,
                "{memory}: {found} {expected}"
            );
        }
    }

    #[test]
    fn drift_brings_in_pages_from_outside_at_its_rate() {
        let order = pages("stack:pages=1000,working_set=100,drift=0.01,refs=20000");
        let misses = lru_misses(&order, 100, 1000);
        assert!((0.007..0.013).contains(&misses), "{misses}");
        let late: std::collections::BTreeSet<u64> = order[15_000..].iter().copied().collect();
        assert!(
            late.len() < 250,
            "the working set stays small: {}",
            late.len()
        );
        let all: std::collections::BTreeSet<u64> = order[1000..].iter().copied().collect();
        assert!(all.len() > 250, "and moves: {}", all.len());
    }
}
