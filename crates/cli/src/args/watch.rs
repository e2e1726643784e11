//! The flags of `pleat top`, `pleat stat` and `pleat metrics`.

use crate::metrics::Address;
use std::time::Duration;

pub const TOP_EXAMPLES: &str = "\
Examples:
  All jobs of this user (of all users, for root) and their processes:
      pleat top
  One job, every half second:
      pleat top train --interval 0.5
  Without colours:
      NO_COLOR=1 pleat top

Keys:
  up, down     choose a line             enter, esc  one job with its history, and back
  s, r         sort by another column,   t           processes as a tree
               the other way round       p           hide or show processes
  +, -         change the chosen job's   space       stand still
               budget by a 16th          h, q        help, quit

Exit status:
  0; 2 for a mistake on the command line, a job that does not exist, or no terminal; 125 when the
  terminal cannot be used.";

pub const STAT_EXAMPLES: &str = "\
Examples:
  A line a second about the job called 'train', until it ends:
      pleat stat train
  Ten lines, one every five seconds:
      pleat stat train --interval 5 --count 10
  For programs, one JSON object a line (docs/top.md has the fields):
      pleat stat train --json | jq '.rates.stalled_threads'

The first line is about all the time since the job began, each other one about the time since the line
before.

Exit status:
  0 when the job has ended, or after --count lines; 2 for a mistake on the command line, or a job that does
  not exist; 125 when the output could not be written.";

pub const METRICS_EXAMPLES: &str = "\
Examples:
  The figures of all jobs, once, as OpenMetrics:
      pleat metrics
  Served for Prometheus, to this machine alone:
      pleat metrics --listen 9779
  To whoever may use a socket:
      pleat metrics --listen /run/user/1000/pleat-metrics
      curl --unix-socket /run/user/1000/pleat-metrics http://pleat/metrics
  One job, served while it runs:
      pleat run --memory 2G --metrics 9779 -- python3 train.py

Whoever can reach a port can read the figures, other users of this machine among them: names of jobs and
processes, no command lines. A socket is for its user alone. docs/metrics.md has every figure, and a rule
for alarms.

Exit status:
  0; 2 for a mistake on the command line, or an address that is taken; 125 when the output could not be
  written.";

/// The flags of `pleat top`, unchecked.
#[derive(Debug, Clone, clap::Args)]
pub struct TopArgs {
    /// Begin with this job: its name, or the process id of its pleat or of any process in it
    #[arg(value_name = "PID|NAME")]
    pub job: Option<String>,

    /// Seconds between two looks, 0.2 to 3600
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: Duration,
}

/// The flags of `pleat stat`, unchecked.
#[derive(Debug, Clone, clap::Args)]
pub struct StatArgs {
    /// The job: its name, or the process id of its pleat or of any process in it. Default: the only one
    /// there is
    #[arg(value_name = "PID|NAME")]
    pub job: Option<String>,

    /// Seconds between two lines, 0.2 to 3600
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: Duration,

    /// End after so many lines. Default: when the job ends
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// The flags of `pleat metrics`, unchecked.
#[derive(Debug, Clone, clap::Args)]
pub struct MetricsArgs {
    /// Serve them at ADDRESS until this is ended: a port of this machine (9779), an address with a port
    /// (10.0.0.7:9779), or the path of a socket. Default: print them once
    #[arg(short, long, value_name = "ADDRESS")]
    pub listen: Option<Address>,
}

/// Seconds, with a fraction. What is asked more often than that is answered with what was said before.
fn interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.2..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give seconds from 0.2 to 3600, such as 0.5".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_neither_so_short_that_it_costs_nor_nonsense() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "0.1", "-1", "NaN", "inf", "1e9", "1s", ""] {
            assert!(interval(text).unwrap_err().contains("0.5"), "{text}");
        }
    }
}
