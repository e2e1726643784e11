//! `pleat list`: which jobs run, and how they stand.

use super::{shown, Found, Job};
use crate::args::ListArgs;
use crate::exit::{Exit, Stop};
use crate::output::print;
use crate::size::human;
use pleat_sys::local::effective_user;
use serde::Serialize;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Letters of a command line that are shown.
const COMMAND_LETTERS: usize = 60;

/// A job as JSON.
#[derive(Serialize)]
struct Line<'a> {
    uid: u32,
    socket: String,
    #[serde(flatten)]
    status: &'a crate::pager::control::Status,
}

/// Prints the jobs there are.
pub fn list(raw: &ListArgs) -> Exit {
    let found = Found::all();
    for line in &found.silent {
        crate::say(line);
    }
    let text = match raw.json {
        true => found.jobs.iter().map(json).collect(),
        false => table(&found.jobs, effective_user() == 0),
    };
    Stop::exit(print(&text))
}

fn json(job: &Job) -> String {
    let line = Line {
        uid: job.uid,
        socket: job.socket().display().to_string(),
        status: &job.status,
    };
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

/// Columns as wide as they must be; numbers to the right.
fn table(jobs: &[Job], with_users: bool) -> String {
    let mut rows = vec![heads(with_users)];
    rows.extend(jobs.iter().map(|job| cells(job, with_users)));
    let columns = rows[0].len();
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(at, cell)| match at {
            _ if at + 1 == columns => cell.clone(),
            1 => format!("{cell:<0$}", widths[at]),
            _ => format!("{cell:>0$}", widths[at]),
        });
        cells.collect::<Vec<_>>().join("  ") + "\n"
    };
    rows.iter().map(line).collect()
}

fn heads(with_users: bool) -> Vec<String> {
    let mut heads = vec![
        "PID",
        "NAME",
        "BUDGET",
        "USED",
        "COMPRESSED",
        "AWAY",
        "PROCESSES",
        "RUNNING",
        "COMMAND",
    ];
    if with_users {
        heads.insert(2, "USER");
    }
    heads.into_iter().map(str::to_owned).collect()
}

fn cells(job: &Job, with_users: bool) -> Vec<String> {
    let status = &job.status;
    let mut cells = vec![
        status.pid.to_string(),
        shown(&status.name),
        human(status.budget_bytes),
        human(status.used_bytes),
        human(status.compressed_bytes),
        human(status.pages_away.saturating_mul(PAGE)),
        status.processes.to_string(),
        for_so_long(status.wall_us / 1_000_000),
        cut(&shown(&status.command.join(" "))),
    ];
    if with_users {
        cells.insert(2, job.uid.to_string());
    }
    cells
}

fn cut(command: &str) -> String {
    match command.char_indices().nth(COMMAND_LETTERS) {
        Some((end, _)) => format!("{}...", &command[..end]),
        None => command.to_owned(),
    }
}

/// Seconds as people say them: the two largest units.
pub fn for_so_long(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match () {
        () if days > 0 => format!("{days}d{:02}h", hours % 24),
        () if hours > 0 => format!("{hours}h{:02}m", minutes % 60),
        () if minutes > 0 => format!("{minutes}m{:02}s", seconds % 60),
        () => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_two_units() {
        let times = [7, 61, 3600, 90_000, 900_000].map(for_so_long);
        assert_eq!(times, ["7s", "1m01s", "1h00m", "1d01h", "10d10h"]);
    }

    #[test]
    fn a_long_command_is_cut_between_letters() {
        let cut = cut(&"ä".repeat(70));
        assert_eq!(cut.chars().filter(|letter| *letter == 'ä').count(), 60);
        assert!(cut.ends_with("..."));
    }

    #[test]
    fn without_jobs_there_are_only_heads() {
        let table = table(&[], false);
        assert!(table.starts_with("PID  NAME  BUDGET") && table.lines().count() == 1);
    }
}
