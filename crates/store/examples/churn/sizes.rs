//! The sizes that items have: from a file with one per line, or those of a mix of programs.

use std::fs;

/// Percentiles 0 to 100 of the LZ4 sizes of 9,114 pages of nine programs and file collections
/// (the Linux programs CPython, NumPy, pandas, cc1plus, redis, OpenJDK, GNU sort; sources; ELF
/// files). Pages over 3/4 are stored raw.
const MIX_PERCENTILES: [usize; 101] = [
    31, 171, 201, 237, 360, 461, 521, 563, 610, 658, 682, 705, 741, 780, 823, 869, 917, 968, 1011,
    1039, 1048, 1079, 1108, 1136, 1161, 1183, 1209, 1236, 1270, 1299, 1326, 1370, 1417, 1453, 1484,
    1521, 1560, 1594, 1638, 1699, 1761, 1799, 1835, 1867, 1901, 1939, 1978, 2013, 2036, 2057, 2078,
    2104, 2132, 2153, 2167, 2178, 2188, 2198, 2207, 2216, 2222, 2227, 2233, 2238, 2243, 2247, 2254,
    2266, 2287, 2308, 2336, 2361, 2387, 2409, 2437, 2461, 2486, 2509, 2546, 2594, 2700, 2812, 2968,
    4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096,
    4096, 4096,
];

/// xorshift: the same sizes and choices for every layout.
pub struct Random(u64);

impl Random {
    pub fn new() -> Self {
        Random(0x9E37_79B9_7F4A_7C15)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * bound as u128) >> 64) as usize
    }
}

/// A pool of sizes to draw from, each as likely as it is frequent there.
pub struct Sizes {
    pub name: String,
    pool: Vec<usize>,
}

impl Sizes {
    /// Reads a file that has one size of 1 to 4096 per line.
    pub fn from_file(path: &str) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| {
            format!("{path} is no layout, no number of MiB and no file: {error}")
        })?;
        let size = |line: &str| match line.trim().parse() {
            Ok(size @ 1..=4096) => Ok(size),
            _ => Err(format!("{path}: {line:?} is not a size of 1 to 4096 bytes")),
        };
        let pool: Vec<usize> = text.lines().map(size).collect::<Result<_, _>>()?;
        if pool.is_empty() {
            return Err(format!("{path} has no sizes"));
        }
        let name = path.rsplit('/').next().unwrap_or(path).to_string();
        Ok(Sizes { name, pool })
    }

    /// All sizes between neighbouring percentiles of the mix; none between the largest compressed
    /// page and a raw one.
    pub fn of_a_mix() -> Self {
        const STEPS: usize = 64;
        let between = |pair: &[usize]| {
            let (from, to) = (pair[0], pair[1]);
            let to = if to == 4096 { from } else { to };
            (0..STEPS).map(move |step| from + (to - from) * step / STEPS)
        };
        Sizes {
            name: "a mix of programs".to_string(),
            pool: MIX_PERCENTILES.windows(2).flat_map(between).collect(),
        }
    }

    pub fn mean(&self) -> f64 {
        self.pool.iter().sum::<usize>() as f64 / self.pool.len() as f64
    }

    pub fn draw(&self, random: &mut Random) -> usize {
        self.pool[random.below(self.pool.len())]
    }
}
