//! The command line as it was typed: the one definition of every flag and of its help.
//!
//! Nothing here is checked against the machine or against other flags' values; `settings` does
//! that. Errors of the parser become one line, as every other error of pleat.

use crate::exit::Exit;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use pleat_codec::Choice;
use pleat_engine::preset_names;
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  pleat run --memory 2G -- python3 train.py
  pleat run --memory 50% -v -- sort -S 8G big.txt -o sorted.txt
  pleat doctor

'pleat run --help' explains every flag.";

const RUN_EXAMPLES: &str = "\
Examples:
  Run in at most 2 GiB, whatever the program needs:
      pleat run --memory 2G -- python3 train.py
  In half of what the machine has free, telling how it goes:
      pleat run --memory 50% -v -- make -j2
  A pipeline or a script is one job with one budget:
      pleat run --memory 512M -- sh -c 'zcat big.gz | sort | uniq -c'
  Never write to disk; compress in memory only:
      pleat run --memory 1G --no-swap -- node server.js
  Keep the figures for later:
      pleat run --memory 340M --stats run.json -- ./program --its-own-flag

Exit status:
  the program's own; 128+N when signal N killed it; 126 when it cannot be executed;
  127 when it does not exist; 2 for a mistake on the command line; 125 when pleat itself
  failed or had to stop the job.";

/// Runs unmodified programs in less memory than they need.
///
/// pleat compresses the memory a program has not touched lately and writes what still does not fit
/// to a swap file. The program does not notice, except in its speed.
#[derive(Debug, Parser)]
#[command(name = "pleat", version, after_help = EXAMPLES)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program within a memory budget
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Show what this machine allows, and how to mend what is missing
    Doctor,
}

/// The flags of `pleat run`, unchecked.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RunArgs {
    /// Budget for everything: the program and its children, compressed memory, pleat itself.
    /// 340M, 2G, 1.5GiB, 512k or plain bytes (units count in 1024s), or a percentage of the memory
    /// cgroup's limit, else of the memory that is available. Default: 90% of that limit if there
    /// is one, else 80% of what is available
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub memory: Option<String>,

    /// Directory of the swap file, which is unlinked at once and readable by nobody else.
    /// Default: $TMPDIR, else /var/tmp, if writable and on a disk
    #[arg(long, value_name = "DIR")]
    pub swap_dir: Option<PathBuf>,

    /// The most that may be written to the swap file. Default: as much as the disk holds
    #[arg(long, value_name = "SIZE")]
    pub swap_max: Option<String>,

    /// Write nothing to disk, whatever --swap-dir says: what does not fit into the budget compressed
    /// ends the job
    #[arg(long)]
    pub no_swap: bool,

    #[arg(long, value_name = "NAME", help = preset_help())]
    pub preset: Option<String>,

    #[arg(long, value_name = "NAME", help = codec_help())]
    pub codec: Option<String>,

    /// Write every counter as JSON to FILE at the end, also when the job failed
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,

    /// Show a live status line on a terminal, and a summary at the end
    #[arg(short, long)]
    pub verbose: bool,

    /// Print no warnings, only errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

fn preset_help() -> String {
    let names = preset_names().join(", ");
    format!("Named choice of codec, layout and sizing policy, the default first: {names}")
}

fn codec_help() -> String {
    format!("Codec, instead of the preset's: {}", Choice::help())
}

/// Prints what the parser has to say: help in full, an error as one line with its remedy.
pub fn explain(error: &clap::Error) -> Exit {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    match error.kind() {
        DisplayHelp | DisplayVersion => {
            // A closed pipe (`pleat --help | head -1`) is no error.
            let _ = error.print();
            Exit::Program(0)
        }
        DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Exit::Usage
        }
        _ => crate::fail(&one_line(error), Exit::Usage),
    }
}

/// The parser's message without its layout: what is wrong, what it suggests, where to look.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let what = paragraph.strip_prefix("error: ").unwrap_or(paragraph);
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    let suggestion = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(flag)) => format!("; did you mean {flag}?"),
        _ => String::new(),
    };
    format!("{what}{suggestion} (see 'pleat run --help')")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<RunArgs, clap::Error> {
        match Args::try_parse_from(line.split(' '))?.command {
            Command::Run(raw) => Ok(raw),
            Command::Doctor => panic!("{line} is not a run"),
        }
    }

    #[test]
    fn flags_after_the_program_are_the_programs() {
        for line in [
            "pleat run --memory 1G -- sort -r -v",
            "pleat run --memory 1G sort -r -v",
        ] {
            let raw = parse(line).unwrap();
            assert_eq!(raw.program, ["sort", "-r", "-v"], "{line}");
            assert_eq!(raw.memory.as_deref(), Some("1G"));
        }
        assert_eq!(
            parse("pleat run -- a -- b").unwrap().program,
            ["a", "--", "b"]
        );
    }

    #[test]
    fn a_misspelt_flag_is_an_error_and_not_the_program() {
        let error = parse("pleat run --memry 1G -- true").unwrap_err();
        let line = one_line(&error);
        assert!(!line.contains('\n') && line.contains("--memry"), "{line}");
        assert!(line.contains("did you mean --memory"), "{line}");
    }

    #[test]
    fn every_parser_error_is_one_line_without_decoration() {
        for line in [
            "pleat run",
            "pleat run --memory",
            "pleat frobnicate",
            "pleat run -v -q -- true",
        ] {
            let text = one_line(&Args::try_parse_from(line.split(' ')).unwrap_err());
            assert!(
                !text.contains('\n') && !text.contains("error:"),
                "{line}: {text}"
            );
            assert!(text.ends_with("(see 'pleat run --help')"), "{line}: {text}");
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
