//! What the threads of programs do to their memory.

mod forks;

use super::agent;
use super::kernel::{Entry, Event, Mapping, Mm, Page, Thread, Touch};
use super::page::page_of;
use super::world::{self, step, violated, wait_until, with, Process, World};
use super::Trouble;
use std::time::Duration;

/// Addresses of programs begin here.
const BASE: Page = 0x1000;
/// Mappings have at least so many pages, which is what the pager manages, and at most.
const MAPPING_MIN: u64 = 16;
const MAPPING_MAX: u64 = 96;
/// Forks in all: children fork, too.
const FORKS_MAX: u64 = 12;
/// Pages pinned or locked at once.
const PINNED_MAX: u64 = 6;
/// A thread that waits longer waits for ever.
const PATIENCE: Duration = Duration::from_secs(30);
/// Processes at once, more than at the beginning.
pub const PROCESSES_MORE: u64 = 2;
/// Pages go no further than this, for a program of so many.
const SPREAD: u64 = 3;

/// Doorbells, as the agent numbers them.
#[derive(Clone, Copy)]
enum Doorbell {
    Fork = 0,
    Mapping = 1,
    Forked = 2,
    Born = 3,
    Wiping = 5,
}

/// Pages of one kind of doorbell.
const DOORBELL_PAGES: u64 = pleat_wire::message::DOORBELL_PAGES as u64;

/// Begins a process with memory of its own; answers its number.
pub fn begin() -> i32 {
    let (pid, threads) = with(|world| {
        let pid = world.id();
        let mm = world.kernel.add();
        world.note_mm(mm);
        let process = Process {
            mm,
            ..Process::default()
        };
        world.processes.insert(pid, process);
        (pid, world.history.threads)
    });
    agent::begin(pid, [0; 2]);
    for _ in 0..threads {
        begin_thread(pid, false);
    }
    pid
}

/// With `is_forked`, one that comes out of the C library's fork in a child.
fn begin_thread(pid: i32, is_forked: bool) {
    let thread = with(|world| {
        let thread = world.id();
        let process = world.processes.get_mut(&pid)?;
        process.threads.insert(thread);
        Some(thread)
    });
    let Some(thread) = thread else { return };
    world::begin("program", Some(pid), move || {
        let program = Program::of(pid, thread);
        if is_forked {
            program.be_born();
        }
        program.live();
    });
}

struct Program {
    pid: i32,
    mm: Mm,
    thread: Thread,
}

impl World {
    /// What a lying process holds is nobody's business any more.
    pub fn taint(&mut self, pid: i32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.is_tainted = true;
        }
    }

    fn forget_truth(&mut self, mm: Mm, start: Page, end: Page) {
        self.truth[mm].retain(|page, _| !(start..end).contains(page));
        self.guarded[mm].retain(|page| !(start..end).contains(page));
    }

    fn doubt(&mut self, mm: Mm, start: Page, end: Page) {
        for page in start..end {
            *self.doubtful[mm].entry(page).or_default() += 1;
        }
    }

    fn end_doubt(&mut self, mm: Mm, start: Page, end: Page) {
        for page in start..end {
            if let Some(count) = self.doubtful[mm].get_mut(&page) {
                *count -= 1;
                if *count == 0 {
                    self.doubtful[mm].remove(&page);
                }
            }
        }
    }

    /// Some mapping of a program's, or a part of it.
    fn some_range(&mut self, mm: Mm) -> Option<(Page, Page)> {
        let mappings = self.kernel.spaces[mm].mappings.range(..1 << 24);
        let all: Vec<(Page, Page)> = mappings.map(|(start, one)| (*start, one.end)).collect();
        let at = self.random.below(all.len() as u64) as usize;
        let (start, end) = *all.get(at)?;
        if self.random.one_in(4) {
            return Some((start, end));
        }
        let first = start + self.random.below(end - start);
        let last = first + 1 + self.random.below(end - first);
        Some((first, last))
    }

    /// A place where nothing is, for so many pages.
    fn free_range(&mut self, mm: Mm, len: u64) -> Option<Page> {
        let spread = self.history.pages * SPREAD;
        for _ in 0..20 {
            let start = BASE + self.random.below(spread.saturating_sub(len).max(1));
            let end = start + len;
            let mappings = self.kernel.spaces[mm].mappings.range(..end);
            if mappings.last().is_none_or(|(_, one)| one.end <= start) {
                return Some(start);
            }
        }
        None
    }

    fn mapped_pages(&self, mm: Mm) -> u64 {
        let mappings = self.kernel.spaces[mm].mappings.range(..1 << 24);
        mappings.map(|(start, one)| one.end - start).sum()
    }

    /// The content of a page that is written to: one in eight like another's.
    fn new_content(&mut self) -> u64 {
        self.writes += 1;
        self.writes * 8 + self.random.below(8)
    }
}

