//! castro03's layout: cells of 1, 2 or 4 contiguous frames (sections 2.1 and 2.3.3).
//!
//! ```text
//! cell  | item | freed | item | item | freed | item | final free space |
//!        free space = freed + freed + final free space
//! ```
//!
//! A new item goes to the start of the smallest final free space that fits. If none fits, the cell
//! with the smallest sufficient free space is compacted and takes it; only then may the layout
//! grow. Removal moves nothing, and an empty cell goes back to the system at once.

use std::io;

use pleat_types::PAGE_SIZE;

use crate::arena::Arena;
use crate::layout::{Full, Growth, Handle, Layout, Usage};
use crate::size_index::SizeIndex;
use crate::slab::{grow_gently, Record, Slab};

const NONE: u32 = u32::MAX;

/// How many contiguous pages make a cell; castro03 found two best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagesPerCell {
    /// Cells of 4 KiB.
    One = 1,
    /// Cells of 8 KiB.
    Two = 2,
    /// Cells of 16 KiB.
    Four = 4,
}

/// Where an item is, and its neighbours in its cell in the order of their places.
#[derive(Clone, Copy)]
struct Item {
    cell: u32,
    /// Bytes from the start of the cell.
    at: u16,
    /// Bytes; 0: the handle is free.
    len: u16,
    previous: u32,
    next: u32,
}

impl Item {
    fn end(&self) -> u16 {
        self.at + self.len
    }
}

/// The next free handle is where the cell was.
impl Record for Item {
    fn vacant(next_free: u32) -> Self {
        Item {
            cell: next_free,
            at: 0,
            len: 0,
            previous: NONE,
            next: NONE,
        }
    }

    fn next_free(&self) -> u32 {
        self.cell
    }
}

/// One cell. `final_free <= free <= bytes of a cell`.
#[derive(Clone, Copy)]
struct Cell {
    /// First and last item by place; [`NONE`] while the cell is not held.
    first: u32,
    last: u32,
    /// Bytes without an item.
    free: u16,
    /// Bytes behind the last item.
    final_free: u16,
}

/// Cells with best fit, compaction and relocation. See the head of this file.
pub struct Cells {
    arena: Arena,
    pages: PagesPerCell,
    /// By number of the arena's run.
    cells: Vec<Cell>,
    by_final_free: SizeIndex,
    by_free: SizeIndex,
    items: Slab<Item>,
    payload_bytes: u64,
    cells_held: u64,
    compactions: u64,
    relocations: u64,
}

impl Cells {
    /// An empty layout, ready for `max_bytes` bytes of items and more.
    ///
    /// # Errors
    /// When the system refuses the address space.
    pub fn new(pages: PagesPerCell, max_bytes: u64) -> io::Result<Self> {
        let cell_bytes = pages as usize * PAGE_SIZE;
        Ok(Cells {
            arena: Arena::new(max_bytes, pages as usize)?,
            pages,
            cells: Vec::new(),
            by_final_free: SizeIndex::new(cell_bytes),
            by_free: SizeIndex::new(cell_bytes),
            items: Slab::new(),
            payload_bytes: 0,
            cells_held: 0,
            compactions: 0,
            relocations: 0,
        })
    }

    fn cell_bytes(&self) -> usize {
        self.pages as usize * PAGE_SIZE
    }

    /// A held cell with at least `len` bytes of final free space, compacted for it if need be.
    fn find_room(&mut self, len: usize) -> Option<u32> {
        if let Some(cell) = self.by_final_free.at_least(len) {
            return Some(cell);
        }
        let cell = self.by_free.at_least(len)?;
        self.compact(cell);
        Some(cell)
    }

    /// Moves all items of a listed cell to its front.
    fn compact(&mut self, cell: u32) {
        self.unlist(cell);
        let start = self.arena.run_at(cell);
        let mut end = 0;
        let mut handle = self.cells[cell as usize].first;
        while handle != NONE {
            let item = &mut self.items[handle];
            let (from, len) = (start + item.at as usize, item.len as usize);
            item.at = end as u16;
            handle = item.next;
            if from != start + end {
                self.arena.copy(from, start + end, len);
            }
            end += len;
        }
        let record = &mut self.cells[cell as usize];
        record.final_free = record.free;
        self.compactions += 1;
        self.list(cell);
    }

    /// Takes an empty cell from the system; it is listed.
    fn add_cell(&mut self) -> Result<u32, Full> {
        let cell = self.arena.take_run().ok_or(Full)?;
        let bytes = self.cell_bytes() as u16;
        let empty = Cell {
            first: NONE,
            last: NONE,
            free: bytes,
            final_free: bytes,
        };
        if cell as usize == self.cells.len() {
            grow_gently(&mut self.cells);
            self.cells.push(empty);
        }
        self.cells[cell as usize] = empty;
        self.cells_held += 1;
        self.list(cell);
        Ok(cell)
    }

