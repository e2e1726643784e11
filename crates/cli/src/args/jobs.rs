//! The flags of `pleat list`, `pleat set`, `pleat attach` and `pleat detach`.

use super::{CgroupArg, ConfigArgs, JobReportArgs, RunArgs};
use std::ffi::OsString;
use std::path::PathBuf;

pub const LIST_EXAMPLES: &str = "\
Examples:
  Which jobs of this user run (of all users, for root), and how they stand:
      pleat list
  The same for programs, one JSON object a line:
      pleat list --json | jq -r 'select(.used_bytes > 1e9) | .name'

AWAY is memory of programs that is compressed or in the swap file; RUNNING is for how long. What is
asked of whom, and who may ask, is in docs/control.md.

Exit status:
  0, also when there are no jobs; 125 when the output could not be written.";

pub const SET_EXAMPLES: &str = "\
Examples:
  Give the job called 'train' 2 GiB, whatever it has now:
      pleat run --name train --memory 4G -- python3 train.py
      pleat set train --memory 2G
  The job in which process 4711 runs; do not wait until it uses no more than that:
      pleat set 4711 --memory 512M --no-wait

A smaller budget is brought about while the job runs, which takes as long as compressing and
writing what is too much. A limit of the job's own memory cgroup moves along.

Exit status:
  0 when the job is within its new budget, or has ended; 1 when it is not after --wait; 2 for a mistake
  on the command line, a job that does not exist, or a budget that cannot hold it; 125 when the job
  does not answer.";

pub const ATTACH_EXAMPLES: &str = "\
Examples:
  Keep a notebook that is about to be killed, and what it starts, within 4 GiB from now on:
      pleat attach --memory 4G $(pgrep -n jupyter) &
  Leave it again: all its memory comes back, and it goes on as if nothing had been:
      pleat detach $(pgrep -n jupyter)
  This shell and all that it starts:
      pleat attach --memory 2G $$ &

pleat stays for as long as any of the processes has memory of which it has pages, or until it is told to leave by
'pleat detach', Ctrl-C or SIGTERM. When the terminal is closed it stays. It must not be killed (SIGKILL): the
processes' memory would be lost, and they with it. They are never ended for being too large for the budget: then
they are left. Needs what 'pleat doctor' asks for, forks that are reported, and the right to trace the processes.

Exit status:
  0 when the processes have ended, or were left; 2 for a mistake on the command line, or processes that
  cannot be taken up; 125 when pleat itself failed.";

pub const DETACH_EXAMPLES: &str = "\
Examples:
  Leave the processes that a 'pleat attach' looks after, by the number of one of them, or by its name:
      pleat detach 4711
      pleat detach notebook

All that is compressed or in the swap file comes back into memory first; where there is not enough the processes
stay within their budget, and that is said.

Exit status:
  0 when the processes are left, or have ended; 1 when they are not after --wait; 2 for a mistake on the
  command line, a job that does not exist, that pleat run has started, or whose memory has no room; 125 when
  the job does not answer.";

/// The flags of `pleat attach`, unchecked. They mean what they mean for `pleat run`.
#[derive(Debug, Clone, clap::Args)]
pub struct AttachArgs {
    /// Budget for everything: the processes and their children, compressed memory, pleat itself; in the
    /// forms that 'pleat run --memory' takes. Percentages are of the least limit of a memory cgroup that the
    /// processes or pleat are under, else of what the processes have and what is available. Default: 90% of that
    /// limit if there is one, else 80% of the other
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub memory: Option<String>,

    /// What 'pleat list', 'pleat set' and 'pleat detach' call the job. Default: the name of the first process
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Directory of the swap file, as for 'pleat run'
    #[arg(long, value_name = "DIR")]
    pub swap_dir: Option<PathBuf>,

    /// The most that may be written to the swap file. Default: as much as the disk holds
    #[arg(long, value_name = "SIZE")]
    pub swap_max: Option<String>,

    /// Write nothing to disk
    #[arg(long)]
    pub no_swap: bool,

    /// Write pages to the swap file as they are, instead of encrypted, as for 'pleat run'
    #[arg(long)]
    pub swap_plain: bool,

    /// Named choice of codec, layout, sizing policy and more; 'pleat run --help' shows the names
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,

    /// Codec, instead of the preset's; 'pleat run --help' shows the names
    #[arg(long, value_name = "NAME")]
    pub codec: Option<String>,

    /// Compress pages that stay cold a second time, as for 'pleat run'
    #[arg(long)]
    pub recompress: bool,

    /// Keep a checksum of every compressed page in memory, as for 'pleat run'
    #[arg(long)]
    pub paranoid: bool,

    /// Let all processes run at once, as for 'pleat run'
    #[arg(long)]
    pub no_load_control: bool,

    /// Compress memory, too, that the processes share by forks, as for 'pleat run'
    #[arg(long)]
    pub shared_memory: bool,

    #[command(flatten)]
    pub reports: JobReportArgs,

    /// Show a live status line on a terminal, and a summary at the end
    #[arg(short, long)]
    pub verbose: bool,

    /// Print no warnings, only errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    #[command(flatten)]
    pub config: ConfigArgs,

    /// The processes, with all that they have started and will start
    #[arg(required = true, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pids: Vec<i32>,
}

impl AttachArgs {
    /// The same as flags of `pleat run`, for a program of this name.
    pub fn as_run(&self, name: OsString) -> RunArgs {
        let given = self.clone();
        RunArgs {
            memory: given.memory,
            name: given.name,
            swap_dir: given.swap_dir,
            swap_max: given.swap_max,
            no_swap: given.no_swap,
            swap_plain: given.swap_plain,
            preset: given.preset,
            codec: given.codec,
            recompress: given.recompress,
            paranoid: given.paranoid,
            no_load_control: given.no_load_control,
            shared_memory: given.shared_memory,
            reports: given.reports,
            verbose: given.verbose,
            quiet: given.quiet,
            config: given.config,
            // They are in groups already, which others may have set up.
            cgroup: Some(CgroupArg::Never),
            program: vec![name],
            ..RunArgs::default()
        }
    }
}

/// The flags of `pleat detach`.
#[derive(Debug, Clone, clap::Args)]
pub struct DetachArgs {
    /// The job: its name, or the process id of its pleat or of any process in it
    #[arg(value_name = "PID|NAME")]
    pub job: String,

    /// How many seconds to wait until the processes are left
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    pub wait: u32,
}

/// The flags of `pleat list`.
#[derive(Debug, Clone, clap::Args)]
pub struct ListArgs {
    /// Print one JSON object a line for each job, as docs/control.md explains, with the fields uid and
    /// socket
    #[arg(long)]
    pub json: bool,
}

/// The flags of `pleat set`, unchecked.
#[derive(Debug, Clone, clap::Args)]
pub struct SetArgs {
    /// The job: its name, or the process id of its pleat or of any process in it
    #[arg(value_name = "PID|NAME")]
    pub job: String,

    /// The new budget, larger or smaller, in the forms that 'pleat run --memory' takes; at least 16M.
    /// Percentages are of the limit that the job is under, else of what it uses and what is available
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub memory: String,

    /// How many seconds to wait until the job is within a smaller budget
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    pub wait: u32,

    /// Return at once
    #[arg(long, conflicts_with = "wait")]
    pub no_wait: bool,
}
