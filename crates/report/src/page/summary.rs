//! How a run went, in the words of `pleat run -v`.

use super::html::text;
use crate::read::Run;
use crate::series::Gauge;
use pleat_plot::{human_bytes, human_count, human_time};

/// What is told, with its head: HTML.
pub fn sentences(run: &Run) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("Time", time(run)),
        ("Memory", memory(run)),
        ("Came back", returned(run)),
    ];
    all.extend(waiting(run).map(|line| ("Waiting", line)));
    all.push(("Compression", compression(run)));
    all.extend(swap(run).map(|line| ("Swap file", line)));
    all.extend(forced_out(run).map(|line| ("Forced out", line)));
    all.extend(beyond_compression(run).map(|line| ("Not compressible", line)));
    all.push(("Ended", ended(run)));
    all.extend(incomplete(run).map(|line| ("Incomplete", line.to_owned())));
    all
}

fn time(run: &Run) -> String {
    let (wall, stall) = (run.wall_s(), run.stall_s());
    if stall == 0.0 {
        return format!("{}; no thread waited for memory", human_time(wall));
    }
    let told = format!(
        "{}; threads waited {} for memory",
        human_time(wall),
        human_time(stall)
    );
    match stall < 0.9 * wall {
        true => format!(
            "{told}: {:.0}% slower, if one waited at a time",
            100.0 * stall / (wall - stall)
        ),
        // Several waited at once, or next to nothing else was done.
        false => format!("{told}, {:.1} of them at a time", stall / wall.max(1e-6)),
    }
}

fn memory(run: &Run) -> String {
    let (Some(budget), Some(needed)) = (run.budget_bytes(), run.needed_most_bytes()) else {
        return "nothing is known of it".into();
    };
    let [budget_text, needed_text] = [budget, needed].map(|bytes| human_bytes(bytes as u64));
    let budget_text = match run.end_number("report.budget_changes") {
        Some(changes) if changes > 0.0 => {
            format!("the budget, which was changed {changes} times, to {budget_text} in the end")
        }
        _ => format!("the {budget_text} budget"),
    };
    let used = human_bytes(run.used_most_bytes().unwrap_or_default() as u64);
    match needed > budget {
        true => format!(
            "needed {needed_text}, {:.2} times {budget_text}: {} too much at most; used {used} at most",
            needed / budget.max(1.0),
            human_bytes((needed - budget) as u64)
        ),
        false => format!("needed {needed_text}, which is within {budget_text}; used {used} at most"),
    }
}

fn percent(part: f64, whole: f64) -> String {
    format!("{:.1}%", 100.0 * part / whole.max(1e-9))
}

fn returned(run: &Run) -> String {
    let hits = run.returned();
    let [staged, compressed, swap] = hits;
    let (all, taken) = (hits.iter().sum::<f64>(), human_count(run.taken_pages()));
    if all == 0.0 {
        return format!("no page; {taken} were taken away");
    }
    format!(
        "{} of {taken} pages taken away: {} before they were compressed, {} from compressed memory, {} from the swap file",
        human_count(all),
        percent(staged, all),
        percent(compressed, all),
        percent(swap, all)
    )
}

/// Where the time of waiting went, which only the last line knows.
fn waiting(run: &Run) -> Option<String> {
    let us = |name: &str| run.end_number(&format!("report.pager.{name}"));
    let all = us("stall_us").filter(|all| *all > 0.0)?;
    let disk = us("swap_read_us")?.min(all);
    let files = us("file_read_us")?.min(all - disk);
    let turns = us("rested_us")
        .filter(|us| *us > 0.0)
        .map_or(String::new(), |us| {
            format!(
                "; besides, {} in which it was the turn of other processes",
                human_time(us / 1e6)
            )
        });
    Some(format!(
        "{} for {} reads of the swap file, {} for mapped files, {} for decompressing and making room{turns}",
        percent(disk, all),
        human_count(us("swap_reads")?),
        percent(files, all),
        percent(all - disk - files, all)
    ))
}