    /// Gives an empty cell that is not listed back to the system.
    fn release_cell(&mut self, cell: u32) {
        self.arena.give_back_run(cell);
        self.cells_held -= 1;
    }

    fn list(&mut self, cell: u32) {
        let Cell {
            free, final_free, ..
        } = self.cells[cell as usize];
        self.by_free.add(cell, free as usize);
        self.by_final_free.add(cell, final_free as usize);
    }

    fn unlist(&mut self, cell: u32) {
        let Cell {
            free, final_free, ..
        } = self.cells[cell as usize];
        self.by_free.remove(cell, free as usize);
        self.by_final_free.remove(cell, final_free as usize);
    }

    /// Makes `handle` the last item of a listed cell with room for it. Returns where its bytes go.
    fn append(&mut self, cell: u32, handle: u32) -> usize {
        self.unlist(cell);
        let start = self.arena.run_at(cell);
        let end_of_cell = self.cell_bytes();
        let record = &mut self.cells[cell as usize];
        let previous = record.last;
        let item = &mut self.items[handle];
        item.cell = cell;
        item.at = (end_of_cell - record.final_free as usize) as u16;
        (item.previous, item.next) = (previous, NONE);
        record.final_free -= item.len;
        record.free -= item.len;
        record.last = handle;
        let at = start + item.at as usize;
        match previous {
            NONE => record.first = handle,
            _ => self.items[previous].next = handle,
        }
        self.list(cell);
        at
    }

    /// Takes `handle` out of its cell, which is not listed. The record of the item stays.
    fn detach(&mut self, handle: u32) {
        let item = self.items[handle];
        let end_of_cell = self.cell_bytes();
        let record = &mut self.cells[item.cell as usize];
        record.free += item.len;
        match item.previous {
            NONE => record.first = item.next,
            previous => self.items[previous].next = item.next,
        }
        match item.next {
            NONE => {
                record.last = item.previous;
                let end = match item.previous {
                    NONE => 0,
                    previous => self.items[previous].end() as usize,
                };
                record.final_free = (end_of_cell - end) as u16;
            }
            next => self.items[next].previous = item.previous,
        }
    }

    /// The bytes of an item.
    fn get(&self, handle: Handle) -> &[u8] {
        let item = self.item(handle);
        let at = self.arena.run_at(item.cell) + item.at as usize;
        self.arena.bytes(at, item.len as usize)
    }

    /// The live record of `handle`.
    fn item(&self, handle: Handle) -> Item {
        let item = self.items[handle.0];
        assert!(item.len > 0, "{handle:?} used after its removal");
        item
    }

    /// Moves the items of a cell that is not listed into others, until one finds no room. Returns
    /// whether all were moved.
    fn move_items_out(&mut self, cell: u32) -> bool {
        loop {
            let handle = self.cells[cell as usize].first;
            if handle == NONE {
                return true;
            }
            let Item { at, len, .. } = self.items[handle];
            let Some(target) = self.find_room(len as usize) else {
                return false;
            };
            let from = self.arena.run_at(cell) + at as usize;
            self.detach(handle);
            let to = self.append(target, handle);
            self.arena.copy(from, to, len as usize);
            self.relocations += 1;
        }
    }
}

impl Layout for Cells {
    fn name(&self) -> &'static str {
        match self.pages {
            PagesPerCell::One => "cells1",
            PagesPerCell::Two => "cells2",
            PagesPerCell::Four => "cells4",
        }
    }

    fn insert(&mut self, bytes: &[u8], growth: Growth) -> Result<Handle, Full> {
        let len = bytes.len();
        assert!((1..=PAGE_SIZE).contains(&len), "item of {len} bytes");
        let cell = match (self.find_room(len), growth) {
            (Some(cell), _) => cell,
            (None, Growth::Allowed) => self.add_cell()?,
            (None, Growth::Denied) => return Err(Full),
        };
        let handle = self.items.add(Item {
            cell,
            at: 0,
            len: len as u16,
            previous: NONE,
            next: NONE,
        });
        let at = self.append(cell, handle);
        self.arena.write(at, bytes);
        self.payload_bytes += len as u64;
        Ok(Handle(handle))
    }

    fn read_into(&self, handle: Handle, out: &mut Vec<u8>) {
        out.extend_from_slice(self.get(handle));
    }

    fn remove(&mut self, handle: Handle) {
        let Item { cell, len, .. } = self.item(handle);
        self.unlist(cell);
        self.detach(handle.0);
        self.items.free(handle.0);
        self.payload_bytes -= u64::from(len);
        if self.cells[cell as usize].first == NONE {
            self.release_cell(cell);
        } else {
            self.list(cell);
        }
    }

    /// Empties the cell with the most free space, if the others can take its items. Items moved
    /// before one finds no room stay where they went: that room was free anyhow.
    fn relocate_to_free_cell(&mut self) -> bool {
        let Some(cell) = self.by_free.largest() else {
            return false;
        };
        let free_bytes = self.cells_held * self.cell_bytes() as u64 - self.payload_bytes;
        if free_bytes < self.cell_bytes() as u64 {
            return false;
        }
        self.unlist(cell);
        let emptied = self.move_items_out(cell);
        if emptied {
            self.release_cell(cell);
        } else {
            self.list(cell);
        }
        emptied
    }

    fn usage(&self) -> Usage {
        let metadata_bytes = size_of::<Self>()
            + self.cells.capacity() * size_of::<Cell>()
            + self.by_final_free.metadata_bytes()
            + self.by_free.metadata_bytes()
            + self.items.metadata_bytes()
            + self.arena.metadata_bytes();
        Usage {
            items: self.items.len() as u64,
            payload_bytes: self.payload_bytes,
            frames_bytes: self.cells_held * self.cell_bytes() as u64,
            metadata_bytes: metadata_bytes as u64,
            compactions: self.compactions,
            relocations: self.relocations,
        }
    }
}

