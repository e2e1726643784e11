//! The flags of `pleat list` and `pleat set`.

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

    /// The new budget, larger or smaller, in the forms that 'pleat run --memory' takes; at least 16M
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub memory: String,

    /// How many seconds to wait until the job is within a smaller budget
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    pub wait: u32,

    /// Return at once
    #[arg(long, conflicts_with = "wait")]
    pub no_wait: bool,
}
