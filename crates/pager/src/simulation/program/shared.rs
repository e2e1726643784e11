//! What programs do to memory that they share: write and read, map it once more and unmap it, lock it, have it pinned.

use super::super::kernel::{Event, Mapping, Object, Page, Part, Touch};
use super::super::page::{noted, owned_by, owner_of, rewritten, unnoted};
use super::super::shared::OBJECT_PAGES;
use super::super::world::{self, pause, step, violated, with, World};
use super::{agent, Program, PATIENCE};
use std::time::Duration;

/// Addresses of shared memory begin here, and places for it are so far apart.
const BASE: Page = 1 << 20;
const PLACE_PAGES: u64 = 1 << 10;
const PLACES: u64 = 32;
/// Objects in all, and mappings of them that a process has at once, about.
const OBJECTS_MAX: usize = 4;
const MAPPINGS_MAX: usize = 6;
/// Of this many pages the last one has a lock.
const LOCK_EVERY: u64 = 8;
/// Longest that the kernel has a page pinned, in microseconds.
const PIN_MAX_US: u64 = 1500;
/// How often a lock is asked for that another has.
const LOCK_TRIES: u64 = 20;

/// Pages of an object that are used at all, in a history of so many.
pub fn used_pages(pages: u64) -> u64 {
    (pages / 3).min(OBJECT_PAGES)
}

/// Memory that all processes of the beginning have, as if one had forked them.
pub fn inherit(world: &mut World, pid: i32) {
    let mm = world.processes[&pid].mm;
    let object = match world.kernel.objects.len() {
        0 => world.add_object(),
        _ => 0,
    };
    world.map_object(mm, BASE, object);
}

impl World {
    fn add_object(&mut self) -> Object {
        self.shared_truth.push(Default::default());
        self.kernel.add_object()
    }

    fn map_object(&mut self, mm: usize, start: Page, object: Object) {
        let mapping = Mapping {
            part: Some(Part { object, offset: 0 }),
            ..Mapping::to(start + OBJECT_PAGES)
        };
        self.kernel.spaces[mm].mappings.insert(start, mapping);
    }

    fn shared_mappings(&self, mm: usize) -> Vec<(Page, Mapping)> {
        let mappings = self.kernel.spaces[mm].mappings.iter();
        let shared = mappings.filter(|(_, mapping)| mapping.part.is_some());
        shared.map(|(start, one)| (*start, *one)).collect()
    }

    /// Some mapping of shared memory.
    fn some_shared(&mut self, mm: usize) -> Option<(Page, Mapping)> {
        let all = self.shared_mappings(mm);
        let at = self.random.below(all.len() as u64) as usize;
        all.get(at).copied()
    }

    /// Some page of shared memory that is used.
    fn some_shared_page(&mut self, mm: usize) -> Option<Page> {
        let (start, mapping) = self.some_shared(mm)?;
        let offset = mapping.part.expect("it is shared").offset;
        let end = used_pages(self.history.pages).min(offset + mapping.end - start);
        (offset < end).then(|| start + self.random.below(end - offset))
    }

    /// A place for shared memory where nothing is.
    fn free_place(&mut self, mm: usize) -> Option<Page> {
        let start = BASE + self.random.below(PLACES) * PLACE_PAGES;
        let end = start + PLACE_PAGES;
        let mappings = self.kernel.spaces[mm].mappings.range(..end);
        let is_free = mappings.last().is_none_or(|(_, one)| one.end <= start);
        is_free.then_some(start)
    }

    /// Whether a thread of a process has a lock, or is about to: then it does not unmap it.
    fn has_locks(&self, pid: i32) -> bool {
        let mut threads = self.processes[&pid].threads.iter();
        threads.any(|thread| self.robust.contains_key(thread))
    }

    /// What a page of shared memory must hold.
    pub fn shared_truth_of(&self, mm: usize, page: Page) -> Option<u64> {
        let (object, index) = self.kernel.place(mm, page)?;
        Some(self.shared_truth[object].get(&index).copied().unwrap_or(0))
    }

    /// Pages of shared memory that were written to, by whomever, as a process has them.
    pub fn shared_pages(&self, mm: usize) -> Vec<Page> {
        let mappings = self.shared_mappings(mm).into_iter();
        let pages = mappings.flat_map(|(start, mapping)| {
            let Part { object, offset } = mapping.part.expect("it is shared");
            let range = offset..offset + mapping.end - start;
            let pages = self.shared_truth[object].range(range);
            pages.map(move |(index, _)| start + index - offset)
        });
        pages.collect()
    }
}

