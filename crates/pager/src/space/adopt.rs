//! Taking charge of mappings: registering them, and learning which pages they hold.

use super::{Ended, Space};
use pleat_sys::procfs::{self, Mapping, MappingKind};
use pleat_types::PageRange;
use pleat_wire::message::{Guard, GUARD, GUARD_MAX};
use std::sync::atomic::Ordering;

/// Smaller mappings are left alone: there are many, they hold little, and some are special (stacks'
/// guards, the C library's random state that must not survive a fork).
const MAPPING_MIN: u64 = 64 << 10;

impl Space {
    /// Registers private anonymous mappings that are not registered yet, and adopts their pages.
    ///
    /// No event is read between registering a mapping and adopting what it holds: a page found
    /// present is either alive, or its end will be reported by an event that is still to be read.
    /// (MADV_DONTNEED on a mapping that is not registered yet holds the mapping's lock until it is
    /// done, and registering takes that lock.)
    pub(super) fn adopt_new_mappings(&mut self) -> Result<(), Ended> {
        // So that ranges unmapped before are known as such.
        self.gather()?;
        self.work()?;
        let pid = self.link.pid.load(Ordering::Acquire);
        let Ok(mappings) = procfs::maps(pid) else {
            return Ok(());
        };
        let fresh: Vec<(u64, u64)> = mappings
            .iter()
            .flat_map(|mapping| self.fresh_parts(mapping))
            .collect();
        for (start, end) in fresh {
            // Refused: unmapped meanwhile, or of a kind that cannot be managed. It stays as it is.
            if self.link.uffd.register(start, end - start).is_err() {
                continue;
            }
            self.shared.meters.registered_mappings.add(1);
            self.unregister(start, end);
            self.registered.insert(start, end);
            self.guard(start, end)?;
            // Pages that only read as zeros get memory by a write that raises no fault: it shall.
            for (start, end) in procfs::zero_page_runs(pid, start, end).unwrap_or_default() {
                if self.link.uffd.protect(start, end - start, true).is_ok() {
                    self.zeros.insert(start, end);
                }
            }
            let Ok(runs) = procfs::present_anon_runs(pid, start, end) else {
                continue;
            };
            for (start, end) in runs {
                let range = PageRange::of_addresses(start, end);
                self.shared.engine().adopt(self.link.id, range);
                if let Some(recorder) = &self.shared.recorder {
                    recorder.found(self.link.id, range);
                }
            }
        }
        Ok(())
    }

    /// Without fork events, has the agent keep a range from children. The agent gets this before any
    /// command for the range, for both go the same way.
    fn guard(&self, start: u64, end: u64) -> Result<(), Ended> {
        let Some(agent) = self.agent.as_ref().filter(|agent| !agent.fork_events) else {
            return Ok(());
        };
        let mut guard = Guard {
            kind: GUARD,
            count: 1,
            ranges: [[0; 2]; GUARD_MAX],
        };
        guard.ranges[0] = [start, end];
        agent
            .channel
            .send(pleat_sys::bytes_of(&guard), None)
            .map_err(|_| Ended)
    }

    /// The parts of a mapping to take charge of: all of it but the agent's memory, if it is private
    /// and anonymous. A part that overlaps what is registered is registered as a whole: a mapping
    /// with a userfaultfd never becomes one with a mapping without.
    fn fresh_parts(&self, mapping: &Mapping) -> Vec<(u64, u64)> {
        let kind = matches!(mapping.kind, MappingKind::Anonymous | MappingKind::Heap);
        if mapping.shared || !kind {
            return Vec::new();
        }
        let mut parts = vec![(mapping.start, mapping.end)];
        let own = self
            .own_pages()
            .map(|own| (own.start.address(), own.end.address()));
        let agents = self.agent.iter().flat_map(|agent| agent.own);
        for (start, end) in agents.chain(own) {
            parts = parts
                .into_iter()
                .flat_map(|(s, e)| [(s, e.min(start).max(s)), (s.max(end).min(e), e)])
                .collect();
        }
        parts.retain(|(start, end)| {
            end.saturating_sub(*start) >= MAPPING_MIN && !self.is_registered(*start, *end)
        });
        parts
    }

    fn is_registered(&self, start: u64, end: u64) -> bool {
        self.registered
            .range(..end)
            .next_back()
            .is_some_and(|(_, e)| *e > start)
    }
}
