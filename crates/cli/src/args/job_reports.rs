//! The flags of `pleat run` and `pleat attach` by which a job is seen and tells of itself.

use super::REPORTS;
use crate::metrics::Address;
use crate::watching::Thresholds;
use std::path::PathBuf;

/// Who is told what, unchecked.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct JobReportArgs {
    /// Write every counter as JSON to FILE at the end, also when the job failed
    #[arg(long, value_name = "FILE", help_heading = REPORTS)]
    pub stats: Option<PathBuf>,

    /// Write to FILE each second how the job stands, a line of JSON, and every counter at the end:
    /// 'pleat report FILE' makes a page of it
    #[arg(long, value_name = "FILE", help_heading = REPORTS)]
    pub trace_stats: Option<PathBuf>,

    /// Serve how the job stands, as OpenMetrics, while it runs: at a port of this machine (9779), at an
    /// address with a port, or at a socket (a path with a /)
    #[arg(long, value_name = "ADDRESS", help_heading = REPORTS)]
    pub metrics: Option<Address>,

    /// Warn when so much of the swap file's room is used, when threads wait for pages so much of the
    /// time (200% is two threads all the time), and when what cannot be compressed has so much of the
    /// budget. 'off' for what is not looked at. Default: not at all; with --on-pressure
    /// swap=90%,stall=50%,unfoldable=90%
    #[arg(long, value_name = "KIND=PERCENT,...", help_heading = REPORTS)]
    pub pressure: Option<Thresholds>,

    /// Run CMD, a line for sh, with each such warning, one after the other: $PLEAT_REASON is swap, stall or
    /// unfoldable, $PLEAT_MESSAGE the warning, $PLEAT_JOB_PID pleat, $PLEAT_JOB_NAME the job
    #[arg(long, value_name = "CMD", help_heading = REPORTS)]
    pub on_pressure: Option<String>,

    /// Warn of each kind once in so many seconds at most
    #[arg(long, value_name = "SECONDS", default_value = "60", help_heading = REPORTS)]
    pub pressure_every: u32,

    /// Run CMD before pleat ends the job because it cannot go on ($PLEAT_REASON is stopped), and when the
    /// kernel has killed for want of memory (killed). The job waits for it, for 10 s at most
    #[arg(long, value_name = "CMD", help_heading = REPORTS)]
    pub on_trouble: Option<String>,

    /// Tell systemd that the job has started, how it stands, and that pleat is alive: for a service of
    /// Type=notify. Without it the program may, if the service says NotifyAccess=all
    #[arg(long, help_heading = REPORTS)]
    pub notify: bool,
}

impl JobReportArgs {
    /// Whether somebody is to be warned while the job runs.
    pub fn warns(&self) -> bool {
        self.pressure.is_some() || self.on_pressure.is_some()
    }

    /// Whether there are commands to be run.
    pub fn has_hooks(&self) -> bool {
        self.on_pressure.is_some() || self.on_trouble.is_some()
    }
}
