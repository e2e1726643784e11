//! ramzswap09's own worst case: a program that lives on the file cache, beside memory that is idle.
//!
//! The paper: iozone on a Core 2 with 512 MB and a disk of 7200 rpm, files of half of memory, of all of it
//! and of twice as much, each written, written again, read and read again. With ramzswap it takes 24.8 %
//! longer, as "any data swapped out to compcache simply reduces size available for this fs-cache". Here all
//! is an eighth: 64 MB, of which 4 are idle and compress 2:1, and a CPU and a disk of today.
//!
//! The paper's kernel keeps part of a file that is larger than memory; an LRU that is gone through in
//! order keeps nothing of it, with or without ramzswap. The file of "nearly the amount of RAM" is
//! therefore the largest that fits once the idle memory is out of the way: 62 MB. All systems read
//! files 16 pages ahead, as kernels do.
//!
//! pleat's own preset loses at 62 MB alone and gains at 128: it keeps the idle pages compressed, and then
//! the file does not fit but compressed.

use super::{Claim, Figure, Findings, Line, Run, MB};

pub(super) const IOZONE: Figure = Figure {
    name: "ramzswap09-iozone",
    about: "ramzswap09: iozone on 64 MB, time by size of the file",
    axes: ("MB of file", "s"),
    make: iozone,
    work: 5,
};

const MEMORY_BYTES: u64 = 64 * MB;
const FILES_MB: [u64; 7] = [32, 56, 60, 62, 64, 96, 128];
/// Those that the paper measures.
const HALF_MB: u64 = 32;
const NEARLY_MB: u64 = 62;
const TWICE_MB: u64 = 128;

const SYSTEMS: [(&str, &str); 3] = [
    ("without", "none/run=16"),
    ("ramzswap09", "ramzswap09/run=16"),
    ("pleat", "pleat"),
];

struct Times {
    name: &'static str,
    /// Seconds by file.
    seconds: Vec<f64>,
}

impl Times {
    fn of(&self, file_mb: u64) -> f64 {
        let at = FILES_MB.iter().position(|&mb| mb == file_mb);
        self.seconds[at.expect("a file of the list")]
    }

    /// The paper's time is that of all files together; the small one is left out there too.
    fn total(&self) -> f64 {
        self.of(NEARLY_MB) + self.of(TWICE_MB)
    }
}

fn times(&(name, preset): &(&'static str, &'static str)) -> Times {
    let seconds = |mb: &u64| {
        let pages = mb * 256;
        let workload = format!("iozone:pages={pages},idle=1k,rounds=2,ratio=0.5,think_ns=2000");
        let run = Run {
            cpu: "modern",
            cpus: 1,
            device: "hdd",
            workload: &workload,
            preset,
            memory_bytes: MEMORY_BYTES,
        };
        run.seconds()
    };
    Times {
        name,
        seconds: FILES_MB.iter().map(seconds).collect(),
    }
}

fn iozone() -> Findings {
    let all = SYSTEMS.each_ref().map(times);
    let line = |times: &Times| Line {
        name: times.name.into(),
        points: FILES_MB
            .iter()
            .map(|&mb| mb as f64)
            .zip(times.seconds.clone())
            .collect(),
    };
    let [without, ramzswap, pleat] = &all;
    Findings {
        lines: all.iter().map(line).collect(),
        claims: vec![
            small_files_do_not_care(without, ramzswap),
            is_slowed(without, ramzswap),
            is_not_slowed(without, pleat),
        ],
    }
}

/// By how many per cent it takes longer.
fn longer(without: f64, with: f64) -> f64 {
    100.0 * (with / without - 1.0)
}

fn told(without: &Times, with: &Times) -> String {
    let one = |mb| longer(without.of(mb), with.of(mb));
    format!(
        "{:+.1} % ({NEARLY_MB} MB {:+.1} %, {TWICE_MB} MB {:+.1} %)",
        longer(without.total(), with.total()),
        one(NEARLY_MB),
        one(TWICE_MB)
    )
}

fn small_files_do_not_care(without: &Times, ramzswap: &Times) -> Claim {
    let off = longer(without.of(HALF_MB), ramzswap.of(HALF_MB));
    Claim {
        stated: "with a file of half the memory performance is identical",
        tolerance: "within 1 %",
        measured: format!("{off:+.1} %"),
        holds: off.abs() <= 1.0,
    }
}

fn is_slowed(without: &Times, ramzswap: &Times) -> Claim {
    Claim {
        stated: "ramzswap slows iozone by 24.8 %, the files of once and twice the memory together",
        tolerance: "it takes at least 10 % longer",
        measured: told(without, ramzswap),
        holds: longer(without.total(), ramzswap.total()) >= 10.0,
    }
}

fn is_not_slowed(without: &Times, pleat: &Times) -> Claim {
    Claim {
        stated: "(not of the paper) pleat does not slow the two files together",
        tolerance: "it takes at most 1 % longer",
        measured: told(without, pleat),
        holds: longer(without.total(), pleat.total()) <= 1.0,
    }
}
