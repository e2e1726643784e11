//! A kernel of address spaces that are followed by userfaultfds, with the manners of Linux.
//!
//! | what Linux does | where it is written |
//! |---|---|
//! | hands out faults ahead of events | `userfaultfd_ctx_read` |
//! | refuses fills, moves and protection with EAGAIN from the beginning of a change until its event has been read *and* the thread that made it runs on | `mmap_changing` |
//! | drops the pages of a munmap before its event, those of MADV_DONTNEED after it | `userfaultfd_unmap_prep`, `userfaultfd_remove` |
//! | puts what MAP_FIXED maps in place before the event of what was there is read, not registered | `userfaultfd_unmap_complete` |
//! | reports an mremap as a move, then as an unmap of the old range | `mremap_userfaultfd_complete` |
//! | lets a forked child run only when the event of its fork has been read | `dup_userfaultfd_complete` |
//! | moves no page that is pinned or shared (EBUSY), absent (ENOENT), in locked memory (EINVAL) or marked (EFAULT) | `move_pages` |
//! | moves a batch and counts less, or nothing | `move_pages_pte` in 6.18 |
//! | fills fewer pages than asked | `mfill_atomic` |
//! | fills a page where a guard is | `pte_none_mostly` |
//!
//! Memory that is mapped shared is in `shared.rs`. Pages hold a number in the place of their bytes ([`super::page`]); 0 is a page of zeros. Everything here is done at once:
//! what may happen in between is up to who calls.

mod shared;
mod userfault;

pub use shared::{Object, Part};

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Errors, as errno has them.
pub use libc::{EAGAIN, EBUSY, EEXIST, EFAULT, EINVAL, ENOENT, ESRCH};

/// A page number.
pub type Page = u64;
/// An address space and its userfaultfd.
pub type Mm = usize;
/// A thread.
pub type Thread = i32;

/// What is asked to be told of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Nothing.
    No,
    /// Touches of absent pages.
    Absent,
    /// The same, and writes to protected ones.
    AbsentAndProtected,
}

/// A mapping, up to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub end: Page,
    pub follow: Follow,
    pub is_wiped_on_fork: bool,
    pub is_kept_from_forks: bool,
    pub is_locked: bool,
    /// It is mapped shared: this.
    pub part: Option<Part>,
}

impl Mapping {
    /// Plain memory up to there, which nobody follows.
    pub fn to(end: Page) -> Mapping {
        Mapping {
            end,
            follow: Follow::No,
            is_wiped_on_fork: false,
            is_kept_from_forks: false,
            is_locked: false,
            part: None,
        }
    }
}

/// What a page table has for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Memory of its own, or shared since a fork.
    Page {
        frame: usize,
        is_protected: bool,
        is_pinned: bool,
    },
    /// A page of an object.
    Shared { frame: usize },
    /// The page of zeros.
    Zero { is_protected: bool },
    /// Who touches it gets SIGSEGV.
    Guard,
}

/// A message that waits to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Remove { start: Page, end: Page },
    Unmap { start: Page, end: Page },
    Remap { from: Page, to: Page, len: u64 },
    Fork { child: Mm },
}

/// A fault that waits: first to be read, then for its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub thread: Thread,
    pub page: Page,
    pub is_write: bool,
    pub is_protected: bool,
    is_read: bool,
}

/// What a touch of a page comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// It holds this, or held it before it was written to.
    Is(u64),
    /// The thread waits until it is woken.
    Waits,
    /// SIGSEGV.
    Refused,
}

/// A frame of memory.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    content: u64,
    users: u32,
    /// Of a page that its program has removed.
    is_discarded: bool,
}

/// An address space.
#[derive(Debug, Default)]
pub struct Space {
    pub mappings: BTreeMap<Page, Mapping>,
    pub table: BTreeMap<Page, Entry>,
    pub waiters: Vec<Waiter>,
    pub events: VecDeque<(u64, Event)>,
    /// Changes under way, by the names of their events.
    pub changing: BTreeSet<u64>,
    pub is_dead: bool,
}

