//! The compressed cache in the order its pages were stored, divided into expense and profit
//! (castro03, section 3 and figure 4).
//!
//! Intrusive doubly linked list over body numbers. With F page frames in use, the F most recently
//! stored pages are the expense list, for they would be in memory without the cache; the rest is
//! profit. The boundary moves one page at a time, so nothing here ever searches.

use pleat_policy::List;

use crate::bodies::make_room;
use crate::BodyId;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    newer: u32,
    older: u32,
    /// `None`: not a member.
    list: Option<List>,
}

const OFF: Link = Link {
    newer: NONE,
    older: NONE,
    list: None,
};

/// The list. Always `expense == min(frames, len)`, and the expense pages are the newest ones.
pub(crate) struct Order {
    links: Vec<Link>,
    newest: u32,
    oldest: u32,
    /// The oldest page of the expense list; `NONE` when that list is empty.
    boundary: u32,
    /// The oldest page that [`Order::next_cold`] has not given out; `NONE` when there is none.
    cold: u32,
    /// No page older than this one has a way out, as far as [`Order::next_with_way_out`] was told; `NONE`: none at all.
    way_out: u32,
    expense: u64,
    len: u64,
    frames: u64,
}

impl Order {
    pub(crate) fn new() -> Order {
        Order {
            links: Vec::new(),
            newest: NONE,
            oldest: NONE,
            boundary: NONE,
            cold: NONE,
            way_out: NONE,
            expense: 0,
            len: 0,
            frames: 0,
        }
    }

