//! `pleat stat`: how a job stands, a line each time, for scripts and for scrolling past.

use crate::args::StatArgs;
use crate::exit::{Exit, Stop};
use crate::jobs::{choose, ratio, Found, Job, Rates};
use crate::output::printed;
use crate::pager::control::Detail;
use crate::size::human;
use serde::Serialize;
use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Lines between two heads.
const HEAD_EVERY: u64 = 20;
/// Columns: the head, and how wide.
const COLUMNS: [(&str, usize); 19] = [
    ("used", 6),
    ("budget", 6),
    ("uncmp", 6),
    ("comp", 6),
    ("raw", 6),
    ("file", 6),
    ("nocomp", 6),
    ("pleat", 6),
    ("swap", 6),
    ("flt/s", 6),
    ("zero", 6),
    ("file", 6),
    ("stagd", 6),
    ("comp", 6),
    ("swap", 6),
    ("stall%", 6),
    ("ratio", 5),
    ("sw-rd", 6),
    ("sw-wr", 6),
];

/// A sample as JSON.
#[derive(Serialize)]
struct Line<'a> {
    time_unix_ms: u64,
    uid: u32,
    #[serde(flatten)]
    detail: &'a Detail,
    compression_ratio: Option<f64>,
    rates: Rates,
}

/// Prints lines until the job has ended.
pub fn stat(raw: &StatArgs) -> Exit {
    Stop::exit(try_stat(raw))
}

fn try_stat(raw: &StatArgs) -> Result<(), Stop> {
    let found = Found::all();
    let job = find(&found, raw.job.as_deref()).inspect_err(|_| {
        // It may be one of these.
        found.silent.iter().for_each(|line| crate::say(line));
    })?;
    let mut before: Option<Detail> = None;
    let (mut lines, mut is_mute) = (0, false);
    let mut due = Instant::now();
    while raw.count.is_none_or(|most| lines < most) {
        match job.look_closely() {
            Ok(None) => return Ok(()),
            Err(why) if !is_mute => {
                is_mute = true;
                crate::say(&format!("{} does not answer: {why}", job.title()));
            }
            Err(_) => {}
            Ok(Some(detail)) => {
                is_mute = false;
                let rates = match &before {
                    None => Some(Rates::since_start(&detail)),
                    Some(before) => Rates::between(before, &detail),
                };
                if let Some(rates) = rates {
                    let text = match raw.json {
                        true => json(job.uid, &detail, rates),
                        false => row(lines, &detail, &rates),
                    };
                    // Nobody reads on: there is no more to do.
                    let mut stdout = std::io::stdout().lock();
                    let done = stdout
                        .write_all(text.as_bytes())
                        .and_then(|()| stdout.flush());
                    match done {
                        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                        done => printed(done)?,
                    }
                    lines += 1;
                    before = Some(detail);
                }
            }
        }
        due = next(due, raw.interval);
        if raw.count.is_none_or(|most| lines < most) {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }
    Ok(())
}

/// When the next line is due: in step with the first, but never so late that several would follow each other at once.
fn next(due: Instant, interval: Duration) -> Instant {
    (due + interval).max(Instant::now())
}

fn find<'a>(found: &'a Found, name: Option<&str>) -> Result<&'a Job, Stop> {
    match (name, &found.jobs[..]) {
        (Some(name), _) => choose(found, name),
        (None, [job]) => Ok(job),
        (None, []) => Err(Stop::mistake("no job runs that you may see")),
        (None, several) => {
            let titles: Vec<String> = several.iter().map(Job::title).collect();
            Err(Stop::mistake(format!(
                "several jobs run: {}; say which, by name or process id",
                titles.join(", ")
            )))
        }
    }
}

fn json(uid: u32, detail: &Detail, rates: Rates) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let line = Line {
        time_unix_ms: now.map_or(0, |since| since.as_millis() as u64),
        uid,
        detail,
        compression_ratio: ratio(&detail.totals),
        rates,
    };
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

