//! Taking charge of mappings: registering them, and learning which pages they hold.

use super::events::cut;
use super::files::pending;
use super::{End, Space};
use pleat_sys::procfs::{Mapping, MappingKind};
use pleat_types::{PageRange, PAGE_SIZE};
use pleat_wire::message::{Guard, GUARD, GUARD_MAX};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Looks at the list of mappings before those that change all the time are left to the next occasion.
const LISTINGS_MAX: usize = 16;
/// Smaller mappings are left alone: there are many, they hold little, and some are special (stacks'
/// guards, the C library's random state that must not survive a fork).
const MAPPING_MIN: u64 = 64 << 10;
/// The main thread's stack is managed when it has become so large. It is registered as a whole, and stays so as it
/// grows, for it remains one mapping to the kernel.
const STACK_MIN: u64 = 2 << 20;
/// At its top, where it begins, are the program's arguments and environment. Others read those (`ps`), for whom the kernel
/// does not wait: they would find nothing. What is there when the stack is registered is never known to the engine, so
/// it stays.
const STACK_KEPT: u64 = 256 << 10;
/// The first address that no program has.
const ADDRESSES_END: u64 = 1 << 47;

/// A mapping, or a part of one, that is to be managed and is not yet.
#[derive(Clone, Copy, Debug)]
struct Fresh {
    start: u64,
    end: u64,
    /// What is there already from here on is not to be taken.
    adopted_end: u64,
    /// The mapping.
    whole: (u64, u64),
}

impl Fresh {
    /// It stays this when it is registered, and a mapping of its own if it was none.
    fn part(&self) -> (u64, u64) {
        (self.start, self.end)
    }
}

impl Space {
    /// Registers private anonymous mappings that are not registered yet, and adopts their pages.
    ///
    /// No event is read between registering a mapping and adopting what it holds: a page found
    /// present is either alive, or its end will be reported by an event that is still to be read.
    /// (MADV_DONTNEED on a mapping that is not registered yet holds the mapping's lock until it is
    /// done, and registering takes that lock.)
    ///
    /// Nothing is, as long as it is not known which memory is the agent's, or what a fork has left out: a look follows
    /// when it is.
    pub(super) fn adopt_new_mappings(&mut self) -> Result<(), End> {
        if self.agent.is_none() || self.newborn.is_some() {
            return Ok(());
        }
        // So that ranges unmapped before are known as such.
        self.gather()?;
        self.work()?;
        self.offer_segments();
        let pid = self.link.pid.load(Ordering::Acquire);
        for Fresh {
            start,
            end,
            adopted_end,
            ..
        } in self.register_fresh(pid)
        {
            // Where a part was registered before, all of it may have been (mremap makes mappings longer). What was
            // given up there and forgotten may be about to go, and is not to be found again (rule 6).
            let is_new = gaps(&self.registered, start, end) == [(start, end)];
            self.shared.meters.registered_mappings.add(1);
            cut(&mut self.registered, start, end);
            self.registered.insert(start, end);
            // Whatever was noted of it, it is private memory now.
            self.cut_segments(start, end);
            self.guard(start, end)?;
            if is_new {
                self.adopt(pid, start, adopted_end);
            }
        }
        Ok(())
    }

    /// Registers what a thread of the program says it has just got, and waits to use; adopts what of it is new. `false`: that
    /// cannot be, and all mappings are to be looked at.
    ///
    /// The list of mappings is not read: the thread stands still that knows of this one, so it is what is registered.
    pub(super) fn adopt_grown(&mut self) -> Result<bool, End> {
        let Some(agent) = &self.agent else {
            return Ok(false);
        };
        // The process may have written anything there.
        let grown = &agent.slots.ring.control().grown;
        let [start, end] = grown.each_ref().map(|word| word.load(Ordering::Acquire));
        if !self.may_have_got(start, end) {
            return Ok(false);
        }
        // So that ranges unmapped before are known as such.
        self.gather()?;
        self.work()?;
        if self.link.uffd.register(start, end - start).is_err() {
            return Ok(false);
        }
        // A fork that began before that has left the range unregistered in the child, which must not be taken to have pages of
        // it that can be taken. Its event is read and applied before anything of the range is known here. (Events that give
        // up parts of the range are not among them: who could do that stands still.)
        if !self.settle(pending)? {
            return Ok(false);
        }
        self.shared.meters.announced_mappings.add(1);
        // What was registered before is known (rule 6).
        let new = gaps(&self.registered, start, end);
        join(&mut self.registered, start, end);
        self.guard(start, end)?;
        let pid = self.link.pid.load(Ordering::Acquire);
        for (start, end) in new {
            self.adopt(pid, start, end);
        }
        Ok(true)
    }