/// All address spaces, and what they have in memory.
#[derive(Debug, Default)]
pub struct Kernel {
    pub spaces: Vec<Space>,
    /// Memory that is mapped shared.
    pub objects: Vec<shared::Pages>,
    frames: Vec<Frame>,
    free: Vec<usize>,
    events: u64,
}

impl Kernel {
    /// A new address space.
    pub fn add(&mut self) -> Mm {
        self.spaces.push(Space::default());
        self.spaces.len() - 1
    }

    /// Frames in use.
    pub fn used_frames(&self) -> usize {
        self.frames.len() - self.free.len()
    }

    fn alloc(&mut self, content: u64) -> usize {
        let frame = Frame {
            content,
            users: 1,
            is_discarded: false,
        };
        match self.free.pop() {
            Some(at) => {
                self.frames[at] = frame;
                at
            }
            None => {
                self.frames.push(frame);
                self.frames.len() - 1
            }
        }
    }

    fn release(&mut self, entry: Entry) {
        if let Entry::Page { frame, .. } | Entry::Shared { frame } = entry {
            self.frames[frame].users -= 1;
            if self.frames[frame].users == 0 {
                self.free.push(frame);
            }
        }
    }

    /// The mapping of a page, and where it begins.
    pub fn mapping(&self, mm: Mm, page: Page) -> Option<(Page, Mapping)> {
        let mut before = self.spaces[mm].mappings.range(..=page);
        let (start, mapping) = before.next_back()?;
        (mapping.end > page).then_some((*start, *mapping))
    }

    /// Cuts mappings at a page, so that one begins or ends there.
    fn split(&mut self, mm: Mm, at: Page) {
        if let Some((start, mapping)) = self.mapping(mm, at) {
            if start < at {
                let first = Mapping { end: at, ..mapping };
                let part = mapping.part.map(|part| Part {
                    offset: part.offset + at - start,
                    ..part
                });
                let mapping = Mapping { part, ..mapping };
                let mappings = &mut self.spaces[mm].mappings;
                mappings.insert(start, first);
                mappings.insert(at, mapping);
            }
        }
    }

    /// The mappings that begin in a range, whole ones after [`Kernel::split`].
    fn within(&self, mm: Mm, start: Page, end: Page) -> Vec<(Page, Mapping)> {
        let mappings = self.spaces[mm].mappings.range(start..end);
        mappings
            .map(|(start, mapping)| (*start, *mapping))
            .collect()
    }

    /// Changes what is true of the mappings of a range.
    pub fn advise(&mut self, mm: Mm, (start, end): (Page, Page), change: impl Fn(&mut Mapping)) {
        self.split(mm, start);
        self.split(mm, end);
        let mappings = self.spaces[mm].mappings.range_mut(start..end);
        mappings.for_each(|(_, mapping)| change(mapping));
    }

    /// Drops what the page table has of a range.
    pub fn zap(&mut self, mm: Mm, start: Page, end: Page, keeps_guards: bool) {
        let table = self.spaces[mm].table.range(start..end);
        let hit: Vec<(Page, Entry)> = table.map(|(page, entry)| (*page, *entry)).collect();
        for (page, entry) in hit {
            if keeps_guards && entry == Entry::Guard {
                continue;
            }
            self.spaces[mm].table.remove(&page);
            self.release(entry);
        }
    }

