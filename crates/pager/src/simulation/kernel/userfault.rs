//! What is asked of the kernel by a userfaultfd.

use super::{Entry, Event, Follow, Kernel, Mapping, Mm, Page, Waiter};
use super::{EAGAIN, EBUSY, EEXIST, EFAULT, EINVAL, ENOENT, ESRCH};

impl Kernel {
    fn check(&self, mm: Mm) -> Result<(), i32> {
        match &self.spaces[mm] {
            space if space.is_dead => Err(ESRCH),
            space if !space.changing.is_empty() => Err(EAGAIN),
            _ => Ok(()),
        }
    }

    /// As reading the userfaultfd does: up to `most` faults, or else up to as many events.
    pub fn read(&mut self, mm: Mm, most: usize) -> (Vec<Waiter>, Vec<Event>) {
        let space = &mut self.spaces[mm];
        let unread = space.waiters.iter_mut().filter(|waiter| !waiter.is_read);
        let faults: Vec<Waiter> = unread
            .take(most)
            .map(|waiter| {
                waiter.is_read = true;
                *waiter
            })
            .collect();
        let left = most - faults.len();
        let count = left.min(space.events.len());
        let events = space
            .events
            .drain(..count)
            .map(|(_, event)| event)
            .collect();
        (faults, events)
    }

    /// Whether there is something to read, or nothing will be any more.
    pub fn is_readable(&self, mm: Mm) -> bool {
        let space = &self.spaces[mm];
        space.waiters.iter().any(|waiter| !waiter.is_read) || !space.events.is_empty()
    }

    /// Wakes who waits for these pages.
    pub fn wake(&mut self, mm: Mm, start: Page, end: Page) {
        let waiters = &mut self.spaces[mm].waiters;
        waiters.retain(|waiter| !(start..end).contains(&waiter.page));
    }

    /// Fills pages; answers how many. `most` is how many the kernel gets done before something comes in between.
    pub fn copy(
        &mut self,
        mm: Mm,
        start: Page,
        contents: &[u64],
        most: usize,
    ) -> Result<usize, i32> {
        self.check(mm)?;
        let end = start + contents.len() as u64;
        let mapping = self.mapping(mm, start).map(|(_, mapping)| mapping);
        let is_there = |mapping: &Mapping| mapping.follow != Follow::No && mapping.end >= end;
        let mapping = mapping.filter(is_there).ok_or(ENOENT)?;
        for (nth, content) in contents.iter().enumerate() {
            let page = start + nth as u64;
            if mapping.part.is_some() {
                let filled = match nth >= most.max(1) {
                    true => Err(EEXIST),
                    false => self.copy_shared(mm, page, *content),
                };
                match filled {
                    Ok(()) => continue,
                    Err(_) if nth > 0 => return Ok(nth),
                    Err(error) => return Err(error),
                }
            }
            let is_free = matches!(self.spaces[mm].table.get(&page), None | Some(Entry::Guard));
            if !is_free || nth >= most.max(1) {
                return if nth > 0 { Ok(nth) } else { Err(EEXIST) };
            }
            let entry = Entry::Page {
                frame: self.alloc(*content),
                is_protected: false,
                is_pinned: false,
            };
            self.spaces[mm].table.insert(page, entry);
        }
        Ok(contents.len())
    }

    /// Protects present pages, or ends that.
    pub fn protect(
        &mut self,
        mm: Mm,
        (start, end): (Page, Page),
        protect: bool,
    ) -> Result<(), i32> {
        self.check(mm)?;
        let first = self.mapping(mm, start).into_iter();
        let rest = self.within(mm, start + 1, end);
        let mut all = first.chain(rest).peekable();
        all.peek().ok_or(ENOENT)?;
        for (from, mapping) in all.collect::<Vec<_>>() {
            if mapping.follow != Follow::AbsentAndProtected {
                return Err(ENOENT);
            }
            let range = start.max(from)..end.min(mapping.end);
            for (_, entry) in self.spaces[mm].table.range_mut(range) {
                if let Entry::Page { is_protected, .. } | Entry::Zero { is_protected } = entry {
                    *is_protected = protect;
                }
            }
        }
        Ok(())
    }

    /// The userfaultfd is closed by all who have it: nothing is followed any more, nor protected, and who waits goes on, also
    /// for an event to be read. The child of a fork whose event was not is followed by nobody either.
    pub fn close(&mut self, mm: Mm) {
        let space = &mut self.spaces[mm];
        space.waiters.clear();
        space.changing.clear();
        for mapping in space.mappings.values_mut() {
            mapping.follow = Follow::No;
        }
        for entry in space.table.values_mut() {
            if let Entry::Page { is_protected, .. } | Entry::Zero { is_protected } = entry {
                *is_protected = false;
            }
        }
        for (_, event) in std::mem::take(&mut space.events) {
            if let Event::Fork { child } = event {
                self.close(child);
            }
        }
    }

    /// Follows the mappings of a range, or ends that.
    pub fn register(
        &mut self,
        mm: Mm,
        (start, end): (Page, Page),
        follow: Follow,
    ) -> Result<(), i32> {
        if self.spaces[mm].is_dead {
            return Err(ESRCH);
        }
        let first = self.mapping(mm, start).map(|(_, mapping)| (start, mapping));
        let all = first.into_iter().chain(self.within(mm, start + 1, end));
        if all.count() == 0 {
            return Err(EINVAL);
        }
        self.advise(mm, (start, end), |mapping| mapping.follow = follow);
        Ok(())
    }

    /// As UFFDIO_MOVE does, one page after the other: how many, and why no more. The count is the truth.
    pub fn move_pages(&mut self, mm: Mm, from: Page, to: Page, count: u64) -> (u64, Option<i32>) {
        if let Err(error) = self.check(mm) {
            return (0, Some(error));
        }
        let end = to + count;
        let is_there = |mapping: &Mapping| mapping.follow != Follow::No && mapping.end >= end;
        let target = self.mapping(mm, to).map(|(_, mapping)| mapping);
        if !target.as_ref().is_some_and(is_there) {
            return (0, Some(EINVAL));
        }
        for nth in 0..count {
            if let Err(error) = self.move_page(mm, from + nth, to + nth) {
                return (nth, Some(error));
            }
        }
        (count, None)
    }

    fn move_page(&mut self, mm: Mm, from: Page, to: Page) -> Result<(), i32> {
        let (_, mapping) = self.mapping(mm, from).ok_or(ENOENT)?;
        if mapping.is_locked {
            return Err(EINVAL);
        }
        let moved = match self.spaces[mm].table.get(&from).ok_or(ENOENT)? {
            Entry::Shared { .. } => return Err(EINVAL),
            Entry::Guard => return Err(EFAULT),
            Entry::Zero { .. } => Entry::Zero {
                is_protected: false,
            },
            Entry::Page {
                is_pinned: true, ..
            } => return Err(EBUSY),
            Entry::Page { frame, .. } if self.frames[*frame].users > 1 => return Err(EBUSY),
            Entry::Page { frame, .. } => Entry::Page {
                frame: *frame,
                is_protected: false,
                is_pinned: false,
            },
        };
        let table = &mut self.spaces[mm].table;
        if table.contains_key(&to) {
            return Err(EEXIST);
        }
        table.remove(&from);
        table.insert(to, moved);
        Ok(())
    }
}
