//! Pages in an order from which any can be taken out at once: a doubly linked list in two tables.

use super::Page;

const NONE: Page = Page::MAX;

/// Each page is in it at most once. The last place of the tables is both ends.
pub(super) struct List {
    /// Towards the young end; `NONE`: the page is not in the list.
    newer: Vec<Page>,
    older: Vec<Page>,
    len: usize,
}

impl List {
    /// An empty list for so many pages.
    pub(super) fn new(pages: usize) -> List {
        let ends = pages as Page;
        let mut list = List {
            newer: vec![NONE; pages + 1],
            older: vec![NONE; pages + 1],
            len: 0,
        };
        list.newer[pages] = ends;
        list.older[pages] = ends;
        list
    }

    fn ends(&self) -> Page {
        self.newer.len() as Page - 1
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn contains(&self, page: Page) -> bool {
        self.newer[page as usize] != NONE
    }

    pub(super) fn push_youngest(&mut self, page: Page) {
        debug_assert!(!self.contains(page));
        let ends = self.ends();
        let before = self.older[ends as usize];
        self.newer[before as usize] = page;
        self.older[page as usize] = before;
        self.newer[page as usize] = ends;
        self.older[ends as usize] = page;
        self.len += 1;
    }

    /// Takes a page out, if it is in the list.
    pub(super) fn remove(&mut self, page: Page) -> bool {
        if !self.contains(page) {
            return false;
        }
        let (older, newer) = (self.older[page as usize], self.newer[page as usize]);
        self.newer[older as usize] = newer;
        self.older[newer as usize] = older;
        self.newer[page as usize] = NONE;
        self.len -= 1;
        true
    }

    pub(super) fn pop_oldest(&mut self) -> Option<Page> {
        let oldest = self.newer[self.ends() as usize];
        (oldest != self.ends()).then(|| {
            self.remove(oldest);
            oldest
        })
    }
}