    /// A thread touches a page; with `write`, that is its content from then on.
    pub fn touch(&mut self, mm: Mm, thread: Thread, page: Page, write: Option<u64>) -> Touch {
        let Some((_, mapping)) = self.mapping(mm, page) else {
            return Touch::Refused;
        };
        let asks = mapping.follow == Follow::AbsentAndProtected;
        let wait = |is_protected| Waiter {
            thread,
            page,
            is_write: write.is_some(),
            is_protected,
            is_read: false,
        };
        if mapping.part.is_some() {
            return self.touch_shared(mm, wait(false), write);
        }
        let waiter = match (self.spaces[mm].table.get(&page).copied(), write) {
            (Some(Entry::Guard | Entry::Shared { .. }), _) => return Touch::Refused,
            (None, _) if mapping.follow != Follow::No => wait(false),
            (Some(Entry::Page { is_protected, .. } | Entry::Zero { is_protected }), Some(_))
                if is_protected && asks =>
            {
                wait(true)
            }
            (None, None) => {
                let zero = Entry::Zero {
                    is_protected: false,
                };
                self.spaces[mm].table.insert(page, zero);
                return Touch::Is(0);
            }
            (Some(Entry::Zero { .. }), None) => return Touch::Is(0),
            (Some(Entry::Page { frame, .. }), None) => {
                return Touch::Is(self.frames[frame].content);
            }
            (_, Some(content)) => return Touch::Is(self.write(mm, page, content)),
        };
        self.spaces[mm].waiters.push(waiter);
        Touch::Waits
    }

    /// Writes to a page that may be written to; answers what it held.
    fn write(&mut self, mm: Mm, page: Page, content: u64) -> u64 {
        match self.spaces[mm].table.get(&page).copied() {
            Some(Entry::Page { frame, .. }) if self.frames[frame].users == 1 => {
                std::mem::replace(&mut self.frames[frame].content, content)
            }
            before => {
                let (was, is_pinned) = match before {
                    Some(Entry::Page {
                        frame, is_pinned, ..
                    }) => (self.frames[frame].content, is_pinned),
                    _ => (0, false),
                };
                before.into_iter().for_each(|entry| self.release(entry));
                let frame = self.alloc(content);
                let entry = Entry::Page {
                    frame,
                    is_protected: false,
                    is_pinned,
                };
                self.spaces[mm].table.insert(page, entry);
                was
            }
        }
    }

    /// What a page that is there holds.
    pub fn content(&self, mm: Mm, page: Page) -> Option<u64> {
        match self.spaces[mm].table.get(&page)? {
            Entry::Page { frame, .. } | Entry::Shared { frame } => {
                Some(self.frames[*frame].content)
            }
            Entry::Zero { .. } => Some(0),
            Entry::Guard => None,
        }
    }

    /// Makes a page its process's own by a write that changes nothing and never waits (FUTEX_WAKE_OP).
    pub fn make_own(&mut self, mm: Mm, page: Page) -> bool {
        match self.spaces[mm].table.get(&page).copied() {
            Some(Entry::Page {
                frame,
                is_protected,
                ..
            }) if !is_protected => {
                let content = self.frames[frame].content;
                self.write(mm, page, content);
                true
            }
            Some(Entry::Zero { is_protected }) if !is_protected => {
                self.write(mm, page, 0);
                true
            }
            _ => false,
        }
    }

    /// A change begins whose event is to be read before the thread that makes it goes on. Answers its name.
    pub fn announce(&mut self, mm: Mm, event: Event) -> u64 {
        self.events += 1;
        let space = &mut self.spaces[mm];
        space.changing.insert(self.events);
        space.events.push_back((self.events, event));
        self.events
    }

    /// Whether the event of a change has been read, or nobody will.
    pub fn is_heard(&self, mm: Mm, event: u64) -> bool {
        let space = &self.spaces[mm];
        space.is_dead || !space.events.iter().any(|(name, _)| *name == event)
    }

    /// The thread that made the change goes on.
    pub fn conclude(&mut self, mm: Mm, event: u64) {
        self.spaces[mm].changing.remove(&event);
    }

    /// Whether any mapping of a range is followed.
    pub fn is_followed(&self, mm: Mm, start: Page, end: Page) -> bool {
        let first = self.mapping(mm, start).into_iter();
        let mut all = first.chain(self.within(mm, start, end));
        all.any(|(_, mapping)| mapping.follow != Follow::No)
    }

