//! The command line as it was typed: the one definition of every flag and of its help.
//!
//! Nothing here is checked against the machine or against other flags' values; `settings` does
//! that. Errors of the parser become one line, as every other error of pleat.

mod config;
mod generate;
mod help;
mod job_reports;
mod jobs;
mod model;
mod mount;
mod papers;
mod report;
mod sim;
mod swap;
mod trace;
mod watch;

pub use config::ConfigArgs;
pub use generate::{CompletionsArgs, GenerateAllArgs};
pub use help::command;
pub use job_reports::JobReportArgs;
pub use jobs::{AttachArgs, DetachArgs, ListArgs, SetArgs};
pub use model::{Figure, ModelArgs};
pub use mount::MountArgs;
pub use papers::PapersArgs;
pub use report::ReportArgs;
pub use sim::{SimArgs, SimHost};
pub use swap::BenchSwapArgs;
pub use trace::{DumpArgs, GenerateArgs, ImportArgs, InfoArgs, Trace};
pub use watch::{MetricsArgs, StatArgs, TopArgs};

use crate::exit::Exit;
use crate::hints::{self, Hints};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use pleat_codec::Choice;
use pleat_engine::{preset_keys, preset_names};
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  pleat run --memory 2G -- python3 train.py
  pleat run --memory 50% -v -- sort -S 8G big.txt -o sorted.txt
  pleat list
  pleat set 4711 --memory 1G
  pleat attach --memory 4G 4711
  pleat mount --memory 1G /srv/www /mnt/www
  pleat top
  pleat report train.jsonl
  pleat doctor
  pleat bench codec /tmp/mine.pages";

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
  Files and heap in one budget: the program reads /srv/data as /mnt/data:
      pleat run --memory 2G --mount /srv/data:/mnt/data:ro -- ./analyse /mnt/data
  Record what a program does to memory, to simulate other sizes of memory later:
      pleat run --record sort.trace -- sort -S 100M big.txt -o sorted.txt
  Keep the figures for later:
      pleat run --memory 340M --stats run.json -- ./program --its-own-flag
  Under a name, by which its budget is changed while it runs:
      pleat run --name train --memory 4G -- python3 train.py
      pleat set train --memory 2G
  Where the time goes, if a program is slower than it should be:
      pleat run --memory 340M --profile -- ./program

Exit status:
  the program's own; 128+N when signal N killed it; 126 when it cannot be executed;
  127 when it does not exist; 2 for a mistake on the command line; 125 when pleat itself
  failed or had to stop the job.";

const SETUP_EXAMPLES: &str = "\
Examples:
  Let the members of the group pleat, and make alice one:
      sudo pleat setup
      sudo usermod -aG pleat alice
  Take it back:
      sudo pleat setup --undo

The program pleat-helper gets the capabilities CAP_SYS_PTRACE and CAP_DAC_OVERRIDE, and only the group may
execute it. It opens /dev/userfaultfd, and asks the kernel to report forks, for processes of its caller;
docs/setup.md says what a member of the group gains by that.";

const BENCH_EXAMPLES: &str = "\
Examples:
  pleat bench dump 4711 /tmp/mine.pages
  pleat bench codec /tmp/mine.pages
  pleat bench swap /tmp/mine.pages";

