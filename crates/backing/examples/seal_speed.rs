//! How fast pages are sealed: `cargo run --release -p pleat-backing --example seal_speed`.
//!
//! Closes and opens 20 rounds of 4096 pages by turns on one thread, 64 pages at a time, so that they
//! are in the processor's cache as they are after a codec. The best round counts.

use pleat_backing::{checksum, Identity, Protection, Seal};
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUNDS: u64 = 20;
const PAGES: u64 = 4096;
const BATCH: u64 = 64;

fn main() {
    println!(
        "{:<12}{:<12}{:>6}{:>12}{:>12}",
        "protection", "tag", "bytes", "close ns", "open ns"
    );
    for protection in [Protection::Encrypted, Protection::Checked] {
        for (place, behind) in [("behind", 16), ("in table", 0)] {
            for len in [1300, 4096] {
                let seal = Seal::new(protection).expect("a seal");
                let rounds = (0..ROUNDS).map(|round| measure(&seal, round, len, len + behind));
                let (close, open) = rounds.fold((f64::MAX, f64::MAX), |best, now| {
                    (best.0.min(now.0), best.1.min(now.1))
                });
                let name = format!("{protection:?}");
                println!("{name:<12}{place:<12}{len:>6}{close:>12.0}{open:>12.0}");
            }
        }
    }
    let page = vec![7; 4096];
    let start = Instant::now();
    for _ in 0..PAGES {
        black_box(checksum(black_box(&page)));
    }
    println!("checksum of 4096 bytes: {:.0} ns", each(start.elapsed()));
}

/// Nanoseconds to close and to open a page of `len` bytes.
fn measure(seal: &Seal, round: u64, len: usize, room_bytes: usize) -> (f64, f64) {
    let mut rooms = vec![vec![round as u8; room_bytes]; BATCH as usize];
    let (mut close, mut open) = (Duration::ZERO, Duration::ZERO);
    for batch in 0..PAGES / BATCH {
        let identity = |number: usize| Identity {
            serial: round * PAGES + batch,
            offset: (batch * BATCH + number as u64) * 8192,
            codec: 1,
        };
        let start = Instant::now();
        for (number, room) in rooms.iter_mut().enumerate() {
            seal.close(identity(number), room, len);
        }
        close += start.elapsed();
        let start = Instant::now();
        for (number, room) in rooms.iter_mut().enumerate() {
            seal.open(identity(number), room, len)
                .expect("what was closed");
        }
        open += start.elapsed();
    }
    (each(close), each(open))
}

fn each(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9 / PAGES as f64
}
