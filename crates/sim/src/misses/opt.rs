//! Belady's OPT: of the pages in memory the one goes that is wanted last, or never again. Nobody can do with
//! fewer misses, and nobody can know what it knows.

use std::collections::BinaryHeap;

use super::{Page, Policy, Touch};

const NEVER: u32 = u32::MAX;
/// Outdated entries of the heap for each page in memory, after which it is made anew.
const OUTDATED_MAX: usize = 4;

/// In time proportional to n log n.
pub(super) struct Opt {
    /// When the page of each reference is wanted again.
    next: Vec<u32>,
    now: usize,
    /// When each page in memory is wanted again.
    wanted: Vec<Option<u32>>,
    resident: usize,
    frames: usize,
    /// (when, page), the last first; outdated where `wanted` says otherwise.
    heap: BinaryHeap<(u32, Page)>,
}

impl Opt {
    pub(super) fn new(touches: &[Page], pages: usize, frames: usize) -> Opt {
        assert!(touches.len() < NEVER as usize, "times are of 32 bits");
        let mut next = vec![NEVER; touches.len()];
        let mut last = vec![NEVER; pages];
        for (now, &page) in touches.iter().enumerate().rev() {
            next[now] = std::mem::replace(&mut last[page as usize], now as u32);
        }
        Opt {
            next,
            now: 0,
            wanted: vec![None; pages],
            resident: 0,
            frames,
            heap: BinaryHeap::new(),
        }
    }

    fn evict(&mut self) {
        while let Some((when, page)) = self.heap.pop() {
            if self.wanted[page as usize] == Some(when) {
                self.wanted[page as usize] = None;
                self.resident -= 1;
                return;
            }
        }
        unreachable!("every page in memory is in the heap");
    }
}

impl Policy for Opt {
    fn touch(&mut self, page: Page) -> Touch {
        let when = self.next[self.now];
        self.now += 1;
        let hit = self.wanted[page as usize].is_some();
        if !hit {
            if self.resident == self.frames {
                self.evict();
            }
            self.resident += 1;
        }
        self.wanted[page as usize] = Some(when);
        self.heap.push((when, page));
        if self.heap.len() > (OUTDATED_MAX + 1) * self.frames {
            let wanted = &self.wanted;
            self.heap
                .retain(|&(when, page)| wanted[page as usize] == Some(when));
        }
        if hit {
            Touch::Hit
        } else {
            Touch::Miss
        }
    }

    fn forget(&mut self, page: Page) {
        if self.wanted[page as usize].take().is_some() {
            self.resident -= 1;
        }
    }
}
