//! A model of zsmalloc, the allocator of zram and zswap (Linux 6.12 to 6.18), that only counts.
//!
//! Objects of a size class share *zspages* of up to eight frames; an object may span frames. What
//! decides the memory held: the classes and which of them are merged, frames per zspage, which
//! zspage an object goes to, when a zspage is freed, and what compaction moves. Counted besides
//! frames: `struct zspage` and the handle of each object. Left out, to its advantage: the pool and
//! its classes (about 60 KiB), unused room in the caches of handles and zspages, the kernel's
//! `struct page`s.

use pleat_store::{Full, Growth, Handle, Layout, Usage};

const PAGE_BYTES: usize = 4096;
const SIZE_MIN: usize = 32;
/// `ZS_SIZE_CLASS_DELTA`.
const CLASS_STEP: usize = PAGE_BYTES >> 8;
const CLASS_COUNT: usize = (PAGE_BYTES - SIZE_MIN).div_ceil(CLASS_STEP) + 1;
/// `CONFIG_ZSMALLOC_CHAIN_SIZE`, by default.
const CHAIN_MAX: usize = 8;
/// `ZS_HANDLE_SIZE`: in front of each object, and as much again in the cache of handles.
const HANDLE_BYTES: usize = 8;
/// `struct zspage`.
const ZSPAGE_BYTES: usize = 56;
/// Groups of zspages by tenths in use: 0 is empty, 11 full.
const GROUP_FULL: usize = 11;

/// Sizes that share zspages.
struct Class {
    pages: usize,
    objects: usize,
    /// Zspages by how full they are, the head of the kernel's list last. Full ones need no list.
    groups: [Vec<usize>; GROUP_FULL],
}

impl Class {
    /// The chain length with the least waste, as `calculate_zspage_chain_size`.
    fn new(size: usize) -> Self {
        let pages = if size.is_power_of_two() {
            1
        } else {
            let waste = |pages: &usize| pages * PAGE_BYTES % size;
            (1..=CHAIN_MAX).min_by_key(waste).unwrap_or(1)
        };
        Class {
            pages,
            objects: pages * PAGE_BYTES / size,
            groups: Default::default(),
        }
    }

    /// `get_fullness_group`.
    fn group(&self, in_use: usize) -> usize {
        match in_use {
            0 => 0,
            _ if in_use == self.objects => GROUP_FULL,
            _ => 100 * in_use / self.objects / 10 + 1,
        }
    }

    /// The head of the fullest group that is not full, as `find_get_zspage`.
    fn fullest(&self) -> Option<usize> {
        let mut groups = self.groups.iter().rev();
        groups.find_map(|group| group.last().copied())
    }

    /// The head of the emptiest group when `isolated` is in none, as `isolate_src_zspage`.
    fn emptiest_but(&self, isolated: usize) -> Option<usize> {
        let mut groups = self.groups[1..].iter();
        let other =
            |group: &Vec<usize>| group.iter().rev().copied().find(|&other| other != isolated);
        groups.find_map(other)
    }
}

#[derive(Default)]
struct Zspage {
    class: usize,
    objects: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Object {
    zspage: usize,
    len: usize,
}

/// The model. See the head of this file.
pub struct Zsmalloc {
    /// Which of `classes` each size class is merged into.
    merged: Vec<usize>,
    classes: Vec<Class>,
    zspages: Vec<Zspage>,
    zspages_free: Vec<usize>,
    objects: Vec<Object>,
    objects_free: Vec<u32>,
    pages: usize,
    payload_bytes: usize,
    moved: u64,
}

impl Zsmalloc {
    /// Classes from the largest down; one like the class before it is merged into that.
    pub fn new() -> Self {
        let mut classes: Vec<Class> = Vec::new();
        let mut merged = vec![0; CLASS_COUNT];
        for index in (0..CLASS_COUNT).rev() {
            let class = Class::new((SIZE_MIN + index * CLASS_STEP).min(PAGE_BYTES));
            let shape = |class: &Class| (class.pages, class.objects);
            if classes.last().map(shape) != Some(shape(&class)) {
                classes.push(class);
            }
            merged[index] = classes.len() - 1;
        }
        Zsmalloc {
            merged,
            classes,
            zspages: Vec::new(),
            zspages_free: Vec::new(),
            objects: Vec::new(),
            objects_free: Vec::new(),
            pages: 0,
            payload_bytes: 0,
            moved: 0,
        }
    }

    fn class_of(&self, len: usize) -> usize {
        let size = len + HANDLE_BYTES;
        let index = size.saturating_sub(SIZE_MIN).div_ceil(CLASS_STEP);
        self.merged[index.min(CLASS_COUNT - 1)]
    }

    /// A new zspage, in no group.
    fn add_zspage(&mut self, class: usize) -> usize {
        self.pages += self.classes[class].pages;
        let number = self.zspages_free.pop().unwrap_or_else(|| {
            self.zspages.push(Zspage::default());
            self.zspages.len() - 1
        });
        self.zspages[number].class = class;
        self.classes[class].groups[0].push(number);
        number
    }

    /// Changes the objects of a zspage; moves it to the head of another group if it belongs there,
    /// and frees it when it is empty.
    fn change(&mut self, number: usize, change: impl FnOnce(&mut Vec<u32>)) {
        let zspage = &mut self.zspages[number];
        let class = &mut self.classes[zspage.class];
        let before = class.group(zspage.objects.len());
        change(&mut zspage.objects);
        let after = class.group(zspage.objects.len());
        if before == after {
            return;
        }
        if before < GROUP_FULL {
            let group = &mut class.groups[before];
            let at = group.iter().rposition(|&other| other == number);
            group.remove(at.expect("a zspage is in the group of its fullness"));
        }
        match after {
            0 => {
                self.pages -= class.pages;
                self.zspages_free.push(number);
            }
            GROUP_FULL => {}
            _ => class.groups[after].push(number),
        }
    }

