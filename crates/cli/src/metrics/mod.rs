//! `pleat metrics` and `pleat run --metrics`: how jobs stand, for Prometheus and whatever else reads OpenMetrics.

mod address;
mod serve;
mod text;

pub use address::Address;
pub use serve::{Door, Listener};

use crate::args::MetricsArgs;
use crate::exit::{Exit, Stop};
use crate::jobs::{News, Watch};
use crate::output::printed;
use std::io::Write;
use std::time::{Duration, Instant};
use text::Seen;

/// Jobs that do not answer keep a reader waiting for so long.
const PATIENCE: Duration = Duration::from_secs(1);
/// Who reads more often is given the same again.
const FRESH_FOR: Duration = Duration::from_millis(100);

/// Prints the figures of all jobs once, or serves them until it is ended.
pub fn metrics(raw: &MetricsArgs) -> Exit {
    Stop::exit(try_metrics(raw))
}

fn try_metrics(raw: &MetricsArgs) -> Result<(), Stop> {
    let mut figures = Figures::of(Watch::default());
    let Some(address) = &raw.listen else {
        let text = figures.text();
        let mut stdout = std::io::stdout().lock();
        return printed(
            stdout
                .write_all(text.as_bytes())
                .and_then(|()| stdout.flush()),
        );
    };
    let listener = Listener::open(address).map_err(Stop::mistake)?;
    crate::say(&format!("metrics at {}", listener.shown()));
    let door = listener
        .door()
        .map_err(|error| Stop::mistake(error.to_string()))?;
    door.serve(&mut || figures.text())
}

/// Serves the figures of this process's job on a thread of its own, for as long as the process lives. The caller has blocked what
/// signals are not for this thread.
///
/// # Errors
/// There can be no thread.
pub fn serve_own(door: Door) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("pleat-metrics".into());
    let own = std::process::id() as i32;
    let work = move || {
        let mut figures = Figures::of(Watch::only(own));
        door.serve(&mut || figures.text())
    };
    thread.stack_size(256 << 10).spawn(work).map(|_| ())
}

/// Figures of jobs, asked for when they are wanted.
struct Figures {
    watch: Watch,
    last: Option<(Instant, String)>,
}

impl Figures {
    fn of(watch: Watch) -> Figures {
        Figures { watch, last: None }
    }

    fn text(&mut self) -> String {
        if let Some((at, text)) = &self.last {
            if at.elapsed() < FRESH_FOR {
                return text.clone();
            }
        }
        let text = text::encode(self.look());
        self.last = Some((Instant::now(), text.clone()));
        text
    }

    /// Every job there is, with what it has answered.
    fn look(&mut self) -> Vec<Seen> {
        let mut news = self.watch.ask();
        news.extend(self.watch.hear(PATIENCE));
        let mut seen: Vec<Seen> = Vec::new();
        for (pid, uid, what) in news {
            match what {
                News::Looked(detail) => seen.push(Seen {
                    pid,
                    uid,
                    detail: Some(*detail),
                }),
                News::Ended | News::Silent(_) | News::Set(_) => {}
            }
        }
        for (pid, uid) in self.watch.jobs() {
            if !seen.iter().any(|one| one.pid == pid) {
                seen.push(Seen {
                    pid,
                    uid,
                    detail: None,
                });
            }
        }
        seen.sort_unstable_by_key(|one| one.pid);
        seen.dedup_by_key(|one| one.pid);
        seen
    }
}
