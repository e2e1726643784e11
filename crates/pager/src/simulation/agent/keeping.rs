//! What must stay in memory (`crate::keeping`): the supervisor has some pages kept, at any time, and the agent has them stay.

use super::super::kernel::Page;
use super::super::machine::{address_of, page_at};
use super::super::program::Program;
use super::super::world::{now, violated, with};
use super::super::Trouble;
use super::{set_asleep, Agent};
use crate::keeping::{keep_by_agent, Ranges};
use crate::link::Link;
use pleat_types::PAGE_SIZE;
use pleat_wire::message::{Keep, KEEP_MAX};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Pages of a process that are to stay, about: memory is not full of what cannot be taken. Then all their threads have ended, as it
/// were. (The real agent forgets nothing.)
const KEPT_MAX: usize = 16;
/// Nothing of a process can be taken until what is to stay is there, so it must not wait for memory.
const SLOW: Duration = Duration::from_millis(50);
/// Places that one look of the supervisor's names, at most.
const NAMED_MAX: u64 = 6;

/// As the supervisor does for threads that it meets, now and then.
pub fn have_some_kept(link: &Link) {
    let ranges = some_ranges(link.pid.load(Ordering::Acquire));
    if !ranges.is_empty() {
        keep_by_agent(link, ranges, now());
    }
}

/// Few places, which are named so often now and then that one packet has no room for all.
fn some_ranges(pid: i32) -> Ranges {
    with(|world| {
        let Some(mm) = world.mm_of(pid) else {
            return Ranges::new();
        };
        if !world.is_time_for(Trouble::Keep, 8) {
            return Ranges::new();
        }
        let places = 1 + world.random.below(NAMED_MAX);
        let places: Vec<(u64, u64)> = (0..places)
            .filter_map(|_| {
                let (start, _) = world.some_range(mm)?;
                let begin = world.random.below(2) * (PAGE_SIZE as u64 / 2);
                Some((address_of(start) + begin, PAGE_SIZE as u64))
            })
            .collect();
        let count = match world.random.one_in(4) {
            true => KEEP_MAX + 8,
            false => places.len(),
        };
        world.note(|| format!("process {pid}: {places:x?} are to be kept"));
        places.into_iter().cycle().take(count).collect()
    })
}

impl Agent {
    /// As `agent/src/exits.rs` does: noted, then no more on their way out, then there.
    pub(super) fn keep(&self, command: &Keep) {
        with(|world| {
            let process = world.processes.get_mut(&self.pid).expect("it lives");
            if process.kept.len() > KEPT_MAX {
                process.kept.clear();
                world.kept[self.mm].clear();
            }
        });
        for [address, len] in &command.ranges[..command.count as usize] {
            let (first, last) = (page_at(*address), page_at(address + len - 1));
            with(|world| {
                let process = world.processes.get_mut(&self.pid).expect("it lives");
                process.kept.extend(first..=last);
            });
            self.lock();
            self.unlock();
            let thread = with(|world| {
                set_asleep(world, self.pid, true);
                world.processes[&self.pid].agent
            });
            let began = now();
            let program = Program::of(self.pid, thread);
            let _ = (first..=last).all(|page| program.populate(page));
            let took = now().saturating_duration_since(began);
            let may_be_slow = |one| with(|world| world.history.has(one));
            if took > SLOW && !may_be_slow(Trouble::Stop) && !may_be_slow(Trouble::Lie) {
                violated(format!(
                    "process {} waits {took:?} for what is to stay",
                    self.pid
                ));
            }
            with(|world| set_asleep(world, self.pid, false));
        }
    }

    /// How many pages from this one on may go, in a row.
    pub(super) fn free_of_kept(&self, page: Page, count: usize) -> usize {
        with(|world| {
            let kept = &world.processes[&self.pid].kept;
            (page..page + count as u64)
                .take_while(|page| !kept.contains(page))
                .count()
        })
    }
}
