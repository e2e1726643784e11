//! The beacon and the doorbells: pages of the agent's that are touched to announce something.

use super::faults::Fault;
use super::{End, Space};
use pleat_types::{PageNo, PageRange};
use pleat_wire::message::{DOORBELLS, DOORBELL_PAGES};

/// What a fault on one of the doorbell pages announces.
pub(super) enum Doorbell {
    Fork,
    Mapping,
    Forked,
    Born,
    Grown,
    Wiping,
    Offered,
}

impl Space {
    /// The program has made a mapping, and waits until it is managed.
    pub(super) fn welcome_newcomers(&mut self) -> Result<(), End> {
        if self.newcomers.is_empty() {
            return Ok(());
        }
        let newcomers = std::mem::take(&mut self.newcomers);
        let is_told = |fault: &Fault| matches!(self.doorbell(fault.page), Some(Doorbell::Grown));
        if !newcomers.iter().all(is_told) || !self.adopt_grown()? {
            self.adopt_new_mappings()?;
        }
        for fault in newcomers {
            self.answer(fault)?;
        }
        Ok(())
    }

    /// Only a forked child's agent reads the beacon, before it is ready.
    pub(super) fn is_beacon(&self, page: PageNo) -> bool {
        self.agent.is_none() && self.beacon == Some(page)
    }

    /// Whether a page is the beacon or a doorbell: those are no business of the engine's.
    pub(super) fn is_own(&self, page: PageNo) -> bool {
        self.own_pages().is_some_and(|own| own.contains(page))
    }

    /// The beacon and the doorbells.
    pub(super) fn own_pages(&self) -> Option<PageRange> {
        Some(PageRange::new(self.beacon?, 1 + DOORBELLS as u64))
    }

    /// What a fault on this page announces, if it is one of the doorbells.
    pub(super) fn doorbell(&self, page: PageNo) -> Option<Doorbell> {
        let at = page.0.checked_sub(self.beacon?.plus(1).0)?;
        match at as usize / DOORBELL_PAGES {
            0 => Some(Doorbell::Fork),
            1 => Some(Doorbell::Mapping),
            2 => Some(Doorbell::Forked),
            3 => Some(Doorbell::Born),
            4 => Some(Doorbell::Grown),
            5 => Some(Doorbell::Wiping),
            6 => Some(Doorbell::Offered),
            _ => None,
        }
    }
}
