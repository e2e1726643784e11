//! What `-v` shows: one live line while the job runs, a few lines at the end.

use crate::pager::{Live, Report};
use crate::size::human;
use pleat_mount::BesideReport;
use std::io::Write;

const PAGE_BYTES: u64 = 4096;
/// Return to the first column and erase the line.
const CLEAR_LINE: &str = "\r\x1b[2K";

/// Overwrites the live line. Shorter than 80 columns, so that it never wraps.
pub fn show_live(live: &Live) {
    let mut stderr = std::io::stderr();
    // A terminal that went away must not end the job.
    let _ = write!(stderr, "{CLEAR_LINE}{}", live_line(live)).and_then(|()| stderr.flush());
}

/// Erases the live line.
pub fn clear_live() {
    let _ = write!(std::io::stderr(), "{CLEAR_LINE}");
}

fn live_line(live: &Live) -> String {
    format!(
        "pleat: {} of {} used, {} away, {} on disk",
        human(live.used_bytes),
        human(live.budget_bytes),
        human(live.pages_away * PAGE_BYTES),
        human(live.swap_bytes)
    )
}

/// The summary, one fact per line.
pub fn summary(report: &Report, mounts: &[BesideReport]) -> String {
    let hits = &report.hits;
    let all = hits.staged + hits.compressed + hits.swap;
    let lines = [
        ("wall time", seconds(report.wall_us)),
        ("peak memory", peak(report)),
        ("pages folded", folded(report)),
        (
            "came back",
            returned(all, [hits.staged, hits.compressed, hits.swap]),
        ),
        ("compression", compression(report)),
        ("stall time", seconds(report.stall_us)),
    ];
    let forced = forced_out(report).map(|forced| ("forced out", forced));
    let mounts = mounts.iter().map(|mount| ("mount", mounted(mount)));
    lines
        .into_iter()
        .chain(forced)
        .chain(mounts)
        .map(|(name, value)| format!("pleat: {name:13} {value}\n"))
        .collect()
}

/// What left compressed memory though the sizing policy would have kept it, and why; `None`: nothing did.
pub fn forced_out(report: &Report) -> Option<String> {
    let engine = &report.engine;
    let reasons = [
        (engine.forced_starved_pages, "nothing else could go"),
        (
            engine.forced_overdrawn_pages,
            "a fork had overdrawn the budget",
        ),
        (
            engine.forced_whole_pages,
            "they would have filled the budget",
        ),
    ];
    let told = reasons.iter().filter(|(pages, _)| *pages > 0);
    let told: Vec<String> = told
        .map(|(pages, why)| format!("{pages} because {why}"))
        .collect();
    (!told.is_empty()).then(|| {
        format!(
            "{} pages left compressed memory against the sizing policy: {}",
            engine.forced_pages(),
            told.join(", ")
        )
    })
}

fn mounted(mount: &BesideReport) -> String {
    format!(
        "{}: the kernel asked for {}, {} of that came from the source",
        mount.mountpoint,
        human(mount.reading.read_bytes),
        percent(mount.reading.source_bytes, mount.reading.read_bytes)
    )
}

fn peak(report: &Report) -> String {
    if report.budget_changes > 0 {
        return format!(
            "{}; the budget was changed {} times, to {} in the end",
            human(report.peak_bytes),
            report.budget_changes,
            human(report.budget_bytes)
        );
    }
    let share = percent(report.peak_bytes, report.budget_bytes);
    format!(
        "{} of the {} budget ({share})",
        human(report.peak_bytes),
        human(report.budget_bytes)
    )
}

fn folded(report: &Report) -> String {
    format!(
        "{} ({})",
        report.pages_folded,
        human(report.pages_folded * PAGE_BYTES)
    )
}

fn returned(all: u64, [staged, compressed, swap]: [u64; 3]) -> String {
    if all == 0 {
        return "0 pages".to_owned();
    }
    format!(
        "{all} pages: {} from staging, {} from compressed memory, {} from disk",
        percent(staged, all),
        percent(compressed, all),
        percent(swap, all)
    )
}

fn compression(report: &Report) -> String {
    match report.compression_ratio {
        0.0 => "nothing compressed".to_owned(),
        ratio => format!("{ratio:.2} : 1"),
    }
}

fn seconds(us: u64) -> String {
    format!("{:.2} s", us as f64 / 1e6)
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0%".to_owned();
    }
    format!("{:.1}%", 100.0 * part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pager::Hits;

    #[test]
    fn the_live_line_fits_a_narrow_terminal() {
        let huge = u64::MAX / PAGE_BYTES;
        let live = Live {
            used_bytes: huge,
            budget_bytes: huge,
            pages_away: huge,
            swap_bytes: huge,
            ..Live::default()
        };
        assert!(live_line(&live).len() < 80, "{}", live_line(&live));
    }

    #[test]
    fn the_summary_tells_each_promised_figure() {
        let report = Report {
            wall_us: 8_250_000,
            budget_bytes: 200 << 20,
            peak_bytes: 199 << 20,
            pages_folded: 1024,
            stall_us: 500_000,
            compression_ratio: 4.0,
            hits: Hits {
                zero: 9,
                file: 0,
                staged: 1,
                compressed: 2,
                swap: 1,
            },
            ..Report::default()
        };
        let mount = BesideReport {
            mountpoint: "/mnt/data".into(),
            ..BesideReport::default()
        };
        let text = summary(&report, &[mount]);
        for figure in [
            "8.25 s",
            "199M of the 200M budget (99.5%)",
            "1024 (4M)",
            "4.00 : 1",
            "0.50 s",
            "/mnt/data",
        ] {
            assert!(text.contains(figure), "no {figure} in\n{text}");
        }
        assert!(
            text.contains("4 pages: 25.0% from staging, 50.0% from compressed"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.starts_with("pleat: ")));
    }

    #[test]
    fn what_left_against_the_policys_word_is_told_with_its_reason() {
        let mut report = Report::default();
        assert!(!summary(&report, &[]).contains("forced out"));
        report.engine.forced_starved_pages = 7;
        report.engine.forced_whole_pages = 2;
        let text = summary(&report, &[]);
        assert!(
            text.contains(
                "forced out    9 pages left compressed memory against the sizing policy: \
                 7 because nothing else could go, 2 because they would have filled the budget"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_run_without_pressure_divides_by_nothing() {
        let text = summary(&Report::default(), &[]);
        assert!(
            text.contains("nothing compressed") && !text.contains("NaN"),
            "{text}"
        );
    }
}
