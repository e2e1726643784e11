//! The flags of `pleat report`.

use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Examples:
  Record how a job goes, and look at it afterwards, in any browser:
      pleat run --memory 2G --trace-stats train.jsonl -- python3 train.py
      pleat report train.jsonl
  Two budgets beside each other, with the differences:
      pleat report 2G.jsonl 3G.jsonl -o budgets.html
  A job that still runs, as far as it has come:
      pleat report train.jsonl -o /tmp/now.html
  From another machine, without a file there or here:
      ssh build cat train.jsonl | pleat report - -o - > train.html

The page is one file that needs no other, and no network. Like the series, it names programs with
all their arguments, and their processes: look at these before you pass it on. docs/report.md
explains the page.

Exit status:
  0; 2 for a mistake on the command line, a file that does not exist or is no series; 125 when the
  page could not be written.";

/// The flags of `pleat report`, unchecked.
#[derive(Debug, Clone, clap::Args)]
pub struct ReportArgs {
    /// The page to write; what was there before is replaced. '-' is standard output. Default: beside the
    /// first FILE, and called as it is, with .html for its extension; standard output if that is '-'
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Series that 'pleat run --trace-stats' has written, one of each job; '-' is standard input. Differences
    /// are to the first
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}
