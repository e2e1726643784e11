//! Robust locks in a segment: what must not be away when a thread that holds one ends.
//!
//! The kernel marks the locks of an ending thread, and waits for no page then (`pleat_sys::robust`). So the lists of all threads
//! that may hold a lock here are read before a take, and again after the pages are removed, when nobody can take or leave a
//! lock in them any more:
//!
//! | at the second look, a thread | its lock in a removed page |
//! |---|---|
//! | is there, and holds it | the page is put back at once |
//! | ends just then, before the page is back | the kernel has not marked it: it is marked in the page once that is back, for all threads are asked once more whether they have ended |
//! | was there at the first look, and has ended, or its list is walked already | the same: its number is looked for in the page's bytes |
//! | has begun since the first look, taken a lock, and ended | **is not found**: nobody knows its number |
//!
//! A thread that is ending does not wait for a page (`handle_userfault`), so it is never this look that it waits for.

use super::Segment;
use crate::ports::{Machine, PageTableView};
use crate::shared::{lock, Link, Shared};
use pleat_sys::procfs::FilePart;
use pleat_types::{PageNo, SpaceId, PAGE_SIZE};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// What is known of a process that maps a segment.
pub(super) struct Known {
    page_table: Box<dyn PageTableView>,
    /// It is in our PID namespace: its threads call themselves what we call them.
    shares_numbers: bool,
    /// Where lists begin, and in which page of the segment that is, if it is in it: then the thread's stack is, and its control
    /// block, to which the kernel writes as well when it ends.
    heads: HashMap<u64, Option<PageNo>>,
}

/// The GNU C library keeps the word that the kernel clears for an ended thread so far before the head of the list.
const TO_CLEARED_WORD: u64 = 16;

impl Known {
    fn of(machine: &dyn Machine, pid: i32) -> Option<Known> {
        let page_table = machine.page_table(pid).ok()?;
        Some(Known {
            page_table,
            shares_numbers: machine.shares_numbers(pid),
            heads: HashMap::new(),
        })
    }
}

/// What is known of a space's process, asked when that is first needed.
fn known_of<'a>(
    known: &'a mut HashMap<SpaceId, Known>,
    link: &Link,
    pid: i32,
) -> Option<&'a mut Known> {
    match known.entry(link.id) {
        Entry::Occupied(known) => Some(known.into_mut()),
        // It was opened before this is asked: it is this process's.
        Entry::Vacant(place) => {
            let new = Known::of(&*link.machine, pid).filter(|_| !link.uffd.is_dead())?;
            Some(place.insert(new))
        }
    }
}

/// A thread, by our number and by its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Thread {
    pid: i32,
    id: i32,
    /// What it writes into its locks.
    own_id: i32,
}

/// What a look has found.
#[derive(Default)]
pub(super) struct Looked {
    /// All threads of all processes that map the segment and may hold such locks.
    threads: HashMap<Thread, Weak<Link>>,
    /// Pages of the segment in which something lies that the kernel would touch.
    pages: HashSet<PageNo>,
    /// Not everything could be told: there may be locks in any page.
    is_unsure: bool,
}

impl Looked {
    /// Whether there may be a lock in a page.
    pub(super) fn may_be_in(&self, page: PageNo) -> bool {
        self.is_unsure || self.pages.contains(&page)
    }

    /// Whether not everything could be told.
    pub(super) fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    /// Threads that this or an earlier look has found and that run no more of their program: by the numbers that they write
    /// into locks. An earlier one that the later has found again is not asked.
    pub(super) fn ended_since(&self, before: &Looked, machine: &dyn Machine) -> Vec<i32> {
        let missing = before.threads.iter();
        let missing = missing.filter(|(thread, _)| !self.threads.contains_key(thread));
        ended(missing, machine)
    }

    /// The same, of all that either has found, as of now.
    pub(super) fn ended_by_now(&self, before: &Looked, machine: &dyn Machine) -> Vec<i32> {
        ended(self.threads.iter().chain(&before.threads), machine)
    }
}

fn ended<'a>(
    threads: impl Iterator<Item = (&'a Thread, &'a Weak<Link>)>,
    machine: &dyn Machine,
) -> Vec<i32> {
    let has_ended = |(thread, link): &(&Thread, &Weak<Link>)| {
        let is_mapped = link.upgrade().is_some_and(|link| !link.uffd.is_dead());
        !is_mapped || machine.is_ending(thread.pid, thread.id)
    };
    threads
        .filter(has_ended)
        .map(|(thread, _)| thread.own_id)
        .collect()
}

