//! How long the swap file takes to answer:
//! `cargo run --release -p pleat-backing --example backing_latency [DIR]`.
//!
//! Writes 512 MiB in clusters, eight in flight, into a swap file in DIR (default: the current
//! directory), then reads 4 KiB at random, one at a time, sleeping and spinning, and while another thread
//! writes to new places; with io_uring and with threads.

use pleat_backing::{
    Backing, Buffer, Completion, DirectFile, Patience, Queue, Request, Rings, Transfer,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CLUSTER_BYTES: usize = 256 * 1024;
const CLUSTERS: u64 = 2048;
const DEPTH: u32 = 8;
const READS: u64 = 2000;
const PAGE_BYTES: usize = 4096;
const LIMIT: Duration = Duration::from_secs(30);

fn main() {
    let dir = std::env::args_os()
        .nth(1)
        .map_or(PathBuf::from("."), PathBuf::from);
    for rings in [Rings::WherePossible, Rings::Never] {
        measure(&dir, rings);
    }
}

fn measure(dir: &Path, rings: Rings) {
    let store = DirectFile::create(dir, rings).expect("a swap file");
    println!("{} ({})", store.name(), store.describe());
    let mut queue = store.queue(DEPTH).expect("a queue");
    for pass in ["write, new file", "write, over old data"] {
        let mut writing = store.queue_for_writes(DEPTH).expect("a queue");
        let seconds = write_clusters(&mut *writing, 0);
        let mib = (CLUSTERS as usize * CLUSTER_BYTES) >> 20;
        println!("  {pass:<24} {:>8.0} MiB/s", mib as f64 / seconds);
    }
    for (how, patience) in [
        ("read, sleeping", Patience::Sleep(LIMIT)),
        ("read, spinning", Patience::Spin(LIMIT)),
    ] {
        report(how, read_pages(&mut *queue, patience));
    }
    std::thread::scope(|scope| {
        let mut writing = store.queue_for_writes(DEPTH).expect("a queue");
        let writer = scope.spawn(move || write_clusters(&mut *writing, CLUSTERS));
        let mut taken = Vec::new();
        while !writer.is_finished() {
            taken.extend(read_pages(&mut *queue, Patience::Sleep(LIMIT)));
        }
        report("read, beside writes", taken);
    });
}

fn report(how: &str, mut taken: Vec<Duration>) {
    taken.sort();
    let [median, late] = [taken.len() / 2, taken.len() * 99 / 100].map(|at| taken[at]);
    println!("  {how:<24} {median:>8.1?} median, {late:.1?} for 99%");
}

/// Seconds for all of them.
fn write_clusters(queue: &mut dyn Queue, first: u64) -> f64 {
    let start = Instant::now();
    let mut spare: Vec<Buffer> = (0..DEPTH).map(|_| Buffer::new(CLUSTER_BYTES)).collect();
    for number in first..first + CLUSTERS {
        let mut buffer = match spare.pop() {
            Some(buffer) => buffer,
            None => finish(queue, Patience::Sleep(LIMIT), &mut spare),
        };
        buffer[..8].copy_from_slice(&number.to_ne_bytes());
        queue.submit(Request {
            id: number,
            transfer: Transfer::Write,
            offset: number * CLUSTER_BYTES as u64,
            buffer,
        });
    }
    while queue.in_flight() > 0 {
        let buffer = finish(queue, Patience::Sleep(LIMIT), &mut spare);
        spare.push(buffer);
    }
    start.elapsed().as_secs_f64()
}

/// The buffer of one transfer that is done; those of others that are go to `spare`.
fn finish(queue: &mut dyn Queue, patience: Patience, spare: &mut Vec<Buffer>) -> Buffer {
    let mut done: Vec<Completion> = Vec::new();
    queue.complete(patience, &mut done);
    spare.extend(done.into_iter().map(|completion| {
        completion.result.expect("a transfer");
        completion.buffer
    }));
    spare.pop().expect("an answer in time")
}

fn read_pages(queue: &mut dyn Queue, patience: Patience) -> Vec<Duration> {
    let pages = CLUSTERS * (CLUSTER_BYTES / PAGE_BYTES) as u64;
    let mut buffer = Buffer::new(PAGE_BYTES);
    let mut random = 1u64;
    let mut taken = Vec::new();
    for id in 0..READS {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
        let start = Instant::now();
        queue.submit(Request {
            id,
            transfer: Transfer::Read,
            offset: (random >> 33) % pages * PAGE_BYTES as u64,
            buffer,
        });
        buffer = finish(queue, patience, &mut Vec::new());
        taken.push(start.elapsed());
    }
    taken
}
