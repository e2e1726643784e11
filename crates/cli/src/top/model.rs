//! What is known of the jobs that are shown.

use super::history::{History, Point};
use crate::jobs::{for_so_long, share_around, shown, News, Rates};
use crate::pager::control::{Detail, Row};
use crate::size::human;
use std::collections::HashMap;

/// The jobs, in the order of their beginning.
#[derive(Default)]
pub struct Model {
    pub jobs: Vec<Shown>,
    /// Jobs that were never heard of, with the reason, which is told once.
    silent: HashMap<i32, String>,
}

/// One job.
#[derive(Default)]
pub struct Shown {
    pub pid: i32,
    pub uid: u32,
    /// As of the last answer.
    pub detail: Detail,
    /// Since the answer before; since its beginning where there was none.
    pub rates: Rates,
    /// For each of its processes, how many of its threads waited for pages, on average.
    pub stalled: HashMap<i32, f64>,
    pub history: History,
    /// Why it is not heard of.
    pub trouble: Option<String>,
    pub has_ended: bool,
    /// The budget that it is being given.
    pub wanted: Option<u64>,
}

impl Model {
    /// Takes note of what was heard; answers with what the user is to be told of it.
    pub fn hear(&mut self, news: Vec<(i32, u32, News)>) -> Option<String> {
        let mut told = None;
        for (pid, uid, news) in news {
            told = self.hear_one(pid, uid, news).or(told);
        }
        told
    }

    fn hear_one(&mut self, pid: i32, uid: u32, news: News) -> Option<String> {
        let known = self.jobs.iter_mut().find(|job| job.pid == pid);
        match (known, news) {
            (Some(job), News::Looked(detail)) => job.look(*detail),
            (None, News::Looked(detail)) => {
                let mut job = Shown {
                    pid,
                    uid,
                    rates: Rates::since_start(&detail),
                    ..Shown::default()
                };
                job.look(*detail);
                self.jobs.push(job);
                self.jobs
                    .sort_by_key(|job| (job.detail.status.started_unix_s, job.pid));
            }
            (Some(job), News::Set(done)) => return Some(job.note_set(done.map(|new| *new))),
            (Some(job), News::Silent(why)) => {
                job.wanted = None;
                job.trouble = Some(why);
            }
            (Some(job), News::Ended) => {
                job.has_ended = true;
                return Some(format!("{} has ended", job.title()));
            }
            // It was never heard of.
            (None, News::Silent(why)) => {
                let is_told = self
                    .silent
                    .insert(pid, why.clone())
                    .is_some_and(|told| told == why);
                return (!is_told).then(|| format!("job {pid}: {why}"));
            }
            (None, _) => drop(self.silent.remove(&pid)),
        }
        None
    }

    /// Jobs that have ended are shown no more, but for one that the user looks at.
    pub fn forget_ended(&mut self, opened: Option<i32>) {
        self.jobs
            .retain(|job| !job.has_ended || Some(job.pid) == opened);
    }

    pub fn job(&self, pid: i32) -> Option<&Shown> {
        self.jobs.iter().find(|job| job.pid == pid)
    }

    /// The budget a step above or below that of a job, or why there is none.
    pub fn budget_beside(&mut self, pid: i32, is_up: bool) -> Result<u64, String> {
        let job = self.job(pid).filter(|job| !job.has_ended);
        let job = job.ok_or("it has ended")?;
        let now = job.wanted.unwrap_or(job.detail.status.budget_bytes);
        let step = step_of(now);
        let wanted = match is_up {
            true => now.saturating_add(step),
            false => now.saturating_sub(step),
        };
        let around = job.detail.status.inside_pid.and_then(|pid| self.job(pid));
        if let Some(around) = around {
            let most = share_around(&around.detail.status);
            if is_up && wanted > most {
                return Err(format!(
                    "it is inside {}: it can be given {} at most",
                    around.title(),
                    human(most)
                ));
            }
        }
        if let Some(job) = self.jobs.iter_mut().find(|job| job.pid == pid) {
            job.wanted = Some(wanted);
        }
        Ok(wanted)
    }
}

impl Shown {
    fn look(&mut self, detail: Detail) {
        self.trouble = None;
        if self.detail.status.pid != 0 {
            let Some(rates) = Rates::between(&self.detail, &detail) else {
                return;
            };
            self.rates = rates;
            self.stalled = stalls(&self.detail.rows, &detail.rows, rates.seconds);
            self.history.push(Point::of(&detail, rates));
        }
        self.detail = detail;
    }

    fn note_set(&mut self, done: Result<crate::pager::control::Status, String>) -> String {
        self.wanted = None;
        match done {
            Ok(status) => {
                let text = format!("{}: budget {}", self.title(), human(status.budget_bytes));
                self.detail.status = status;
                text
            }
            Err(why) => format!("{}: {why}", self.title()),
        }
    }

    /// For messages.
    pub fn title(&self) -> String {
        format!("job {} ({})", self.pid, self.name())
    }

    pub fn name(&self) -> String {
        shown(&self.detail.status.name)
    }

    pub fn command(&self) -> String {
        shown(&self.detail.status.command.join(" "))
    }

    /// For how long it has run.
    pub fn age(&self) -> String {
        for_so_long(self.detail.status.wall_us / 1_000_000)
    }
}

/// A 16th, in whole MiB.
fn step_of(bytes: u64) -> u64 {
    (bytes / 16).next_multiple_of(1 << 20)
}

/// How many threads of each process waited, on average, in these seconds.
fn stalls(before: &[Row], after: &[Row], seconds: f64) -> HashMap<i32, f64> {
    let before: HashMap<i32, u64> = before.iter().map(|row| (row.pid, row.stall_us)).collect();
    let stall = |row: &Row| {
        // One that was not there before has waited since it began.
        let was = before.get(&row.pid).copied().unwrap_or(0);
        let us = row.stall_us.saturating_sub(was.min(row.stall_us));
        (row.pid, us as f64 / 1e6 / seconds)
    };
    after.iter().map(stall).collect()
}
