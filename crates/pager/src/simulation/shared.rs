//! The ports about shared memory on the simulated machine (`crate::ports::Sharing`).

use super::kernel::{self, Mm, Object, Page};
use super::machine::{address_of, error, page_at, SimMachine};
use super::page::{number_of, orphaned, owner_of, page_of};
use super::world::{self, note, pause, step, violated, with, World};
use crate::ports::{SharedMemory, Sharing};
use crate::segments::{Identity, Segments, State};
use pleat_sys::page_refs::PageUse;
use pleat_sys::procfs::{FilePart, Mapper, Mapping, MappingKind, NamelessPart};
use pleat_sys::robust::RobustLocks;
use pleat_sys::take_out::{Memory, Steps, TakeOut};
use pleat_types::PAGE_SIZE;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, RwLock, RwLockWriteGuard, TryLockError};
use std::time::{Duration, Instant};

/// Pages of an object: what is smaller is left alone.
pub const OBJECT_PAGES: u64 = 288;
/// Descriptors of objects begin here.
const OBJECTS: RawFd = 4_000_000;
/// The device that objects are on.
const DEVICE: u64 = 1;
/// Where the lists of robust locks begin, and nothing is that the history is about.
const LIST_HEAD: u64 = 1 << 46;
/// Between two looks whether somebody still has a segment.
const LOOK_EVERY: Duration = Duration::from_micros(5);

fn identity_of(object: Object) -> Identity {
    (DEVICE, object as u64 + 1)
}

/// An object, as who has a descriptor of it.
struct SimObject(Object);

impl Memory for SimObject {
    fn descriptor(&self) -> RawFd {
        OBJECTS + self.0 as RawFd
    }

    fn punch(&self, offset: u64, len: u64) -> bool {
        step();
        with(|world| {
            for index in page_at(offset)..page_at(offset + len) {
                world.kernel.punch(self.0, index);
            }
            world.note(|| {
                format!(
                    "object {}: punched {:#x}+{}",
                    self.0,
                    page_at(offset),
                    page_at(len)
                )
            });
        });
        true
    }
}

impl SharedMemory for SimObject {
    fn identity(&self) -> Identity {
        identity_of(self.0)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(OBJECT_PAGES * PAGE_SIZE as u64)
    }

    fn bytes(&self) -> u64 {
        with(|world| world.kernel.objects[self.0].len() as u64 * PAGE_SIZE as u64)
    }

    fn runs(&self) -> io::Result<Vec<(u64, u64)>> {
        step();
        let page = PAGE_SIZE as u64;
        Ok(with(|world| {
            let pages = world.kernel.objects[self.0].keys();
            pages.map(|index| (index * page, page)).collect()
        }))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        step();
        for (index, bytes) in (page_at(offset)..).zip(bytes.chunks(PAGE_SIZE)) {
            let Some(content) = number_of(bytes) else {
                violated(format!("what is written to object {} is no page's", self.0));
                continue;
            };
            with(|world| {
                world.kernel.write_shared(self.0, index, content);
                world.note(|| format!("object {}: writes {index:#x}: {content:#x}", self.0));
            });
        }
        Ok(())
    }

    fn mark_orphans(&self, offset: u64, threads: &[i32]) -> io::Result<usize> {
        step();
        let index = page_at(offset);
        Ok(with(|world| {
            let marked = threads.iter();
            marked
                .filter(|one| world.mark_orphan(self.0, index, **one))
                .count()
        }))
    }
}

/// The pipe, and what the kernel tells of its pages.
#[derive(Default)]
struct SimPipe {
    /// `None`: where a hole was.
    frames: Vec<Option<usize>>,
}

impl SimPipe {
    /// Somewhere on the way the thread may lose its CPU for longer.
    fn lose_time() {
        step();
        if with(|world| world.random.one_in(6)) {
            pause(Duration::from_micros(with(|world| world.random.below(60))));
        }
    }
}

impl Steps for SimPipe {
    fn splice(&mut self, memory: RawFd, offset: u64) -> io::Result<()> {
        step();
        let object = (memory - OBJECTS) as Object;
        let frame = with(|world| world.kernel.keep(object, page_at(offset)));
        self.frames.push(frame);
        Ok(())
    }

    fn uses(&self, pages: usize) -> io::Result<Vec<PageUse>> {
        SimPipe::lose_time();
        let of_zeros = PageUse {
            references: 1000,
            mappings: 1,
            is_huge: false,
            is_locked: false,
        };
        let uses = with(|world| {
            let frames = self.frames[..pages].iter();
            let uses = frames.map(|frame| frame.map_or(of_zeros, |frame| world.kernel.uses(frame)));
            uses.collect()
        });
        SimPipe::lose_time();
        Ok(uses)
    }

