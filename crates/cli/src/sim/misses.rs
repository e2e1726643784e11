//! `pleat sim --misses`: how near the choice of victims comes to LRU and to OPT.

use super::{table, References};
use crate::args::SimArgs;
use crate::exit::Stop;
use crate::output::print;
use crate::progress::{Counted, Progress};
use crate::size::parse_size;
use pleat_sim::misses::{History, Misses, POLICIES};
use serde::Serialize;
use std::fmt::Write;

const PAGE: u64 = 4096;
const TITLE: &str = "policy                      misses   refaults       soft   /lru   /opt";

/// A line of the table, and of `--json`.
#[derive(Serialize)]
struct Row {
    policy: String,
    frames: u64,
    pages: u64,
    references: u64,
    #[serde(flatten)]
    found: Misses,
    /// Refaults as a multiple of those of LRU, and of OPT; null where those have none.
    of_lru: Option<f64>,
    of_opt: Option<f64>,
}

/// Counts and prints.
pub(super) fn show(raw: &SimArgs) -> Result<(), Stop> {
    let references = References::of(raw)?;
    let reading = Progress::of("reading references", None);
    let history = History::of(&mut Counted::of(references.source(), &reading));
    drop(reading);
    let default = [pleat_engine::preset_names()[0].to_owned()];
    let presets = if raw.preset.is_empty() {
        &default
    } else {
        &raw.preset[..]
    };
    let names = POLICIES
        .iter()
        .copied()
        .chain(presets.iter().map(String::as_str));
    let names: Vec<&str> = names.collect();
    let mut text = String::new();
    let counts = (raw.memory.len() * names.len()) as u64;
    let progress = Progress::of("counting misses", Some(counts));
    for size in &raw.memory {
        let frames = frames(size, history.pages())?;
        let rows = rows(&history, &names, frames, &progress)?;
        match raw.json {
            true => rows.iter().for_each(|row| text.push_str(&json_line(row))),
            false => block(&mut text, &rows),
        }
    }
    drop(progress);
    print(&text)
}

/// A size, or per cent of the pages.
fn frames(size: &str, pages: u64) -> Result<u64, Stop> {
    let Some(percent) = size.strip_suffix('%') else {
        let bytes = parse_size(size).map_err(|error| Stop::mistake(error.to_string()))?;
        return Ok((bytes / PAGE).max(1));
    };
    let percent = percent
        .parse()
        .ok()
        .filter(|percent| (1..=100).contains(percent));
    let percent: u64 =
        percent.ok_or_else(|| Stop::mistake(format!("{size}: 1% to 100% is needed")))?;
    Ok((pages * percent / 100).max(1))
}

/// Of every policy.
fn rows(
    history: &History,
    names: &[&str],
    frames: u64,
    progress: &Progress,
) -> Result<Vec<Row>, Stop> {
    let count = |name: &&str| {
        let found = history.misses(name, frames).map_err(Stop::mistake);
        progress.step(1);
        found
    };
    let found: Vec<Misses> = names.iter().map(count).collect::<Result<_, _>>()?;
    let refaults = |name| {
        let at = names.iter().position(|other| *other == name);
        at.map_or(0, |at| found[at].refaults)
    };
    let ratio = |refaults: u64, of: u64| (of > 0).then(|| refaults as f64 / of as f64);
    let row = |(name, found): (&&str, &Misses)| Row {
        policy: (*name).to_owned(),
        frames,
        pages: history.pages(),
        references: history.references(),
        found: *found,
        of_lru: ratio(found.refaults, refaults("lru")),
        of_opt: ratio(found.refaults, refaults("opt")),
    };
    Ok(names.iter().zip(&found).map(row).collect())
}

fn block(text: &mut String, rows: &[Row]) {
    let first = &rows[0];
    let gap = if text.is_empty() { "" } else { "\n" };
    let _ = writeln!(
        text,
        "{gap}memory {} ({} frames), pages {}, references {}\n{TITLE}",
        table::size(first.frames * PAGE),
        first.frames,
        first.pages,
        first.references,
    );
    for row in rows {
        let ratio = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |of| format!("{of:.3}"));
        let _ = writeln!(
            text,
            "{:<22} {:>11} {:>10} {:>10} {:>6} {:>6}",
            row.policy,
            row.found.misses,
            row.found.refaults,
            row.found.soft,
            ratio(row.of_lru),
            ratio(row.of_opt),
        );
    }
}

fn json_line(row: &Row) -> String {
    serde_json::to_string(row).expect("numbers and text") + "\n"
}