    /// Pages in the compressed cache.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of the table.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        (self.links.capacity() * size_of::<Link>()) as u64
    }

    /// Page frames the cache uses, as last set.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Adds a page that was stored just now, behind those that left memory after it did: folding on
    /// several processors may overtake. `left_after` says whether a page did.
    pub(crate) fn push(&mut self, body: BodyId, left_after: impl Fn(BodyId) -> bool) {
        let mut newer = NONE;
        let mut older = self.newest;
        let mut passes_way_out = false;
        while older != NONE && left_after(BodyId(older)) {
            passes_way_out |= older == self.way_out;
            newer = older;
            older = self.links[older as usize].older;
        }
        self.insert(body, newer, older);
        if passes_way_out {
            self.way_out = body.0;
        }
    }

    /// Adds a page that is to leave first.
    pub(crate) fn push_oldest(&mut self, body: BodyId) {
        self.insert(body, self.oldest, NONE);
        self.way_out = body.0;
    }

    fn insert(&mut self, body: BodyId, newer: u32, older: u32) {
        let index = body.0 as usize;
        if self.links.len() <= index {
            make_room(&mut self.links, index + 1);
            self.links.resize(index + 1, OFF);
        }
        assert!(self.links[index].list.is_none(), "stored twice: {body:?}");
        let list = match newer {
            NONE => List::Expense,
            newer => self.links[newer as usize].list.unwrap_or(List::Expense),
        };
        self.links[index] = Link {
            newer,
            older,
            list: Some(list),
        };
        match newer {
            NONE => self.newest = body.0,
            newer => self.links[newer as usize].older = body.0,
        }
        match older {
            NONE => self.oldest = body.0,
            older => self.links[older as usize].newer = body.0,
        }
        if list == List::Expense {
            self.expense += 1;
            if self.boundary == NONE || self.boundary == newer {
                self.boundary = body.0;
            }
        }
        for next in [&mut self.cold, &mut self.way_out] {
            if *next == NONE {
                *next = body.0;
            }
        }
        self.len += 1;
        self.settle();
    }

    /// Removes a page.
    pub(crate) fn remove(&mut self, body: BodyId) {
        let link = std::mem::replace(&mut self.links[body.0 as usize], OFF);
        assert!(link.list.is_some(), "not stored: {body:?}");
        if self.boundary == body.0 {
            self.boundary = link.newer;
        }
        for next in [&mut self.cold, &mut self.way_out] {
            if *next == body.0 {
                *next = link.newer;
            }
        }
        match link.newer {
            NONE => self.newest = link.older,
            newer => self.links[newer as usize].older = link.older,
        }
        match link.older {
            NONE => self.oldest = link.newer,
            older => self.links[older as usize].newer = link.newer,
        }
        self.len -= 1;
        self.expense -= u64::from(link.list == Some(List::Expense));
        self.settle();
    }

    /// The cache uses this many page frames now.
    pub(crate) fn set_frames(&mut self, frames: u64) {
        self.frames = frames;
        self.settle();
    }

    /// Which list a page is on; `None` when it is not in the cache.
    pub(crate) fn list_of(&self, body: BodyId) -> Option<List> {
        self.links.get(body.0 as usize)?.list
    }

    /// The oldest page of the profit list that was not given out yet.
    pub(crate) fn next_cold(&mut self) -> Option<BodyId> {
        let body = BodyId(self.cold);
        if self.cold == NONE || self.list_of(body) != Some(List::Profit) {
            return None;
        }
        self.cold = self.links[self.cold as usize].newer;
        Some(body)
    }

    /// The oldest page that has a way out, and stays the next to go. Walks past each other page once, so it is for
    /// caches in which a page never comes to have one.
    pub(crate) fn next_with_way_out(
        &mut self,
        has_way_out: impl Fn(BodyId) -> bool,
    ) -> Option<BodyId> {
        while self.way_out != NONE && !has_way_out(BodyId(self.way_out)) {
            self.way_out = self.links[self.way_out as usize].newer;
        }
        (self.way_out != NONE).then_some(BodyId(self.way_out))
    }

    /// The page that was stored first of all.
    pub(crate) fn oldest(&self) -> Option<BodyId> {
        (self.oldest != NONE).then_some(BodyId(self.oldest))
    }

    /// All pages, oldest first.
    pub(crate) fn oldest_first(&self) -> impl Iterator<Item = BodyId> + '_ {
        let newer = |&index: &u32| match self.links[index as usize].newer {
            NONE => None,
            newer => Some(newer),
        };
        let first = (self.oldest != NONE).then_some(self.oldest);
        std::iter::successors(first, newer).map(BodyId)
    }

    /// Moves the boundary until the expense list has as many pages as there are frames.
    fn settle(&mut self) {
        while self.expense > self.frames {
            let link = &mut self.links[self.boundary as usize];
            link.list = Some(List::Profit);
            self.boundary = link.newer;
            self.expense -= 1;
        }
        while self.expense < self.frames.min(self.len) {
            let next = match self.boundary {
                NONE => self.newest,
                boundary => self.links[boundary as usize].older,
            };
            self.links[next as usize].list = Some(List::Expense);
            self.boundary = next;
            self.expense += 1;
        }
    }

    /// Checks the equations above by walking the list.
    pub(crate) fn is_valid(&self) -> bool {
        let lists: Vec<_> = self.oldest_first().map(|body| self.list_of(body)).collect();
        let profit = self.len.saturating_sub(self.frames) as usize;
        let boundary = self.oldest_first().nth(profit).map_or(NONE, |body| body.0);
        lists.len() as u64 == self.len
            && self.expense == self.frames.min(self.len)
            && (self.expense == 0 || self.boundary == boundary)
            && lists.iter().enumerate().all(|(index, &list)| {
                list == Some(if index < profit {
                    List::Profit
                } else {
                    List::Expense
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a page that left memory last.
    fn push(order: &mut Order, body: u32) {
        order.push(BodyId(body), |_| false);
    }

    fn order(pages: u32, frames: u64) -> Order {
        let mut order = Order::new();
        order.set_frames(frames);
        for body in 0..pages {
            push(&mut order, body);
            assert!(order.is_valid());
        }
        order
    }

    fn expense(order: &Order) -> Vec<u32> {
        let on_expense = |body: &BodyId| order.list_of(*body) == Some(List::Expense);
        order
            .oldest_first()
            .filter(on_expense)
            .map(|body| body.0)
            .collect()
    }

    #[test]
    fn the_most_recent_pages_are_expense_as_many_as_there_are_frames() {
        assert_eq!(expense(&order(10, 3)), [7, 8, 9]);
        assert_eq!(expense(&order(2, 3)), [0, 1]);
        assert_eq!(expense(&order(3, 0)), []);
    }

    #[test]
    fn the_boundary_follows_the_frames() {
        let mut order = order(10, 3);
        order.set_frames(5);
        assert_eq!(expense(&order), [5, 6, 7, 8, 9]);
        order.set_frames(0);
        assert_eq!(expense(&order), []);
        order.set_frames(1);
        assert_eq!(expense(&order), [9]);
        order.set_frames(99);
        assert_eq!(expense(&order).len(), 10);
        assert!(order.is_valid());
    }

    #[test]
    fn a_page_removed_from_expense_lets_the_newest_profit_page_in() {
        let mut order = order(10, 3);
        for (body, left) in [
            (8, [6, 7, 9]),
            (6, [5, 7, 9]),
            (9, [4, 5, 7]),
            (0, [4, 5, 7]),
        ] {
            order.remove(BodyId(body));
            assert_eq!(expense(&order), left);
            assert!(order.is_valid());
        }
    }

    #[test]
    fn each_profit_page_is_given_out_once_the_oldest_first() {
        let mut order = order(6, 2);
        assert_eq!(order.next_cold(), Some(BodyId(0)));
        order.remove(BodyId(1));
        assert_eq!(order.next_cold(), Some(BodyId(2)));
        assert_eq!(order.next_cold(), Some(BodyId(3)));
        assert_eq!(order.next_cold(), None);
        push(&mut order, 1);
        push(&mut order, 6);
        assert_eq!(order.next_cold(), Some(BodyId(4)));
        assert_eq!(order.next_cold(), Some(BodyId(5)));
        order.set_frames(0);
        assert_eq!(order.next_cold(), Some(BodyId(1)));
        assert_eq!(order.next_cold(), Some(BodyId(6)));
        push(&mut order, 7);
        assert_eq!(order.next_cold(), Some(BodyId(7)));
        assert_eq!(order.next_cold(), None);
    }

    #[test]
    fn pages_leave_in_the_order_they_were_stored() {
        let mut order = order(5, 2);
        order.remove(BodyId(1));
        push(&mut order, 1);
        let bodies: Vec<u32> = order.oldest_first().map(|body| body.0).collect();
        assert_eq!(bodies, [0, 2, 3, 4, 1]);
    }

    #[test]
    fn a_page_folded_late_stands_where_it_left_memory() {
        for (frames, late) in [(0, 3), (2, 3), (2, 9), (5, 0), (99, 3), (6, 4)] {
            let mut order = Order::new();
            order.set_frames(frames);
            for body in (0..10).filter(|&body| body != late) {
                push(&mut order, body);
            }
            order.push(BodyId(late), |other| other.0 > late);
            let pages: Vec<u32> = order.oldest_first().map(|body| body.0).collect();
            assert_eq!(pages, (0..10).collect::<Vec<_>>());
            assert!(order.is_valid(), "{frames} frames, {late} late");
        }
    }

    #[test]
    fn a_page_passed_on_is_the_oldest() {
        for frames in [0, 2, 99] {
            let mut order = order(3, frames);
            order.push_oldest(BodyId(7));
            let pages: Vec<u32> = order.oldest_first().map(|body| body.0).collect();
            assert_eq!(pages, [7, 0, 1, 2]);
            assert!(order.is_valid(), "{frames} frames");
        }
    }
}
