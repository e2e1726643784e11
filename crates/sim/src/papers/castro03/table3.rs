//! Table 3: `sort` and PostMark, which stream through files and never come back to a page, with the
//! switch for clean pages and without.
//!
//! How many pages they go through follows from the paper: what compressing them all costs more than
//! nothing (80.35 - 54.38 s, 529 - 330 s) by 0.09 ms a page, 288 000 and 2.2 million. CPU time for each
//! is such that the plain runs take the paper's time. Linux reads files ahead, 32 pages at a time here.
//!
//! - sort: 24 MB, of which its own buffer has 2 (section 4.1); input, temporary files and output as one
//!   stream; text, of which half is left (not in the paper).
//! - PostMark: at a quarter of memory and pages, for the sake of run time; 99 % is left of a page.
//!
//! What is left of sort's slow-down, 2.4 % where the paper has 1.6, is the pages that fill the cache and
//! the 4096 after them by which the switch judges (`clean_switch.rs` of `pleat_policy`; the paper's
//! numbers are not printed). With text that compresses better it is more, 2.9 % at 40 %.

use super::{case, claim_of_all, Case};
use crate::papers::{Figure, Findings, Line};

pub(super) const FIGURE: Figure = Figure {
    name: "castro03-table3",
    about: "Streaming through files: the switch for clean pages (1: sort, 2: PostMark)",
    axes: ("workload", "time against no compressed cache, %"),
    make,
    work: 11,
};

const SORT: &str = "scan:pages=288000,ratio=0.5,think_ns=63000";
const POSTMARK: &str = "scan:pages=550000,ratio=0.99,spread=0.01,raw=0.9,think_ns=22000";
const CASES: [Case; 2] = [case("sort", SORT, 22.0), case("PostMark", POSTMARK, 32.0)];

/// More time than without, in per cent.
struct Slower {
    name: String,
    switched: f64,
    always: f64,
}

fn make() -> Findings {
    let all: Vec<Slower> = CASES.iter().map(slower).collect();
    let line = |name: &str, of: fn(&Slower) -> f64| Line {
        name: name.to_owned(),
        points: all
            .iter()
            .enumerate()
            .map(|(nth, slower)| (nth as f64 + 1.0, of(slower)))
            .collect(),
    };
    let costly = claim_of_all(
        "compressing pages that are never wanted again slows sort down by 40.9 %, PostMark by 49.4 % \
         (by their times 47.8 % and 60.3 %)",
        "slower by 40 % to 65 %",
        all.iter().map(|slower| {
            let always = slower.always;
            (
                format!("{} {always:.1} %", slower.name),
                (40.0..=65.0).contains(&always),
            )
        }),
    );
    let cured = claim_of_all(
        "the switch for clean pages takes nearly all of that away (sort is 1.6 % slower with it, \
         PostMark not at all)",
        "nine tenths of the slow-down at least",
        all.iter().map(|slower| {
            let (switched, always) = (slower.switched, slower.always);
            (
                format!("{} {switched:.2} % of {always:.1} %", slower.name),
                switched * 10.0 <= always,
            )
        }),
    );
    let vanished = claim_of_all(
        "with it the slow-down of PostMark vanishes (329 s, 330 without a compressed cache)",
        "slower by 2 % at most",
        all[1..].iter().map(|slower| {
            let switched = slower.switched;
            (format!("{} {switched:.2} %", slower.name), switched <= 2.0)
        }),
    );
    Findings {
        lines: vec![
            line("castro03", |slower| slower.switched),
            line("no switch", |slower| slower.always),
        ],
        claims: vec![costly, cured, vanished],
    }
}

fn slower(case: &Case) -> Slower {
    let plain = case.run("none/run=32").seconds();
    let more = |preset| 100.0 * (case.run(preset).seconds() / plain - 1.0);
    Slower {
        name: case.name.to_owned(),
        switched: more("castro03/run=32"),
        always: more("castro03/run=32/admission=all"),
    }
}
