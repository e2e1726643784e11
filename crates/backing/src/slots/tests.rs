//! What must hold of `SlotSpace`, by example and against a model that is a plain array of flags.

use super::*;
use proptest::prelude::*;

const KIB: u64 = 1024;

/// The same space as an array of "in use", too slow and too simple to be wrong.
struct Model {
    used: Vec<bool>,
    live: Vec<Extent>,
}

impl Model {
    fn mark(&mut self, extent: Extent, in_use: bool) {
        let first = (extent.offset / KIB) as usize;
        let count = extent.bytes.div_ceil(1024) as usize;
        for flag in &mut self.used[first..first + count] {
            assert_ne!(*flag, in_use, "{extent:?} overlaps");
            *flag = in_use;
        }
    }

    fn used_bytes(&self) -> u64 {
        self.used.iter().filter(|&&flag| flag).count() as u64 * KIB
    }

    /// Whether some region has a free run of `want` fragments.
    fn has_room(&self, want: usize) -> bool {
        self.used
            .chunks(REGION_FRAGMENTS as usize)
            .any(|region| region.split(|&flag| flag).any(|run| run.len() >= want))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(u32),
    Free(prop::sample::Index),
    FreeHalf(prop::sample::Index),
    TakeHoles(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1u32..20_000).prop_map(Step::Allocate),
        2 => (1u32..34_000_000).prop_map(Step::Allocate),
        3 => any::<prop::sample::Index>().prop_map(Step::Free),
        1 => any::<prop::sample::Index>().prop_map(Step::FreeHalf),
        1 => (1u64..100_000).prop_map(Step::TakeHoles),
    ]
}

fn run_step(space: &mut SlotSpace, model: &mut Model, step: &Step) {
    match step {
        Step::Allocate(bytes) => allocate(space, model, *bytes),
        Step::Free(index) if !model.live.is_empty() => {
            let extent = model.live.swap_remove(index.index(model.live.len()));
            model.mark(extent, false);
            space.free(extent);
        }
        Step::FreeHalf(index) if !model.live.is_empty() => {
            let index = index.index(model.live.len());
            let extent = &mut model.live[index];
            let front = Extent {
                bytes: extent.bytes / 2 / 1024 * 1024,
                ..*extent
            };
            extent.offset += u64::from(front.bytes);
            extent.bytes -= front.bytes;
            model.mark(front, false);
            space.free(front);
        }
        Step::TakeHoles(min_bytes) => {
            for (offset, bytes) in space.take_holes(*min_bytes) {
                assert!(bytes >= *min_bytes);
                assert!(offset + bytes <= space.high_water_bytes());
                let run = (offset / KIB) as usize..((offset + bytes) / KIB) as usize;
                assert!(!model.used[run].contains(&true), "a hole is in use");
            }
        }
        Step::Free(_) | Step::FreeHalf(_) => {}
    }
}

fn allocate(space: &mut SlotSpace, model: &mut Model, bytes: u32) {
    let want = bytes.div_ceil(1024);
    match space.allocate(bytes) {
        Some(extent) => {
            assert_eq!(extent.bytes, bytes);
            model.mark(extent, true);
            model.live.push(extent);
        }
        None => assert!(want > REGION_FRAGMENTS || !model.has_room(want as usize)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The model panics on overlap and beyond the limit (its array ends there).
    #[test]
    fn agrees_with_the_model(
        fragments in 1usize..100_000,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut space = SlotSpace::new(1024, Some(fragments as u64 * KIB));
        let mut model = Model { used: vec![false; fragments], live: Vec::new() };
        for step in &steps {
            run_step(&mut space, &mut model, step);
            prop_assert_eq!(space.used_bytes(), model.used_bytes());
            prop_assert!(space.used_bytes() <= space.high_water_bytes());
        }
        for extent in std::mem::take(&mut model.live) {
            space.free(extent);
        }
        fill_with_single_fragments(&mut space, fragments);
    }
}

fn fill_with_single_fragments(space: &mut SlotSpace, fragments: usize) {
    let mut seen = vec![false; fragments];
    while let Some(extent) = space.allocate(1) {
        let flag = &mut seen[(extent.offset / KIB) as usize];
        assert!(
            !std::mem::replace(flag, true),
            "{extent:?} was given out twice"
        );
    }
    assert!(!seen.contains(&false), "freed space was not used again");
}

#[test]
fn clusters_follow_one_another_while_the_file_grows() {
    let mut space = SlotSpace::new(1024, None);
    for number in 0..1000 {
        let cluster = space.allocate(256 * 1024).unwrap();
        assert_eq!(cluster.offset, number * 256 * KIB);
    }
}

#[test]
fn the_file_stops_growing_when_what_is_freed_suffices() {
    let mut space = SlotSpace::new(1024, None);
    let mut live = std::collections::VecDeque::new();
    for _ in 0..20_000 {
        live.push_back(space.allocate(256 * 1024).unwrap());
        if live.len() > 400 {
            space.free(live.pop_front().unwrap());
        }
    }
    let live_bytes = 400 * 256 * KIB;
    assert_eq!(space.used_bytes(), live_bytes);
    assert!(space.high_water_bytes() <= 2 * live_bytes);
}

#[test]
fn a_full_space_says_so_and_takes_a_freed_item_back() {
    let mut space = SlotSpace::new(1024, Some(10 * KIB));
    let cluster = space.allocate(10 * 1024).unwrap();
    assert_eq!(space.allocate(1), None);
    let item = Extent {
        offset: cluster.offset + 3 * KIB,
        bytes: 1500,
    };
    space.free(item);
    assert_eq!(space.used_bytes(), 8 * KIB);
    assert_eq!(
        space.allocate(2048).map(|extent| extent.offset),
        Some(3 * KIB)
    );
}

#[test]
fn nothing_fits_into_less_than_a_fragment() {
    assert_eq!(SlotSpace::new(1024, Some(1023)).allocate(1), None);
    assert_eq!(SlotSpace::new(1024, None).allocate(0), None);
}

#[test]
#[should_panic(expected = "never allocated")]
fn freeing_what_was_never_allocated_is_caught() {
    SlotSpace::new(1024, None).free(Extent {
        offset: 0,
        bytes: 1,
    });
}
