//! `pleat bench swap`: files of raw pages in, how densely each preset packs them into its swap file out.

use super::codec::read_pools;
use crate::args::BenchSwapArgs;
use crate::exit::Stop;
use crate::output::print;
use crate::progress::Progress;
use pleat_codec::measure::Pool;
use pleat_engine::{preset, Preset};
use pleat_sim::density::{density, Density};
use serde::Serialize;
use std::path::PathBuf;

/// What is compared when no preset is named.
const PRESETS: [&str; 5] = ["pleat", "douglis93", "cervera99", "castro03", "none"];

const TITLES: [&str; 2] = [
    "                                                  same  mean bytes of others     pages      gain over 4 KiB     of",
    "pages of         preset                    pages     %     folded    in file  per MiB      all  without same  ideal",
];

/// One preset on one pool: a line of the table, and of `--json`.
struct Row<'a> {
    pool: &'a str,
    preset: &'a str,
    density: Density,
}

/// One line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    preset: &'a str,
    pool: &'a str,
    pages: u64,
    same_pages: u64,
    kept_pages: u64,
    folded_bytes: u64,
    used_bytes: u64,
    file_bytes: u64,
    pages_per_mib: f64,
    gain: f64,
    gain_without_same: f64,
    share_of_ideal: f64,
}

/// Measures and prints.
pub fn swap(raw: &BenchSwapArgs) -> Result<(), Stop> {
    let presets = chosen_presets(&raw.preset)?;
    let pools = read_pools(&files(&raw.files)?, raw.pages as usize)?;
    let rows = measure(&pools, &presets)?;
    print(&match raw.json {
        true => rows.iter().map(json_line).collect(),
        false => table(&rows),
    })
}

/// The presets named, each once.
fn chosen_presets(named: &[String]) -> Result<Vec<Preset>, Stop> {
    let default = PRESETS.map(str::to_owned);
    let named = if named.is_empty() { &default } else { named };
    let mut chosen: Vec<Preset> = Vec::new();
    for name in named {
        let preset = preset(name).map_err(Stop::mistake)?;
        if !chosen.contains(&preset) {
            chosen.push(preset);
        }
    }
    Ok(chosen)
}

/// The files given, and those called `*.pages` in the directories given, by name.
fn files(given: &[PathBuf]) -> Result<Vec<PathBuf>, Stop> {
    let mut files = Vec::new();
    for path in given {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let unreadable = |error| {
            Stop::mistake(format!(
                "cannot read {}: {error}: name files instead",
                path.display()
            ))
        };
        let entries = path.read_dir().map_err(unreadable)?;
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut found: Vec<PathBuf> = paths
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "pages")
            })
            .collect();
        if found.is_empty() {
            return Err(Stop::mistake(format!(
                "no file in {} is called *.pages: name files instead",
                path.display()
            )));
        }
        found.sort();
        files.append(&mut found);
    }
    Ok(files)
}

fn measure<'a>(pools: &'a [Pool], presets: &'a [Preset]) -> Result<Vec<Row<'a>>, Stop> {
    let pages: usize = pools.iter().map(|pool| pool.pages.len()).sum();
    let progress = Progress::of("measuring", Some((pages * presets.len()) as u64));
    let pairs = pools
        .iter()
        .flat_map(|pool| presets.iter().map(move |preset| (pool, preset)));
    let rows = pairs.map(|(pool, preset)| {
        let density = density(preset, &pool.pages).map_err(Stop::failure)?;
        progress.step(pool.pages.len() as u64);
        Ok(Row {
            pool: &pool.name,
            preset: &preset.name,
            density,
        })
    });
    rows.collect()
}