    /// Whether a range is one that a program can have got: whole pages, and none of the agent's.
    fn may_have_got(&self, start: u64, end: u64) -> bool {
        let is_aligned = |address: u64| address.is_multiple_of(PAGE_SIZE as u64);
        let is_range = start < end && end <= ADDRESSES_END && is_aligned(start) && is_aligned(end);
        let own = self
            .own_pages()
            .map(|own| (own.start.address(), own.end.address()));
        let agents = self.agent.iter().flat_map(|agent| agent.own);
        is_range && !agents.chain(own).any(|(s, e)| start < e && s < end)
    }

    /// Registers what is not registered yet, and answers what surely is now.
    ///
    /// What was listed may be gone in part by the time that it is registered, without an event, for nobody had
    /// asked for events; and what comes in its place later is not registered. (Taken for registered, a heap that had
    /// just shrunk a little grew by all of its memory unseen: nothing of that could be taken, and the rest
    /// had next to no memory.) So the list is read again: a mapping that is still there, whole, is registered, because
    /// the kernel never makes one mapping of two of which one is registered.
    ///
    /// What was listed may be a part of a larger mapping by then, too, of which the kernel makes two: until the list is read again the program
    /// cannot move it (mremap(2) fails with EFAULT; see `remap` in the agent's `interpose`). So each is looked at just before, where the kernel
    /// can be asked, and what has changed is left to the next list: that leaves microseconds of the time for thousands of mappings.
    fn register_fresh(&mut self, pid: i32) -> Vec<Fresh> {
        let mut registered = Vec::new();
        let mut listed = self.fresh(pid);
        for _ in 0..LISTINGS_MAX {
            if listed.is_empty() {
                break;
            }
            let is_another = |one: &Fresh| {
                let now = self.shared.machine.mapping_at(pid, one.start);
                now.is_some_and(|now| now != one.whole)
            };
            // Refused: unmapped meanwhile, or of a kind that cannot be managed. It stays as it is.
            let register = |one: &Fresh| self.link.uffd.register(one.start, one.end - one.start);
            let (mut tried, mut changed) = (Vec::new(), Vec::new());
            for one in listed {
                if is_another(&one) {
                    changed.push(one);
                } else if register(&one).is_ok() {
                    tried.push(one);
                }
            }
            let now = self.fresh(pid);
            // In order of address, as the kernel lists them; there may be thousands.
            let is_same = |one: &Fresh| now.binary_search_by_key(&one.part(), Fresh::part).is_ok();
            for one in tried {
                match is_same(&one) {
                    true => registered.push(one),
                    false => changed.push(one),
                }
            }
            // What has changed, as it is now.
            let is_changed = |one: &Fresh| {
                let mut changed = changed.iter();
                changed.any(|was| was.start < one.end && one.start < was.end)
            };
            listed = now.into_iter().filter(is_changed).collect();
        }
        registered
    }

    /// Mappings, or parts of them, that are to be managed and are not yet.
    fn fresh(&self, pid: i32) -> Vec<Fresh> {
        // When they cannot be read the process is ending.
        let mappings = self.shared.machine.maps(pid).unwrap_or_default();
        let parts = mappings.iter().flat_map(|one| {
            let kept = match one.kind {
                MappingKind::Stack => STACK_KEPT,
                _ => 0,
            };
            let parts = self.fresh_parts(one).into_iter();
            parts.map(move |(start, end)| Fresh {
                start,
                end,
                adopted_end: end - kept.min(end - start),
                whole: (one.start, one.end),
            })
        });
        parts.collect()
    }

