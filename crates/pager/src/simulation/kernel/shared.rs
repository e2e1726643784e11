//! Memory that is mapped shared: objects, whose pages are the same for all who map them, in whatever address space and however
//! often.
//!
//! | what Linux does | where it is written |
//! |---|---|
//! | copies no page tables of such memory at a fork | `vma_needs_copy` |
//! | maps a page that is there without asking anybody; asks where it is not, if that mapping is registered, and makes one of zeros otherwise | `shmem_get_folio_gfp` |
//! | fills a page that is not there, for all, and wakes who waits in that address space only | `mfill_atomic` |
//! | removes a page from the object and from every page table by one stroke | `truncate_inode_folio` |
//! | keeps a page that somebody else has, in a pipe or pinned, for him alone | `folio_put` |
//! | counts who has a page: the object, page tables, pipes, pins | `_refcount`, `_mapcount` |

use super::{Entry, Follow, Kernel, Mm, Page, Touch, Waiter};
use super::{EEXIST, EINVAL};
use pleat_sys::page_refs::PageUse;
use std::collections::BTreeMap;

/// An object, by number.
pub type Object = usize;

/// What of an object a mapping begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub object: Object,
    pub offset: Page,
}

/// Frames of an object's pages.
pub type Pages = BTreeMap<Page, usize>;

impl Kernel {
    /// Memory that nobody maps yet.
    pub fn add_object(&mut self) -> Object {
        self.objects.push(Pages::new());
        self.objects.len() - 1
    }

    /// Which page of which object this is.
    pub fn place(&self, mm: Mm, page: Page) -> Option<(Object, Page)> {
        let (start, mapping) = self.mapping(mm, page)?;
        let part = mapping.part?;
        Some((part.object, part.offset + page - start))
    }

    /// Whether any address space maps an object.
    pub fn is_mapped(&self, object: Object) -> bool {
        (0..self.spaces.len()).any(|mm| self.maps(mm, object))
    }

    /// Whether an address space maps an object.
    pub fn maps(&self, mm: Mm, object: Object) -> bool {
        let mut mappings = self.spaces[mm].mappings.values();
        mappings.any(|one| one.part.is_some_and(|part| part.object == object))
    }

    /// What a page of an object holds; `None`: a hole.
    pub fn shared_content(&self, object: Object, index: Page) -> Option<u64> {
        let frame = self.objects[object].get(&index)?;
        Some(self.frames[*frame].content)
    }

    /// As [`Kernel::touch`], of shared memory.
    pub(super) fn touch_shared(&mut self, mm: Mm, waiter: Waiter, write: Option<u64>) -> Touch {
        let page = waiter.page;
        let (Some((object, index)), Some((_, mapping))) =
            (self.place(mm, page), self.mapping(mm, page))
        else {
            return Touch::Refused;
        };
        let frame = match self.objects[object].get(&index).copied() {
            Some(frame) => frame,
            None if mapping.follow != Follow::No => {
                self.spaces[mm].waiters.push(waiter);
                return Touch::Waits;
            }
            None => self.fill_hole(object, index, 0),
        };
        self.map_shared(mm, page, frame);
        let content = &mut self.frames[frame].content;
        let was = *content;
        *content = write.unwrap_or(was);
        Touch::Is(was)
    }

    fn map_shared(&mut self, mm: Mm, page: Page, frame: usize) {
        if let std::collections::btree_map::Entry::Vacant(place) = self.spaces[mm].table.entry(page)
        {
            place.insert(Entry::Shared { frame });
            self.frames[frame].users += 1;
        }
    }

    fn fill_hole(&mut self, object: Object, index: Page, content: u64) -> usize {
        let frame = self.alloc(content);
        self.objects[object].insert(index, frame);
        frame
    }

    /// As [`Kernel::copy`], of one page.
    pub(super) fn copy_shared(&mut self, mm: Mm, page: Page, content: u64) -> Result<(), i32> {
        let (object, index) = self.place(mm, page).ok_or(EINVAL)?;
        if self.objects[object].contains_key(&index) {
            return Err(EEXIST);
        }
        let frame = self.fill_hole(object, index, content);
        self.map_shared(mm, page, frame);
        Ok(())
    }

    /// write(2) of a page.
    pub fn write_shared(&mut self, object: Object, index: Page, content: u64) {
        match self.objects[object].get(&index).copied() {
            Some(frame) => self.frames[frame].content = content,
            None => {
                self.fill_hole(object, index, content);
            }
        }
    }

    /// Removes a page of an object from all who map it.
    pub fn punch(&mut self, object: Object, index: Page) {
        let Some(frame) = self.objects[object].remove(&index) else {
            return;
        };
        for mm in 0..self.spaces.len() {
            let space = &mut self.spaces[mm];
            let is_it = |_: &Page, entry: &mut Entry| matches!(entry, Entry::Shared { frame: one } if *one == frame);
            let pages: Vec<Page> = space
                .table
                .extract_if(.., is_it)
                .map(|(page, _)| page)
                .collect();
            self.frames[frame].users -= pages.len() as u32;
        }
        self.let_go(frame);
    }

    /// The program has removed a page, or nobody maps its object any more: what somebody still writes to it is lost by right.
    pub fn discard(&mut self, object: Object, index: Page) {
        if let Some(frame) = self.objects[object].get(&index) {
            self.frames[*frame].is_discarded = true;
        }
        self.punch(object, index);
    }

    /// The frame of a page that is there, which somebody keeps from now on: a pipe, or who has pinned it.
    pub fn keep(&mut self, object: Object, index: Page) -> Option<usize> {
        let frame = *self.objects[object].get(&index)?;
        self.frames[frame].users += 1;
        Some(frame)
    }

    /// He does not any more.
    pub fn let_go(&mut self, frame: usize) {
        self.release(Entry::Shared { frame });
    }

    /// What a frame holds.
    pub fn frame_content(&self, frame: usize) -> u64 {
        self.frames[frame].content
    }

    /// Writes to a frame past all page tables. `false`: it is nobody's any more.
    pub fn write_frame(&mut self, frame: usize, content: u64) -> bool {
        self.frames[frame].content = content;
        !self.frames[frame].is_discarded
    }

    /// Who has a frame.
    pub fn uses(&self, frame: usize) -> PageUse {
        let is_it = |entry: &Entry| *entry == Entry::Shared { frame };
        let mut mappings = 0;
        let mut is_locked = false;
        for (mm, space) in self.spaces.iter().enumerate() {
            for (page, _) in space.table.iter().filter(|(_, entry)| is_it(entry)) {
                mappings += 1;
                let mapping = self.mapping(mm, *page);
                is_locked |= mapping.is_some_and(|(_, mapping)| mapping.is_locked);
            }
        }
        PageUse {
            references: self.frames[frame].users,
            mappings,
            is_huge: false,
            is_locked,
        }
    }
}
