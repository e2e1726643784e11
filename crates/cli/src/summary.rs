//! What `-v` shows: one live line while the job runs, a few lines at the end.

use crate::pager::{Ending, Ledger, Live, Outcome, Report, Tally};
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

/// Processes that are named.
const PROCESSES_MAX: usize = 2;
/// A slow-down that nobody minds, in per cent.
const MINDED_PERCENT: u64 = 5;
/// Nothing need be said of what could not be compressed if it is less than this part of the budget, one in so many.
const UNFOLDABLE_PART: u64 = 4;
/// What `needed` says is an estimate: so much more is named, in per cent.
const NEEDED_MORE_PERCENT: u64 = 5;

/// The summary at the end: ten lines at most, the last of which says how the program ended.
pub fn summary(outcome: &Outcome, mounts: &[BesideReport]) -> String {
    let report = &outcome.report;
    let mut lines = vec![
        ("time", time(report)),
        ("memory", memory(report, is_stopped(outcome))),
        ("came back", returned(report)),
        ("waiting", waiting(report)),
        ("compression", compression(report)),
    ];
    lines.extend(
        processes(&outcome.processes)
            .into_iter()
            .map(|line| ("process", line)),
    );
    lines.extend(mounts_in_a_line(mounts).map(|line| ("mounts", line)));
    if !is_stopped(outcome) {
        lines.push(("to change", advice(outcome)));
    }
    lines.push(("ended", ended(outcome)));
    let forced = forced_out(report).map(|forced| ("forced out", forced));
    if let Some(forced) = forced.filter(|_| lines.len() < 10) {
        lines.insert(5, forced);
    }
    lines
        .into_iter()
        .map(|(name, value)| format!("pleat: {name:12} {value}\n"))
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

fn mounts_in_a_line(mounts: &[BesideReport]) -> Option<String> {
    let first = mounts.first()?;
    let more = match mounts.len() {
        1 => String::new(),
        several => format!(" (and {} more)", several - 1),
    };
    Some(format!(
        "{}: the kernel asked for {}, {} of that came from the source{more}",
        first.mountpoint,
        human(first.reading.read_bytes),
        percent(first.reading.source_bytes, first.reading.read_bytes)
    ))
}

/// How much slower it was, if one thread waited at a time, in per cent of the time that it would have taken.
fn slower_percent(report: &Report) -> u64 {
    let without = report.wall_us.saturating_sub(report.stall_us).max(1);
    report.stall_us.saturating_mul(100) / without
}

fn time(report: &Report) -> String {
    let (wall, stall) = (seconds(report.wall_us), seconds(report.stall_us));
    if report.stall_us == 0 {
        return format!("{wall}; no thread waited for memory");
    }
    if report.stall_us * 10 >= report.wall_us * 9 {
        // Several threads waited at once, or next to nothing else was done.
        let threads = report.stall_us as f64 / report.wall_us.max(1) as f64;
        return format!(
            "{wall}; threads waited {stall} for memory, {threads:.1} of them at a time"
        );
    }
    format!(
        "{wall}; threads waited {stall} of it for memory: {}% slower, if one waited at a time",
        slower_percent(report)
    )
}

/// pleat ended it: what it needs is not known, and the last line says what to change.
fn is_stopped(outcome: &Outcome) -> bool {
    matches!(outcome.ending, Ending::Stopped { .. })
}

fn memory(report: &Report, is_cut_short: bool) -> String {
    let needed = report.pager.needed_peak_bytes;
    let budget = match report.budget_changes {
        0 => format!("the {} budget", human(report.budget_bytes)),
        changes => format!(
            "the budget, which was changed {changes} times, to {} in the end",
            human(report.budget_bytes)
        ),
    };
    let times = needed as f64 / report.budget_bytes.max(1) as f64;
    if is_cut_short {
        let used = human(report.peak_bytes);
        return format!(
            "needed {} until then, of {budget}; used {used} at most",
            human(needed)
        );
    }
    let exceeded = match needed > report.budget_bytes {
        true => format!("needed {}, {times:.2} times {budget}", human(needed)),
        false => format!("needed {}, which is within {budget}", human(needed)),
    };
    format!("{exceeded}; used {} at most", human(report.peak_bytes))
}

fn returned(report: &Report) -> String {
    let hits = &report.hits;
    let all = hits.staged + hits.compressed + hits.swap;
    if all == 0 {
        return format!("no page; {} were taken away", report.pages_folded);
    }
    format!(
        "{all} of {} pages taken away: {} before they were compressed, {} from compressed memory, {} from disk",
        report.pages_folded,
        percent(hits.staged, all),
        percent(hits.compressed, all),
        percent(hits.swap, all)
    )
}

/// Where the time of waiting went, as far as that is counted without --profile.
fn waiting(report: &Report) -> String {
    let pager = &report.pager;
    let all = pager.stall_us;
    if all == 0 {
        return "none".into();
    }
    let disk = pager.swap_read_us.min(all);
    let files = pager.file_read_us.min(all - disk);
    let turns = match pager.rested_us {
        0 => String::new(),
        us => format!(
            "; besides, {} in which it was the turn of other processes",
            seconds(us)
        ),
    };
    format!(
        "{} for {} reads of the swap file, {} for mapped files, {} for decompressing and making room{turns}",
        percent(disk, all),
        pager.swap_reads,
        percent(files, all),
        percent(all - disk - files, all)
    )
}

fn compression(report: &Report) -> String {
    let engine = &report.engine;
    let all = engine.folded_packed_pages + engine.folded_raw_pages + engine.folded_same_pages;
    match report.compression_ratio {
        0.0 if all == 0 => "nothing was compressed".to_owned(),
        0.0 => "pages of one repeated word only, which take no room".to_owned(),
        ratio => format!(
            "{ratio:.2} : 1; {} of the pages did not compress",
            percent(engine.folded_raw_pages, all)
        ),
    }
}

/// Whose memory was compressed, and whose could not be and why: those first whom it concerns most.
fn processes(ledger: &Ledger) -> Vec<String> {
    let size = |tally: &Tally| {
        let taken = tally.taken_pages.saturating_mul(PAGE_BYTES);
        taken.max(tally.unmanaged_bytes).max(tally.shared_bytes)
    };
    let mut all: Vec<(&String, &Tally)> = ledger.0.iter().collect();
    all.sort_by_key(|(name, tally)| (std::cmp::Reverse(size(tally)), *name));
    let more = all.len().saturating_sub(PROCESSES_MAX);
    let mut lines: Vec<String> = all
        .iter()
        .take(PROCESSES_MAX)
        .map(|(name, tally)| process(name, tally))
        .collect();
    if let Some(last) = lines.last_mut().filter(|_| more > 0) {
        *last += &format!(" (and {more} more names)");
    }
    lines
}

fn process(name: &str, tally: &Tally) -> String {
    let name = if name.is_empty() { "others" } else { name };
    let times = match tally.processes {
        1 => String::new(),
        several => format!(" ({several} processes)"),
    };
    let mut parts = Vec::new();
    if tally.taken_pages > 0 {
        let taken = human(tally.taken_pages.saturating_mul(PAGE_BYTES));
        parts.push(format!(
            "{taken} taken away in all, waited {}",
            seconds(tally.stall_us)
        ));
    }
    if tally.unmanaged_bytes > 0 {
        parts.push(format!(
            "{} could not be compressed: {}",
            human(tally.unmanaged_bytes),
            tally.why.as_deref().unwrap_or("it is not managed")
        ));
    }
    if tally.shared_bytes >= 1 << 20 {
        parts.push(format!(
            "{} could not be compressed: shared memory",
            human(tally.shared_bytes)
        ));
    }
    format!("{name}{times}: {}", parts.join("; "))
}

/// What would make it better, by what is known.
fn advice(outcome: &Outcome) -> String {
    let report = &outcome.report;
    if let Some(remedy) = outcome.memory_remedy {
        return remedy.to_owned();
    }
    let needed = report.pager.needed_peak_bytes + report.pager.own_peak_bytes;
    let enough = needed + needed * NEEDED_MORE_PERCENT / 100;
    let unfoldable = outcome.processes.0.values();
    let unfoldable = unfoldable.map(|tally| tally.unmanaged_bytes.max(tally.shared_bytes));
    let kept = unfoldable.max().unwrap_or(0);
    let is_slow = slower_percent(report) >= MINDED_PERCENT;
    let on_disk = report.pager.swap_read_us * 2 > report.stall_us;
    match () {
        () if is_slow && kept >= report.budget_bytes / UNFOLDABLE_PART => format!(
            "what could not be compressed, or more memory: --memory {} has room for all",
            human_flag(enough)
        ),
        () if is_slow && on_disk => format!(
            "a faster disk (--swap-dir), pages compressed tighter (--recompress), or --memory {}, which has room for all",
            human_flag(enough)
        ),
        () if is_slow => format!(
            "--memory {} has room for all of it; each step towards that makes it faster",
            human_flag(enough)
        ),
        () if enough < report.budget_bytes => format!(
            "nothing; --memory {} would have been enough without compressing anything",
            human_flag(enough)
        ),
        () => "nothing: it was hardly slower; a smaller --memory may do".into(),
    }
}

/// A size as --memory takes it, in whole MiB.
fn human_flag(bytes: u64) -> String {
    format!("{}M", bytes.div_ceil(1 << 20).max(16))
}

/// How the program ended, as far as that is known, and who is to be asked.
fn ended(outcome: &Outcome) -> String {
    let is_killed = outcome.memory_remedy.is_some();
    match &outcome.ending {
        Ending::Exited(0) => "exit status 0, by itself".into(),
        Ending::Exited(code) => format!(
            "exit status {code}, which is the program's own: neither pleat nor the kernel's want of memory ended it{}",
            own_limit(is_killed)
        ),
        Ending::Signalled(signal) if is_killed && *signal == libc::SIGKILL => format!(
            "killed by the kernel for want of memory (exit status 137): {}",
            outcome.memory_remedy.unwrap_or_default()
        ),
        // That was said when it was done.
        Ending::Signalled(libc::SIGKILL) if outcome.report.pager.ended_processes > 0 => {
            "killed (exit status 137) by pleat, which could not serve it: see above".into()
        }
        Ending::Signalled(signal) => format!(
            "killed by signal {signal}{} (exit status {}), which was not pleat's doing{}",
            signal_name(*signal),
            128 + signal,
            own_limit(is_killed)
        ),
        Ending::Over => "all processes have ended".into(),
        Ending::Left => "the processes were left, and go on".into(),
        Ending::Stopped { message } => {
            format!("pleat ended the job (exit status 125): {message}")
        }
    }
}

/// What a program writes when it has met a limit of its own is known to it alone.
fn own_limit(is_killed: bool) -> &'static str {
    match is_killed {
        true => "; another process of the job was killed for want of memory",
        false => "; if it says that its own heap is full, raise that limit (node --max-old-space-size, java -Xmx)",
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGABRT => " (SIGABRT: it gave up by itself)",
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGKILL => " (SIGKILL)",
        libc::SIGTERM => " (SIGTERM)",
        libc::SIGINT => " (SIGINT)",
        _ => "",
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

    fn outcome(report: Report, ending: Ending) -> Outcome {
        Outcome {
            ending,
            report,
            profile: None,
            processes: Ledger::default(),
            memory_remedy: None,
            swap: None,
            record_error: None,
        }
    }

    /// A job at half of its memory, that waited for the disk.
    fn report() -> Report {
        let mut report = Report {
            wall_us: 8_250_000,
            budget_bytes: 200 << 20,
            peak_bytes: 199 << 20,
            pages_folded: 1024,
            stall_us: 2_000_000,
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
        report.pager.stall_us = report.stall_us;
        report.pager.swap_read_us = 1_500_000;
        report.pager.swap_reads = 700;
        report.pager.needed_peak_bytes = 400 << 20;
        report.engine.folded_packed_pages = 900;
        report.engine.folded_raw_pages = 100;
        report
    }

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
        let text = summary(&outcome(report(), Ending::Exited(0)), &[]);
        for figure in [
            "8.25 s; threads waited 2.00 s of it for memory: 32% slower",
            "needed 400M, 2.00 times the 200M budget; used 199M at most",
            "4 of 1024 pages taken away: 25.0% before they were compressed, 50.0% from compressed",
            "75.0% for 700 reads of the swap file",
            "4.00 : 1; 10.0% of the pages did not compress",
            "--memory 420M, which has room for all",
            "exit status 0, by itself",
        ] {
            assert!(text.contains(figure), "no {figure} in\n{text}");
        }
        assert!(text.lines().all(|line| line.starts_with("pleat: ")));
    }

    #[test]
    fn whose_memory_it_was_is_told_and_why_it_could_not_be_compressed() {
        let mut outcome = outcome(report(), Ending::Exited(0));
        let tally = |taken_pages, unmanaged_bytes| Tally {
            processes: 2,
            taken_pages,
            unmanaged_bytes,
            why: (unmanaged_bytes > 0).then(|| "it is a 32-bit program".into()),
            ..Tally::default()
        };
        for (name, taken, unmanaged) in [("cc", 1, 0), ("big", 100_000, 0), ("old", 0, 90 << 20)] {
            outcome
                .processes
                .0
                .insert(name.into(), tally(taken, unmanaged));
        }
        let text = summary(&outcome, &[]);
        assert!(
            text.contains("big (2 processes): 391M taken away in all"),
            "{text}"
        );
        assert!(
            text.contains("old (2 processes): 90M could not be compressed: it is a 32-bit program (and 1 more names)"),
            "{text}"
        );
        assert!(
            text.contains("what could not be compressed, or more memory"),
            "{text}"
        );
    }

    #[test]
    fn whatever_there_is_to_say_it_is_ten_lines_at_most() {
        let mut outcome = outcome(report(), Ending::Exited(3));
        outcome.report.engine.forced_starved_pages = 7;
        for name in ["a", "b", "c", "d"] {
            let tally = Tally {
                taken_pages: 9,
                shared_bytes: 5 << 20,
                ..Tally::default()
            };
            outcome.processes.0.insert(name.into(), tally);
        }
        let mount = BesideReport {
            mountpoint: "/mnt/data".into(),
            ..BesideReport::default()
        };
        let text = summary(&outcome, &[mount.clone(), mount]);
        assert_eq!(text.lines().count(), 10, "{text}");
        assert!(
            text.contains("/mnt/data") && text.contains("(and 1 more)"),
            "{text}"
        );
        let last = text.lines().last().unwrap_or_default();
        assert!(last.contains("ended"), "{text}");
    }

    #[test]
    fn the_last_line_tells_endings_apart() {
        let last = |ending, memory_remedy| {
            let outcome = Outcome {
                memory_remedy,
                ..outcome(report(), ending)
            };
            let text = summary(&outcome, &[]);
            text.lines().last().unwrap_or_default().to_owned()
        };
        let remedy = Some("raise --memory, or leave out --hard");
        let killed = last(Ending::Signalled(libc::SIGKILL), remedy);
        assert!(
            killed.contains("by the kernel for want of memory") && killed.contains("--hard"),
            "{killed}"
        );
        let signal = last(Ending::Signalled(libc::SIGKILL), None);
        assert!(
            signal.contains("signal 9 (SIGKILL)") && signal.contains("not pleat's doing"),
            "{signal}"
        );
        let abort = last(Ending::Signalled(libc::SIGABRT), None);
        assert!(
            abort.contains("SIGABRT") && abort.contains("--max-old-space-size"),
            "{abort}"
        );
        let own = last(Ending::Exited(125), None);
        assert!(own.contains("125, which is the program's own"), "{own}");
        let message = "the disk is full: --swap-dir".to_owned();
        let stopped = last(Ending::Stopped { message }, None);
        assert!(
            stopped.contains("pleat ended the job (exit status 125): the disk is full"),
            "{stopped}"
        );
    }

    #[test]
    fn what_left_against_the_policys_word_is_told_with_its_reason() {
        let mut report = Report::default();
        let text = |report| summary(&outcome(report, Ending::Exited(0)), &[]);
        assert!(!text(report.clone()).contains("forced out"));
        report.engine.forced_starved_pages = 7;
        report.engine.forced_whole_pages = 2;
        let text = text(report);
        assert!(
            text.contains(
                "forced out   9 pages left compressed memory against the sizing policy: \
                 7 because nothing else could go, 2 because they would have filled the budget"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_run_without_pressure_divides_by_nothing() {
        let text = summary(&outcome(Report::default(), Ending::Exited(0)), &[]);
        assert!(
            text.contains("nothing was compressed") && !text.contains("NaN"),
            "{text}"
        );
        let mut report = Report {
            budget_bytes: 500 << 20,
            ..Report::default()
        };
        report.pager.needed_peak_bytes = 100 << 20;
        let text = summary(&outcome(report, Ending::Exited(0)), &[]);
        assert!(
            text.contains("--memory 105M would have been enough"),
            "{text}"
        );
    }
}