    /// Has the engine know what a range holds that was registered just now.
    fn adopt(&mut self, pid: i32, start: u64, end: u64) {
        cut(&mut self.zeros, start, end);
        // Pages that only read as zeros get memory by a write that raises no fault: it shall.
        let zeros = self.shared.machine.zero_page_runs(pid, start, end);
        for (start, end) in zeros.unwrap_or_default() {
            if self.link.uffd.protect(start, end - start, true).is_ok() {
                self.zeros.insert(start, end);
            }
        }
        let runs = self.shared.machine.present_anon_runs(pid, start, end);
        for (start, end) in runs.unwrap_or_default() {
            let range = PageRange::of_addresses(start, end);
            self.shared.engine().adopt(self.link.id, range);
            if let Some(recorder) = &self.shared.recorder {
                recorder.found(self.link.id, range);
            }
        }
    }

    /// Without fork events, has the agent keep a range from children. The agent gets this before any
    /// command for the range, for both go the same way.
    fn guard(&self, start: u64, end: u64) -> Result<(), End> {
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
            .map_err(|_| self.outlive_agent())
    }

    /// The parts of a mapping to take charge of: all of it but the agent's memory, if it is private
    /// and anonymous.
    fn fresh_parts(&self, mapping: &Mapping) -> Vec<(u64, u64)> {
        let min = match mapping.kind {
            MappingKind::Anonymous | MappingKind::Heap => MAPPING_MIN,
            MappingKind::Stack => STACK_MIN,
            MappingKind::File | MappingKind::Special => return Vec::new(),
        };
        if mapping.shared {
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
            end.saturating_sub(*start) >= min && !self.is_registered(*start, *end)
        });
        parts
    }

    /// Whether all of it is. A mapping of which only a part is known as registered is another than that was.
    fn is_registered(&self, start: u64, end: u64) -> bool {
        gaps(&self.registered, start, end).is_empty()
    }
}

/// Adds `[start, end)`, as one with what ends where it starts: a heap grows by many small pieces.
fn join(ranges: &mut BTreeMap<u64, u64>, start: u64, end: u64) {
    cut(ranges, start, end);
    let before = ranges.range(..start).next_back();
    let start = match before {
        Some((first, last)) if *last == start => *first,
        _ => start,
    };
    ranges.insert(start, end);
}

/// The parts of `[start, end)` that the ranges cover; these are kept as start to end and do not overlap.
pub(super) fn covered(ranges: &BTreeMap<u64, u64>, start: u64, end: u64) -> Vec<(u64, u64)> {
    let mut covered = Vec::new();
    let mut from = start;
    for (gap, next) in gaps(ranges, start, end) {
        if gap > from {
            covered.push((from, gap));
        }
        from = next;
    }
    if from < end {
        covered.push((from, end));
    }
    covered
}

/// The parts of `[start, end)` that none of the ranges covers; these are kept as start to end and do not
/// overlap.
fn gaps(ranges: &BTreeMap<u64, u64>, start: u64, end: u64) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut from = start;
    let first = ranges
        .range(..=start)
        .next_back()
        .map_or(start, |(s, _)| *s);
    for (s, e) in ranges.range(first..end) {
        if *s > from {
            gaps.push((from, *s));
        }
        from = from.max(*e);
    }
    if from < end {
        gaps.push((from, end));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_that_grows_stays_one_range() {
        let mut ranges = BTreeMap::from([(10, 20), (50, 60)]);
        join(&mut ranges, 20, 30);
        join(&mut ranges, 28, 40);
        join(&mut ranges, 45, 50);
        assert_eq!(ranges, BTreeMap::from([(10, 40), (45, 50), (50, 60)]));
    }

    #[test]
    fn gaps_are_what_no_range_covers() {
        let ranges = BTreeMap::from([(10, 20), (20, 30), (40, 50)]);
        assert_eq!(gaps(&ranges, 0, 60), [(0, 10), (30, 40), (50, 60)]);
        assert_eq!(gaps(&ranges, 12, 28), []);
        assert_eq!(gaps(&ranges, 25, 45), [(30, 40)]);
        assert_eq!(gaps(&ranges, 30, 40), [(30, 40)]);
        assert_eq!(gaps(&ranges, 45, 70), [(50, 70)]);
        assert_eq!(gaps(&BTreeMap::new(), 1, 2), [(1, 2)]);
        assert_eq!(covered(&ranges, 0, 60), [(10, 30), (40, 50)]);
        assert_eq!(covered(&ranges, 12, 45), [(12, 30), (40, 45)]);
        assert_eq!(covered(&ranges, 30, 40), []);
    }
}