const BENCH_CODEC_EXAMPLES: &str = "\
Examples:
  Get a sample of the memory of a program that runs now, and compare all codecs on it:
      pleat bench dump $(pidof postgres | cut -d' ' -f1) /tmp/postgres.pages
      pleat bench codec /tmp/postgres.pages
  Two codecs on several samples, with totals at the end:
      pleat bench codec --codec lz4,zstd /tmp/*.pages
  A plot of speed against size; the figures as JSON, a line for each codec and file:
      pleat bench codec --svg codecs.svg /tmp/*.pages
      pleat bench codec --json /tmp/*.pages | jq 'select(.bytes < 1000)'
  The compressed size of every page:
      pleat bench codec --sizes --codec auto /tmp/postgres.pages > postgres.sizes

What is measured: mean time and stored bytes of a page, on one thread. A page of one repeated
word stores nothing, one that does not shrink to 3/4 is kept raw (4096 bytes). All files are gone
through with one codec, then with the next, so that pages come from memory and not from the
nearest cache; of 7 such passes each file keeps the median. Every page is checked to come back
the same. /lz4 is the multiple of LZ4's figure.

Exit status:
  0 when all was measured; 2 for a mistake on the command line or a file that holds no pages;
  125 when a page came back different, or the output could not be written.";

const BENCH_DUMP_EXAMPLES: &str = "\
Examples:
  pleat bench dump 4711 /tmp/mine.pages
  pleat bench dump --pages 4096 --seed 7 $(pgrep -n java) /tmp/java.pages

The process runs on meanwhile. The file holds what the process keeps in memory, passwords
included: only its owner can read it, and a file that exists is not overwritten. To read another
user's process takes root; where kernel.yama.ptrace_scope is 1, so does reading one's own.

Exit status:
  0 when pages were written; 2 for a mistake on the command line, a process that does not exist or
  may not be read, or a FILE that exists; 125 when the file could not be written.";

/// Runs unmodified programs in less memory than they need.
///
/// pleat compresses the memory a program has not touched lately and writes what still does not fit
/// to a swap file. The program does not notice, except in its speed.
#[derive(Debug, Parser)]
#[command(name = "pleat", version)]
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
    /// Show the jobs that run, and how they stand
    #[command(after_help = jobs::LIST_EXAMPLES)]
    List(ListArgs),
    /// Change the memory budget of a job that runs
    #[command(after_help = jobs::SET_EXAMPLES)]
    Set(SetArgs),
    /// Keep processes that run already within a memory budget from now on
    #[command(after_help = jobs::ATTACH_EXAMPLES)]
    Attach(AttachArgs),
    /// Leave processes that 'pleat attach' looks after, with all their memory
    #[command(after_help = jobs::DETACH_EXAMPLES)]
    Detach(DetachArgs),
    /// Watch the jobs that run and their processes, and steer them
    #[command(after_help = watch::TOP_EXAMPLES)]
    Top(TopArgs),
    /// Print how a job stands, a line a second, for scripts
    #[command(after_help = watch::STAT_EXAMPLES)]
    Stat(StatArgs),
    /// Print how all jobs stand for Prometheus, or serve it
    #[command(after_help = watch::METRICS_EXAMPLES)]
    Metrics(MetricsArgs),
    /// Make a page to look at, of how a job went or of several beside each other
    #[command(after_help = report::EXAMPLES)]
    Report(ReportArgs),
    /// Show a directory again, with its files' pages compressed in memory
    #[command(after_help = mount::EXAMPLES)]
    Mount(MountArgs),
    /// Show what this machine allows, and how to mend what is missing
    Doctor,
    /// Let ordinary users of this machine run programs as root can (once, as root)
    #[command(after_help = SETUP_EXAMPLES)]
    Setup(SetupArgs),
    /// Measure codecs and swap files on pages of your own
    #[command(subcommand, after_help = BENCH_EXAMPLES)]
    Bench(Bench),
    /// Make and look at traces of memory references
    #[command(subcommand, after_help = trace::EXAMPLES)]
    Trace(Trace),
    /// Show when compressing pays, by an analytic model
    #[command(after_help = model::EXAMPLES)]
    Model(ModelArgs),
    /// Make figures of the published systems again, in simulation
    #[command(after_help = papers::EXAMPLES)]
    Papers(PapersArgs),
    /// Simulate a workload under several presets, on a machine of your choice
    #[command(after_help = sim::examples())]
    Sim(SimArgs),
    /// Print the completions of a shell: bash, zsh or fish
    #[command(after_help = generate::COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Write completions and man pages below a directory, for `make install`
    #[command(hide = true)]
    Generate(GenerateAllArgs),
    /// Run the commands of --on-pressure and --on-trouble: pleat starts this by itself
    #[command(hide = true)]
    RunHooks,
}

/// The flags of `pleat setup`.
#[derive(Debug, Clone, clap::Args)]
pub struct SetupArgs {
    /// Who may use the helper; the group is made if there is none of this name
    #[arg(long, value_name = "NAME", default_value = "pleat")]
    pub group: String,

    /// Take the capabilities from the helper again
    #[arg(long)]
    pub undo: bool,
}

/// What there is to measure, and with what.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Measure time and size of every codec on files of raw pages
    #[command(after_help = BENCH_CODEC_EXAMPLES)]
    Codec(BenchCodecArgs),
    /// Measure how much a swap file holds of files of raw pages, by preset
    #[command(after_help = swap::EXAMPLES)]
    Swap(BenchSwapArgs),
    /// Write a random sample of a process's memory to a file of raw pages
    #[command(after_help = BENCH_DUMP_EXAMPLES)]
    Dump(BenchDumpArgs),
}

/// The flags of `pleat bench codec`, unchecked.
#[derive(Debug, Clone, clap::Args)]
pub struct BenchCodecArgs {
    #[arg(long, value_name = "NAME", value_delimiter = ',', help = codecs_help())]
    pub codec: Vec<String>,

    /// The most pages of each file, evenly spread over it
    #[arg(long, value_name = "N", default_value = "16384", value_parser = clap::value_parser!(u32).range(1..))]
    pub pages: u32,

    /// Print one JSON object a line instead of the table: codec, pool (the file's name without its
    /// extension), pages, compress_ns, decompress_ns and bytes (means per page), same_pages and
    /// raw_pages
    #[arg(long)]
    pub json: bool,

    /// Print instead what each page compresses to, in bytes, one a line, pages of one repeated word left
    /// out: what crates/store/examples/churn takes. With one codec, which has seen all pages once
    /// before, and so has learnt what it can
    #[arg(long, conflicts_with_all = ["json", "svg"])]
    pub sizes: bool,

    /// Also plot speed against size, over all files, to FILE
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Raw pages of 4096 bytes, one after the other
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// The flags of `pleat bench dump`, unchecked.
#[derive(Debug, Clone, clap::Args)]
pub struct BenchDumpArgs {
    /// How many pages, at most: chosen at random among the private anonymous pages that are in
    /// memory, without repetition; pages of zeros make up at most a tenth
    #[arg(long, value_name = "N", default_value = "1024", value_parser = clap::value_parser!(u32).range(1..))]
    pub pages: u32,

    /// Which random choice: the same seed on the same memory gives the same pages
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub seed: u64,

    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: i32,

    /// The file to write; must not exist yet
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Whether the job has a memory cgroup of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum CgroupArg {
    /// Where it can be had.
    Auto,
    /// In no case.
    Never,
}

// The subjects by which help groups flags.
const MEMORY: &str = "Memory";
const SWAP: &str = "Swap file";
const COMPRESSION: &str = "Compression";
const JOB: &str = "The job";
const REPORTS: &str = "Reports";

/// The flags of `pleat run`, unchecked.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RunArgs {
    /// Budget for everything: the program and its children, compressed memory, pleat itself.
    /// 340M, 2G, 1.5GiB, 512k or plain bytes (units count in 1024s), or a percentage of the memory
    /// cgroup's limit, else of the memory that is available. Default: 90% of that limit if there
    /// is one, else 80% of what is available
    #[arg(long, value_name = "SIZE|PERCENT", help_heading = MEMORY)]
    pub memory: Option<String>,

    /// What 'pleat list' and 'pleat set' call the job: letters, digits, '-', '_' and '.', 64 at most, and
    /// not digits alone. Default: the file name of the program. Several jobs may have the same
    #[arg(long, value_name = "NAME", help_heading = JOB)]
    pub name: Option<String>,

    /// Directory of the swap file, which is unlinked at once and readable by nobody else.
    /// Default: $TMPDIR, else /var/tmp, if writable and on a disk
    #[arg(long, value_name = "DIR", help_heading = SWAP)]
    pub swap_dir: Option<PathBuf>,

    /// The most that may be written to the swap file. Default: as much as the disk holds
    #[arg(long, value_name = "SIZE", help_heading = SWAP)]
    pub swap_max: Option<String>,

    /// Write nothing to disk, whatever --swap-dir says: what does not fit into the budget compressed
    /// ends the job
    #[arg(long, help_heading = SWAP)]
    pub no_swap: bool,

    /// Leave mapped files as they are. Else large private mappings that can be written to become memory,
    /// filled from the file, which is folded like any other; and memory of pleat's stands in for files
    /// that are mapped shared and only read, as long as nobody opens them for writing
    #[arg(long, help_heading = COMPRESSION)]
    pub no_file_maps: bool,

    /// Let all processes run at once, whatever comes of it. Else, where several processes compute without
    /// a break, together use more than --memory, and are more than there are CPUs, some rest for up to
    /// half a minute while others get done what they do: they take turns
    #[arg(long, help_heading = JOB)]
    pub no_load_control: bool,

    /// Compress the memory, too, that processes share by forks (MAP_SHARED and anonymous: PostgreSQL's buffers, a
    /// server's workers). Needs root's rights; not where pages are pinned or locked, or a process that is not
    /// managed maps them. Off unless asked for: it is new
    #[arg(long, help_heading = JOB)]
    pub shared_memory: bool,

    /// Tell runtimes that manage their own memory the budget, in their environment variables: Go (GOMEMLIMIT),
    /// Java (JAVA_TOOL_OPTIONS, which Java mentions on stderr), Node.js (NODE_OPTIONS). A collector that knows it collects
    /// sooner. Limits that are set already stay. Without LIST all three
    #[arg(long, value_name = "LIST", num_args = 0..=1, require_equals = true, default_missing_value = hints::ALL,
        help_heading = MEMORY)]
    pub hint: Option<Hints>,

    /// When the program ends, end what it has left running. Else pleat stays until the last process has ended
    /// whose memory it has, and says for whom it waits
    #[arg(long, help_heading = JOB)]
    pub kill_on_exit: bool,

    /// Whether the job has a memory cgroup of its own: auto, where that can be had, or never. With one, a program
    /// that takes memory faster than pleat can follow waits, instead of being killed by a memory limit close to
    /// the budget. 'pleat doctor' says whether it can be had
    #[arg(
        long,
        value_name = "auto|never",
        value_enum,
        hide_possible_values = true, help_heading = MEMORY)]
    pub cgroup: Option<CgroupArg>,

    /// Never let the job use more than --memory and 2 %: where nothing can be made free in time the kernel kills
    /// its largest program. Needs a memory cgroup of the job's own
    #[arg(long, help_heading = MEMORY)]
    pub hard: bool,

    /// While the job runs, show the directory SOURCE on MOUNTPOINT, an empty directory, and keep the pages
    /// of its files within --memory, too: they and the program's own pages are compressed or kept by
    /// when they were last used. Can be given several times; with ':ro' at the end nothing can be
    /// changed through MOUNTPOINT. Needs what 'pleat mount' needs
    #[arg(long, value_name = "SOURCE:MOUNTPOINT[:ro]", conflicts_with = "record", help_heading = JOB)]
    pub mount: Vec<OsString>,

    /// Write pages to the swap file as they are, with a checksum, instead of encrypted: saves a little
    /// CPU time, but what was in the program's memory, passwords included, lies readable on the disk
    /// until it is overwritten
    #[arg(long, help_heading = SWAP)]
    pub swap_plain: bool,

    #[arg(long, value_name = "NAME", help = preset_help(), help_heading = COMPRESSION)]
    pub preset: Option<String>,

    #[arg(long, value_name = "NAME", help = codec_help(), help_heading = COMPRESSION)]
    pub codec: Option<String>,

    /// Compress pages that stay cold a second time, with zstd, when nothing else is to be done: more
    /// fits into the budget, at the cost of CPU time and of slower faults on such pages
    #[arg(long, help_heading = COMPRESSION)]
    pub recompress: bool,

    /// Keep a checksum of every compressed page in memory, and end the job when one is not what it was:
    /// for machines whose memory is in doubt. (Pages in the swap file are always checked)
    #[arg(long, help_heading = COMPRESSION)]
    pub paranoid: bool,

    #[command(flatten)]
    pub reports: JobReportArgs,

    /// Find out where the time of faults and evictions goes, part by part: a table at the end, and with
    /// --stats the field profile. Each fault takes 2 to 3 us longer for it
    #[arg(long, help_heading = REPORTS)]
    pub profile: bool,

    /// Write a trace of the page references of PROGRAM and its children to FILE, which must not exist
    /// yet, for 'pleat sim --trace FILE'. The program runs several times as long: only faults are
    /// seen, so nearly all its pages are kept away from it
    #[arg(long, value_name = "FILE", help_heading = REPORTS)]
    pub record: Option<PathBuf>,

    /// While recording, the most memory in pages that can be taken away: the trace is good for
    /// simulations of more memory than this. Default: 1/64 of the budget, at least 2M
    #[arg(long, value_name = "SIZE", requires = "record", help_heading = REPORTS)]
    pub record_resident: Option<String>,

    /// Show a live status line on a terminal, and a summary at the end
    #[arg(short, long, help_heading = REPORTS)]
    pub verbose: bool,

    /// Print no warnings, only errors
    #[arg(short, long, conflicts_with = "verbose", help_heading = REPORTS)]
    pub quiet: bool,

    #[command(flatten)]
    pub config: ConfigArgs,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

fn preset_help() -> String {
    let names = preset_names().join(", ");
    format!(
        "Named choice of codec, layout, sizing policy and more, the default first: {names}. Parts can be \
         replaced, as in castro03/layout=cells1/sizing=aggressive; the keys are {}",
        preset_keys()
    )
}

fn codec_help() -> String {
    format!("Codec, instead of the preset's: {}", Choice::help())
}

fn codecs_help() -> String {
    format!(
        "Only these, separated by commas; all by default: {}",
        Choice::names().join(", ")
    )
}

/// Prints what the parser has to say: help in full, an error as one line with its remedy and, by `blame`, its place.
pub fn explain(error: &clap::Error, blame: impl Fn(String) -> String) -> Exit {
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
        _ => crate::fail(&blame(one_line(error, std::env::args_os())), Exit::Usage),
    }
}

/// The parser's message without its layout: what is wrong, what it suggests, where to look.
fn one_line(error: &clap::Error, typed: impl IntoIterator<Item = OsString>) -> String {
    let text = error.render().to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let what = paragraph.strip_prefix("error: ").unwrap_or(paragraph);
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    let suggestion = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(flag)) => format!("; did you mean {flag}?"),
        _ => String::new(),
    };
    format!("{what}{suggestion} (see '{} --help')", command_of(typed))
}

/// The command that was meant, such as `pleat run`: the words typed as far as they are subcommands.
fn command_of(typed: impl IntoIterator<Item = OsString>) -> String {
    let (mut command, mut path) = (help::command(), "pleat".to_owned());
    for word in typed.into_iter().skip(1) {
        let Some(subcommand) = command.find_subcommand(word).cloned() else {
            break;
        };
        path = format!("{path} {}", subcommand.get_name());
        command = subcommand;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn parse(line: &str) -> Result<RunArgs, clap::Error> {
        match Args::try_parse_from(words(line))?.command {
            Command::Run(raw) => Ok(raw),
            _ => panic!("{line} is not a run"),
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
        let typed = "pleat run --memry 1G -- true";
        let line = one_line(&parse(typed).unwrap_err(), words(typed));
        assert!(!line.contains('\n') && line.contains("--memry"), "{line}");
        assert!(line.contains("did you mean --memory"), "{line}");
    }

    #[test]
    fn every_parser_error_is_one_line_without_decoration() {
        for (line, command) in [
            ("pleat run", "pleat run"),
            ("pleat run --memory", "pleat run"),
            ("pleat frobnicate", "pleat"),
            ("pleat run -v -q -- true", "pleat run"),
            ("pleat run --record-resident 1M -- true", "pleat run"),
            ("pleat bench codec", "pleat bench codec"),
            ("pleat bench codec --pages many x", "pleat bench codec"),
            ("pleat bench swap --json", "pleat bench swap"),
            ("pleat bench dump me x.pages", "pleat bench dump"),
            ("pleat trace info", "pleat trace info"),
            ("pleat model --figure 3", "pleat model"),
            ("pleat report -o x.html", "pleat report"),
        ] {
            let text = one_line(&Args::try_parse_from(words(line)).unwrap_err(), words(line));
            assert!(
                !text.contains('\n') && !text.contains("error:"),
                "{line}: {text}"
            );
            let end = format!("(see '{command} --help')");
            assert!(text.ends_with(&end), "{line}: {text}");
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        help::command().debug_assert();
    }
}