    fn read(&mut self, bytes: &mut [u8]) {
        step();
        let pages = bytes.len() / PAGE_SIZE;
        let frames: Vec<_> = self.frames.drain(..pages).collect();
        for (to, frame) in bytes.chunks_exact_mut(PAGE_SIZE).zip(frames) {
            let content = with(|world| {
                let content = frame.map_or(0, |frame| world.kernel.frame_content(frame));
                frame
                    .into_iter()
                    .for_each(|frame| world.kernel.let_go(frame));
                content
            });
            to.copy_from_slice(&page_of(content));
        }
    }

    fn empty_this_cpu(&self) {
        step();
    }

    fn empty_all_cpus(&self) -> bool {
        step();
        true
    }

    fn now(&self) -> Instant {
        world::now()
    }

    fn pause(&self, time: Duration) {
        pause(time);
    }
}

impl World {
    /// A process that lives.
    fn living_mm(&self, pid: i32) -> io::Result<Mm> {
        self.mm_of(pid).ok_or_else(|| error(libc::ESRCH))
    }

    /// Mappings of objects that a process has.
    fn parts_of(&self, mm: Mm) -> Vec<(Object, FilePart)> {
        let mappings = self.kernel.spaces[mm].mappings.iter();
        let parts = mappings.filter_map(|(start, mapping)| {
            let part = mapping.part?;
            let mapping = shared_mapping(*start, mapping);
            let offset = address_of(part.offset);
            Some((part.object, FilePart { mapping, offset }))
        });
        parts.collect()
    }

    /// A lock of this thread's, which has ended, is marked as such. `false`: there is none in this page, or no page.
    fn mark_orphan(&mut self, object: Object, index: Page, thread: i32) -> bool {
        let found = self.kernel.shared_content(object, index);
        let Some(page) = found.filter(|page| owner_of(*page) == thread) else {
            return false;
        };
        self.kernel.write_shared(object, index, orphaned(page));
        self.shared_truth[object].insert(index, orphaned(page));
        true
    }

    /// The kernel walks the lists of robust locks of the threads of a process that ends. It waits for no page then, and gives up
    /// where one is away.
    pub fn walk_robust_lists(&mut self, mm: Mm) {
        let Some(pid) = self.pid_of(mm) else { return };
        let process = self.processes.get_mut(&pid).expect("it was there");
        for thread in std::mem::take(&mut process.ending) {
            for page in self.robust.remove(&thread).unwrap_or_default() {
                let place = self.kernel.place(mm, page);
                let place = place.filter(|(object, index)| {
                    self.kernel.shared_content(*object, *index).is_some()
                });
                let Some((object, index)) = place else {
                    self.note(|| {
                        format!("thread {thread} ends, and its lock on {page:#x} is away")
                    });
                    break;
                };
                self.mark_orphan(object, index, thread);
            }
        }
    }

    fn pid_of(&self, mm: Mm) -> Option<i32> {
        let mut processes = self.processes.iter();
        processes
            .find(|(_, process)| process.mm == mm)
            .map(|(pid, _)| *pid)
    }

    /// Whether a thread runs, or the kernel has not done with it.
    pub fn is_alive(&self, thread: i32) -> bool {
        let mut processes = self.processes.values();
        processes.any(|one| one.threads.contains(&thread) || one.ending.contains(&thread))
    }

    /// Objects that nobody can reach any more are gone.
    pub fn drop_objects(&mut self) {
        for object in 0..self.kernel.objects.len() {
            if self.kernel.is_mapped(object) {
                continue;
            }
            let pages: Vec<Page> = self.kernel.objects[object].keys().copied().collect();
            for index in pages {
                self.kernel.discard(object, index);
            }
        }
    }
}

/// A line of /proc/PID/maps.
pub fn shared_mapping(start: Page, mapping: &kernel::Mapping) -> Mapping {
    Mapping {
        start: address_of(start),
        end: address_of(mapping.end),
        readable: true,
        writable: true,
        executable: false,
        shared: true,
        kind: MappingKind::File,
    }
}

impl Sharing for SimMachine {
    fn nameless_device(&self) -> io::Result<u64> {
        Ok(DEVICE)
    }

    fn taker(&self) -> io::Result<TakeOut> {
        Ok(TakeOut::by(Box::new(SimPipe::default())))
    }

    fn serve_segments(&self, segments: Arc<Segments>, taker: TakeOut) -> io::Result<()> {
        world::begin("segments", None, move || segments.run(taker));
        Ok(())
    }

