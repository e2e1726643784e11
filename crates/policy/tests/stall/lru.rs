//! LRU distances of a sequence of touches: a Fenwick tree over the times of last use.

use std::collections::HashMap;

pub struct Lru {
    last: HashMap<u64, usize>,
    /// One for each time that is the last use of a page.
    tree: Vec<u32>,
    now: usize,
}

const TIMES: usize = 1 << 18;

impl Lru {
    pub fn new() -> Lru {
        Lru {
            last: HashMap::new(),
            tree: vec![0; TIMES + 1],
            now: 0,
        }
    }

    /// How many other pages were touched since this one was; none when it never was.
    pub fn touch(&mut self, page: u64) -> Option<u64> {
        if self.now == TIMES {
            self.renumber();
        }
        let before = self.last.insert(page, self.now);
        let distance = before.map(|time| {
            let later = self.last.len() as u64 - self.sum(time);
            self.add(time, u32::MAX);
            later
        });
        self.add(self.now, 1);
        self.now += 1;
        distance
    }

    fn renumber(&mut self) {
        let mut pages: Vec<(usize, u64)> = self.last.iter().map(|(&p, &t)| (t, p)).collect();
        pages.sort_unstable();
        assert!(
            pages.len() < TIMES / 2,
            "more pages than this can tell apart"
        );
        self.tree.fill(0);
        for (time, &(_, page)) in pages.iter().enumerate() {
            self.last.insert(page, time);
            self.add(time, 1);
        }
        self.now = pages.len();
    }

    fn add(&mut self, time: usize, by: u32) {
        let mut at = time + 1;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add(by);
            at += at & at.wrapping_neg();
        }
    }

    /// Pages last touched at `time` or before.
    fn sum(&self, time: usize) -> u64 {
        let mut at = time + 1;
        let mut sum = 0u32;
        while at > 0 {
            sum = sum.wrapping_add(self.tree[at]);
            at -= at & at.wrapping_neg();
        }
        u64::from(sum)
    }
}