impl Segment {
    /// Looks for robust locks in its pages. By the thread that takes them, and no other.
    ///
    /// To read a list may mean to wait until a space has brought a page: nothing is locked meanwhile that a space's thread may want.
    pub(super) fn look_for_locks(&self, shared: &Shared) -> Looked {
        let mut looked = Looked::default();
        let links = self.links();
        let mut known = lock(&self.known);
        known.retain(|space, _| links.iter().any(|link| link.id == *space));
        for link in links {
            // One that cannot be served, and is not known, runs no more than until its next fault.
            if link.is_over() {
                continue;
            }
            let is_told = match link.pid.load(Ordering::Acquire) {
                0 => self.look_at_newborn(shared, &link, &mut looked),
                pid => match known_of(&mut known, &link, pid) {
                    Some(known) => self.look_at(known, &link, pid, &mut looked),
                    None => false,
                },
            };
            looked.is_unsure |= !is_told && !link.uffd.is_dead();
        }
        looked
    }

    /// A forked child that is not known yet is one of its parent's children, or is not there yet and has done nothing.
    /// `false`: not everything could be told.
    fn look_at_newborn(&self, shared: &Shared, link: &Arc<Link>, looked: &mut Looked) -> bool {
        let Some(parent) = link.parent.as_ref().and_then(Weak::upgrade) else {
            return false;
        };
        let pid = parent.pid.load(Ordering::Acquire);
        if pid == 0 {
            return false;
        }
        let children = shared.machine.children(pid).into_iter();
        // Asked afterwards: once it has ended they are another's, and its list is empty.
        if parent.uffd.is_dead() {
            return false;
        }
        let is_known = |pid: &i32| lock(&shared.by_pid).contains_key(pid);
        let mut unknown = children.filter(|pid| !is_known(pid));
        unknown.all(|pid| match Known::of(&*shared.machine, pid) {
            Some(mut known) => self.look_at(&mut known, link, pid, looked),
            None => false,
        })
    }

    /// Looks at the threads of one process. `false`: not everything could be told.
    fn look_at(&self, known: &mut Known, link: &Arc<Link>, pid: i32, looked: &mut Looked) -> bool {
        let Known {
            page_table,
            shares_numbers,
            heads,
        } = known;
        let mut reach = Reach {
            machine: &*link.machine,
            segment: self,
            pid,
            page_table: &**page_table,
            parts: None,
        };
        let mut is_told = true;
        let machine = &*link.machine;
        for id in machine.threads(pid) {
            let own_id = match shares_numbers {
                true => Some(id),
                false => machine.own_thread_number(pid, id),
            };
            let locks = machine.robust_locks(pid, id, &mut |address| reach.may_read(address));
            match (locks, own_id) {
                // One that is ending has no list any more.
                (Ok(locks), Some(_)) if locks.head == 0 => {}
                (Ok(locks), Some(own_id)) => {
                    let thread = Thread { pid, id, own_id };
                    looked.threads.insert(thread, Arc::downgrade(link));
                    is_told &= locks.is_whole;
                    let head = locks.head;
                    let block = heads.entry(head).or_insert_with(|| reach.page_at(head));
                    if block.is_some() {
                        let cleared = head.wrapping_sub(TO_CLEARED_WORD);
                        looked
                            .pages
                            .extend([head, cleared].iter().filter_map(|at| reach.page_at(*at)));
                    }
                    for address in locks.addresses {
                        looked.pages.extend(reach.page_at(address));
                    }
                }
                _ => is_told &= machine.is_ending(pid, id),
            }
        }
        is_told
    }
}

/// What of a process's addresses is the segment.
struct Reach<'a> {
    machine: &'a dyn Machine,
    segment: &'a Segment,
    pid: i32,
    page_table: &'a dyn PageTableView,
    /// Asked when that is first needed.
    parts: Option<Vec<FilePart>>,
}

impl Reach<'_> {
    fn part_at(&mut self, address: u64) -> Option<FilePart> {
        let (pid, identity) = (self.pid, self.segment.identity());
        let mappings = || self.machine.mappings_of(pid, identity).unwrap_or_default();
        let parts = self.parts.get_or_insert_with(mappings);
        let covers = |part: &&FilePart| {
            let mapping = &part.mapping;
            (mapping.start..mapping.end).contains(&address)
        };
        parts.iter().find(covers).copied()
    }

    /// Whether reading there cannot wait for this very thread: what is not in the page table is not the segment's, of which
    /// pages may be away, or are just being taken.
    fn may_read(&mut self, address: u64) -> bool {
        let page = address / PAGE_SIZE as u64 * PAGE_SIZE as u64;
        let exists = self.page_table.which_exist(page, 1);
        exists.is_ok_and(|exists| exists[0]) || self.part_at(address).is_none()
    }

    fn page_at(&mut self, address: u64) -> Option<PageNo> {
        let part = self.part_at(address)?;
        let offset = address - part.mapping.start + part.offset;
        Some(self.segment.page_at(offset))
    }
}
