//! The arguments of `pleat bench swap`.

use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  How much the swap file would hold of a program that runs now:
      pleat bench dump $(pidof postgres | cut -d' ' -f1) /tmp/postgres.pages
      pleat bench swap /tmp/postgres.pages
  Every sample of a directory; finer fragments against those of the preset:
      pleat bench swap --preset castro03,castro03/fragment=1024 samples/
  As JSON, a line for each preset and file; which fall short of 92 % of the ideal:
      pleat bench swap --json samples/ | jq 'select(.share_of_ideal < 0.92)'

What is done: all pages of a file become memory of a program that has an eighth of that. The preset
takes them away, compresses them and lays them out in its swap file, as in a run, until none is left
in memory; only the writing itself is left out. A small sample goes there several times, until it
is 64 MiB.

What is printed, by columns: the pages that left, a file of 4 KiB for each; how many per cent are of
one repeated word and take no room; the mean bytes that compression leaves of the others, and the mean bytes
that they take in the file; pages for each MiB of file; the gain over 4 KiB for every page, with
and without the pages of one repeated word; and the share of the ideal, a file without any gap.

Exit status:
  0 when all was measured; 2 for a mistake on the command line or a file that holds no pages;
  125 when the output could not be written.";

/// The flags of `pleat bench swap`, unchecked.
#[derive(Debug, Clone, clap::Args)]
pub struct BenchSwapArgs {
    /// Presets to compare, separated by commas, with parts replaced as in castro03/fragment=1024.
    /// Default: pleat, douglis93, cervera99, castro03 and none
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub preset: Vec<String>,

    /// The most pages of each file, evenly spread over it
    #[arg(long, value_name = "N", default_value = "16384", value_parser = clap::value_parser!(u32).range(1..))]
    pub pages: u32,

    /// Print one JSON object a line instead of the table: preset, pool (the file's name without its
    /// extension), pages, same_pages, kept_pages (that did not leave memory), folded_bytes,
    /// used_bytes and file_bytes (allocated in the file, and what it grew to), pages_per_mib, gain,
    /// gain_without_same and share_of_ideal
    #[arg(long)]
    pub json: bool,

    /// Raw pages of 4096 bytes, one after the other; or a directory with such files, called *.pages
    #[arg(required = true, value_name = "FILE|DIR")]
    pub files: Vec<PathBuf>,
}