    fn put(&mut self, zspage: usize, object: u32) {
        self.objects[object as usize].zspage = zspage;
        self.change(zspage, |objects| objects.push(object));
    }

    /// `zs_can_compact`: whether there are free objects for a whole zspage.
    fn can_compact(&self, class: usize) -> bool {
        let class = &self.classes[class];
        let free = |number: &usize| class.objects - self.zspages[*number].objects.len();
        let free: usize = class.groups.iter().flatten().map(free).sum();
        free >= class.objects
    }

    /// `__zs_compact`: the emptiest zspage's objects into the fullest, until one is freed or full.
    fn compact(&mut self, class: usize) {
        while self.can_compact(class) {
            let groups = &self.classes[class];
            let Some(to) = groups.fullest() else {
                return;
            };
            let Some(from) = groups.emptiest_but(to) else {
                return;
            };
            let room = self.classes[class].objects - self.zspages[to].objects.len();
            let mut moving = Vec::new();
            self.change(from, |objects| {
                moving = objects.split_off(objects.len().saturating_sub(room));
            });
            self.moved += moving.len() as u64;
            moving.into_iter().for_each(|object| self.put(to, object));
        }
    }
}

impl Layout for Zsmalloc {
    fn name(&self) -> &'static str {
        "zsmalloc"
    }

    fn insert(&mut self, bytes: &[u8], growth: Growth) -> Result<Handle, Full> {
        let class = self.class_of(bytes.len());
        let zspage = match (self.classes[class].fullest(), growth) {
            (Some(zspage), _) => zspage,
            (None, Growth::Allowed) => self.add_zspage(class),
            (None, Growth::Denied) => return Err(Full),
        };
        let len = bytes.len();
        let object = self.objects_free.pop().unwrap_or_else(|| {
            self.objects.push(Object { zspage, len });
            (self.objects.len() - 1) as u32
        });
        self.objects[object as usize].len = len;
        self.payload_bytes += len;
        self.put(zspage, object);
        Ok(Handle(object))
    }

    fn read_into(&self, _handle: Handle, _out: &mut Vec<u8>) {
        unreachable!("the model keeps no bytes");
    }

    fn remove(&mut self, handle: Handle) {
        let Object { zspage, len } = self.objects[handle.0 as usize];
        self.payload_bytes -= len;
        self.objects_free.push(handle.0);
        self.change(zspage, |objects| {
            let at = objects.iter().position(|&object| object == handle.0);
            objects.swap_remove(at.expect("an object is in its zspage"));
        });
    }

    /// `zs_compact`, of all classes.
    fn relocate_to_free_cell(&mut self) -> bool {
        let before = self.pages;
        (0..self.classes.len()).for_each(|class| self.compact(class));
        self.pages < before
    }

    fn usage(&self) -> Usage {
        let zspages = self.zspages.len() - self.zspages_free.len();
        let items = self.objects.len() - self.objects_free.len();
        Usage {
            items: items as u64,
            payload_bytes: self.payload_bytes as u64,
            frames_bytes: (self.pages * PAGE_BYTES) as u64,
            metadata_bytes: (zspages * ZSPAGE_BYTES + items * HANDLE_BYTES) as u64,
            compactions: 0,
            relocations: self.moved,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The kernel's Documentation/mm/zsmalloc.rst lists these for a chain size of 8.
    #[test]
    fn classes_are_those_of_the_kernel() {
        let model = Zsmalloc::new();
        assert_eq!(CLASS_COUNT, 255);
        let pages = |index: usize| model.classes[model.merged[index]].pages;
        let listed = [202, 211, 217, 222, 225, 254];
        assert_eq!(listed.map(pages), [4, 5, 6, 7, 8, 1]);
        let merged_above_202: HashSet<usize> = model.merged[202..].iter().copied().collect();
        assert_eq!(merged_above_202.len(), listed.len());
        let is_huge = |len: &usize| model.class_of(*len) == model.merged[CLASS_COUNT - 1];
        assert_eq!(
            (1..=PAGE_BYTES).find(is_huge),
            Some(3632 - HANDLE_BYTES + 1)
        );
    }

    #[test]
    fn frames_go_back_when_a_zspage_is_empty_or_emptied_by_compaction() {
        let mut model = Zsmalloc::new();
        let add = |model: &mut Zsmalloc| {
            model
                .insert(&[0; 1528], Growth::Allowed)
                .expect("growth is allowed")
        };
        // 1536 bytes with the handle: 8 objects in 3 frames.
        let mut handles: Vec<_> = (0..32).map(|_| add(&mut model)).collect();
        assert_eq!(model.pages, 12);
        for which in (0..4)
            .rev()
            .flat_map(|zspage| (0..4).map(move |i| zspage * 8 + i))
        {
            model.remove(handles[which]);
        }
        assert_eq!(model.pages, 12);
        assert!(model.relocate_to_free_cell());
        assert_eq!((model.pages, model.moved), (6, 8));
        handles.retain(|handle| handle.0 % 8 >= 4);
        handles.into_iter().for_each(|handle| model.remove(handle));
        let usage = model.usage();
        assert_eq!((usage.frames_bytes, usage.metadata_bytes), (0, 0));
    }
}