fn compression(run: &Run) -> String {
    let pages = |name: &str| run.end_number(&format!("report.engine.folded_{name}_pages"));
    let counted = match (pages("packed"), pages("raw"), pages("same")) {
        (Some(packed), Some(raw), Some(same)) => Some((raw, packed + raw + same)),
        _ => None,
    };
    match (run.ratio(), counted) {
        (Some(ratio), Some((raw, all))) => {
            format!(
                "{ratio:.2} : 1; {} of the pages did not compress",
                percent(raw, all)
            )
        }
        (Some(ratio), None) => format!("{ratio:.2} : 1, of what was compressed last"),
        (None, Some((_, all))) if all > 0.0 => {
            "pages of one repeated word only, which take no room".into()
        }
        (None, _) => "nothing was compressed".into(),
    }
}

fn swap(run: &Run) -> Option<String> {
    let (read, written) = (run.swap_read_bytes(), run.swap_written_bytes());
    let most = run.series.most(Gauge::SwapFile).unwrap_or_default();
    (read + written + most > 0.0).then(|| {
        let [read, written, most] = [read, written, most].map(|bytes| human_bytes(bytes as u64));
        format!(
            "{written} written, {read} read because somebody waited for it; {most} in use at most"
        )
    })
}

fn forced_out(run: &Run) -> Option<String> {
    let reasons = [
        ("starved", "nothing else could go"),
        ("overdrawn", "a fork had overdrawn the budget"),
        ("whole", "they would have filled the budget"),
    ];
    let told = reasons.iter().filter_map(|(name, why)| {
        let pages = run.end_number(&format!("report.engine.forced_{name}_pages"))?;
        (pages > 0.0).then(|| format!("{} pages because {why}", human_count(pages)))
    });
    let told: Vec<String> = told.collect();
    let told = told.join(", ");
    (!told.is_empty()).then(|| format!("of compressed memory, against the sizing policy: {told}"))
}

/// What cannot be compressed, if it is much.
fn beyond_compression(run: &Run) -> Option<String> {
    let (most, budget) = (run.series.most(Gauge::Unfoldable)?, run.budget_bytes()?);
    (most * 4.0 > budget).then(|| {
        format!(
            "{} at most, {} of the budget: shared and locked memory, or processes that are not managed",
            human_bytes(most as u64),
            percent(most, budget)
        )
    })
}

/// How it ended, as HTML.
pub fn ended(run: &Run) -> String {
    let ending = &run.end["ending"];
    let message = text(ending["message"].as_str().unwrap_or_default());
    let signal = ending["signal"].as_i64().unwrap_or_default();
    match ending["kind"].as_str() {
        Some("exited") => format!(
            "exit status {}",
            ending["exit_code"].as_i64().unwrap_or_default()
        ),
        Some("signalled") => format!(
            "killed by signal {signal}{} (exit status {})",
            signal_name(signal),
            128 + signal
        ),
        Some("stopped") => {
            format!("<strong>pleat ended the job (exit status 125):</strong> {message}")
        }
        Some("not_started") => format!("<strong>pleat did not start it:</strong> {message}"),
        Some("over") => "all processes have ended".into(),
        Some("left") => "the processes were left, and go on".into(),
        Some("running") => "it still ran".into(),
        Some(other) => text(other),
        None => "it still runs, or pleat was killed".into(),
    }
}

fn signal_name(signal: i64) -> &'static str {
    match signal {
        2 => " (SIGINT)",
        6 => " (SIGABRT: it gave up by itself)",
        7 => " (SIGBUS)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        15 => " (SIGTERM)",
        _ => "",
    }
}

/// What the file lacks.
fn incomplete(run: &Run) -> Option<&'static str> {
    match () {
        () if run.is_cut => Some("the last line was cut short, and is left out"),
        () if run.end.is_null() => {
            Some("the file has no end line: what stands here is as of the last sample")
        }
        () if run.series.is_empty() => {
            Some("it ended before a sample was taken, so there is nothing to be drawn")
        }
        () => None,
    }
}
