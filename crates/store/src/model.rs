//! Every layout against a map from handles to bytes: random steps, and after each the layout must
//! hold the same items and its invariants. What a layout says of frames must follow from which
//! items are clean.

use std::collections::{BTreeMap, HashSet};

use pleat_types::PAGE_SIZE;
use proptest::prelude::*;

use crate::{
    layout_by_name, layout_names, Bins, Blocks, Buffers, Cells, FrameStates, Full, Growth, Handle,
    Layout, PagesPerCell, Release, Ring,
};

/// A layout that can check its own invariants.
pub(crate) trait Checked: Layout {
    fn is_valid(&self) -> bool;
}

#[derive(Clone, Debug)]
enum Step {
    Insert {
        len: usize,
        growth: Growth,
    },
    Remove(prop::sample::Index),
    /// Removes the oldest item but so many.
    RemoveOld {
        skip: usize,
    },
    Relocate,
    SetClean(prop::sample::Index, bool),
    /// Writes the next dirty items; the write fails for every so manieth item.
    Write {
        max_bytes: usize,
        fails: usize,
    },
    DropCleanFrame,
    /// Asks for frames that the system is to get; it gets what was asked for before.
    Release,
    /// The system gets frames while the layout is used.
    ReleaseBeside,
}

fn any_len() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 300..=3072usize,
        2 => 1..=4096usize,
        1 => 1..=64usize,
        1 => Just(4096usize),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let growth = prop_oneof![Just(Growth::Allowed), Just(Growth::Denied)];
    prop_oneof![
        6 => (any_len(), growth).prop_map(|(len, growth)| Step::Insert { len, growth }),
        4 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => Just(Step::Relocate),
        1 => (any::<prop::sample::Index>(), any::<bool>())
            .prop_map(|(which, clean)| Step::SetClean(which, clean)),
        1 => (1..20_000usize, 1..20usize)
            .prop_map(|(max_bytes, fails)| Step::Write { max_bytes, fails }),
        1 => Just(Step::DropCleanFrame),
        2 => Just(Step::Release),
        1 => Just(Step::ReleaseBeside),
    ]
}

/// As of a cache that drops what is oldest: frames go back in order, but for a few that stay long
/// (the ring's tail meets them again).
fn step_in_order() -> impl Strategy<Value = Step> {
    let insert = (200..=4096usize).prop_map(|len| Step::Insert {
        len,
        growth: Growth::Allowed,
    });
    prop_oneof![
        40 => insert,
        34 => (1..3usize).prop_map(|skip| Step::RemoveOld { skip }),
        1 => Just(Step::RemoveOld { skip: 0 }),
        2 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => (1..20_000usize, 1..20usize)
            .prop_map(|(max_bytes, fails)| Step::Write { max_bytes, fails }),
        1 => Just(Step::DropCleanFrame),
        2 => Just(Step::Release),
        1 => Just(Step::ReleaseBeside),
    ]
}

/// Bytes that differ between items and within an item.
fn item_bytes(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + number * 31) as u8).collect()
}

/// What the layout should know of an item.
struct Stored {
    handle: Handle,
    bytes: Vec<u8>,
    clean: bool,
}

struct Model<'a> {
    store: &'a mut dyn Checked,
    /// By age.
    items: BTreeMap<usize, Stored>,
    inserted: usize,
    release: Option<Release>,
}

impl<'a> Model<'a> {
    fn new(store: &'a mut dyn Checked) -> Self {
        Model {
            store,
            items: BTreeMap::new(),
            inserted: 0,
            release: None,
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Insert { len, growth } => self.insert(len, growth),
            Step::Remove(which) => {
                if let Some(age) = self.pick(which) {
                    self.remove(age);
                }
            }
            Step::RemoveOld { skip } => {
                if let Some(&age) = self.items.keys().nth(skip) {
                    self.remove(age);
                }
            }
            Step::Relocate => {
                let before = self.store.usage().frames_bytes;
                let freed = self.store.relocate_to_free_cell();
                assert_eq!(freed, self.store.usage().frames_bytes < before);
            }
            Step::SetClean(which, clean) => {
                if let Some(age) = self.pick(which) {
                    self.set_clean(age, clean);
                }
            }
            Step::Write { max_bytes, fails } => self.write(max_bytes, fails),
            Step::DropCleanFrame => self.drop_clean_frame(),
            Step::Release => self.release = self.store.take_release(),
            Step::ReleaseBeside => {
                let release = self.release.take();
                std::thread::spawn(move || drop(release));
            }
        }
        self.check();
    }

