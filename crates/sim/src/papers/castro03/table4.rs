//! Table 4: the memory load test of contest 0.51, a kernel compilation beside `memload`, which has a tenth
//! more memory than the machine and goes through it again and again.
//!
//! A quarter of the paper's 256 MB, for the sake of run time. Contest compiles with four jobs; `memload`
//! is "highly compressible" (section 4.4): 10 % is left of a page. The compilation is what is timed:
//! `memload` does what it can until that ends.

use super::{case, compile, Case};
use crate::papers::{Claim, Figure, Findings, Line};
use crate::Outcome;

pub(super) const FIGURE: Figure = Figure {
    name: "castro03-table4",
    about: "A kernel compilation beside memload: who runs how much (1: without, 2: with castro03)",
    axes: ("preset", "compilation in seconds; passes of memload"),
    make,
    work: 7,
};

const JOBS: u32 = 4;
/// 110 % of 64 MB.
const MEMLOAD_PAGES: f64 = 18_022.0;
const BESIDE_MEMLOAD: &str = concat!(
    compile!("4", "0.394"),
    "+memload:pages=18022,passes=100000,think_ns=10000,ratio=0.1"
);
const CASE: Case = case("compile j4 beside memload", BESIDE_MEMLOAD, 64.0);

fn make() -> Findings {
    let [without, with] = ["none", "castro03"].map(|preset| {
        let run = CASE.run(preset);
        run.outcome_when(|simulation| simulation.until(JOBS))
    });
    let points = |of: fn(&Outcome) -> f64| vec![(1.0, of(&without)), (2.0, of(&with))];
    Findings {
        lines: vec![
            Line {
                name: "compilation".to_owned(),
                points: points(seconds),
            },
            Line {
                name: "memload".to_owned(),
                points: points(passes),
            },
        ],
        claims: vec![
            memload_runs_more(&without, &with),
            compiling_takes_longer(&without, &with),
        ],
    }
}

/// Until the last of the jobs was done.
fn seconds(outcome: &Outcome) -> f64 {
    let jobs = outcome.processes.iter().take(JOBS as usize);
    jobs.map(|job| job.elapsed_ns).max().unwrap_or(0) as f64 / 1e9
}

fn passes(outcome: &Outcome) -> f64 {
    let memload = outcome.processes.last().expect("memload");
    memload.references as f64 / MEMLOAD_PAGES
}

fn memload_runs_more(without: &Outcome, with: &Outcome) -> Claim {
    let [without, with] = [without, with].map(passes);
    Claim {
        stated: "memload runs far more often with the compressed cache: 174 iterations, 41 without",
        tolerance: "at least twice as often",
        measured: format!("{with:.1} passes, {without:.1} without"),
        holds: with >= 2.0 * without,
    }
}

fn compiling_takes_longer(without: &Outcome, with: &Outcome) -> Claim {
    let [without, with] = [without, with].map(seconds);
    let more = 100.0 * (with / without - 1.0);
    Claim {
        stated: "and the compilation takes a little longer, as memload takes its fair share of the CPU: \
                 94.9 s, 90.64 without (4.7 % more)",
        tolerance: "longer, by at most 10 %",
        measured: format!("{with:.1} s, {without:.1} without: {more:.1} % more"),
        holds: more > 0.0 && more <= 10.0,
    }
}
