//! The flags of `pleat model`.

use clap::ValueEnum;
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Examples:
  Both figures as tables of speed-ups:
      pleat model
  One of them, and a picture of it:
      pleat model --figure 1b --svg figure1b.svg
  The numbers for a plot of your own:
      pleat model --json | jq 'select(.speedup > 6)'

Of the paper: Fred Douglis, The Compression Cache, USENIX Winter 1993, section 3. 1a is paging to and
from the backing store with compressed pages; 1b is the mean memory reference time of a program that
goes in order through twice as many pages as fit in memory, with compressed pages kept in memory.
Decompression is taken to be twice as fast as compression.

Exit status:
  0 when the figures were written; 2 for a mistake on the command line; 125 when the output could not
  be written.";

/// The flags of `pleat model`, unchecked.
#[derive(Debug, Clone, clap::Args)]
pub struct ModelArgs {
    /// Only this one; both by default
    #[arg(long, value_enum)]
    pub figure: Option<Figure>,

    /// Also draw the figures to FILE, with the paper's three regions: beyond 6-fold, up to that,
    /// and slower
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Print one JSON object a line instead of the tables: figure, left (fraction of a page),
    /// relative_speed (of compression to I/O) and speedup
    #[arg(long)]
    pub json: bool,
}

/// The two halves of figure 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// Transferring compressed pages to backing store
    #[value(name = "1a")]
    Paging,
    /// Keeping compressed pages in memory
    #[value(name = "1b")]
    Keeping,
}
