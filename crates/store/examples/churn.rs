//! What the layouts cost: bytes held per byte of items, and ns per operation.
//!
//! `cargo run --release -p pleat-store --example churn -- [MIB]`. Three phases each: *random*
//! replaces random items by new ones, growth allowed; *fifo* keeps the frames held at what they
//! are, growth denied, and removes the oldest items until the next one fits; *shrunk* is what is
//! still held after a random nine tenths have been removed.

use std::collections::VecDeque;
use std::time::Instant;

use pleat_store::{layout_by_name, layout_names, Full, Growth, Handle, Layout};

/// Percentiles 0 to 100 of the LZ4 sizes of 9,114 pages of nine programs and file collections
/// (the Linux programs CPython, NumPy, pandas, cc1plus, redis, OpenJDK, GNU sort; sources; ELF
/// files). Pages over 3/4 are stored raw.
const SIZE_PERCENTILES: [usize; 101] = [
    31, 171, 201, 237, 360, 461, 521, 563, 610, 658, 682, 705, 741, 780, 823, 869, 917, 968, 1011,
    1039, 1048, 1079, 1108, 1136, 1161, 1183, 1209, 1236, 1270, 1299, 1326, 1370, 1417, 1453, 1484,
    1521, 1560, 1594, 1638, 1699, 1761, 1799, 1835, 1867, 1901, 1939, 1978, 2013, 2036, 2057, 2078,
    2104, 2132, 2153, 2167, 2178, 2188, 2198, 2207, 2216, 2222, 2227, 2233, 2238, 2243, 2247, 2254,
    2266, 2287, 2308, 2336, 2361, 2387, 2409, 2437, 2461, 2486, 2509, 2546, 2594, 2700, 2812, 2968,
    4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096,
    4096, 4096,
];

/// Each phase of operations replaces this many times the number of items.
const ROUNDS: usize = 3;

/// xorshift: the same sizes and choices for every layout.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * bound as u128) >> 64) as usize
    }

    /// A size between two neighbouring percentiles; none between the largest compressed page and
    /// a raw one.
    fn size(&mut self) -> usize {
        let low = self.below(100);
        let (from, to) = (SIZE_PERCENTILES[low], SIZE_PERCENTILES[low + 1]);
        if to == 4096 {
            return to;
        }
        from + self.below(to - from + 1)
    }
}

fn main() {
    let mib = std::env::args().nth(1).and_then(|mib| mib.parse().ok());
    let sizes_mib = mib.map_or_else(|| vec![8, 64, 512], |mib: u64| vec![mib]);
    println!(
        "{:<8} {:>5} | {:>9} {:>9} {:>7} | {:>9} {:>7} | {:>9}",
        "layout", "MiB", "filled", "random", "ns/op", "fifo", "ns/op", "shrunk"
    );
    for mib in sizes_mib {
        for name in layout_names() {
            match layout_by_name(name, mib << 21) {
                Some(store) => churn(store, mib),
                None => println!("{name:<8} {mib:>5} | SKIPPED: no address space"),
            }
        }
    }
}

fn churn(mut store: Box<dyn Layout>, mib: u64) {
    let store = store.as_mut();
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let page: Vec<u8> = (0..4096usize).map(|i| (i * 31 / 7) as u8).collect();
    let mut handles = fill(store, mib << 20, &page, &mut random);
    let filled = held_per_payload(store);
    let (random_held, random_ns) = replace_random(store, &mut handles, &page, &mut random);
    let (fifo_held, fifo_ns) = replace_oldest(store, &mut handles, &page, &mut random);
    let keep = handles.len() / 10;
    while handles.len() > keep {
        let which = random.below(handles.len());
        store.remove(handles.swap_remove(which));
    }
    println!(
        "{:<8} {mib:>5} | {filled:>9.3} {random_held:>9.3} {random_ns:>7.0} | {fifo_held:>9.3} \
         {fifo_ns:>7.0} | {:>9.3}",
        store.name(),
        held_per_payload(store)
    );
}

fn held_per_payload(store: &dyn Layout) -> f64 {
    let usage = store.usage();
    (usage.frames_bytes + usage.metadata_bytes) as f64 / usage.payload_bytes as f64
}

fn fill(store: &mut dyn Layout, bytes: u64, page: &[u8], random: &mut Random) -> Vec<Handle> {
    let mut handles = Vec::new();
    while store.usage().payload_bytes < bytes {
        let size = random.size();
        let handle = store.insert(&page[..size], Growth::Allowed);
        handles.push(handle.unwrap_or_else(|Full| panic!("growth is allowed")));
    }
    handles
}

/// Replaces random items. Returns bytes held per byte of items at the end, and ns per operation.
fn replace_random(
    store: &mut dyn Layout,
    handles: &mut [Handle],
    page: &[u8],
    random: &mut Random,
) -> (f64, f64) {
    let start = Instant::now();
    let count = handles.len() * ROUNDS;
    for _ in 0..count {
        let which = random.below(handles.len());
        store.remove(handles[which]);
        let size = random.size();
        handles[which] = store
            .insert(&page[..size], Growth::Allowed)
            .unwrap_or_else(|Full| panic!("growth is allowed"));
    }
    let ns = start.elapsed().as_nanos() as f64 / (2 * count) as f64;
    (held_per_payload(store), ns)
}

/// Inserts new items into the frames held, removing the oldest until they fit.
fn replace_oldest(
    store: &mut dyn Layout,
    handles: &mut Vec<Handle>,
    page: &[u8],
    random: &mut Random,
) -> (f64, f64) {
    let budget_bytes = store.usage().frames_bytes;
    let mut oldest_first = VecDeque::from(std::mem::take(handles));
    let inserts = oldest_first.len() * ROUNDS;
    let mut operations = 0;
    let start = Instant::now();
    for _ in 0..inserts {
        let bytes = &page[..random.size()];
        loop {
            operations += 1;
            let growth = if store.usage().frames_bytes + 16384 <= budget_bytes {
                Growth::Allowed
            } else {
                Growth::Denied
            };
            if let Ok(handle) = store.insert(bytes, growth) {
                oldest_first.push_back(handle);
                break;
            }
            if let Some(handle) = oldest_first.pop_front() {
                store.remove(handle);
            }
        }
    }
    let ns = start.elapsed().as_nanos() as f64 / operations as f64;
    *handles = oldest_first.into();
    (held_per_payload(store), ns)
}
