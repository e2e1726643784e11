//! The table of `--profile`: where the time of faults and evictions went.

use crate::pager::{Figures, ProfileReport};
use std::fmt::Write;

/// Parts in which nobody waits and nothing is done, or that are there only because of the profile.
const LEFT_OUT: [&str; 3] = ["outrun", "profiling", "queue"];

/// The table, a part a line.
pub fn table(profile: &ProfileReport) -> String {
    let (faults, evictions) = (&profile.faults, &profile.evictions);
    let what = format!(
        "{} faults answered, {} pages filled",
        faults.answered, faults.filled_pages
    );
    let mut text = group("fault", &what, &faults.parts.rows());
    let what = format!(
        "{} pages taken by {} moves, {} of them interrupted",
        evictions.taken_pages, evictions.moves, evictions.interrupted_moves
    );
    text += &group("eviction", &what, &evictions.parts.rows());
    text
}

fn group(name: &str, what: &str, rows: &[(&'static str, Figures)]) -> String {
    let is_left_out = |part: &str| LEFT_OUT.contains(&part);
    let counted = rows.iter().filter(|(part, _)| !is_left_out(part));
    let all_ns: u64 = counted.map(|(_, figures)| figures.total_ns).sum();
    let mut text = format!(
        "pleat: {what}\npleat: {name:<10} {:>9} {:>9} {:>6} {:>9} {:>9} {:>9}\n",
        "count", "total ms", "share", "mean us", "median us", "99% us"
    );
    let seen = rows.iter().filter(|(_, figures)| figures.count > 0);
    for (part, figures) in seen {
        let share = match is_left_out(part) {
            true => "-".to_owned(),
            false => format!("{:.1}%", percent(figures.total_ns, all_ns)),
        };
        let _ = writeln!(
            text,
            "pleat: {:<10} {:>9} {:>9.1} {share:>6} {:>9.2} {:>9.2} {:>9.2}",
            part.replace('_', " "),
            figures.count,
            figures.total_ns as f64 / 1e6,
            figures.mean_ns as f64 / 1e3,
            figures.median_ns as f64 / 1e3,
            figures.p99_ns as f64 / 1e3
        );
    }
    let _ = writeln!(
        text,
        "pleat: {:<10} {:>9} {:>9.1}",
        "all",
        "",
        all_ns as f64 / 1e6
    );
    text
}

fn percent(part: u64, all: u64) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_took_time_are_told_with_their_share() {
        let mut profile = ProfileReport::default();
        let figures = |count, total_ns| Figures {
            count,
            total_ns,
            mean_ns: total_ns / count,
            ..Figures::default()
        };
        profile.faults.answered = 10;
        profile.faults.parts.fill = figures(10, 75_000_000);
        profile.faults.parts.swap_read = figures(5, 25_000_000);
        profile.faults.parts.outrun = figures(5, 50_000_000);
        let text = table(&profile);
        for line in [
            "10 faults answered",
            "75.0  75.0%   7500.00",
            "swap read",
            "50.0      -",
            "100.0",
        ] {
            assert!(text.contains(line), "no {line} in\n{text}");
        }
        assert!(!text.contains("file read"), "{text}");
        assert!(text
            .lines()
            .all(|line| line.starts_with("pleat: ") && line.len() <= 80));
    }
}
