//! What became of the processes of a job, for the summary at its end: by name, for there may be thousands.

use crate::census::{Process, Stage};
use std::collections::BTreeMap;

/// Names that are kept apart. Programs choose their names.
const NAMES_MAX: usize = 64;
/// What is less is nobody's concern, in bytes.
const WORTH_A_WORD: u64 = 1 << 20;

/// What became of the processes of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many there were.
    pub processes: u64,
    /// Pages of theirs that were taken away.
    pub taken_pages: u64,
    /// Microseconds that their threads waited for pages.
    pub stall_us: u64,
    /// Most private memory that one of them had while it was not managed, in bytes, where that is known for good.
    pub unmanaged_bytes: u64,
    /// Why it was not.
    pub why: Option<String>,
    /// Most shared memory that one of them had, in bytes, which cannot be compressed.
    pub shared_bytes: u64,
}

/// Processes by name; all others together under no name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger(pub BTreeMap<String, Tally>);

impl Ledger {
    /// Takes note of a process.
    pub(crate) fn note(&mut self, process: &Process) {
        let mut tally = Tally {
            processes: 1,
            shared_bytes: process.common_peak_bytes,
            ..Tally::default()
        };
        match &process.stage {
            Stage::Managed(link) => {
                tally.taken_pages = link.taken_pages.get();
                tally.stall_us = link.stalled_us.get();
            }
            _ if process.why_unmanaged.is_some() => {
                tally.unmanaged_bytes = process.anon_peak_bytes;
                tally.why = process.why_unmanaged.clone();
            }
            _ => {}
        }
        let name = process.identity.as_ref().map(|who| who.name.as_str());
        self.add(name.unwrap_or_default(), tally);
    }

    fn add(&mut self, name: &str, new: Tally) {
        let is_worth =
            new.taken_pages > 0 || new.unmanaged_bytes.max(new.shared_bytes) >= WORTH_A_WORD;
        if !is_worth {
            return;
        }
        let has_room = self.0.len() < NAMES_MAX || self.0.contains_key(name);
        let tally = self.0.entry(if has_room { name } else { "" }.into());
        let tally = tally.or_default();
        tally.processes += new.processes;
        tally.taken_pages += new.taken_pages;
        tally.stall_us += new.stall_us;
        tally.shared_bytes = tally.shared_bytes.max(new.shared_bytes);
        if new.unmanaged_bytes > tally.unmanaged_bytes {
            tally.unmanaged_bytes = new.unmanaged_bytes;
            tally.why = new.why;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(taken_pages: u64) -> Tally {
        Tally {
            processes: 1,
            taken_pages,
            ..Tally::default()
        }
    }

    #[test]
    fn processes_of_a_name_are_added_up_and_small_ones_left_out() {
        let mut ledger = Ledger::default();
        ledger.add("cc", taken(5));
        ledger.add("cc", taken(7));
        ledger.add("true", taken(0));
        let tally = &ledger.0["cc"];
        assert_eq!((tally.processes, tally.taken_pages), (2, 12));
        assert_eq!(ledger.0.len(), 1);
    }

    #[test]
    fn however_many_names_there_are_the_ledger_is_bounded() {
        let mut ledger = Ledger::default();
        for at in 0..1000 {
            ledger.add(&at.to_string(), taken(1));
        }
        assert_eq!(ledger.0.len(), NAMES_MAX + 1);
        assert_eq!(ledger.0[""].processes, 1000 - NAMES_MAX as u64);
    }

    #[test]
    fn the_largest_that_was_not_managed_gives_the_reason() {
        let mut ledger = Ledger::default();
        for (unmanaged_bytes, why) in [(2 << 20, "small"), (9 << 20, "large"), (3 << 20, "later")] {
            ledger.add(
                "x",
                Tally {
                    unmanaged_bytes,
                    why: Some(why.into()),
                    ..taken(0)
                },
            );
        }
        let tally = &ledger.0["x"];
        assert_eq!(
            (tally.unmanaged_bytes, tally.why.as_deref()),
            (9 << 20, Some("large"))
        );
    }
}
