//! Small boxes in a map, long vectors, and threads that fill memory of their own; all of it is checked.
//! Compiled by rustc alone, for the C libraries that there are.
//!
//!     heap MIB STATUS

use std::collections::HashMap;
use std::sync::{Arc, Barrier};
use std::thread;

const THREADS: usize = 4;
const LONG: usize = 1 << 20;
/// What a box takes with its entry in the map, roughly.
const SMALL: usize = 256;

fn long(salt: usize) -> Vec<u8> {
    (0..LONG)
        .map(|at| ((at / 64 * 31 + salt) >> 3) as u8)
        .collect()
}

fn is_long(vector: &[u8], salt: usize) -> bool {
    vector.len() == LONG
        && vector
            .iter()
            .enumerate()
            .all(|(at, &byte)| byte == ((at / 64 * 31 + salt) >> 3) as u8)
}

/// Half of it small, half of it long. Checked once every thread has its own.
fn work(mib: usize, salt: usize, filled: &Barrier) -> usize {
    let count = (mib << 20) / 2 / SMALL;
    let small: HashMap<usize, Box<[usize; 20]>> = (0..count)
        .map(|key| (key, Box::new([key ^ salt; 20])))
        .collect();
    let vectors: Vec<Vec<u8>> = (0..mib / 2).map(|nth| long(salt + nth)).collect();
    filled.wait();
    let small_wrong = (0..count)
        .filter(|key| *small[key] != [*key ^ salt; 20])
        .count();
    let long_wrong = vectors
        .iter()
        .enumerate()
        .filter(|(nth, vector)| !is_long(vector, salt + nth))
        .count();
    small_wrong + long_wrong
}

fn main() {
    let mut words = std::env::args()
        .skip(1)
        .map(|word| word.parse().expect("a number"));
    let (mib, status) = (words.next().expect("MIB"), words.next().unwrap_or(0));
    let filled = Arc::new(Barrier::new(THREADS));
    let start = |nth| {
        let filled = Arc::clone(&filled);
        thread::spawn(move || work(mib / THREADS, nth, &filled))
    };
    let threads: Vec<_> = (0..THREADS).map(start).collect();
    let wrong: Vec<usize> = threads
        .into_iter()
        .map(|thread| thread.join().expect("no panic"))
        .collect();
    println!("wrong: {wrong:?}");
    std::process::exit(status as i32);
}
