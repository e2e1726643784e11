//! `pleat bench codec`: files of raw pages in, a table, JSON or a plot out.

use super::svg;
use crate::args::BenchCodecArgs;
use crate::exit::Stop;
use crate::output::{create, print};
use crate::progress::Progress;
use pleat_codec::measure::{
    measure, passes, table, totals, MeasureError, Measured, Pool, PoolError,
};
use pleat_codec::Choice;
use serde::Serialize;
use std::io::ErrorKind;
use std::path::PathBuf;

/// One line of `--json`. Times and bytes are means per page.
#[derive(Serialize)]
struct Line<'a> {
    codec: &'a str,
    pool: &'a str,
    pages: usize,
    compress_ns: f64,
    decompress_ns: f64,
    bytes: f64,
    same_pages: usize,
    raw_pages: usize,
}

/// Measures and prints.
pub fn codec(raw: &BenchCodecArgs) -> Result<(), Stop> {
    let codecs = chosen_codecs(&raw.codec)?;
    let pools = read_pools(&raw.files, raw.pages as usize)?;
    let plot = raw
        .svg
        .as_deref()
        .map(|file| create(file, "--svg"))
        .transpose()?;
    let progress = Progress::of("measuring", Some(passes(&pools, &codecs)));
    let measured = measure(&pools, &codecs, &|pages| progress.step(pages));
    let measured = measured.map_err(|error| match error {
        MeasureError::UnknownCodec(_) => Stop::mistake(error.to_string()),
        _ => Stop::failure(error.to_string()),
    })?;
    drop(progress);
    if let Some(plot) = plot {
        plot.write(&svg::plot(&totals(&measured)))?;
    }
    print(&match raw.json {
        true => measured.iter().map(json_line).collect(),
        false => table(&measured),
    })
}

/// The codecs named, each once; all of them when none is named.
pub(super) fn chosen_codecs(named: &[String]) -> Result<Vec<&str>, Stop> {
    if named.is_empty() {
        return Ok(Choice::names().to_vec());
    }
    let mut chosen = Vec::new();
    for name in named {
        // Before the files are read: a mistake in a name shows at once.
        Choice::parse(name).map_err(|error| Stop::mistake(error.to_string()))?;
        if !chosen.contains(&name.as_str()) {
            chosen.push(name);
        }
    }
    Ok(chosen)
}

pub(super) fn read_pools(files: &[PathBuf], pages_max: usize) -> Result<Vec<Pool>, Stop> {
    let mut pools: Vec<Pool> = Vec::new();
    for file in files {
        let pool = Pool::read(file, pages_max)
            .map_err(|error| Stop::mistake(format!("{error}: {}", remedy(&error))))?;
        if pools.iter().any(|other| other.name == pool.name) {
            return Err(Stop::mistake(format!(
                "two files are called '{}': rename one, for results go by that name",
                pool.name
            )));
        }
        pools.push(pool);
    }
    Ok(pools)
}

fn remedy(error: &PoolError) -> &'static str {
    match error {
        PoolError::Unreadable { error, .. } if error.kind() == ErrorKind::PermissionDenied => {
            "run this as a user who may read it"
        }
        _ => "give a file of raw pages, such as 'pleat bench dump PID FILE' writes",
    }
}

fn json_line(one: &Measured) -> String {
    // The clock is not worth more digits.
    let rounded = |value: f64| (value * 10.0).round() / 10.0;
    let line = Line {
        codec: &one.codec,
        pool: &one.pool,
        pages: one.pages,
        compress_ns: rounded(one.compress_ns),
        decompress_ns: rounded(one.decompress_ns),
        bytes: rounded(one.bytes),
        same_pages: one.same_pages,
        raw_pages: one.raw_pages,
    };
    serde_json::to_string(&line).expect("numbers and text") + "\n"
}
