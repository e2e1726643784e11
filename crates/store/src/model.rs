//! Every layout against a map from handles to bytes: random steps, and after each the layout must
//! hold the same items and its invariants.

use std::collections::{HashMap, HashSet};

use pleat_types::PAGE_SIZE;
use proptest::prelude::*;

use crate::{
    layout_by_name, layout_names, Bins, Blocks, Buffers, Cells, FrameStates, Full, Growth, Handle,
    Layout, PagesPerCell, Ring,
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
    Relocate,
    SetClean(prop::sample::Index, bool),
    /// Writes the next dirty items; the write fails for every so manieth item.
    Write {
        max_bytes: usize,
        fails: usize,
    },
    DropCleanFrame,
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
    ]
}

/// Bytes that differ between items and within an item.
fn item_bytes(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + number * 31) as u8).collect()
}

struct Model<'a> {
    store: &'a mut dyn Checked,
    items: HashMap<Handle, Vec<u8>>,
    clean: HashSet<Handle>,
    inserted: usize,
}

impl Model<'_> {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Insert { len, growth } => self.insert(len, growth),
            Step::Remove(which) => self.remove(which),
            Step::Relocate => {
                let before = self.store.usage().frames_bytes;
                let freed = self.store.relocate_to_free_cell();
                assert_eq!(freed, self.store.usage().frames_bytes < before);
            }
            Step::SetClean(which, clean) => {
                if let Some(handle) = self.pick(which) {
                    self.set_clean(handle, clean);
                }
            }
            Step::Write { max_bytes, fails } => self.write(max_bytes, fails),
            Step::DropCleanFrame => self.drop_clean_frame(),
        }
        self.check();
    }

    fn insert(&mut self, len: usize, growth: Growth) {
        let before = self.store.usage().frames_bytes;
        let bytes = item_bytes(self.inserted, len);
        self.inserted += 1;
        match self.store.insert(&bytes, growth) {
            Ok(handle) => assert!(self.items.insert(handle, bytes).is_none()),
            Err(Full) => assert_eq!(growth, Growth::Denied),
        }
        if growth == Growth::Denied {
            assert_eq!(self.store.usage().frames_bytes, before);
        }
    }

    fn remove(&mut self, which: prop::sample::Index) {
        if let Some(handle) = self.pick(which) {
            self.remove_item(handle);
        }
    }

    fn remove_item(&mut self, handle: Handle) {
        self.store.remove(handle);
        self.items.remove(&handle);
        self.clean.remove(&handle);
    }

    fn pick(&self, which: prop::sample::Index) -> Option<Handle> {
        let mut handles: Vec<Handle> = self.items.keys().copied().collect();
        handles.sort_by_key(|handle| handle.0);
        (!handles.is_empty()).then(|| *which.get(&handles))
    }

    fn set_clean(&mut self, handle: Handle, clean: bool) {
        self.store.set_clean(handle, clean);
        if clean {
            self.clean.insert(handle);
        } else {
            self.clean.remove(&handle);
        }
    }

    /// What is named is dirty, named once, and no more than asked for and one buffer.
    fn write(&mut self, max_bytes: usize, fails: usize) {
        let mut named = Vec::new();
        let any = self.store.next_dirty(max_bytes, &mut named);
        let all_clean = self.clean.len() == self.items.len();
        assert_eq!(any, self.store.chooses_frames() && !all_clean);
        assert_eq!(any, !named.is_empty());
        let once: HashSet<Handle> = named.iter().copied().collect();
        assert_eq!(once.len(), named.len());
        assert!(once.is_disjoint(&self.clean));
        let bytes: usize = named.iter().map(|handle| self.items[handle].len()).sum();
        assert!(bytes < max_bytes + PAGE_SIZE);
        for (number, handle) in named.into_iter().enumerate() {
            if number % fails != fails - 1 {
                self.set_clean(handle, true);
            }
        }
    }

    /// Without the items named, all of them clean, a frame is free.
    fn drop_clean_frame(&mut self) {
        let mut named = Vec::new();
        let any = self.store.next_clean_frame(&mut named);
        assert_eq!(any, self.store.frame_states().clean > 0);
        assert_eq!(any, !named.is_empty());
        let before = self.store.usage().frames_bytes;
        for handle in named {
            assert!(self.clean.contains(&handle));
            self.remove_item(handle);
        }
        let freed = before - self.store.usage().frames_bytes;
        assert_eq!(any, freed >= PAGE_SIZE as u64);
    }

    fn check(&self) {
        assert!(self.store.is_valid());
        let mut read = Vec::new();
        for (handle, bytes) in &self.items {
            read.clear();
            self.store.read_into(*handle, &mut read);
            assert!(read == *bytes, "{handle:?} changed");
        }
        let usage = self.store.usage();
        let payload: usize = self.items.values().map(Vec::len).sum();
        assert_eq!(usage.items, self.items.len() as u64);
        assert_eq!(usage.payload_bytes, payload as u64);
        assert!(usage.frames_bytes >= usage.payload_bytes);
        if self.store.chooses_frames() {
            self.check_states();
        }
    }
}

impl Model<'_> {
    fn check_states(&self) {
        let FrameStates {
            clean,
            full_dirty,
            dirty,
        } = self.store.frame_states();
        let frames = self.store.usage().frames_bytes / PAGE_SIZE as u64;
        assert_eq!(clean + dirty, frames);
        assert!(full_dirty <= dirty);
        assert_eq!(dirty > 0, self.clean.len() < self.items.len());
    }
}

fn follows_the_model(store: &mut dyn Checked, steps: &[Step]) {
    let mut model = Model {
        store,
        items: HashMap::new(),
        clean: HashSet::new(),
        inserted: 0,
    };
    for step in steps {
        model.step(step);
    }
    for handle in std::mem::take(&mut model.items).into_keys() {
        model.store.remove(handle);
    }
    model.check();
    assert_eq!(model.store.usage().frames_bytes, 0);
}

/// Fills two bins so far that they may keep slack, which the others can then ask for.
fn bins_with_slack_follow(steps: &[Step]) {
    let mut store = Bins::new(16 << 20).expect("reserve");
    let mut model = Model {
        store: &mut store,
        items: HashMap::new(),
        clean: HashSet::new(),
        inserted: 0,
    };
    for number in 0..400 {
        let len = if number % 2 == 0 { 4096 } else { 2000 };
        let bytes = item_bytes(number, len);
        let handle = model.store.insert(&bytes, Growth::Allowed).expect("room");
        model.items.insert(handle, bytes);
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
        bins_with_slack_follow(&steps);
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
