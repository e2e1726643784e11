//! `--notify`: pleat as the main process of a systemd service of `Type=notify`.
//!
//! Without it what systemd says of where to notify goes to the program, which may know the protocol itself.

use crate::jobs::Rates;
use crate::pager::control::Detail;
use crate::size::human;
use sd_notify::{notify, watchdog_enabled, NotifyState};
use std::time::{Duration, Instant};

/// So often it is told how the job stands.
const STATUS_EVERY: Duration = Duration::from_secs(5);
/// What systemd puts into the environment, for pleat and not for the program.
pub const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// What was told so far.
pub struct Notifier {
    is_ready: bool,
    /// The last status, and when.
    told: Option<(Instant, Detail)>,
    /// So often systemd is to hear that pleat is alive.
    watchdog: Option<Duration>,
    beaten: Option<Instant>,
}

impl Notifier {
    /// Nothing yet.
    pub fn new() -> Notifier {
        Notifier {
            is_ready: false,
            told: None,
            // Half of what is allowed, as sd_watchdog_enabled(3) advises.
            watchdog: watchdog_enabled().map(|time| time / 2),
            beaten: None,
        }
    }

    /// How often something may be to be told; `None`: not more often than once a second.
    pub fn pause(&self) -> Option<Duration> {
        self.watchdog
    }

    /// The job has answered.
    pub fn look(&mut self, now: Instant, detail: &Detail) {
        let mut states = Vec::new();
        if !std::mem::replace(&mut self.is_ready, true) {
            states.push(NotifyState::Ready);
        }
        let is_old = |at: Option<Instant>, age: Duration| {
            at.is_none_or(|at| now.saturating_duration_since(at) >= age)
        };
        if self
            .watchdog
            .is_some_and(|every| is_old(self.beaten, every))
        {
            states.push(NotifyState::Watchdog);
            self.beaten = Some(now);
        }
        let status;
        if is_old(self.told.as_ref().map(|(at, _)| *at), STATUS_EVERY) {
            status = text(self.told.as_ref().map(|(_, before)| before), detail);
            states.push(NotifyState::Status(&status));
            self.told = Some((now, detail.clone()));
        }
        if !states.is_empty() {
            // Who does not listen need not hear.
            let _ = notify(&states);
        }
    }
}

/// The job is about to be ended.
pub fn stopping(message: &str) {
    let _ = notify(&[NotifyState::Stopping, NotifyState::Status(message)]);
}

fn text(before: Option<&Detail>, now: &Detail) -> String {
    let rates = match before {
        Some(before) => Rates::between(before, now),
        None => Some(Rates::since_start(now)),
    };
    let stalled = rates.map_or(0.0, |rates| rates.stalled_threads * 100.0);
    let away = now.totals.kept_pages * 4096;
    format!(
        "{} of {} in use, {} compressed to {}, {} in the swap file, stalled {stalled:.0} %",
        human(now.status.used_bytes),
        human(now.status.budget_bytes),
        human(away),
        human(now.totals.kept_bytes),
        human(now.tiers.swap_bytes),
    )
}
