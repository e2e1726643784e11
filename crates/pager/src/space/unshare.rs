//! Pages that are shared since a fork: let go when they are written to.

use super::faults::{Fault, Later};
use super::{End, Space};
use crate::profile::FaultPart;
use pleat_sys::uffd::FillError;
use pleat_types::{PageRange, PAGE_SIZE};

/// Most pages unshared at once.
const UNSHARE_MAX: u64 = 16;

impl Space {
    /// Lets a page that is shared since a fork be written to, with its neighbours if the program
    /// goes through them in order.
    pub(super) fn unshare(&mut self, fault: &Fault, urgent: bool) -> Result<Option<Later>, End> {
        let (end, window) = self.unsharing;
        let pages = if fault.page == end {
            (window * 2).min(UNSHARE_MAX)
        } else {
            1
        };
        if !self.shared.engine().unshare(pages, urgent) {
            return Ok(Some(Later::Memory));
        }
        self.clock.lap(FaultPart::Lookup);
        let (address, page) = (fault.page.address(), PAGE_SIZE as u64);
        let result = match self.link.uffd.protect(address, pages * page, false) {
            Err(FillError::NotMapped) if pages > 1 => self.link.uffd.protect(address, page, false),
            other => other,
        };
        self.clock.lap(FaultPart::Fill);
        match result {
            Ok(()) => {
                self.unsharing = (fault.page.plus(pages), pages);
                self.learn_zeros(PageRange::new(fault.page, pages));
                self.record(fault);
                self.shared.meters.unshared_pages.add(pages);
            }
            Err(FillError::EventPending) => return Ok(Some(Later::Event)),
            Err(FillError::Dead) => return Err(End::Gone),
            // Unmapped since: the thread is to look again.
            Err(_) => self.link.uffd.wake(address, page),
        }
        Ok(None)
    }

    /// Pages that held zeros when their mapping was adopted are about to be written to: from here on
    /// the engine knows them. (Others it knows already, or gave up; see rule 6 in `super`.)
    fn learn_zeros(&self, range: PageRange) {
        let (start, end) = (range.start.address(), range.end.address());
        if let Some((s, e)) = self.zeros.range(..end).next_back() {
            let (start, end) = (start.max(*s), end.min(*e));
            if start < end {
                let range = PageRange::of_addresses(start, end);
                self.shared.engine().adopt(self.link.id, range);
            }
        }
    }
}
