//! What the default layout may cost while items of all sizes come and go: the mark that zsmalloc
//! sets and misses (see the example `churn`).

use pleat_store::{layout_by_name, Growth, Handle, Layout};

const PAYLOAD_BYTES: u64 = 32 << 20;
/// Replacements per item.
const ROUNDS: usize = 3;

/// xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    /// Small pages, where overhead weighs most: 840 bytes on average, one in 32 raw.
    fn size(&mut self) -> usize {
        match self.below(32) {
            0 => 4096,
            _ => 300 + self.below(850),
        }
    }
}

fn insert(store: &mut dyn Layout, random: &mut Random) -> Handle {
    let bytes = vec![1; random.size()];
    store.insert(&bytes, Growth::Allowed).expect("room")
}

#[test]
fn the_default_layout_holds_at_most_6_percent_more_than_its_items() {
    let mut store = layout_by_name("bins", 2 * PAYLOAD_BYTES).expect("listed");
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut handles = Vec::new();
    while store.usage().payload_bytes < PAYLOAD_BYTES {
        handles.push(insert(store.as_mut(), &mut random));
    }
    for _ in 0..handles.len() * ROUNDS {
        let which = random.below(handles.len());
        store.remove(handles[which]);
        handles[which] = insert(store.as_mut(), &mut random);
    }
    let usage = store.usage();
    let held = (usage.frames_bytes + usage.metadata_bytes) as f64;
    let share = held / usage.payload_bytes as f64;
    assert!(share <= 1.06, "{share}");
    // The handle in front of each item counts as frames.
    let per_item = usage.metadata_bytes as f64 / usage.items as f64 + size_of::<Handle>() as f64;
    assert!(per_item <= 16.0, "{per_item}");
}