#[cfg(test)]
impl crate::model::Checked for Cells {
    fn is_valid(&self) -> bool {
        let (mut held, mut items, mut payload) = (0, 0, 0);
        let cells_valid = self.cells.iter().enumerate().all(|(cell, record)| {
            held += u64::from(record.first != NONE);
            let (mut end, mut used, mut previous) = (0, 0, NONE);
            let mut handle = record.first;
            let mut in_order = true;
            while handle != NONE {
                let item = self.items[handle];
                in_order &= item.cell as usize == cell
                    && item.previous == previous
                    && item.at >= end
                    && item.len > 0;
                (end, used) = (item.end(), used + item.len as usize);
                (previous, handle) = (handle, item.next);
                items += 1;
            }
            payload += used as u64;
            in_order
                && record.last == previous
                && self.cell_bytes() - end as usize == record.final_free as usize
                && self.cell_bytes() - used == record.free as usize
        });
        cells_valid
            && held == self.cells_held
            && items == self.items.len()
            && payload == self.payload_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(pages: PagesPerCell) -> Cells {
        Cells::new(pages, 16 << 20).expect("reserve")
    }

    fn add(store: &mut Cells, len: usize) -> Handle {
        store
            .insert(&vec![len as u8; len], Growth::Allowed)
            .expect("room")
    }

    fn cell_of(store: &Cells, handle: Handle) -> u32 {
        store.items[handle.0].cell
    }

    #[test]
    fn an_item_goes_to_the_smallest_final_free_space_that_fits() {
        let mut store = cells(PagesPerCell::One);
        let roomy = add(&mut store, 2500);
        let tight = add(&mut store, 3000);
        let full = add(&mut store, 4000);
        let small = add(&mut store, 1000);
        assert_eq!(cell_of(&store, small), cell_of(&store, tight));
        let other = add(&mut store, 1500);
        assert_eq!(cell_of(&store, other), cell_of(&store, roomy));
        assert_eq!(cell_of(&store, full), 2);
        assert_eq!(store.usage().compactions, 0);
    }

    #[test]
    fn compaction_comes_before_growth() {
        let mut store = cells(PagesPerCell::Two);
        let items: Vec<_> = (0..4).map(|_| add(&mut store, 2000)).collect();
        store.remove(items[0]);
        store.remove(items[2]);
        let big = add(&mut store, 4000);
        assert_eq!(store.usage().compactions, 1);
        assert_eq!(store.usage().frames_bytes, 2 * PAGE_SIZE as u64);
        assert_eq!(store.get(big), [4000usize as u8; 4000]);
        assert_eq!(store.get(items[3]), [2000usize as u8; 2000]);
    }

    #[test]
    fn an_empty_cell_goes_back_at_once() {
        let mut store = cells(PagesPerCell::Four);
        let item = add(&mut store, 1);
        assert_eq!(store.usage().frames_bytes, 4 * PAGE_SIZE as u64);
        store.remove(item);
        assert_eq!(store.usage().frames_bytes, 0);
    }

    #[test]
    fn relocation_frees_a_cell_when_the_others_have_room() {
        let mut store = cells(PagesPerCell::One);
        let items: Vec<_> = (0..6).map(|_| add(&mut store, 2000)).collect();
        assert!(!store.relocate_to_free_cell());
        store.remove(items[0]);
        store.remove(items[2]);
        assert!(store.relocate_to_free_cell());
        assert_eq!(store.usage().frames_bytes, 2 * PAGE_SIZE as u64);
        assert_eq!(store.usage().relocations, 1);
        assert!(!store.relocate_to_free_cell());
    }
}