impl Program {
    fn of(pid: i32, thread: Thread) -> Program {
        let mm = with(|world| world.processes[&pid].mm);
        Program { pid, mm, thread }
    }

    /// Touches a page until it is there. `None`: there is nothing to touch.
    fn touch(&self, page: Page, write: Option<u64>) -> Option<u64> {
        let (mm, thread, pid) = (self.mm, self.thread, self.pid);
        loop {
            step();
            let touched = with(|world| {
                let touched = world.kernel.touch(mm, thread, page, write);
                if let Touch::Is(found) = touched {
                    world.check(pid, page, found);
                    if let Some(content) = write {
                        world.truth[mm].insert(page, content);
                    }
                }
                touched
            });
            match touched {
                Touch::Is(found) => return Some(found),
                Touch::Refused => return None,
                Touch::Waits => self.sleep(page),
            }
        }
    }

    /// Waits until it is woken, or a signal has it look again.
    fn sleep(&self, page: Page) {
        let (mm, thread) = (self.mm, self.thread);
        let is_woken = move |world: &World| !world.kernel.is_waiting(mm, thread);
        if with(|world| world.is_time_for(Trouble::Signal, 8)) {
            let time = Duration::from_micros(with(|world| world.random.below(300)));
            wait_until(is_woken, Some(time));
            return with(|world| world.kernel.interrupt(mm, thread));
        }
        wait_until(is_woken, Some(PATIENCE));
        if !with(|world| is_woken(world)) {
            violated(format!(
                "process {} waits for page {page:#x} for ever",
                self.pid
            ));
        }
    }

    /// Before a fork, as `agent/src/area.rs` does: the agent may not have heard yet that it is followed.
    fn light_if_followed(&self) {
        with(|world| {
            let process = world.processes.get_mut(&self.pid).expect("it lives");
            process.is_lit |= process.slots.is_some();
        });
    }

    /// Rings a doorbell, as `agent/src/area.rs` does.
    fn ring(&self, doorbell: Doorbell) {
        let (pid, kind) = (self.pid, doorbell as usize);
        let rung = with(|world| {
            let process = world.processes.get_mut(&pid)?;
            let beacon = process.beacon.filter(|_| process.is_lit)?;
            let touched = process.touched[kind];
            process.touched[kind] += 1;
            Some((beacon + 1 + kind as u64 * DOORBELL_PAGES, touched))
        });
        let Some((first, touched)) = rung else { return };
        if touched > 0 && touched.is_multiple_of(DOORBELL_PAGES) {
            agent::give_up(self.mm, first, first + DOORBELL_PAGES);
        }
        self.touch(first + touched % DOORBELL_PAGES, None);
    }

    fn live(&self) {
        let deeds = with(|world| world.history.deeds);
        for _ in 0..deeds {
            self.do_something();
        }
        if with(|world| world.random.one_in(2)) {
            self.look_at_all();
        }
        let is_last = with(|world| {
            let process = world.processes.get_mut(&self.pid).expect("it lives");
            process.threads.remove(&self.thread);
            process.threads.is_empty()
        });
        if is_last {
            self.look_at_all();
            with(|world| world.kill(self.pid));
        }
    }

    /// Every page has what was written last.
    fn look_at_all(&self) {
        let pages: Vec<Page> = with(|world| world.truth[self.mm].keys().copied().collect());
        for page in pages {
            self.touch(page, None);
        }
    }

    fn do_something(&self) {
        let (deed, has) = with(|world| {
            let pages = world.mapped_pages(self.mm);
            let deed = match world.random.below(pages.max(1)) < world.history.pages {
                true if world.random.one_in(6) => 0,
                _ => 1 + world.random.below(60),
            };
            (deed, world.history.troubles.clone())
        });
        match deed {
            0 => self.map(),
            1 if has.contains(&Trouble::GiveUp) => self.give_up(),
            2 | 3 if has.contains(&Trouble::Unmap) => self.unmap(),
            4 if has.contains(&Trouble::Move) => self.remap(),
            5 if has.contains(&Trouble::Fork) => self.fork(true),
            6 if has.contains(&Trouble::RawFork) => self.fork(false),
            7 if has.contains(&Trouble::ForkAdvice) => self.advise(),
            8 if has.contains(&Trouble::Pin) => self.pin(),
            9 if has.contains(&Trouble::Guard) => self.guard(),
            10 => self.look_at_all(),
            _ => self.use_memory(),
        }
    }

