//! Pages such as heaps are made of, generated: for measuring and fuzzing where there is no real
//! sample. Real memory compresses differently; figures of these pages only compare builds.

use super::{Pool, Random};
use pleat_types::{Page, PAGE_SIZE};

/// Makes a page of its kind.
type Make = fn(&mut Random) -> Page;

const KINDS: [(&str, Make); 6] = [
    ("pointers", objects),
    ("integers", integers),
    ("text", text),
    ("floats", floats),
    ("sparse", sparse),
    ("noise", |random| of_words(|_| random.next())),
];

/// Pools of `pages` pages each, the same at every call.
pub fn typical_pools(pages: usize) -> Vec<Pool> {
    let pool = |(seed, (name, make)): (usize, &(&str, Make))| {
        let mut random = Random::new(seed as u64);
        Pool {
            name: (*name).into(),
            pages: (0..pages).map(|_| make(&mut random)).collect(),
        }
    };
    KINDS.iter().enumerate().map(pool).collect()
}

fn of_words(mut word: impl FnMut(usize) -> u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    for (number, bytes) in page.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&word(number).to_le_bytes());
    }
    page
}

/// Objects of an interpreter: count of references, type, length, hash or flags, pointers to
/// neighbours, on a heap of 64 MiB.
fn objects(random: &mut Random) -> Page {
    const HEAP: u64 = 0x7F3A_4000_0000;
    let mut near = HEAP + random.below(1 << 26);
    of_words(|number| match number % 6 {
        0 => 1 + random.below(4),
        1 => HEAP - 0x10_0000 + 0x1A0 * random.below(8),
        2 => random.below(40),
        3 if random.below(3) == 0 => random.next(),
        3 => 0,
        _ => {
            near += 16 * random.below(64);
            near & !15
        }
    })
}

/// Counters, identifiers in sequence, and indices of 32 bits.
fn integers(random: &mut Random) -> Page {
    let first = random.below(1 << 20);
    let bound = 1 << (4 + random.below(10));
    of_words(|number| match number % 4 {
        0 => first + number as u64,
        1 => random.below(bound),
        _ => (random.below(bound) << 32) | random.below(bound),
    })
}

/// Words, the first of the list more often, in lines.
fn text(random: &mut Random) -> Page {
    const WORDS: [&str; 24] = [
        "the",
        "of",
        "page",
        "and",
        "memory",
        "is",
        "to",
        "in",
        "a",
        "that",
        "return",
        "const",
        "value",
        "\"name\":",
        "struct",
        "0x7f",
        "static",
        "error",
        "{",
        "};",
        "2026-11-21",
        "https://",
        "compression",
        "supervisor",
    ];
    let mut text = Vec::with_capacity(PAGE_SIZE + 16);
    while text.len() < PAGE_SIZE {
        let at = random.below(24) * random.below(24) / 24;
        text.extend_from_slice(WORDS[at as usize].as_bytes());
        match random.below(12) {
            0 => text.extend_from_slice(b",\n    "),
            1 => text.extend_from_slice(random.below(10_000).to_string().as_bytes()),
            _ => text.push(b' '),
        }
    }
    std::array::from_fn(|at| text[at])
}

/// Doubles: measured values with all their digits, or prices with two.
fn floats(random: &mut Random) -> Page {
    let exact = random.below(2) == 0;
    let mut value = random.below(1000) as f64;
    of_words(|_| {
        value += (random.below(2001) as f64 - 1000.0) / 1e4;
        let noise = random.below(1 << 30) as f64 / 1e12;
        match exact {
            true => (value + noise).to_bits(),
            false => ((value * 100.0).round() / 100.0).to_bits(),
        }
    })
}

/// Freshly initialised memory: some records among zeros, now and then nothing at all.
fn sparse(random: &mut Random) -> Page {
    let share = random.below(8);
    of_words(|number| match random.below(16) < share {
        true => (number as u64 * 8) | (random.below(4) << 40),
        false => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pools_are_the_same_at_every_call_and_compress_as_they_should() {
        let (pools, again) = (typical_pools(32), typical_pools(32));
        assert!(pools.iter().zip(&again).all(|(a, b)| a.pages == b.pages));
        for measured in crate::measure::measure(&pools, &["lz4"], &|_| ()).expect("lz4") {
            let bytes = match measured.pool.as_str() {
                "noise" => 4096.0..4097.0,
                "floats" | "integers" => 1500.0..4096.0,
                "sparse" => 100.0..1500.0,
                _ => 800.0..3072.0,
            };
            assert!(bytes.contains(&measured.bytes), "{measured:?}");
        }
    }
}
