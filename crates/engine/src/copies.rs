//! Pages that were read from the swap file keep their copy there while they are in memory, in case they leave as
//! they came: then they need not be written again, when they leave the compressed cache, too.
//!
//! Drivers that see every write (`tracks_writes`) know which pages those are. Others cannot without making writes
//! slower, so they compare: what a page was when it came back, by its fingerprint, with what it is when it was taken.
//!
//! ```text
//!   filled, remember              taken_to_compare           compared: it is the same; folded
//!  ------------------> Resident -----------------> StagedClean -------------------------------> Clean
//!                      and OnDisk                       |
//!                                                       | compared: it differs
//!                                                       v
//!                                                    Staged, and the copy is given up
//! ```
//!
//! Dropped at once, without a time in the compressed cache, they would have to be read again to be seen in use.
//!
//! SAFETY: a copy is believed only where the bytes that were put in place, made from that very body, and the bytes
//! that were taken have the same fingerprint. Whatever happens to the page in between, by whatever event, it is the
//! content that counts. A body's content never changes, wherever it is moved; and it is not freed while a page keeps it.

use std::collections::BTreeMap;

use pleat_backing::Fingerprint;
use pleat_types::{CodecId, PageNo, SpaceId, StagingSlot};

use crate::bodies::BodyState;
use crate::share::Share;
use crate::{BodyId, Engine};

/// Where less than this share of the copies spares a write, they are not kept...
const LEAST_SPARING: u32 = 256 / 4;
/// ... but for those of one body in so many, to see whether that has changed.
const TRY_EVERY: u32 = 16;
/// The share is a running mean over about so many.
const WEIGHT: u32 = 64;

/// Pages that lie side by side and have their copies noted together.
const GROUP_PAGES: u64 = 64;

/// The copy of a page that is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) body: BodyId,
    /// What the page was when it came back, where the driver compares.
    pub(crate) was: Option<Fingerprint>,
}

/// The same in 16 bytes: there is one for most pages in memory. Zeros stand for no fingerprint, which at worst is not
/// compared.
#[derive(Clone, Copy)]
struct Packed {
    body: u32,
    was: [u8; 12],
}

impl Packed {
    const NONE: Packed = Packed {
        body: u32::MAX,
        was: [0; 12],
    };

    fn copied(self) -> Option<Copied> {
        (self.body != u32::MAX).then(|| Copied {
            body: BodyId(self.body),
            was: (self.was != [0; 12]).then_some(Fingerprint(self.was)),
        })
    }
}

#[derive(Clone)]
struct Group {
    pages: [Packed; GROUP_PAGES as usize],
    /// Those of them that have a copy; a group without is dropped.
    count: u32,
}

/// The copies of a space's pages.
#[derive(Clone, Default)]
pub(crate) struct Copies(BTreeMap<u64, Box<Group>>);

impl Copies {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, page: PageNo) -> Option<Copied> {
        let group = self.0.get(&(page.0 / GROUP_PAGES))?;
        group.pages[(page.0 % GROUP_PAGES) as usize].copied()
    }

    /// Notes the body as the copy of a page that had none; nothing is known of what the page is.
    pub(crate) fn insert(&mut self, page: PageNo, body: BodyId) {
        let group = self.0.entry(page.0 / GROUP_PAGES).or_insert_with(|| {
            Box::new(Group {
                pages: [Packed::NONE; GROUP_PAGES as usize],
                count: 0,
            })
        });
        let packed = &mut group.pages[(page.0 % GROUP_PAGES) as usize];
        assert!(packed.copied().is_none(), "{page:?} has a copy");
        packed.body = body.0;
        group.count += 1;
    }

    pub(crate) fn remove(&mut self, page: PageNo) -> Option<Copied> {
        let number = page.0 / GROUP_PAGES;
        let group = self.0.get_mut(&number)?;
        let packed = &mut group.pages[(page.0 % GROUP_PAGES) as usize];
        let copied = std::mem::replace(packed, Packed::NONE).copied()?;
        group.count -= 1;
        if group.count == 0 {
            self.0.remove(&number);
        }
        Some(copied)
    }

    /// What a page is that has a copy, if it has one.
    fn remember(&mut self, page: PageNo, is: Fingerprint) {
        let Some(group) = self.0.get_mut(&(page.0 / GROUP_PAGES)) else {
            return;
        };
        let packed = &mut group.pages[(page.0 % GROUP_PAGES) as usize];
        if packed.copied().is_some() {
            packed.was = is.0;
        }
    }

    /// All of them, in the order of addresses.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PageNo, Copied)> + '_ {
        self.0.iter().flat_map(|(number, group)| {
            let pages = (number * GROUP_PAGES..).zip(&group.pages);
            pages.filter_map(|(page, packed)| Some((PageNo(page), packed.copied()?)))
        })
    }

    /// Bytes of the table.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        (self.0.len() * (size_of::<Group>() + size_of::<(u64, Box<Group>)>())) as u64
    }
}

