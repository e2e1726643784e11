//! How fast the backing is: `cargo run --release -p pleat-backing --example backing_speed [DIR]`.
//!
//! Writes 1 GiB of clusters into a swap file in DIR (default: the current directory), reads small
//! items back at random and in order, and times the slot map with 40 million fragments.

use pleat_backing::{Extent, SlotSpace, SwapFile};
use std::path::PathBuf;
use std::time::Instant;

const CLUSTER_BYTES: u32 = 256 * 1024;
const CLUSTERS: u64 = 4096;
const ITEMS: u64 = 8000;

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
    let dir = std::env::args_os()
        .nth(1)
        .map_or(PathBuf::from("."), PathBuf::from);
    swap_file(&dir);
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

fn swap_file(dir: &std::path::Path) {
    let swap = SwapFile::create(dir).expect("swap file");
    let mut random = Random(1);
    let data: Vec<u8> = (0..CLUSTER_BYTES)
        .map(|_| random.below(256) as u8)
        .collect();
    for pass in ["write, new file", "write, over old data"] {
        report(pass, CLUSTERS, "cluster", || {
            for number in 0..CLUSTERS {
                swap.write_at(number * u64::from(CLUSTER_BYTES), &data)
                    .expect("write");
            }
        });
    }
    let fragments = CLUSTERS * u64::from(CLUSTER_BYTES) / 1024;
    let mut item = vec![0; 4096];
    report("read 1 to 4 KiB at random", ITEMS, "read", || {
        for _ in 0..ITEMS {
            let len = 1024 * (1 + random.below(4) as usize);
            swap.read_at(random.below(fragments - 4) * 1024, &mut item[..len])
                .expect("read");
        }
    });
    report("read 2 KiB in order", ITEMS, "read", || {
        for number in 0..ITEMS {
            swap.read_at(number * 2048, &mut item[..2048])
                .expect("read");
        }
    });
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