/// A line, with the heads above it where they are due.
fn row(line: u64, detail: &Detail, rates: &Rates) -> String {
    let head = match line % HEAD_EVERY {
        0 => heads(),
        _ => String::new(),
    };
    head + &joined(cells(detail, rates).iter().map(String::as_str))
}

/// The heads, with a line above them that says what they are about.
fn heads() -> String {
    format!(
        "{:-^62} {:-^41} {:-^26}\n{}",
        " memory ",
        " pages filled a second, from ",
        " slow-down and disk ",
        joined(COLUMNS.iter().map(|(head, _)| *head))
    )
}

fn joined<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let padded = COLUMNS
        .iter()
        .zip(cells)
        .map(|((_, width), cell)| format!("{cell:>0$}", *width));
    padded.collect::<Vec<_>>().join(" ") + "\n"
}

fn cells(detail: &Detail, rates: &Rates) -> [String; COLUMNS.len()] {
    let (status, tiers) = (&detail.status, &detail.tiers);
    let count = |value: f64| format!("{value:.0}");
    [
        human(status.used_bytes),
        human(status.budget_bytes),
        human(tiers.uncompressed_bytes),
        human(tiers.staged_bytes + tiers.compressed_bytes),
        human(tiers.raw_bytes),
        human(tiers.file_bytes),
        human(tiers.unfoldable_bytes),
        human(tiers.own_bytes),
        human(tiers.swap_bytes),
        count(rates.faults),
        count(rates.zero_pages),
        count(rates.file_pages),
        count(rates.staged_pages),
        count(rates.compressed_pages),
        count(rates.swap_pages),
        format!("{:.1}", rates.stalled_threads * 100.0),
        ratio(&detail.totals).map_or("-".into(), |ratio| format!("{ratio:.2}")),
        human(rates.swap_read_bytes as u64),
        human(rates.swap_written_bytes as u64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pager::control::{Status, Tiers, Totals};

    fn detail() -> Detail {
        Detail {
            status: Status {
                used_bytes: 99 << 20,
                budget_bytes: 100 << 20,
                wall_us: 2_000_000,
                ..Status::default()
            },
            tiers: Tiers {
                uncompressed_bytes: 60 << 20,
                compressed_bytes: 20 << 20,
                staged_bytes: 1 << 20,
                ..Tiers::default()
            },
            totals: Totals {
                faults: 200,
                stall_us: 500_000,
                kept_pages: 100,
                kept_bytes: 204_800,
                ..Totals::default()
            },
            ..Detail::default()
        }
    }

    #[test]
    fn every_line_is_as_wide_as_the_heads_which_come_again() {
        let (detail, rates) = (detail(), Rates::since_start(&detail()));
        let text: String = (0..41).map(|line| row(line, &detail, &rates)).collect();
        let lines: Vec<&str> = text.lines().collect();
        let width = lines[0].len();
        assert!(
            lines.iter().all(|line| line.len() == width && width <= 132),
            "{text}"
        );
        assert_eq!(text.matches("budget").count(), 3);
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        let expected = ["99M", "100M", "60M", "21M", "0"];
        assert_eq!(words[..5], expected);
        assert_eq!((words[9], words[15], words[16]), ("100", "25.0", "2.00"));
    }

    #[test]
    fn a_json_line_has_all_that_the_answer_had_and_the_rates() {
        let line = json(7, &detail(), Rates::since_start(&detail()));
        assert_eq!(line.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["used_bytes"], 99 << 20);
        assert_eq!(value["tiers"]["compressed_bytes"], 20 << 20);
        assert_eq!(value["rates"]["faults"], 100.0);
        assert_eq!(
            (&value["uid"], &value["rows"]),
            (&7.into(), &serde_json::json!([]))
        );
    }

    #[test]
    fn who_was_late_does_not_catch_up() {
        let long_ago = Instant::now() - Duration::from_secs(60);
        assert!(next(long_ago, Duration::from_secs(1)).elapsed() < Duration::from_secs(1));
    }
}
