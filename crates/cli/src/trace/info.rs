//! `pleat trace info`: what a trace holds, as a table or as JSON.

use crate::args::InfoArgs;
use crate::exit::Stop;
use crate::output::print;
use crate::progress::{Counted, Progress};
use pleat_trace::{ProcessSurvey, Survey};
use serde::Serialize;
use std::fmt::Write;

const PAGES_PER_MIB: f64 = 256.0;
/// More processes than this are only counted in the table.
const ROWS_MAX: usize = 32;

/// The object of `--json`.
#[derive(Serialize)]
struct Info {
    processes: Vec<Line>,
    regions: u64,
    references: u64,
    pages: u64,
    footprint_mib: f64,
    writes_share: f64,
    compressed_share: f64,
}

#[derive(Serialize)]
struct Line {
    references: u64,
    writes: u64,
    pages: u64,
    think_ns: u64,
}

/// Goes through a trace and prints its figures.
pub fn info(raw: &InfoArgs) -> Result<(), Stop> {
    let source = Box::new(super::open(&raw.file)?);
    let progress = Progress::of("reading references", None);
    let survey = Survey::of(&mut Counted::of(source, &progress));
    drop(progress);
    print(&match raw.json {
        true => json(&survey),
        false => table(&survey),
    })
}

fn writes_share(survey: &ProcessSurvey) -> f64 {
    survey.writes as f64 / survey.references.max(1) as f64
}

fn json(survey: &Survey) -> String {
    let total = survey.total();
    let line = |process: &ProcessSurvey| Line {
        references: process.references,
        writes: process.writes,
        pages: process.pages,
        think_ns: process.think_ns,
    };
    let info = Info {
        processes: survey.processes.iter().map(line).collect(),
        regions: survey.regions,
        references: total.references,
        pages: survey.pages,
        footprint_mib: survey.pages as f64 / PAGES_PER_MIB,
        writes_share: writes_share(&total),
        compressed_share: survey.compressed_share,
    };
    serde_json::to_string(&info).expect("numbers and text") + "\n"
}

fn table(survey: &Survey) -> String {
    let mut text = format!(
        "{:>7} {:>13} {:>8} {:>11} {:>10} {:>10}\n",
        "process", "references", "writes", "pages", "MiB", "CPU s"
    );
    for (number, process) in survey.processes.iter().enumerate().take(ROWS_MAX) {
        row(&mut text, &number.to_string(), process);
    }
    if survey.processes.len() > ROWS_MAX {
        let more = survey.processes.len() - ROWS_MAX;
        let _ = writeln!(text, "    ... {more} more processes");
    }
    // Pages that several processes touch are one page of all of them.
    let total = ProcessSurvey {
        pages: survey.pages,
        ..survey.total()
    };
    row(&mut text, "all", &total);
    let regions = match survey.regions {
        1 => "1 region".to_owned(),
        regions => format!("{regions} regions"),
    };
    let _ = writeln!(
        text,
        "\n{regions}; the pages touched compress to {:.1} % on average",
        100.0 * survey.compressed_share
    );
    text
}

fn row(text: &mut String, name: &str, process: &ProcessSurvey) {
    let _ = writeln!(
        text,
        "{name:>7} {:>13} {:>6.1} % {:>11} {:>10.1} {:>10.3}",
        process.references,
        100.0 * writes_share(process),
        process.pages,
        process.pages as f64 / PAGES_PER_MIB,
        process.think_ns as f64 / 1e9
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_processes_do_not_scroll_away() {
        let survey = Survey {
            processes: vec![ProcessSurvey::default(); 1000],
            regions: 1,
            pages: 0,
            compressed_share: 0.0,
        };
        let table = table(&survey);
        assert!(
            table.lines().count() < 40 && table.contains("968 more"),
            "{table}"
        );
        assert!(!table.contains("NaN"), "{table}");
    }
}