impl Program {
    /// One of the things that are done to shared memory.
    pub(super) fn share(&self, deed: u64, pins: bool) {
        match deed {
            0 => self.map_shared(),
            1 => self.unmap_shared(),
            2 => self.map_once_more(),
            3..=5 => self.lock_something(),
            6 if pins => self.be_pinned(),
            7 => self.give_up_shared(),
            _ => self.use_shared(),
        }
    }

    /// Touches a page until it is there, and changes what it holds at once. `None`: there is nothing to touch.
    fn change(&self, page: Page, change: impl Fn(u64) -> u64) -> Option<u64> {
        let (mm, thread, pid) = (self.mm, self.thread, self.pid);
        loop {
            step();
            let touched = with(|world| {
                let touched = world.kernel.touch(mm, thread, page, None);
                let (Touch::Is(was), Some((object, index))) =
                    (touched, world.kernel.place(mm, page))
                else {
                    return touched;
                };
                world.check(pid, page, was);
                let content = change(was);
                if content != was {
                    world.kernel.touch(mm, thread, page, Some(content));
                    world.shared_truth[object].insert(index, content);
                }
                touched
            });
            match touched {
                Touch::Is(was) => return Some(was),
                Touch::Refused => return None,
                Touch::Waits => self.sleep(page),
            }
        }
    }

    fn use_shared(&self) {
        let count = with(|world| 1 + world.random.below(16));
        for _ in 0..count {
            let (page, content) = with(|world| {
                let page = world.some_shared_page(self.mm);
                let writes = world.random.one_in(2);
                (page, writes.then(|| world.new_content()))
            });
            let Some(page) = page else { return };
            self.change(page, |was| match content {
                Some(content) => rewritten(was, content),
                None => was,
            });
        }
    }

    fn map_shared(&self) {
        with(|world| {
            let mappings = world.shared_mappings(self.mm).len();
            let may = world.kernel.objects.len() < OBJECTS_MAX && mappings < MAPPINGS_MAX;
            let place = world.free_place(self.mm).filter(|_| may);
            let Some(start) = place else { return };
            let object = world.add_object();
            world.map_object(self.mm, start, object);
            world.note(|| format!("process {}: shares object {object} at {start:#x}", self.pid));
        });
    }

    fn unmap_shared(&self) {
        let mm = self.mm;
        let event = with(|world| {
            let (start, mapping) = world.some_shared(mm)?;
            let is_only = world.shared_mappings(mm).len() == 1;
            // Most keep what they share.
            if world.has_locks(self.pid) || (is_only && !world.random.one_in(4)) {
                return None;
            }
            let len = mapping.end - start;
            let (first, end) = match world.random.one_in(2) {
                true => (start, mapping.end),
                false => (start + world.random.below(len), mapping.end),
            };
            let is_followed = world.kernel.is_followed(mm, first, end);
            world.kernel.unmap(mm, first, end);
            world.note(|| format!("process {}: unmaps shared {first:#x}..{end:#x}", self.pid));
            is_followed.then(|| {
                world
                    .kernel
                    .announce(mm, Event::Unmap { start: first, end })
            })
        });
        self.hear(event);
    }

    /// mremap: moved, or mapped once more (a length of 0), of which the event does not say how much.
    fn map_once_more(&self) {
        let mm = self.mm;
        let events = with(|world| {
            let (start, mapping) = world.some_shared(mm)?;
            let to = world.free_place(mm)?;
            let may = world.shared_mappings(mm).len() < MAPPINGS_MAX && !world.has_locks(self.pid);
            if !may {
                return None;
            }
            let (from, len) = (start, mapping.end - start);
            let is_followed = mapping.follow != super::super::kernel::Follow::No;
            let is_copied = world.random.one_in(2);
            let events = match is_copied {
                true => {
                    let copy = Mapping {
                        end: to + len,
                        ..mapping
                    };
                    world.kernel.spaces[mm].mappings.insert(to, copy);
                    vec![Event::Remap { from, to, len: 0 }]
                }
                false => {
                    world.kernel.remap(mm, from, to, len);
                    let end = mapping.end;
                    vec![Event::Remap { from, to, len }, Event::Unmap { start, end }]
                }
            };
            world.note(|| {
                format!(
                    "process {}: shared {from:#x}+{len:#x} to {to:#x}, copied: {is_copied}",
                    self.pid
                )
            });
            let events = events.into_iter();
            is_followed.then(|| {
                events
                    .map(|event| world.kernel.announce(mm, event))
                    .collect::<Vec<_>>()
            })
        });
        for event in events.into_iter().flatten() {
            self.hear(Some(event));
        }
    }

