//! `pleat bench codec --sizes`: what each page compresses to, one number a line, for programs that want
//! sizes and not means.

use super::codec::{chosen_codecs, read_pools};
use crate::args::BenchCodecArgs;
use crate::exit::Stop;
use crate::output::print;
use crate::progress::Progress;
use pleat_codec::measure::Pool;
use pleat_codec::{Choice, Folded, Folder, PageKind};
use std::sync::Arc;

/// The codec when none is named: what a run uses.
const DEFAULT: &str = "auto";

/// Prints the sizes of all pages of all files.
pub fn sizes(raw: &BenchCodecArgs) -> Result<(), Stop> {
    let codec = match chosen_codecs(&raw.codec)?[..] {
        _ if raw.codec.is_empty() => DEFAULT,
        [one] => one,
        _ => {
            return Err(Stop::mistake(
                "--sizes prints what one codec does: name one with --codec",
            ))
        }
    };
    let pools = read_pools(&raw.files, raw.pages as usize)?;
    let pages = pools.iter().map(|pool| pool.pages.len() as u64).sum();
    let progress = Progress::of("compressing", Some(pages));
    let of_pool = |pool: &Pool| {
        let lines = lines(pool, codec);
        progress.step(pool.pages.len() as u64);
        lines
    };
    let lines: Result<Vec<String>, Stop> = pools.iter().map(of_pool).collect();
    drop(progress);
    print(&lines?.concat())
}

/// The lines of one file, by a codec that has seen it once, and nothing else.
fn lines(pool: &Pool, codec: &str) -> Result<String, Stop> {
    let choice = Choice::parse(codec).map_err(|error| Stop::mistake(error.to_string()))?;
    let choice = Arc::new(choice);
    let mut folder = Folder::new(&choice);
    let mut out = [0; 4096];
    let mut fold = |page| folder.fold(page, PageKind::Anonymous, &mut out);
    pool.pages.iter().for_each(|page| {
        fold(page);
    });
    choice.learn();
    let sizes = pool.pages.iter().filter_map(|page| match fold(page) {
        Folded::Same(_) => None,
        Folded::Bytes { len, .. } => Some(format!("{len}\n")),
    });
    Ok(sizes.collect())
}
