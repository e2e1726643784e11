//! Pages of files whose uses nobody sees: a file system's driver hears only of what the kernel has not.
//!
//! The kernel's page cache holds what is resident here, reads whole ranges of what it lacks, and may lose
//! any clean page without a word. So it may ask for pages that are thought resident, or are leaving: their
//! content is in the file. Every write reaches the file before the engine hears of it, and so every page
//! is clean.

use pleat_policy::Backed;
use pleat_types::{PageNo, PageRange, SpaceId, PAGE_SIZE};

use crate::bodies::Home;
use crate::fault::Came;
use crate::table::PageState;
use crate::{Engine, FillItem, FillPlan};

impl Engine {
    /// The kernel reads a range of a file: appends what to make each page of. Follow with `read_done`.
    ///
    /// Unlike with `fault`, anything may happen before that: what is given up meanwhile was the page's
    /// content all the same. Whether a page was *written to* meanwhile is for the caller to know.
    pub fn read_file(&mut self, space: SpaceId, range: PageRange, plan: &mut FillPlan) {
        let Some(known) = self.spaces.get(&space) else {
            let count = range.len() as usize;
            return plan
                .items
                .extend(std::iter::repeat_n(FillItem::File, count));
        };
        for page in range.pages() {
            let folded = match known.table.get(page) {
                PageState::Away(body) => self.copy_out(body, &mut plan.bytes),
                _ => None,
            };
            plan.items.push(folded.unwrap_or(FillItem::File));
        }
    }

    /// Whether there is memory for a page that is not urgent. Somebody who finds none waits for it.
    pub fn has_room(&mut self) -> bool {
        let has_room = self.grantable_bytes() >= PAGE_SIZE as i64;
        self.cache.totals.fault_no_memory += u64::from(!has_room);
        has_room
    }

    /// The kernel has the pages of this range now: resident and youngest. Each counts as wanted: what
    /// the kernel reads ahead it uses as a rule.
    ///
    /// A page that comes back from the cache has been used twice at least; it gets a second chance before it
    /// leaves again, for want of better knowledge of its uses.
    pub fn read_done(&mut self, space: SpaceId, range: PageRange) {
        if !self.spaces.contains_key(&space) {
            return;
        }
        self.cache.outside.resident_pages = self.pages.present();
        for page in range.pages() {
            let was_away = self.is_away(space, page);
            self.fill_page(space, page, Came::Wanted);
            if let Some(known) = self.spaces.get_mut(&space).filter(|_| was_away) {
                known.table.touch(page, false);
            }
            // A hit may have shrunk the cache by a page of this very range.
            self.forget_dropped();
        }
    }

    fn is_away(&self, space: SpaceId, page: PageNo) -> bool {
        let known = self.spaces.get(&space);
        known.is_some_and(|known| matches!(known.table.get(page), PageState::Away(_)))
    }

    /// These pages were written to, in the kernel's page cache and in their file: what was kept of them
    /// is out of date, and they are resident.
    ///
    /// One that is leaving goes on leaving: what was taken of it is out of date, and the caller reports
    /// `refused`.
    pub fn overwritten(&mut self, space: SpaceId, range: PageRange) {
        for page in range.pages() {
            let stamp = self.next_stamp();
            let Some(known) = self.spaces.get_mut(&space) else {
                return;
            };
            assert_eq!(known.backed, Backed::ByFile, "{space:?} is not of files");
            let before = known.table.get(page);
            if matches!(before, PageState::Leaving { .. } | PageState::Stuck) {
                continue;
            }
            known.arrive(page, stamp, &mut self.pages);
            known.table.set_clean(page, true);
            match before {
                PageState::Away(body) => self.cache.release(body),
                PageState::Unknown => drop(self.cache.forget_ghost(Home { space, page })),
                _ => continue,
            }
            self.granted_pages += 1;
            self.starved = false;
        }
    }

    /// Whether a page is in memory as far as is known, chosen to go or not.
    pub fn is_in_memory(&self, space: SpaceId, page: PageNo) -> bool {
        let known = self.spaces.get(&space);
        known.is_some_and(|known| known.table.get(page).is_present())
    }

    /// Whether a page that was chosen to go is still the one that was meant: it was not given up since.
    pub fn is_leaving(&self, space: SpaceId, page: PageNo) -> bool {
        let known = self.spaces.get(&space);
        known.is_some_and(|known| {
            let is_leaving = matches!(known.table.get(page), PageState::Leaving { .. });
            is_leaving && !known.is_contested(page)
        })
    }

    /// Whether anything is known of a page of this range.
    pub fn knows(&self, space: SpaceId, range: PageRange) -> bool {
        let known = self.spaces.get(&space);
        known.is_some_and(|known| {
            let mut pages = range.pages();
            pages.any(|page| known.table.get(page) != PageState::Unknown)
        })
    }

    /// The kernel has given up what it had of this range, and kept nothing. What is folded stays.
    pub fn kernel_forgot(&mut self, space: SpaceId, range: PageRange) {
        let Some(known) = self.spaces.get_mut(&space) else {
            return;
        };
        for page in range.pages() {
            if matches!(
                known.table.get(page),
                PageState::Resident { .. } | PageState::Stuck
            ) {
                known.change(page, PageState::Unknown, &mut self.pages);
            }
        }
    }
}