    fn insert(&mut self, len: usize, growth: Growth) {
        let before = self.store.usage().frames_bytes;
        let bytes = item_bytes(self.inserted, len);
        match self.store.insert(&bytes, growth) {
            Ok(handle) => self.add(handle, bytes),
            Err(Full) => assert_eq!(growth, Growth::Denied),
        }
        if growth == Growth::Denied {
            assert_eq!(self.store.usage().frames_bytes, before);
        }
    }

    fn add(&mut self, handle: Handle, bytes: Vec<u8>) {
        assert!(self.items.values().all(|item| item.handle != handle));
        let item = Stored {
            handle,
            bytes,
            clean: false,
        };
        self.items.insert(self.inserted, item);
        self.inserted += 1;
    }

    fn remove(&mut self, age: usize) {
        let item = self.items.remove(&age).expect("picked");
        self.store.remove(item.handle);
    }

    fn pick(&self, which: prop::sample::Index) -> Option<usize> {
        let at = (!self.items.is_empty()).then(|| which.index(self.items.len()))?;
        self.items.keys().nth(at).copied()
    }

    fn set_clean(&mut self, age: usize, clean: bool) {
        let item = self.items.get_mut(&age).expect("picked");
        item.clean = clean;
        self.store.set_clean(item.handle, clean);
    }

    /// The ages of items that a layout named, each once.
    fn ages(&self, named: &[Handle]) -> Vec<usize> {
        let once: HashSet<&Handle> = named.iter().collect();
        assert_eq!(once.len(), named.len());
        let age = |handle: &Handle| {
            let mut items = self.items.iter();
            let found = items.find(|(_, item)| item.handle == *handle);
            *found.expect("named items are stored").0
        };
        named.iter().map(age).collect()
    }

    /// What is named is dirty, and no more than asked for and one buffer.
    fn write(&mut self, max_bytes: usize, fails: usize) {
        let mut named = Vec::new();
        let any = self.store.next_dirty(max_bytes, &mut named);
        let any_dirty = self.items.values().any(|item| !item.clean);
        assert_eq!(any, self.store.chooses_frames() && any_dirty);
        assert_eq!(any, !named.is_empty());
        let mut bytes = 0;
        for (number, age) in self.ages(&named).into_iter().enumerate() {
            assert!(!self.items[&age].clean);
            bytes += self.items[&age].bytes.len();
            if number % fails != fails - 1 {
                self.set_clean(age, true);
            }
        }
        assert!(bytes < max_bytes + PAGE_SIZE);
    }

    /// Without the items named, all of them clean, a frame is free.
    fn drop_clean_frame(&mut self) {
        let mut named = Vec::new();
        let any = self.store.next_clean_frame(&mut named);
        assert_eq!(any, self.store.frame_states().clean > 0);
        assert_eq!(any, !named.is_empty());
        let before = self.store.usage().frames_bytes;
        for age in self.ages(&named) {
            assert!(self.items[&age].clean);
            self.remove(age);
        }
        let freed = before - self.store.usage().frames_bytes;
        assert_eq!(any, freed >= PAGE_SIZE as u64);
    }

    fn check(&self) {
        assert!(self.store.is_valid());
        let mut read = Vec::new();
        for Stored { handle, bytes, .. } in self.items.values() {
            read.clear();
            self.store.read_into(*handle, &mut read);
            assert!(read == *bytes, "{handle:?} changed");
        }
        let usage = self.store.usage();
        let payload: usize = self.items.values().map(|item| item.bytes.len()).sum();
        assert_eq!(usage.items, self.items.len() as u64);
        assert_eq!(usage.payload_bytes, payload as u64);
        assert!(usage.frames_bytes >= usage.payload_bytes);
        if self.store.chooses_frames() {
            self.check_states();
        }
    }

    fn check_states(&self) {
        let FrameStates {
            clean,
            full_dirty,
            dirty,
        } = self.store.frame_states();
        let frames = self.store.usage().frames_bytes / PAGE_SIZE as u64;
        assert_eq!(clean + dirty, frames);
        assert!(full_dirty <= dirty);
        assert_eq!(dirty > 0, self.items.values().any(|item| !item.clean));
    }
}

