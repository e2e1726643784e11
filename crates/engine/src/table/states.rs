//! What an entry of a page table says of its page, and how it is packed.

use crate::BodyId;

pub(super) const KIND: u64 = 7;
pub(super) const RESIDENT: u64 = 1;
/// How often it will be passed over when it is the oldest: once after a use, more often by `lives.rs`. Only
/// of pages that are resident.
pub(super) const LIVES_SHIFT: u32 = 3;
pub(super) const LIVES: u64 = 3 << LIVES_SHIFT;
/// One of them.
pub(super) const LIFE: u64 = 1 << LIVES_SHIFT;
/// As its copy in a file or in the swap file; only of pages that are present.
pub(super) const CLEAN: u64 = 1 << 5;
pub(super) const DATA_SHIFT: u32 = 6;

/// What a touch found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    /// The page is not resident.
    Absent,
    /// It is.
    Present,
    /// It is, and was clean before this write.
    Dirtied,
}

/// What becomes of an entry in the order of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The page got another state or stamp.
    Outdated,
    /// It is young again.
    PassedOver,
    Goes,
}

/// Why an old page leaves, or does not yet (`scouts.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// Its region came in a run: it just leaves.
    None,
    Scout,
    /// The scout of its region has left: it waits for what becomes of that.
    Wait,
}

/// Where a page is.
///
/// ```text
///              adopt, filled
///   Unknown ------------------> Resident <----------------+-----------+
///      ^                         |    ^                   |           |
///      | forget,          choose |    | refused           | filled    | filled, adopt
///      | from any         victims|    | (busy, stale)     |           |
///      | state                   v    |                   |           |
///      +-----------------------  Leaving --- taken --->  Away         |
///        refused (gone)             |                                 |
///                                   +------- refused (unmovable) -> Stuck
///                                Resident -- faulted on though present --^
/// ```
///
/// A page that arrives at an address from which a page is still being taken is `Leaving` at once:
/// the command may yet hit it (see `space.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageState {
    /// Not there, or there without our knowledge; reads as zeros.
    Unknown,
    /// Present; the stamp says since when (smaller is older).
    Resident { stamp: u64 },
    /// Present or just taken: a command to take it is under way.
    Leaving { stamp: u64 },
    /// Present, and refuses to be moved or must not be just now.
    Stuck,
    /// Taken away; its content is this body.
    Away(BodyId),
}

impl PageState {
    /// Packs into 64 bits: three for the kind, three for lives and flags, the rest for stamp or body. Unknown is 0.
    pub(super) fn pack(self) -> u64 {
        match self {
            PageState::Unknown => 0,
            PageState::Resident { stamp } => stamp << DATA_SHIFT | RESIDENT,
            PageState::Leaving { stamp } => stamp << DATA_SHIFT | 2,
            PageState::Stuck => 3,
            PageState::Away(body) => u64::from(body.0) << DATA_SHIFT | 4,
        }
    }

    pub(super) fn unpack(bits: u64) -> PageState {
        let stamp = bits >> DATA_SHIFT;
        match bits & KIND {
            0 => PageState::Unknown,
            1 => PageState::Resident { stamp },
            2 => PageState::Leaving { stamp },
            3 => PageState::Stuck,
            _ => PageState::Away(BodyId(stamp as u32)),
        }
    }

    /// Since when it is there, or 0 where that is not known.
    pub(crate) fn stamp(self) -> u64 {
        match self {
            PageState::Resident { stamp } | PageState::Leaving { stamp } => stamp,
            _ => 0,
        }
    }

    /// Whether it occupies memory of a program.
    pub(crate) fn is_present(self) -> bool {
        !matches!(self, PageState::Unknown | PageState::Away(_))
    }

    /// Whether it is not in memory of its program, or soon will not be.
    pub(crate) fn is_away(self) -> bool {
        matches!(self, PageState::Away(_) | PageState::Leaving { .. })
    }

    /// Whether a page that is `self` may be `to` next. Only a page that is leaving, or moved to an empty address, may
    /// be away: what others hold in memory would be lost, or the body that they name.
    pub(crate) fn may_become(self, to: PageState) -> bool {
        use PageState::*;
        match (self, to) {
            // It came, or was moved here (fork, mremap): what it was elsewhere, it is here.
            (Unknown, _) => true,
            // It was given up, or is not there after all; what it was the caller has.
            (_, Unknown) => true,
            // What became of the command: not taken, cannot be, taken.
            (Leaving { .. }, Resident { .. } | Stuck | Away(_) | Leaving { .. }) => true,
            // Chosen; brought in once more; faulted on though present.
            (Resident { .. }, Leaving { .. } | Resident { .. } | Stuck) => true,
            // Filled, adopted, tried again.
            (Stuck | Away(_), Resident { .. } | Leaving { .. }) | (Stuck, Stuck) => true,
            (Resident { .. } | Stuck | Away(_), Away(_)) | (Away(_), Stuck) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_survives_packing() {
        let states = [
            PageState::Unknown,
            PageState::Resident { stamp: 0 },
            PageState::Resident {
                stamp: (1 << 58) - 1,
            },
            PageState::Leaving { stamp: 7 },
            PageState::Stuck,
            PageState::Away(BodyId(0)),
            PageState::Away(BodyId(u32::MAX)),
        ];
        for state in states {
            assert_eq!(PageState::unpack(state.pack()), state);
        }
    }

    #[test]
    fn only_a_page_that_is_leaving_or_comes_from_elsewhere_may_be_away() {
        let [resident, leaving] = [
            PageState::Resident { stamp: 1 },
            PageState::Leaving { stamp: 1 },
        ];
        let (away, other) = (PageState::Away(BodyId(1)), PageState::Away(BodyId(2)));
        for from in [leaving, PageState::Unknown] {
            assert!(from.may_become(away), "{from:?}");
        }
        for from in [resident, PageState::Stuck, away] {
            assert!(!from.may_become(other), "{from:?}");
        }
        assert!(!away.may_become(PageState::Stuck));
    }
}
