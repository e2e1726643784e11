//! The flags of `pleat papers`.

use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Examples:
  What there is:
      pleat papers --list
  One figure as a table, with what the paper states of it:
      pleat papers castro03-figure3
  All of them, with a plot each in a directory that exists:
      pleat papers --svg plots

The papers' programs are replaced by generators with the properties the papers name, their machines by a
cost model: so the shape of a result is compared, not its numbers. All figures take some minutes.

Exit status:
  0 when every statement holds; 2 for a mistake on the command line; 125 when a statement does not hold
  or the output could not be written.";

/// The flags of `pleat papers`, unchecked.
#[derive(Debug, Clone, clap::Args)]
pub struct PapersArgs {
    /// Only these; all by default
    #[arg(value_name = "FIGURE")]
    pub figure: Vec<String>,

    /// Only say which figures there are
    #[arg(long)]
    pub list: bool,

    /// Also plot each to DIR/FIGURE.svg
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
}
