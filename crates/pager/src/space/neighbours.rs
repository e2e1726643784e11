//! Bringing along what lies beside a page that has come back (`engine/src/blocks.rs` says when).

use super::faults::{copy_staged, remember};
use super::{End, Space};
use pleat_sys::uffd::FillError;
use pleat_types::{PageNo, PageRange, PAGE_SIZE};

impl Space {
    /// Puts likely neighbours of a page in place that has just been filled. No message
    /// was read since it was looked up, so rules 1 and 2 hold for them as they do for it. What cannot be filled
    /// just now stays away.
    pub(super) fn bring_neighbours(&mut self, page: PageNo) -> Result<(), End> {
        if !self.may_bring_neighbours() {
            return Ok(());
        }
        loop {
            let engine = self.shared.engine();
            let Some(first) = engine.neighbours(self.link.id, page, &mut self.plan) else {
                return Ok(());
            };
            let pages = &mut self.scratch.get(&self.shared).pages;
            copy_staged(&self.shared, &self.plan, pages);
            drop(engine);
            let free = self.free_of_guards(first, self.plan.items.len());
            if free == 0 {
                return Ok(());
            }
            self.plan.items.truncate(free);
            self.unfold_plan(first)?;
            let count = self.plan.items.len();
            let bytes = &self.scratch.get(&self.shared).pages[..count * PAGE_SIZE];
            match self.link.uffd.copy(first.address(), bytes) {
                Ok(pages) => {
                    let range = PageRange::new(first, pages);
                    let mut engine = self.shared.engine();
                    engine.filled_beside(self.link.id, range);
                    remember(&mut engine, self.link.id, range, &mut self.prints);
                    drop(engine);
                    self.shared.meters.neighbour_pages.add(pages);
                }
                Err(FillError::NotMapped | FillError::EventPending | FillError::NoMemory) => {
                    return Ok(());
                }
                Err(FillError::Dead) => return Err(End::Gone),
                Err(FillError::Exists) => return Err(self.both(first)),
                Err(FillError::Other(error)) => return Err(self.cannot_fill(first, error)),
            }
        }
    }
}