/// One line for each preset and pool, a blank line between pools; then one for each preset over all
/// pools, if there are several.
fn table(rows: &[Row]) -> String {
    let mut text = TITLES.join("\n") + "\n";
    for pool in rows.chunk_by(|a, b| a.pool == b.pool) {
        text.extend(pool.iter().map(line));
        text += "\n";
    }
    if rows.iter().any(|row| row.pool != rows[0].pool) {
        text.extend(totals(rows).iter().map(line));
        text += "\n";
    }
    text
}

/// Each preset over all pools, as if they were one program.
fn totals<'a>(rows: &[Row<'a>]) -> Vec<Row<'a>> {
    let mut totals: Vec<Row> = Vec::new();
    for row in rows {
        match totals.iter_mut().find(|total| total.preset == row.preset) {
            Some(total) => total.density = total.density.and(&row.density),
            None => totals.push(Row {
                pool: "all",
                ..*row
            }),
        }
    }
    totals
}

fn line(row: &Row) -> String {
    let found = &row.density;
    let others = (found.pages - found.same_pages).max(1) as f64;
    format!(
        "{:<16} {:<23} {:>7} {:>5.1} {:>10.0} {:>10.0} {:>8.0} {:>8.2} {:>13.2} {:>6.3}\n",
        row.pool,
        row.preset,
        found.pages,
        100.0 * found.same_pages as f64 / found.pages.max(1) as f64,
        found.folded_bytes as f64 / others,
        found.file_bytes as f64 / others,
        found.pages_per_mib(),
        found.gain(),
        found.gain_without_same(),
        found.share_of_ideal(),
    )
}

fn json_line(row: &Row) -> String {
    let found = &row.density;
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    let line = Line {
        preset: row.preset,
        pool: row.pool,
        pages: found.pages,
        same_pages: found.same_pages,
        kept_pages: found.kept_pages,
        folded_bytes: found.folded_bytes,
        used_bytes: found.used_bytes,
        file_bytes: found.file_bytes,
        pages_per_mib: rounded(found.pages_per_mib()),
        gain: rounded(found.gain()),
        gain_without_same: rounded(found.gain_without_same()),
        share_of_ideal: rounded(found.share_of_ideal()),
    };
    serde_json::to_string(&line).expect("numbers and text") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<'a>(pool: &'a str, preset: &'a str, file_bytes: u64) -> Row<'a> {
        let density = Density {
            pages: 1000,
            same_pages: 250,
            folded_bytes: 750_000,
            used_bytes: file_bytes,
            file_bytes,
            kept_pages: 0,
        };
        Row {
            pool,
            preset,
            density,
        }
    }

    #[test]
    fn the_table_says_both_gains_and_what_is_lost() {
        let text = table(&[row("a", "fine", 1 << 20), row("b", "fine", 3 << 20)]);
        let cells = |start: &str| -> Vec<&str> {
            let line = text.lines().find(|line| line.starts_with(start));
            line.expect("a line").split_whitespace().collect()
        };
        let a = [
            "a", "fine", "1000", "25.0", "1000", "1398", "1000", "3.91", "2.93", "0.715",
        ];
        assert_eq!(cells("a "), a, "{text}");
        let all = [
            "all", "fine", "2000", "25.0", "1000", "2796", "500", "1.95", "1.46", "0.358",
        ];
        assert_eq!(cells("all "), all, "{text}");
        let alone = table(&[row("a", "fine", 1 << 20)]);
        assert!(!alone.contains("\nall "), "{alone}");
    }

    #[test]
    fn a_preset_named_twice_is_measured_once() {
        let named = ["none", "pleat", "none"].map(str::to_owned);
        let chosen = chosen_presets(&named).unwrap();
        let names: Vec<&str> = chosen.iter().map(|preset| &*preset.name).collect();
        assert_eq!(names, ["none", "pleat"]);
        assert_eq!(chosen_presets(&[]).unwrap().len(), PRESETS.len());
        let wrong = chosen_presets(&["castro04".to_owned()]).unwrap_err();
        assert!(wrong.message.contains("choose from"), "{}", wrong.message);
    }
}
