//! Every codec on a directory of `NAME.pages` files: $PLEAT_CORPUS, else `../shared/corpus` beside
//! the project, else on generated pages.
//!
//! `cargo bench -p pleat-codec`, or with names of codecs: `cargo bench -p pleat-codec -- lz4`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pleat_codec::measure::{measure, table, typical_pools, Pool};
use pleat_codec::Choice;

/// Pages of each generated pool: 4 MiB, so that none stays in the caches nearest to the CPU.
const GENERATED_PAGES: usize = 1024;

fn main() -> ExitCode {
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-')) // cargo adds --bench
        .collect();
    let codecs: Vec<&str> = match named.is_empty() {
        true => Choice::names().to_vec(),
        false => named.iter().map(String::as_str).collect(),
    };
    match run(&codecs) {
        Ok(table) => print!("{table}"),
        Err(error) => {
            eprintln!("codecs: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn run(codecs: &[&str]) -> Result<String, Box<dyn std::error::Error>> {
    let named = std::env::var_os("PLEAT_CORPUS").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let dir = named.or_else(|| beside.is_dir().then_some(beside));
    let pools = match &dir {
        Some(dir) => {
            println!("Pages of {}.\n", dir.display());
            read_pools(dir)?
        }
        None => {
            println!("GENERATED pages: they compare builds, not codecs on real memory. For real ones set");
            println!("PLEAT_CORPUS to a directory of NAME.pages files, as 'pleat bench dump' writes them.\n");
            typical_pools(GENERATED_PAGES)
        }
    };
    Ok(table(&measure(&pools, codecs, &|_| ())?))
}

fn read_pools(dir: &Path) -> Result<Vec<Pool>, Box<dyn std::error::Error>> {
    let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut files = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|ext| ext == "pages"));
    files.sort();
    if files.is_empty() {
        return Err(format!("{}: no NAME.pages in it", dir.display()).into());
    }
    let pools = files.iter().map(|file| Pool::read(file, usize::MAX));
    Ok(pools.collect::<Result<_, _>>()?)
}