    /// Unmaps a range; its event is to be announced in the same breath where it was followed.
    pub fn unmap(&mut self, mm: Mm, start: Page, end: Page) {
        self.split(mm, start);
        self.split(mm, end);
        self.zap(mm, start, end, false);
        self.spaces[mm]
            .mappings
            .retain(|at, _| !(start..end).contains(at));
    }

    /// Moves a mapping's pages, with all that is true of it. The new range is free.
    pub fn remap(&mut self, mm: Mm, from: Page, to: Page, len: u64) {
        self.split(mm, from);
        self.split(mm, from + len);
        for (start, mapping) in self.within(mm, from, from + len) {
            let moved = Mapping {
                end: mapping.end - from + to,
                ..mapping
            };
            self.spaces[mm].mappings.insert(start - from + to, moved);
        }
        let space = &mut self.spaces[mm];
        let pages: Vec<Page> = space
            .table
            .range(from..from + len)
            .map(|(p, _)| *p)
            .collect();
        for page in pages {
            if let Some(entry) = space.table.remove(&page) {
                space.table.insert(page - from + to, entry);
            }
        }
        space
            .mappings
            .retain(|at, _| !(from..from + len).contains(at));
    }

    /// The address space of a child, as it is at this moment.
    pub fn fork(&mut self, parent: Mm) -> Mm {
        let child = self.add();
        let mappings = self.spaces[parent].mappings.clone();
        for (start, mapping) in mappings {
            if mapping.is_kept_from_forks {
                continue;
            }
            self.spaces[child].mappings.insert(start, mapping);
            if mapping.is_wiped_on_fork || mapping.part.is_some() {
                continue;
            }
            let range = self.spaces[parent].table.range(start..mapping.end);
            let entries: Vec<(Page, Entry)> = range.map(|(page, entry)| (*page, *entry)).collect();
            for (page, entry) in entries {
                let copy = match entry {
                    // A pinned page is copied at once, and the copy is not pinned.
                    Entry::Page {
                        frame,
                        is_protected,
                        is_pinned: true,
                    } => Entry::Page {
                        frame: self.alloc(self.frames[frame].content),
                        is_protected,
                        is_pinned: false,
                    },
                    Entry::Page { frame, .. } => {
                        self.frames[frame].users += 1;
                        entry
                    }
                    other => other,
                };
                self.spaces[child].table.insert(page, copy);
            }
        }
        child
    }

    /// The address space is gone.
    pub fn die(&mut self, mm: Mm) {
        self.zap(mm, 0, Page::MAX, false);
        let space = &mut self.spaces[mm];
        *space = Space {
            is_dead: true,
            ..Space::default()
        };
    }

    /// A thread waits no more: it is woken, or a signal has come.
    pub fn is_waiting(&self, mm: Mm, thread: Thread) -> bool {
        let mut waiters = self.spaces[mm].waiters.iter();
        waiters.any(|waiter| waiter.thread == thread)
    }

    /// A signal has a thread look again.
    pub fn interrupt(&mut self, mm: Mm, thread: Thread) {
        self.spaces[mm]
            .waiters
            .retain(|waiter| waiter.thread != thread);
    }

    /// Runs of pages of a range for which that is so.
    pub fn runs(
        &self,
        mm: Mm,
        (start, end): (Page, Page),
        is: fn(&Entry) -> bool,
    ) -> Vec<(Page, Page)> {
        let mut runs: Vec<(Page, Page)> = Vec::new();
        for (page, entry) in self.spaces[mm].table.range(start..end) {
            match runs.last_mut() {
                _ if !is(entry) => {}
                Some((_, end)) if *end == *page => *end += 1,
                _ => runs.push((*page, page + 1)),
            }
        }
        runs
    }
}
