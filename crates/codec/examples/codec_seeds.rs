//! First inputs for the fuzz targets: typical pages, and what every choice makes of them.
//!
//! `cargo run --release -p pleat-codec --example codec_seeds -- DIR` writes DIR/round_trip and DIR/decode;
//! `fuzz/run` calls it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use pleat_codec::measure::typical_pools;
use pleat_codec::{Choice, Folded, Folder, PageKind};
use pleat_types::PAGE_SIZE;

const PAGES_PER_POOL: usize = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args_os().nth(1).ok_or("usage: codec_seeds DIR")?;
    let [pages_dir, bytes_dir] = ["round_trip", "decode"].map(|to| PathBuf::from(&dir).join(to));
    fs::create_dir_all(&pages_dir)?;
    fs::create_dir_all(&bytes_dir)?;
    for pool in typical_pools(PAGES_PER_POOL) {
        for (number, page) in pool.pages.iter().enumerate() {
            let name = format!("{}-{number}", pool.name);
            fs::write(pages_dir.join(&name), page)?;
            for choice in Choice::names() {
                let mut folder = Folder::new(&Arc::new(Choice::parse(choice)?));
                let mut out = [0; PAGE_SIZE];
                let folded = folder.fold(page, PageKind::Anonymous, &mut out);
                if let Folded::Bytes { codec, len } = folded {
                    let seed = [&[codec.0], &out[..len]].concat();
                    fs::write(bytes_dir.join(format!("{choice}-{name}")), seed)?;
                }
            }
        }
    }
    Ok(())
}
