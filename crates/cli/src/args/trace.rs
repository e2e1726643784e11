//! The flags of `pleat trace`.

use clap::Subcommand;
use pleat_trace::{generators, Common, Help, Parameters};
use std::fmt::Write;
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Examples:
  pleat trace generate thrasher:pages=65536,passes=4 thrasher.trace
  pleat trace import references.txt mine.trace
  pleat trace info mine.trace
  pleat trace dump mine.trace | head

A trace says which pages programs touched, in which order, after how much computing, and how well each
page compressed. docs/traces.md explains the file format.";

const GENERATE_EXAMPLES: &str = "\
Examples:
  256 MiB gone through four times, reading only after the first time:
      pleat trace generate thrasher:pages=64k,passes=4,write=0 thrasher.trace
  A web server beside a build of four jobs, with pages that compress to 35 % on average:
      pleat trace generate web:ratio=0.35+compile:jobs=4,ratio=0.35 mix.trace

SPEC is NAME, or NAME:PARAMETER=VALUE,... where anything is to differ from the defaults; '+' between
several puts them side by side as processes. K, M and G after a number count in 1024s. The same SPEC
gives the same trace.";

pub const IMPORT_EXAMPLES: &str = "\
Examples:
  Text of your own, one reference a line: process, region, page, r or w, ns of computing, size:
      printf '0 - 17 w 1200 size=900\\n0 libc 4 r\\n' > references.txt
      pleat trace import references.txt mine.trace
  What a program does, as valgrind sees it:
      valgrind --tool=lackey --trace-mem=yes --log-file=ls.txt ls
      pleat trace import --lackey ls.txt ls.trace

Region '-', or a word that begins with it, is memory of that process alone; other words are files that
all processes share. Computing time and size may be left out. '#' begins a comment.

Exit status:
  0 when the trace was written; 2 for a mistake on the command line or in TEXT, which is named by its
  line; 125 when FILE could not be written.";

/// What to do with traces.
#[derive(Debug, Subcommand)]
pub enum Trace {
    /// Write a trace that is computed from a description
    #[command(after_help = generate_help())]
    Generate(GenerateArgs),
    /// Make a trace of a text
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
    /// Show what a trace holds: references, pages, how they compress
    Info(InfoArgs),
    /// Print a trace as text, which 'pleat trace import' takes
    Dump(DumpArgs),
}

/// The flags of `pleat trace generate`, unchecked.
#[derive(Debug, Clone, clap::Args)]
pub struct GenerateArgs {
    /// Which trace, as explained below
    #[arg(value_name = "SPEC")]
    pub spec: String,

    /// The file to write; one that exists is replaced
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// The flags of `pleat trace import`, unchecked.
#[derive(Debug, Clone, clap::Args)]
pub struct ImportArgs {
    /// TEXT is what valgrind's lackey tool wrote. Touches of the page touched last are merged
    #[arg(long)]
    pub lackey: bool,

    /// With --lackey: CPU time of an instruction, in nanoseconds
    #[arg(long, value_name = "NS", default_value = "0.333", requires = "lackey")]
    pub instruction_ns: f64,

    /// What pages compress to whose size is not told, as a share of a page
    #[arg(long, value_name = "SHARE", default_value = "0.4")]
    pub ratio: f64,

    /// The text; - for standard input
    #[arg(value_name = "TEXT")]
    pub text: PathBuf,

    /// The file to write; one that exists is replaced
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// The flags of `pleat trace info`, unchecked.
#[derive(Debug, Clone, clap::Args)]
pub struct InfoArgs {
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,

    /// A trace
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// The flags of `pleat trace dump`, unchecked.
#[derive(Debug, Clone, clap::Args)]
pub struct DumpArgs {
    /// A trace
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// The examples, and every generator with its parameters.
fn generate_help() -> String {
    let common = Common::default().list();
    let mut text = format!("{GENERATE_EXAMPLES}\n\nNames, and their parameters with defaults:\n");
    for Help {
        name,
        about,
        parameters,
    } in generators()
    {
        let _ = writeln!(text, "  {name}: {about}");
        let own = parameters.len() - common.len();
        for parameter in &parameters[..own] {
            let _ = writeln!(
                text,
                "      {}={}: {}",
                parameter.name, parameter.default, parameter.help
            );
        }
        let differs = |n: &usize| parameters[own + n].default != common[*n].default;
        let others = (0..common.len()).filter(differs);
        let others: Vec<String> = others
            .map(|n| format!("{}={}", common[n].name, parameters[own + n].default))
            .collect();
        if !others.is_empty() {
            let _ = writeln!(text, "      and {}", others.join(", "));
        }
    }
    text += "  Of all of them:\n";
    for parameter in &common {
        let _ = writeln!(
            text,
            "      {}={}: {}",
            parameter.name, parameter.default, parameter.help
        );
    }
    text += "\nExit status:\n  0 when the trace was written; 2 for a mistake in SPEC or FILE; 125 when \
             FILE could not be\n  written.";
    text
}
