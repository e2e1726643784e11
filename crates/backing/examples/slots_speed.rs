//! How fast the map of the swap file is: `cargo run --release -p pleat-backing --example slots_speed`.
//!
//! Times allocating and freeing with 40 million fragments.

use pleat_backing::{Extent, SlotSpace};
use std::time::Instant;

const CLUSTER_BYTES: u32 = 256 * 1024;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

fn main() {
    slots_in_order_of_age();
    slots_at_random();
}

fn report<T>(what: &str, count: u64, unit: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let each = start.elapsed().as_secs_f64() * 1e6 / count as f64;
    println!("{what:<44} {each:>9.3} us/{unit}");
    result
}

fn slots_in_order_of_age() {
    let mut space = SlotSpace::new(1024, Some(40_000_000 * 1024));
    let mut live = std::collections::VecDeque::new();
    while let Some(cluster) = space.allocate(CLUSTER_BYTES) {
        live.push_back(cluster);
    }
    report(
        "full map: free oldest cluster, allocate",
        1_000_000,
        "pair",
        || {
            for _ in 0..1_000_000 {
                space.free(live.pop_front().expect("clusters"));
                live.push_back(space.allocate(CLUSTER_BYTES).expect("room"));
            }
        },
    );
}

fn slots_at_random() {
    let mut space = SlotSpace::new(1024, Some(40_000_000 * 1024));
    let mut random = Random(2);
    let mut live: Vec<Extent> = Vec::new();
    while let Some(item) = space.allocate(1024 * (1 + random.below(4) as u32)) {
        live.push(item);
    }
    for _ in 0..live.len() / 5 {
        let chosen = random.below(live.len() as u64) as usize;
        space.free(live.swap_remove(chosen));
    }
    report(
        "4/5 full, items: free one, allocate one",
        1_000_000,
        "pair",
        || {
            for _ in 0..1_000_000 {
                let chosen = random.below(live.len() as u64) as usize;
                space.free(live.swap_remove(chosen));
                if let Some(item) = space.allocate(1024 * (1 + random.below(4) as u32)) {
                    live.push(item);
                }
            }
        },
    );
    report("... a cluster that fits nowhere", 10_000, "call", || {
        for _ in 0..10_000 {
            assert_eq!(space.allocate(CLUSTER_BYTES), None);
        }
    });
}
