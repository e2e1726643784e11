//! De Castro, Lago and Da Silva, *Adaptive Compressed Caching* (2003): its machine and its workloads.
//!
//! The machine is a Pentium III of 1 GHz with a disk of 2003 (section 4.2). Each workload has what the
//! paper names - how far pages compress (table 2), how large it is, which pages belong to files. What
//! it does not name, locality and CPU time for each page, is chosen so that the *plain* runs, without
//! compressed cache, slow down with memory as those of table 1 do. That leaves freedom: what depends on
//! how it is used is not claimed, and each file says so.
//!
//! A kernel's own memory is not simulated, so amounts of memory correspond to the paper's by the
//! slow-down of the plain run, not byte for byte:
//!
//! | workload | here: MB, time by that with ample memory | table 1 |
//! |---|---|---|
//! | compile, one job | 21: 1.16; 20: 1.44; 19.5: 1.60 | 21: 1.20; 18: 1.73 |
//! | compile, two jobs | 24: 1.58; 23: 2.46 | 24: 1.46; 21: 2.26 |
//! | compile, four jobs | 28.75: 1.81 | 30: 1.81 |
//! | MUMmer, an eighth | 50: 1.95; 43: 2.90; 41: 3.15 | 400: 1.80; 340: 2.58; 330: 3.21 |
//! | OSDB | 24: 1.73 | 24: 1.69 |

mod cells;
mod codecs;
mod figure3;
mod figure6;
mod onlyswap;
mod policies;
mod table3;
mod table4;

use super::{Claim, Figure, Run, MB};

/// Every figure and table of this paper.
pub(super) fn figures() -> [Figure; 8] {
    [
        figure3::FIGURE,
        figure6::FIGURE,
        cells::FIGURE,
        onlyswap::FIGURE,
        policies::FIGURE,
        codecs::FIGURE,
        table3::FIGURE,
        table4::FIGURE,
    ]
}

/// The kernel compilation: compilers whose heaps grow to 4 MB, 10 MB of headers and 7 MB of program
/// and libraries, of which some are used more than others; 39.4 % are left of a page (table 2). Sixty
/// source files instead of hundreds.
macro_rules! compile {
    ($jobs:literal, $ratio:literal) => {
        concat!(
            "compile:units=60,heap=1024,headers=2560,text=1792,work=24,source=8,alpha=0.6,",
            "think_ns=100000,jobs=",
            $jobs,
            ",ratio=",
            $ratio
        )
    };
}
/// MUMmer at an eighth of its size, memory and CPU time alike, for the sake of run time: 58 MB, almost
/// all of it anonymous (section 4.1); 35.5 % are left of a page.
macro_rules! mummer {
    ($ratio:literal) => {
        concat!(
            "mummer:pages=14800,working_set=14800,refs=20000,alpha=0.7,drift=0,write=0.2,",
            "think_ns=160000,ratio=",
            $ratio
        )
    };
}
/// The database benchmark: a file of 40 MB (section 4.1), written to now and then; 64.5 % are left of a
/// page.
macro_rules! osdb {
    ($ratio:literal) => {
        concat!(
            "zipf:pages=10240,file=1,write=0.1,alpha=0.8,refs=200000,spread=0.15,",
            "think_ns=1000000,ratio=",
            $ratio
        )
    };
}
use {compile, mummer, osdb};

const COMPILE_1: &str = compile!("1", "0.394");
const COMPILE_2: &str = compile!("2", "0.394");
const COMPILE_4: &str = compile!("4", "0.394");
const MUMMER: &str = mummer!("0.355");
const OSDB: &str = osdb!("0.645");

/// A workload under some memory pressure.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    workload: &'static str,
    memory_mb: f64,
}

/// Amounts of memory that hardly differ do so by this part.
const NEARBY: f64 = 0.001;

const fn case(name: &'static str, workload: &'static str, memory_mb: f64) -> Case {
    Case {
        name,
        workload,
        memory_mb,
    }
}

impl Case {
    /// It on the paper's machine.
    fn run<'a>(&self, preset: &'a str) -> Run<'a> {
        Run {
            cpu: "p3",
            cpus: 1,
            device: "hdd2003",
            workload: self.workload,
            preset,
            memory_bytes: (self.memory_mb * MB as f64) as u64,
        }
    }

    fn name(&self) -> String {
        format!("{} {} MB", self.name, self.memory_mb)
    }

    /// Time saved by each preset against `none`, in per cent of the time of `none`.
    fn gains<const N: usize>(&self, presets: [&str; N]) -> [f64; N] {
        let plain = self.seconds("none");
        presets.map(|preset| gain(plain, self.seconds(preset)))
    }

    /// The median over amounts of memory that hardly differ. Several processes on a disk that seeks are
    /// chaotic: 3 KB more or less of 28 MB make the plain run take a fifth longer or shorter.
    fn seconds(&self, preset: &str) -> f64 {
        let mut seconds = [-2.0, -1.0, 0.0, 1.0, 2.0].map(|step| {
            let memory_mb = self.memory_mb * (1.0 + step * NEARBY);
            Case { memory_mb, ..*self }.run(preset).seconds()
        });
        seconds.sort_unstable_by(f64::total_cmp);
        seconds[2]
    }
}

/// Time saved in per cent.
fn gain(plain: f64, seconds: f64) -> f64 {
    100.0 * (1.0 - seconds / plain)
}

/// A claim about several cases, each with what was measured and whether it holds there.
fn claim_of_all(
    stated: &'static str,
    tolerance: &'static str,
    cases: impl IntoIterator<Item = (String, bool)>,
) -> Claim {
    let (measured, holds): (Vec<String>, Vec<bool>) = cases.into_iter().unzip();
    assert!(!holds.is_empty(), "a claim about nothing");
    Claim {
        stated,
        tolerance,
        measured: measured.join("; "),
        holds: holds.into_iter().all(|holds| holds),
    }
}