    fn alone<'a>(&self, state: &'a RwLock<State>) -> RwLockWriteGuard<'a, State> {
        step();
        loop {
            match state.try_write() {
                Ok(alone) => return alone,
                Err(TryLockError::Poisoned(alone)) => return alone.into_inner(),
                Err(TryLockError::WouldBlock) => pause(LOOK_EVERY),
            }
        }
    }

    fn nameless_parts(&self, pid: i32) -> io::Result<Vec<NamelessPart>> {
        step();
        with(|world| {
            let parts = world.parts_of(world.living_mm(pid)?).into_iter();
            let nameless = parts.map(|(object, part)| NamelessPart {
                part,
                identity: identity_of(object),
            });
            Ok(nameless.collect())
        })
    }

    fn mappings_of(&self, pid: i32, memory: Identity) -> io::Result<Vec<FilePart>> {
        let mut parts = self.nameless_parts(pid)?;
        parts.retain(|one| one.identity == memory);
        Ok(parts.into_iter().map(|one| one.part).collect())
    }

    /// As `pleat_sys::procfs::mappers_of` does: until there is nobody new.
    fn mappers_of(&self, memory: Identity) -> io::Result<Vec<Mapper>> {
        let (mut seen, mut mappers) = (BTreeSet::new(), Vec::new());
        loop {
            step();
            let all: Vec<i32> = with(|world| {
                let processes = world.processes.iter();
                let living = processes.filter(|(_, one)| !one.is_ended);
                living.map(|(pid, _)| *pid).collect()
            });
            let new: Vec<i32> = all.into_iter().filter(|pid| seen.insert(*pid)).collect();
            if new.is_empty() {
                return Ok(mappers);
            }
            for pid in new {
                let is_private = false;
                let found = self.mappings_of(pid, memory);
                if found.is_ok_and(|parts| !parts.is_empty()) {
                    mappers.push(Mapper { pid, is_private });
                }
            }
        }
    }

    fn open(
        &self,
        pid: i32,
        part: &FilePart,
        memory: Identity,
    ) -> io::Result<Box<dyn SharedMemory>> {
        let found = self.mappings_of(pid, memory)?;
        match found.contains(part) {
            true => Ok(Box::new(SimObject(memory.1 as Object - 1))),
            false => Err(error(libc::ENOENT)),
        }
    }

    fn is_named(&self, pid: i32, _: u64, _: &str) -> io::Result<bool> {
        step();
        with(|world| world.living_mm(pid).map(|_| false))
    }

    fn share_memory(&self, _: i32, _: i32) -> bool {
        false
    }

    /// Those of one that has ended are another's.
    fn children(&self, pid: i32) -> Vec<i32> {
        step();
        with(|world| {
            let lives = world.mm_of(pid).is_some();
            let processes = world.processes.iter();
            let is_child = |one: &super::process::Process| one.parent == pid && !one.is_ended;
            let children = processes.filter(|(_, one)| lives && is_child(one));
            children.map(|(child, _)| *child).collect()
        })
    }

    fn threads(&self, pid: i32) -> Vec<i32> {
        step();
        with(|world| {
            let process = world.processes.get(&pid);
            let threads = process.map(|one| one.threads.iter().chain(&one.ending).copied());
            threads.into_iter().flatten().collect()
        })
    }

    fn shares_numbers(&self, _: i32) -> bool {
        true
    }

    fn own_thread_number(&self, _: i32, thread: i32) -> Option<i32> {
        Some(thread)
    }

    fn is_ending(&self, pid: i32, thread: i32) -> bool {
        step();
        with(|world| {
            let process = world.processes.get(&pid);
            !process.is_some_and(|process| process.threads.contains(&thread))
        })
    }

    fn robust_locks(
        &self,
        pid: i32,
        thread: i32,
        may_read: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<RobustLocks> {
        step();
        let locks = with(|world| {
            world.is_alive(thread).then(|| {
                let pages = world.robust.get(&thread).cloned();
                pages.unwrap_or_default()
            })
        });
        let mut found = RobustLocks {
            addresses: Vec::new(),
            head: LIST_HEAD,
            is_whole: false,
        };
        for page in locks.ok_or_else(|| error(libc::ESRCH))? {
            let address = address_of(page);
            found.addresses.push(address);
            if !may_read(address) {
                return Ok(found);
            }
            step();
            let is_there = with(|world| {
                let mm = world.processes[&pid].mm;
                let place = world.kernel.place(mm, page);
                place.is_some_and(|(object, index)| {
                    world.kernel.shared_content(object, index).is_some()
                })
            });
            if !is_there {
                note(|| format!("the list of thread {thread} cannot be read at {page:#x}"));
                return Ok(found);
            }
        }
        found.is_whole = true;
        Ok(found)
    }
}