fn follows_the_model(store: &mut dyn Checked, steps: &[Step]) {
    let mut model = Model::new(store);
    for step in steps {
        model.step(step);
    }
    while let Some((&age, _)) = model.items.first_key_value() {
        model.remove(age);
    }
    model.check();
    assert_eq!(model.store.usage().frames_bytes, 0);
}

/// Fills two bins so far that they may keep slack and holes, which the others can then ask for.
fn filled_bins_follow((count, lens): (usize, [usize; 2]), steps: &[Step]) {
    let mut store = Bins::new(16 << 20).expect("reserve");
    let mut model = Model::new(&mut store);
    for number in 0..count {
        let len = lens[number % 2];
        let bytes = item_bytes(number, len);
        let handle = model.store.insert(&bytes, Growth::Allowed).expect("room");
        model.add(handle, bytes);
    }
    for step in steps {
        model.step(step);
    }
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(any_step(), 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bins_follow_the_model(steps in any_steps()) {
        follows_the_model(&mut Bins::new(4 << 20).expect("reserve"), &steps);
    }

    #[test]
    fn blocks_follow_the_model(steps in any_steps()) {
        follows_the_model(&mut Blocks::new(4 << 20).expect("reserve"), &steps);
    }

    #[test]
    fn buffers_follow_the_model(steps in any_steps()) {
        follows_the_model(&mut Buffers::new(4 << 20).expect("reserve"), &steps);
    }

    #[test]
    fn ring_follows_the_model(steps in any_steps()) {
        follows_the_model(&mut Ring::new(4 << 20).expect("reserve"), &steps);
    }

    #[test]
    fn cells_follow_the_model(
        steps in any_steps(),
        pages in prop_oneof![
            Just(PagesPerCell::One),
            Just(PagesPerCell::Two),
            Just(PagesPerCell::Four),
        ],
    ) {
        follows_the_model(&mut Cells::new(pages, 4 << 20).expect("reserve"), &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn bins_with_slack_follow_the_model(
        steps in proptest::collection::vec(any_step(), 100..200)
    ) {
        filled_bins_follow((400, [4096, 2000]), &steps);
    }

    #[test]
    fn bins_with_holes_follow_the_model(
        steps in proptest::collection::vec(any_step(), 100..200),
        items in prop_oneof![
            // Some are left for a second chunk.
            Just((512, [4096, 4096])),
            // Frames with many items, of which few are in reserve.
            Just((2048, [90, 130])),
        ],
    ) {
        filled_bins_follow(items, &steps);
    }

    #[test]
    fn layouts_that_choose_frames_follow_the_model_when_the_oldest_go(
        steps in proptest::collection::vec(step_in_order(), 300..600)
    ) {
        follows_the_model(&mut Buffers::new(4 << 20).expect("reserve"), &steps);
        follows_the_model(&mut Ring::new(4 << 20).expect("reserve"), &steps);
    }
}

#[test]
fn every_listed_layout_exists_and_no_other() {
    for name in layout_names() {
        let layout = layout_by_name(name, 1 << 20).expect("listed");
        assert_eq!(layout.name(), *name);
    }
    assert!(layout_by_name("cells3", 1 << 20).is_none());
}

#[test]
fn used_up_addresses_are_an_error_and_what_is_stored_stays() {
    let page = item_bytes(0, PAGE_SIZE);
    for name in layout_names() {
        let mut store = layout_by_name(name, 0).expect("listed");
        let insert = || store.insert(&page, Growth::Allowed).ok();
        let handles: Vec<Handle> = std::iter::from_fn(insert).collect();
        assert_eq!(store.usage().items, handles.len() as u64, "{name}");
        store.remove(handles[1]);
        assert!(store.insert(&page, Growth::Allowed).is_ok(), "{name}");
        let mut read = Vec::new();
        store.read_into(handles[0], &mut read);
        assert!(read == page, "{name}");
    }
}

#[test]
fn a_removed_handle_is_refused() {
    for name in layout_names() {
        let refused = std::panic::catch_unwind(|| {
            let mut store = layout_by_name(name, 1 << 20).expect("listed");
            let kept = store.insert(b"kept", Growth::Allowed).expect("room");
            let removed = store.insert(b"removed", Growth::Allowed).expect("room");
            store.remove(removed);
            let mut read = Vec::new();
            store.read_into(kept, &mut read);
            assert_eq!(read, b"kept");
            store.read_into(removed, &mut read);
        });
        assert!(refused.is_err(), "{name}");
    }
}
