//! Pages that are not as others: pinned, locked, guarded, or to stay in memory.

use super::super::kernel::{Entry, Mapping, Page};
use super::super::world::{step, with, World};
use super::{agent, Program, PINNED_MAX};

impl Program {
    /// Pages that the kernel uses, or that are locked, for a while.
    pub(super) fn pin(&self) {
        with(|world| {
            let Some((start, end)) = world.some_range(self.mm) else {
                return;
            };
            // Few: what cannot be taken is not what memory is for.
            let (start, end) = match world.random.one_in(2) {
                true => (start, end.min(start + PINNED_MAX)),
                false => (0, Page::MAX),
            };
            let pins = start > 0;
            if world.random.one_in(3) {
                let lock = |mapping: &mut Mapping| mapping.is_locked = pins;
                return world.kernel.advise(self.mm, (start, end), lock);
            }
            for (_, entry) in world.kernel.spaces[self.mm].table.range_mut(start..end) {
                if let Entry::Page { is_pinned, .. } = entry {
                    *is_pinned = pins;
                }
            }
        });
    }

    /// MADV_GUARD_INSTALL by the agent's library, of pages that are of no use to anybody, or the end of all guards.
    pub(super) fn guard(&self) {
        let mm = self.mm;
        let Some((start, end)) = with(|world| world.some_range(mm)) else {
            return;
        };
        if with(|world| world.random.one_in(3)) {
            return with(|world| {
                let table = &mut world.kernel.spaces[mm].table;
                table.retain(|_, entry| *entry != Entry::Guard);
                world.guarded[mm].clear();
            });
        }
        let end = end.min(start + 4);
        let is_managed = with(|world| {
            let process = world.processes.get_mut(&self.pid).expect("it lives");
            process.has_guards = true;
            agent::publish(process);
            // Who touches them meanwhile may have done so before.
            world.doubt(mm, start, end);
            process_is_lit(world, self.pid)
        });
        self.install_guards(start, end);
        step();
        if is_managed {
            agent::give_up(mm, start, end);
            step();
            self.install_guards(start, end);
        }
        with(|world| {
            world.forget_truth(mm, start, end);
            world.end_doubt(mm, start, end);
            for page in start..end {
                if world.kernel.spaces[mm].table.get(&page) == Some(&Entry::Guard) {
                    world.guarded[mm].insert(page);
                }
            }
        });
    }

    fn install_guards(&self, start: Page, end: Page) {
        with(|world| {
            world.kernel.zap(self.mm, start, end, true);
            for page in start..end {
                if world.kernel.mapping(self.mm, page).is_some() {
                    world.kernel.spaces[self.mm]
                        .table
                        .insert(page, Entry::Guard);
                }
            }
        });
    }
}

fn process_is_lit(world: &World, pid: i32) -> bool {
    world
        .processes
        .get(&pid)
        .is_some_and(|process| process.is_lit)
}

impl World {
    /// When a thread ends, the kernel writes to what is to stay, and waits for nothing. (Where forks protect pages, the thread has
    /// written to the same one shortly before.)
    pub fn check_kept(&mut self, pid: i32) {
        let process = &self.processes[&pid];
        let mm = process.mm;
        let is_away = |page: &&Page| {
            let is_doubtful = self.doubtful[mm].contains_key(page);
            !is_doubtful && self.kernel.content(mm, **page).is_none()
        };
        let away = self.kept[mm].iter().find(is_away).copied();
        if let Some(page) = away.filter(|_| !process.is_tainted) {
            self.violated(format!(
                "process {pid} has page {page:#x} away, which was to stay"
            ));
        }
    }
}
