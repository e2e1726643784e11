//! Which pages of a space are not in its memory, for a driver that brings all of them back.

use crate::Engine;
use pleat_types::{PageNo, SpaceId};

impl Engine {
    /// The first page of a space, from `from` on, that is away or on its way there.
    pub fn first_away(&self, space: SpaceId, from: PageNo) -> Option<PageNo> {
        self.spaces.get(&space)?.table.first_away(from)
    }

    /// Whether a page is away or on its way there.
    pub fn is_out(&self, space: SpaceId, page: PageNo) -> bool {
        let space = self.spaces.get(&space);
        space.is_some_and(|space| space.table.get(page).is_away())
    }

    /// How many pages of a space are away or on their way there; 0 when there is no such space.
    pub fn space_away_pages(&self, space: SpaceId) -> u64 {
        let counts = self.spaces.get(&space).map(|space| space.counts());
        counts.map_or(0, |counts| counts.away + counts.leaving)
    }
}

#[cfg(test)]
mod tests {
    use crate::table::{PageState, PageTable};
    use crate::BodyId;
    use pleat_types::PageNo;

    #[test]
    fn pages_away_are_found_in_order_over_all_chunks() {
        let mut table = PageTable::default();
        let states = [
            (3, PageState::Resident { stamp: 1 }),
            (511, PageState::Away(BodyId(1))),
            (512, PageState::Stuck),
            (700, PageState::Leaving { stamp: 2 }),
            (1 << 40, PageState::Away(BodyId(2))),
        ];
        for (page, state) in states {
            table.set(PageNo(page), state);
        }
        let mut from = PageNo(0);
        let mut found = Vec::new();
        while let Some(page) = table.first_away(from) {
            found.push(page.0);
            from = page.plus(1);
        }
        assert_eq!(found, [511, 700, 1 << 40]);
        assert_eq!(table.first_away(PageNo(u64::MAX)), None);
    }
}
