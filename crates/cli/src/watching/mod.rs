//! Who is told of a job beside who has started it: `--metrics`, `--trace-stats`, `--on-pressure`, `--on-trouble` and `--notify`.
//!
//! All but what is said when pleat ends the job is learnt over the job's control socket, as `pleat top` does it, by a thread that asks once a
//! second. Nothing of it is there unless it is asked for.

pub mod hooks;
mod notify;
mod pressure;
mod series;

pub use pressure::Thresholds;

use crate::args::JobReportArgs;
use crate::config::Given;
use crate::jobs::{News, Watch};
use crate::metrics::{serve_own, Listener};
use crate::pager::control::Detail;
use crate::pager::{Place, StartBeside, TellTrouble, Trouble};
use crate::probe;
use crate::settings::{Settings, Verbosity};
use crate::stats::Stats;
use hooks::{Hooks, Waited};
use notify::Notifier;
use pressure::{Pressure, Pressures, Room};
use series::Series;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the job is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// The command of `--on-trouble` may take so long before the job is ended.
const TROUBLE_MAX: Duration = Duration::from_secs(10);
/// The thread reads JSON, and asks for disk space.
const STACK: usize = 256 << 10;

/// Everything that is open before the program starts.
pub struct Watching {
    metrics: Option<Listener>,
    watcher: Arc<Watcher>,
}

/// What the thread has.
struct Watcher {
    reports: JobReportArgs,
    name: String,
    is_quiet: bool,
    swap: Option<SwapRoom>,
    series: Option<Series>,
    hooks: Hooks,
}

/// Environments of commands that are to be run when the one before has ended, by reason: of each reason the last.
type Waiting = BTreeMap<&'static str, BTreeMap<String, String>>;

/// Where the swap file lies, and how large it may be.
struct SwapRoom {
    dir: PathBuf,
    max_bytes: Option<u64>,
}

impl Watching {
    /// Opens what is to be written to and listened at, so that every mistake shows before there is a job.
    ///
    /// # Errors
    /// One line, with the remedy.
    pub fn open(settings: &Settings, given: &Given) -> Result<Watching, String> {
        let reports = settings.reports.clone();
        let blame = |flag: &'static str| move |why: String| given.blame(&[flag], why);
        let metrics = reports.metrics.as_ref().map(Listener::open).transpose();
        let metrics = metrics.map_err(blame("metrics"))?;
        let series = reports.trace_stats.as_deref().map(Series::create);
        let series = series.transpose().map_err(blame("trace-stats"))?;
        if let Some(series) = &series {
            series.begin(settings);
        }
        let swap = settings.swap.as_ref().and_then(|swap| match &swap.place {
            Place::Dir(dir) => Some(SwapRoom {
                dir: dir.clone(),
                max_bytes: swap.max_bytes,
            }),
            Place::Given(_) => None,
        });
        Ok(Watching {
            metrics,
            watcher: Arc::new(Watcher {
                reports,
                name: settings.name.clone(),
                is_quiet: settings.verbosity == Verbosity::Quiet,
                swap,
                series,
                hooks: Hooks::default(),
            }),
        })
    }

    /// Whether the job is to be asked by anybody here: that there can be no control socket is said then.
    pub fn needs_control(&self) -> bool {
        self.metrics.is_some() || self.watcher.looks()
    }

    /// Starts the threads; to be called once the job can be asked.
    pub fn listening(&self) -> Box<dyn Fn()> {
        let door = self.metrics.as_ref().map(Listener::door);
        let (door, watcher) = (std::cell::Cell::new(door), self.watcher.clone());
        Box::new(move || {
            let served = door.take().map(|door| door.and_then(serve_own));
            if let Some(Err(error)) = served {
                crate::say(&format!("warning: no metrics are served: {error}"));
            }
            if watcher.looks() {
                let watcher = watcher.clone();
                let thread = std::thread::Builder::new().name("pleat-watch".into());
                let work = move || watcher.watch();
                if let Err(error) = thread.stack_size(STACK).spawn(work) {
                    crate::say(&format!("warning: the job is not watched: {error}"));
                }
            }
        })
    }

    /// Starts what runs beside the job; process ids.
    pub fn beside(&self) -> Box<StartBeside> {
        let watcher = self.watcher.clone();
        Box::new(move || match watcher.reports.has_hooks() {
            true => Ok(vec![watcher.hooks.start()?]),
            false => Ok(Vec::new()),
        })
    }

    /// Tells that the job is about to be ended, or was.
    pub fn trouble(&self) -> Box<TellTrouble> {
        let watcher = self.watcher.clone();
        Box::new(move |trouble, message| watcher.tell_trouble(trouble, message))
    }

    /// What of the environment is not for the program.
    pub fn environment(&self) -> Vec<(OsString, Option<OsString>)> {
        let ours: &[&str] = match self.watcher.reports.notify {
            true => &notify::VARIABLES,
            false => &[],
        };
        ours.iter().map(|name| ((*name).into(), None)).collect()
    }

