//! What the threads of programs do to their memory.

mod forks;
mod marks;
mod shared;

pub use shared::used_pages;

use super::agent;
use super::kernel::{Event, Mapping, Mm, Page, Thread, Touch};
use super::page::page_of;
use super::process::Process;
use super::world::{self, step, violated, wait_until, with, World};
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
pub enum Doorbell {
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
            is_injected: world.history.has(Trouble::Attach),
            ..Process::default()
        };
        world.processes.insert(pid, process);
        if world.history.has(Trouble::Share) {
            shared::inherit(world, pid);
        }
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

pub struct Program {
    pid: i32,
    mm: Mm,
    thread: Thread,
}

impl World {
    /// What a lying process holds is nobody's business any more; nor what its children do, who may wait for what it is to answer.
    pub fn taint(&mut self, pid: i32) {
        for (each, process) in &mut self.processes {
            process.is_tainted |= *each == pid || process.parent == pid;
        }
    }

    fn forget_truth(&mut self, mm: Mm, start: Page, end: Page) {
        self.truth[mm].retain(|page, _| !(start..end).contains(page));
        self.guarded[mm].retain(|page| !(start..end).contains(page));
        self.kept[mm].retain(|page| !(start..end).contains(page));
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
    pub fn some_range(&mut self, mm: Mm) -> Option<(Page, Page)> {
        let mappings = self.kernel.spaces[mm].mappings.range(..1 << 24);
        let private = mappings.filter(|(_, one)| one.part.is_none());
        let all: Vec<(Page, Page)> = private.map(|(start, one)| (*start, one.end)).collect();
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
        let private = mappings.filter(|(_, one)| one.part.is_none());
        private.map(|(start, one)| one.end - start).sum()
    }

    /// The content of a page that is written to: one in eight like another's.
    fn new_content(&mut self) -> u64 {
        self.writes += 1;
        self.writes * 8 + self.random.below(8)
    }
}

impl Program {
    pub fn of(pid: i32, thread: Thread) -> Program {
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

    /// Has a page be there and writable, with what it holds: MADV_POPULATE_WRITE, of one that is to stay. `false`: nothing can be.
    pub fn populate(&self, page: Page) -> bool {
        let (mm, thread, pid) = (self.mm, self.thread, self.pid);
        loop {
            step();
            let touched = with(|world| {
                let content = world.kernel.content(mm, page).unwrap_or(0);
                let touched = world.kernel.touch(mm, thread, page, Some(content));
                if let Touch::Is(found) = touched {
                    world.check(pid, page, found);
                    world.tally.kept_pages += u64::from(world.kept[mm].insert(page));
                }
                touched
            });
            match touched {
                Touch::Is(_) => return true,
                Touch::Refused => return false,
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
    pub fn ring(&self, doorbell: Doorbell) {
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
            // The last one is there until its process ends.
            let is_last = process.threads.len() == 1;
            if !is_last {
                process.threads.remove(&self.thread);
            }
            is_last
        });
        if is_last {
            self.be_left();
            self.look_at_all();
            with(|world| world.kill(self.pid));
        }
    }

    /// Who is just being left is, before it ends.
    fn be_left(&self) {
        let pid = self.pid;
        let is_over = move |world: &World| !world.is_being_left(pid);
        wait_until(is_over, Some(PATIENCE));
        if !with(|world| is_over(world)) {
            violated(format!("process {pid} is never left"));
        }
    }

    /// Every page has what was written last.
    fn look_at_all(&self) {
        let pages: Vec<Page> = with(|world| {
            let shared = world.shared_pages(self.mm);
            let private = world.truth[self.mm].keys().copied();
            private.chain(shared).collect()
        });
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
            world.check_kept(self.pid);
            (deed, world.history.troubles.clone())
        });
        let announces = !has.contains(&Trouble::Attach);
        match deed {
            0 => self.map(),
            1 if has.contains(&Trouble::GiveUp) => self.give_up(),
            2 | 3 if has.contains(&Trouble::Unmap) => self.unmap(),
            4 if has.contains(&Trouble::Move) => self.remap(),
            5 if has.contains(&Trouble::Fork) => self.fork(announces),
            6 if has.contains(&Trouble::RawFork) => self.fork(false),
            7 if has.contains(&Trouble::ForkAdvice) => self.advise(),
            8 if has.contains(&Trouble::Pin) => self.pin(),
            // Where nobody tells of guards, what is away beneath comes back when they are removed (`docs/calls.md`).
            9 if announces && has.contains(&Trouble::Guard) => self.guard(),
            10 => self.look_at_all(),
            11..=30 if has.contains(&Trouble::Share) => {
                self.share(deed - 11, has.contains(&Trouble::Pin));
            }
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
        if mapped == Some(true) && with(|world| !world.history.has(Trouble::Attach)) {
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
            world.kept[mm].retain(|page| !(start..end).contains(page));
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

    pub fn hear(&self, event: Option<u64>) {
        let mm = self.mm;
        if let Some(event) = event {
            wait_until(move |world| world.kernel.is_heard(mm, event), None);
            step();
            with(|world| world.kernel.conclude(mm, event));
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
}

/// Processes that have not ended, and those about to be.
pub fn living(world: &World) -> usize {
    let living = world.processes.values().filter(|process| !process.is_ended);
    living.count() + world.unborn.len()
}
