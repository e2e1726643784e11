//! What the codecs do to real memory: us per page and bytes per page, for each `NAME.pages` file
//! (raw 4 KiB pages) of a directory.
//!
//! `cargo run --release -p pleat-codec --example corpus -- DIR`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use pleat_codec::{Choice, Folded, Folder, PageKind};
use pleat_types::{CodecId, Page, PAGE_SIZE};

/// Best of this many passes: other work on the machine only ever makes a pass slower.
const PASSES: usize = 5;

fn main() -> std::io::Result<()> {
    let dir = std::env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from("../shared/corpus"), PathBuf::from);
    let files = page_files(&dir);
    if files.is_empty() {
        println!("SKIPPED: no NAME.pages in {}", dir.display());
        return Ok(());
    }
    println!(
        "{:<16} {:<12} {:>8} {:>9} {:>11} {:>6} {:>6}",
        "pages of", "codec", "fold us", "unfold us", "bytes/page", "same %", "raw %"
    );
    for file in files {
        let pages = read_pages(&file)?;
        for codec in Choice::names() {
            let name = file.file_stem().unwrap_or_default().to_string_lossy();
            measure(&name, codec, &pages);
        }
    }
    Ok(())
}

fn page_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "pages")
        })
        .collect();
    files.sort();
    files
}

fn read_pages(file: &Path) -> std::io::Result<Vec<Page>> {
    let bytes = std::fs::read(file)?;
    let pages = bytes.chunks_exact(PAGE_SIZE);
    Ok(pages.filter_map(|page| page.try_into().ok()).collect())
}

fn measure(name: &str, codec: &str, pages: &[Page]) {
    let choice = Choice::parse(codec).expect("listed");
    let mut folder = Folder::new(&Arc::new(choice));
    let mut folded = Vec::new();
    let fold_us = best_us(pages.len(), || {
        folded.clear();
        for page in pages {
            let mut out = [0; PAGE_SIZE];
            let what = folder.fold(page, PageKind::Anonymous, &mut out);
            folded.push((what, out));
        }
    });
    let mut back = [0; PAGE_SIZE];
    let unfold_us = best_us(pages.len(), || {
        for (what, out) in &folded {
            match *what {
                Folded::Same(word) => folder.fill_same(word, &mut back),
                Folded::Bytes { codec, len } => folder
                    .unfold(codec, &out[..len], &mut back)
                    .unwrap_or_else(|error| panic!("{name}: {error}")),
            }
            std::hint::black_box(&back);
        }
    });
    let share = |count: usize| 100.0 * count as f64 / pages.len() as f64;
    let same = folded
        .iter()
        .filter(|(what, _)| matches!(what, Folded::Same(_)));
    let raw = folded
        .iter()
        .filter(|(what, _)| matches!(what, Folded::Bytes { codec, .. } if *codec == CodecId::RAW));
    let bytes: usize = folded.iter().map(|(what, _)| stored_bytes(*what)).sum();
    println!(
        "{name:<16} {codec:<12} {fold_us:>8.2} {unfold_us:>9.2} {:>11.0} {:>6.1} {:>6.1}",
        bytes as f64 / pages.len() as f64,
        share(same.count()),
        share(raw.count()),
    );
}

fn stored_bytes(what: Folded) -> usize {
    match what {
        Folded::Same(_) => 0,
        Folded::Bytes { len, .. } => len,
    }
}

fn best_us(pages: usize, mut pass: impl FnMut()) -> f64 {
    let pass_us = (0..PASSES).map(|_| {
        let start = Instant::now();
        pass();
        start.elapsed().as_secs_f64() * 1e6 / pages as f64
    });
    pass_us.fold(f64::INFINITY, f64::min)
}