    /// The job has ended.
    pub fn end(&self, stats: &Stats<'_>) {
        if let Some(series) = &self.watcher.series {
            series.end(stats);
        }
    }
}

impl Watcher {
    /// Whether the job is to be looked at.
    fn looks(&self) -> bool {
        let reports = &self.reports;
        self.series.is_some() || reports.warns() || reports.notify
    }

    /// For ever: the thread ends with the process.
    fn watch(&self) {
        let mut watch = Watch::only(std::process::id() as i32);
        let period = Duration::from_secs(self.reports.pressure_every.into());
        let thresholds = self.reports.pressure.unwrap_or_default();
        let mut pressures = self
            .reports
            .warns()
            .then(|| Pressures::new(thresholds, period));
        let mut notifier = self.reports.notify.then(Notifier::new);
        let pause = notifier.as_ref().and_then(Notifier::pause);
        let pause = pause.map_or(EVERY, |pause| pause.min(EVERY));
        let (mut due, mut waiting) = (Instant::now(), Waiting::new());
        loop {
            let mut news = watch.ask();
            news.extend(watch.hear(EVERY));
            for (_, _, what) in news {
                let News::Looked(detail) = what else { continue };
                let now = Instant::now();
                if let Some(series) = &self.series {
                    series.sample(&detail);
                }
                if let Some(notifier) = &mut notifier {
                    notifier.look(now, &detail);
                }
                if let Some(pressures) = &mut pressures {
                    for pressure in pressures.look(now, &detail, self.room(&detail)) {
                        self.warn(&pressure, &detail, &mut waiting);
                    }
                }
            }
            self.run_waiting(&mut waiting);
            due = (due + pause).max(Instant::now());
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }

    /// What the swap file may still grow by.
    fn room(&self, detail: &Detail) -> Option<Room> {
        let swap = self.swap.as_ref()?;
        let used = detail.tiers.swap_file_bytes;
        let disk = probe::filesystem(&swap.dir).ok()?.free_bytes;
        let left = swap.max_bytes.map(|max| max.saturating_sub(used));
        Some(match left {
            Some(left) if left <= disk => Room {
                free_bytes: left,
                remedy: "raise --swap-max",
            },
            _ => Room {
                free_bytes: disk,
                remedy: "free some disk space",
            },
        })
    }

    /// Says it, and has the command wait for its turn.
    fn warn(&self, pressure: &Pressure, detail: &Detail, waiting: &mut Waiting) {
        if !self.is_quiet {
            crate::say(&format!("warning: {}", pressure.message));
        }
        if self.reports.on_pressure.is_none() {
            return;
        }
        let mut environment = self.environment(pressure.kind.name(), &pressure.message);
        let figures = [
            ("PLEAT_JOB_BUDGET_BYTES", detail.status.budget_bytes),
            ("PLEAT_JOB_USED_BYTES", detail.status.used_bytes),
            ("PLEAT_JOB_PROGRAM_PID", detail.status.program_pid as u64),
        ];
        environment.extend(figures.map(|(name, value)| (name.to_owned(), value.to_string())));
        waiting.insert(pressure.kind.name(), environment);
    }

    /// Runs the command for what waits, one at a time.
    fn run_waiting(&self, waiting: &mut Waiting) {
        let (Some(command), Some(first)) = (&self.reports.on_pressure, waiting.first_entry())
        else {
            return;
        };
        match self.hooks.begin(command, first.get().clone()) {
            Ok(true) => _ = first.remove(),
            Ok(false) => {}
            Err(_) => {
                waiting.clear();
                crate::say(
                    "warning: the command of --on-pressure is not run: what runs it was killed",
                );
            }
        }
    }

    fn tell_trouble(&self, trouble: Trouble, message: &str) {
        if self.reports.notify && trouble != Trouble::Left {
            notify::stopping(message);
        }
        let Some(command) = &self.reports.on_trouble else {
            return;
        };
        let reason = match trouble {
            Trouble::Stopped => "stopped",
            Trouble::Left => "left",
            Trouble::Killed => "killed",
        };
        let environment = self.environment(reason, message);
        if trouble != Trouble::Killed {
            // Why is said when it has ended: nobody is to take the job for hanging until then.
            crate::say("the job cannot go on; the command of --on-trouble is run first");
        }
        match self.hooks.run(command, environment, TROUBLE_MAX) {
            Waited::Ended(0) => {}
            Waited::Ended(status) => crate::say(&format!("warning: the command of --on-trouble ended with status {status}")),
            Waited::Late => crate::say(&format!(
                "warning: the command of --on-trouble has not ended after {} s, and is not waited for any longer",
                TROUBLE_MAX.as_secs()
            )),
            Waited::Gone => crate::say("warning: the command of --on-trouble is not run: what runs it was killed"),
        }
    }

    fn environment(&self, reason: &str, message: &str) -> BTreeMap<String, String> {
        let pid = std::process::id().to_string();
        let all = [
            ("PLEAT_REASON", reason),
            ("PLEAT_MESSAGE", message),
            ("PLEAT_JOB_NAME", &self.name),
            ("PLEAT_JOB_PID", &pid),
        ];
        all.map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }
}
