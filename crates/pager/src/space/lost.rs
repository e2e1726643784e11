//! A page that should be there and is not: rightly so, or the end of its process.

use super::{End, Space};
use crate::ends::Unservable;
use pleat_engine::FillItem;
use pleat_types::{PageNo, PAGE_SIZE};
use std::time::Duration;

/// How long MADV_DONTNEED may take to drop pages after it was reported.
const GIVING_UP: Duration = Duration::from_secs(10);

impl Space {
    /// Whether the page just filled with zeros was thought present, and nobody has given it up.
    pub(super) fn has_vanished(&self) -> bool {
        matches!(self.plan.items.first(), Some(FillItem::Resident)) && !self.gives_up()
    }

    /// Whether a page thought present may rightly be absent: only where MADV_DONTNEED and a touch by
    /// another thread met, and the page came between the report and the deed.
    fn gives_up(&self) -> bool {
        self.given_up
            .is_some_and(|at| self.shared.machine.since(at) < GIVING_UP)
    }

    /// A command found no page where one was thought to be. Rightly so, if it is not thought to be there any
    /// more, or the mapping is gone (no event of that may have been read yet), or the page was given up.
    pub(super) fn check_gone(&self, page: PageNo) -> Result<(), End> {
        let probe = || {
            let (address, len) = (page.address(), PAGE_SIZE as u64);
            // Changes nothing for an absent page, and is refused while an event is pending and where
            // nothing is registered.
            self.link.uffd.protect(address, len, false).is_ok()
        };
        let is_wanted = || self.shared.engine().is_leaving(self.link.id, page);
        if self.gives_up() || !is_wanted() || !probe() {
            return Ok(());
        }
        Err(self.lost(page))
    }

    /// Ends the process: a page is neither where it should be nor anywhere else.
    pub(super) fn lost(&self, page: PageNo) -> End {
        self.condemn(Unservable::Lost(page))
    }
}
