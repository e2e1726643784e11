//! Figures and tables of the published systems, made again in simulation.
//!
//! Each is one file: what the paper did, on which machine, as a [`Figure`] that runs it and says for each
//! statement of the paper whether it holds here, and how nearly it has to. `pleat papers` prints and
//! plots them, `tests/papers.rs` fails when a statement does not hold, `docs/papers.md` shows them.
//!
//! The papers' programs are not to be had; their workloads are generators of `pleat_trace` that have the
//! properties the paper names (how large, how compressible, file or anonymous, which locality). So it is
//! the shape of a result that is compared, not its numbers.

mod castro03;
mod cervera99;
mod cpc08;
mod douglis93;
mod ramzswap09;
mod run;

pub use run::{Run, MB};

/// A figure or table of a paper.
pub struct Figure {
    /// What it is called on the command line: `castro03-figure3`.
    pub name: &'static str,
    /// What it shows, in one line.
    pub about: &'static str,
    /// What is across and what is up in the plot.
    pub axes: (&'static str, &'static str),
    /// Runs it.
    pub make: fn() -> Findings,
    /// How long that takes beside the others, for an estimate: seconds on one machine, once.
    pub work: u32,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The lines of the plot.
    pub lines: Vec<Line>,
    /// What the paper states, and whether it holds.
    pub claims: Vec<Claim>,
}

/// A line of a plot.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it is of.
    pub name: String,
    /// Its points, in order.
    pub points: Vec<(f64, f64)>,
}

/// One statement of a paper, put to the test.
#[derive(Clone, Debug)]
pub struct Claim {
    /// What the paper states, in our words, with the section or table.
    pub stated: &'static str,
    /// What must be measured here for it to count as confirmed.
    pub tolerance: &'static str,
    /// What was measured.
    pub measured: String,
    /// Whether that is within the tolerance.
    pub holds: bool,
}

/// Every figure, by paper.
pub fn figures() -> Vec<Figure> {
    let mut all = vec![
        douglis93::FIGURE3,
        douglis93::TABLE1,
        cervera99::FIGURE5,
        cervera99::FIGURE6,
        cervera99::FIGURE7,
        cpc08::SHARE,
        ramzswap09::IOZONE,
    ];
    all.extend(castro03::figures());
    all
}