    /// Touches some pages, in a row or not.
    fn use_memory(&self) {
        let Some((start, end)) = with(|world| world.some_range(self.mm)) else {
            return;
        };
        let count = with(|world| 1 + world.random.below((end - start).min(24)));
        let in_a_row = with(|world| world.random.one_in(2));
        for nth in 0..count {
            let (page, write) = with(|world| {
                let page = match in_a_row {
                    true => start + nth,
                    false => start + world.random.below(end - start),
                };
                let writes = world.random.one_in(2);
                (page, writes.then(|| world.new_content()))
            });
            if let Some(content) = write {
                debug_assert_ne!(page_of(content), page_of(0));
            }
            self.touch(page, write);
        }
    }

    fn map(&self) {
        let mapped = with(|world| {
            let len = MAPPING_MIN + world.random.below(MAPPING_MAX - MAPPING_MIN);
            let start = world.free_range(self.mm, len)?;
            let mappings = &mut world.kernel.spaces[self.mm].mappings;
            mappings.insert(start, Mapping::to(start + len));
            world.note(|| format!("process {}: maps {start:#x}+{len:#x}", self.pid));
            Some(world.random.one_in(2))
        });
        if mapped == Some(true) {
            self.ring(Doorbell::Mapping);
        }
    }

    fn give_up(&self) {
        let Some((start, end)) = with(|world| world.some_range(self.mm)) else {
            return;
        };
        let mm = self.mm;
        with(|world| {
            world.note(|| format!("process {}: gives up {start:#x}..{end:#x}", self.pid));
            world.doubt(mm, start, end);
        });
        agent::give_up(mm, start, end);
        with(|world| {
            // Guards stay.
            world.truth[mm].retain(|page, _| !(start..end).contains(page));
            world.end_doubt(mm, start, end);
        });
    }

    /// munmap, or mmap over it.
    fn unmap(&self) {
        let Some((start, end)) = with(|world| world.some_range(self.mm)) else {
            return;
        };
        let mm = self.mm;
        let event = with(|world| {
            let is_followed = world.kernel.is_followed(mm, start, end);
            world.kernel.unmap(mm, start, end);
            world.forget_truth(mm, start, end);
            // What is small is not managed, and would be all that there is after a while.
            let replaces = end - start >= MAPPING_MIN && world.random.one_in(2);
            if replaces {
                world.kernel.spaces[mm]
                    .mappings
                    .insert(start, Mapping::to(end));
            }
            world.note(|| {
                format!(
                    "process {}: unmaps {start:#x}..{end:#x}, and maps {replaces}",
                    self.pid
                )
            });
            is_followed.then(|| world.kernel.announce(mm, Event::Unmap { start, end }))
        });
        self.hear(event);
    }

    fn hear(&self, event: Option<u64>) {
        let mm = self.mm;
        if let Some(event) = event {
            wait_until(move |world| world.kernel.is_heard(mm, event), None);
            step();
            with(|world| world.kernel.conclude(mm));
        }
    }

    fn remap(&self) {
        let mm = self.mm;
        let events = with(|world| {
            let (start, end) = world.some_range(mm)?;
            let len = end - start;
            let to = world.free_range(mm, len)?;
            if !world.doubtful[mm].is_empty() {
                return None;
            }
            let is_followed = world.kernel.is_followed(mm, start, end);
            world.kernel.remap(mm, start, to, len);
            let moved = world.truth[mm].range(start..end);
            let moved: Vec<(Page, u64)> = moved.map(|(page, content)| (*page, *content)).collect();
            let guards = world.guarded[mm].range(start..end);
            let guards: Vec<Page> = guards.map(|page| page - start + to).collect();
            world.forget_truth(mm, start, end);
            world.guarded[mm].extend(guards);
            let moved = moved
                .into_iter()
                .map(|(page, content)| (page - start + to, content));
            world.truth[mm].extend(moved);
            world.note(|| format!("process {}: moves {start:#x}+{len:#x} to {to:#x}", self.pid));
            let remap = Event::Remap {
                from: start,
                to,
                len,
            };
            is_followed.then(|| {
                [remap, Event::Unmap { start, end }].map(|event| world.kernel.announce(mm, event))
            })
        });
        for event in events.into_iter().flatten() {
            self.hear(Some(event));
        }
    }

    /// Pages that the kernel uses, or that are locked, for a while.
    fn pin(&self) {
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
    fn guard(&self) {
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

/// Processes that have not ended, and those about to be.
pub fn living(world: &World) -> usize {
    let living = world.processes.values().filter(|process| !process.is_ended);
    living.count() + world.unborn.len()
}