    /// MADV_DONTNEED, which drops nothing but what the page table has.
    fn give_up_shared(&self) {
        let range = with(|world| {
            let page = world.some_shared_page(self.mm)?;
            let (_, mapping) = world.kernel.mapping(self.mm, page)?;
            Some((page, mapping.end.min(page + 8)))
        });
        if let Some((start, end)) = range {
            agent::give_up(self.mm, start, end);
        }
    }

    /// A robust lock is taken, kept for a while and given back, as the C library does it: put into the thread's list before it
    /// is taken, and there until it is free. Who has it is noted a second time after that, and no more before.
    fn lock_something(&self) {
        let Some(page) = with(|world| {
            let page = world.some_shared_page(self.mm)?;
            let (_, index) = world.kernel.place(self.mm, page)?;
            // Within the same mapping.
            let at = page - index % LOCK_EVERY;
            let of =
                |world: &World, page| world.kernel.mapping(self.mm, page).map(|(start, _)| start);
            let is_one = of(world, page) == of(world, at);
            is_one.then(|| {
                world.robust.entry(self.thread).or_default().push(at);
                at
            })
        }) else {
            return;
        };
        if self.lock(page) {
            self.change(page, noted);
            for _ in 0..with(|world| world.random.below(4)) {
                self.use_shared();
            }
            self.change(page, unnoted);
            self.change(page, |was| owned_by(was, 0));
        }
        with(|world| world.robust.remove(&self.thread));
    }

    /// `false`: somebody has it, who lives, or it is not there any more.
    fn lock(&self, page: Page) -> bool {
        let mut tries = 0;
        let since = world::now();
        loop {
            let take = |was| match owner_of(was) {
                0 => owned_by(was, self.thread),
                _ => was,
            };
            let Some(was) = self.change(page, take) else {
                return false;
            };
            let owner = owner_of(was);
            if owner == 0 {
                return true;
            }
            if with(|world| world.is_alive(owner)) {
                tries += 1;
                if tries > LOCK_TRIES {
                    return false;
                }
            } else if world::now().saturating_duration_since(since) > PATIENCE {
                violated(format!(
                    "process {} waits for ever for the lock in page {page:#x}, whose owner, thread {owner}, has ended",
                    self.pid
                ));
            }
            pause(Duration::from_micros(with(|world| {
                50 + world.random.below(400)
            })));
        }
    }

    /// The kernel has a page pinned for a while, and writes to it past all page tables: a direct read.
    fn be_pinned(&self) {
        let Some(page) = with(|world| world.some_shared_page(self.mm)) else {
            return;
        };
        let (mm, thread) = (self.mm, self.thread);
        let pinned = loop {
            step();
            let (touched, pinned) = with(|world| {
                let touched = world.kernel.touch(mm, thread, page, None);
                let place = world.kernel.place(mm, page);
                let (Touch::Is(_), Some((object, index))) = (touched, place) else {
                    return (touched, None);
                };
                let frame = world.kernel.keep(object, index).expect("it is there");
                (touched, Some((object, index, frame)))
            });
            match touched {
                Touch::Is(_) => break pinned,
                Touch::Refused => return,
                Touch::Waits => self.sleep(page),
            }
        };
        let Some((object, index, frame)) = pinned else {
            return;
        };
        world::begin("disk", None, move || {
            pause(Duration::from_micros(with(|world| {
                world.random.below(PIN_MAX_US)
            })));
            with(|world| {
                let content = world.new_content();
                let content = rewritten(world.kernel.frame_content(frame), content);
                if world.kernel.write_frame(frame, content) {
                    world.shared_truth[object].insert(index, content);
                }
                world.kernel.let_go(frame);
                world.note(|| format!("object {object}: the disk writes {index:#x}: {content:#x}"));
            });
        });
    }
}