/// How many copies spare a write. Those do not whose page changes, or is wanted again while it is in the
/// compressed cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sparing(Share<WEIGHT>);

impl Sparing {
    pub(crate) fn learn(&mut self, has_spared: bool) {
        self.0.learn(has_spared);
    }

    fn is_worth_it(self, body: BodyId) -> bool {
        self.0.is_at_least(LEAST_SPARING) || body.0.is_multiple_of(TRY_EVERY)
    }
}

impl Engine {
    /// Whether the page of this body, which is about to be put in place or just was, keeps what the swap file has of
    /// it, and the driver is to say what it was ([`Engine::remember`]).
    pub(crate) fn is_to_compare(&self, body: BodyId) -> bool {
        let in_file = matches!(
            self.cache.bodies.state(body),
            BodyState::OnDisk(_) | BodyState::Clean { .. }
        );
        let swap = self.cache.swap.as_ref();
        self.settings.keeps_copies
            && in_file
            && self.cache.sparing.is_worth_it(body)
            && swap.is_some_and(|swap| !swap.is_nearly_full())
    }

    /// After `filled`, before anything else: what the page is that was put in place. To be called for those of which
    /// the plan says so ([`crate::FillItem::Packed`]).
    pub fn remember(&mut self, space: SpaceId, page: PageNo, is: Fingerprint) {
        if let Some(space) = self.spaces.get_mut(&space) {
            space.copies.remember(page, is);
        }
    }

    /// As [`Engine::taken`], for drivers that compare. With a fingerprint, that of what lies in `slot` is to be
    /// compared with it, and `compared` called, exactly once.
    pub fn taken_to_compare(
        &mut self,
        space: SpaceId,
        page: PageNo,
        slot: StagingSlot,
    ) -> Option<(BodyId, Option<Fingerprint>)> {
        self.take(space, page, slot, true)
    }

    /// Whether the page of this body, taken with a fingerprint, is as it was. It is to be folded in any case, and
    /// `folded` called for it; answers `true` when it is known not to compress and may be stored as it is.
    ///
    /// # Panics
    /// When the body was not taken with a fingerprint.
    pub fn compared(&mut self, body: BodyId, is_same: bool) -> bool {
        let BodyState::StagedClean { slot, copy } = self.cache.bodies.state(body) else {
            panic!("{body:?} has nothing to be compared with");
        };
        let totals = &mut self.cache.totals;
        totals.compared_pages += 1;
        totals.unchanged_pages += u64::from(is_same);
        if !is_same {
            self.cache.sparing.learn(false);
            self.cache.bodies.set_state(body, BodyState::Staged(slot));
            self.cache.free_extent(copy.extent);
        }
        is_same && copy.packed.codec == CodecId::RAW
    }

    /// The swap file has no room: copies of pages that are in memory are given up. Answers whether there were any.
    pub(crate) fn give_up_copies(&mut self) -> bool {
        let mut found = false;
        if !self.settings.keeps_copies {
            return found;
        }
        for space in self.spaces.values_mut() {
            for (_, copied) in std::mem::take(&mut space.copies).iter() {
                found = true;
                self.cache.release(copied.body);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(byte: u8) -> Fingerprint {
        Fingerprint([byte; 12])
    }

    #[test]
    fn a_copy_has_16_bytes() {
        assert_eq!(size_of::<Packed>(), 16);
    }

    #[test]
    fn copies_come_and_go_with_what_is_known_of_them() {
        let mut copies = Copies::default();
        let pages = [0, 63, 64, 1 << 35].map(PageNo);
        for (nth, &page) in pages.iter().enumerate() {
            copies.insert(page, BodyId(nth as u32));
        }
        copies.remember(PageNo(63), print(7));
        copies.remember(PageNo(62), print(8));
        let all: Vec<_> = copies.iter().collect();
        assert_eq!(all.iter().map(|(page, _)| *page).collect::<Vec<_>>(), pages);
        assert_eq!(copies.get(PageNo(62)), None);
        let (body, was) = (BodyId(1), Some(print(7)));
        assert_eq!(copies.remove(PageNo(63)), Some(Copied { body, was }));
        assert_eq!(copies.remove(PageNo(63)), None);
        copies.insert(PageNo(63), BodyId(9));
        let (body, was) = (BodyId(9), None);
        assert_eq!(copies.get(PageNo(63)), Some(Copied { body, was }));
        for page in pages {
            copies.remove(page);
        }
        assert!(copies.is_empty());
        assert_eq!(copies.metadata_bytes(), 0);
    }

    #[test]
    fn where_copies_spare_no_writes_they_are_kept_of_few_bodies() {
        let mut sparing = Sparing::default();
        let kept = |sparing: Sparing| (0..160).filter(|&b| sparing.is_worth_it(BodyId(b))).count();
        assert_eq!(kept(sparing), 160);
        (0..400).for_each(|_| sparing.learn(false));
        assert_eq!(kept(sparing), 10);
        (0..40).for_each(|_| sparing.learn(true));
        assert_eq!(kept(sparing), 160);
    }
}
