//! Every counter of the last line, with what it means, and those of them that tell what was decided. The meanings are those of
//! `docs/stats.md`, which is made from the definitions.

use super::html::{figures, text, words, Table};
use crate::read::Run;
use serde_json::Value;
use std::collections::BTreeMap;

const STATS: &str = include_str!("../../../../docs/stats.md");

/// Counters of the engine that tell how the compressed part was sized, what was evicted, and what was let in.
const DECISIONS: [(&str, &[&str]); 4] = [
    (
        "Size of the compressed part",
        &[
            "growths",
            "growths_denied",
            "growth_locks",
            "growth_unlocks",
            "shrinks_relocated",
            "shrinks_released",
            "expense_hits",
            "profit_hits",
        ],
    ),
    (
        "Against the sizing policy",
        &[
            "forced_starved_pages",
            "forced_overdrawn_pages",
            "forced_whole_pages",
        ],
    ),
    (
        "Eviction",
        &[
            "chosen_pages",
            "taken_pages",
            "spared_pages",
            "spared_neighbour_pages",
            "passed_pages",
            "dropped_pages",
            "refused_busy_pages",
            "refused_gone_pages",
            "refused_unmovable_pages",
            "refused_stale_pages",
        ],
    ),
    (
        "Admission",
        &[
            "clean_stored_pages",
            "clean_refused_pages",
            "clean_reclaimed_pages",
            "clean_released_pages",
            "clean_switches",
            "clean_off_pages",
            "passed_on_pages",
            "folded_raw_pages",
        ],
    ),
];

/// What the documentation says of each field.
fn meanings() -> BTreeMap<&'static str, &'static str> {
    let rows = STATS
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    rows.map(|(name, meaning)| (name, meaning.trim_end_matches('|').trim()))
        .collect()
}

/// A meaning as HTML: what stands in backticks is code.
fn explained(meaning: &str) -> String {
    let parts = meaning
        .split('`')
        .enumerate()
        .map(|(at, part)| match at % 2 {
            0 => text(part),
            _ => format!("<code>{}</code>", text(part)),
        });
    parts.collect()
}

/// Decisions of all runs, as HTML; heads say which run is which. `None` where none was made.
pub fn decisions(runs: &[&Run], heads: &[String]) -> Option<String> {
    let meanings = meanings();
    let mut columns = vec![words("Decision")];
    columns.extend(heads.iter().map(figures));
    columns.push(words("Meaning"));
    let mut html = String::new();
    for (heading, names) in DECISIONS {
        let mut table = Table::new(heading, &columns);
        let mut is_empty = true;
        for name in names {
            let path = format!("report.engine.{name}");
            let values: Vec<Option<f64>> = runs.iter().map(|run| run.end_number(&path)).collect();
            if values.iter().all(|value| value.unwrap_or(0.0) == 0.0) {
                continue;
            }
            is_empty = false;
            let mut cells = vec![words(format!("<code>{name}</code>"))];
            cells.extend(
                values
                    .iter()
                    .map(|value| figures(value.map_or("-".into(), grouped))),
            );
            cells.push(words(
                meanings
                    .get(path.as_str())
                    .map_or(String::new(), |meaning| explained(meaning)),
            ));
            table.row(&cells);
        }
        if !is_empty {
            html += &format!("<h3>{heading}</h3>\n{}", table.end());
        }
    }
    (!html.is_empty()).then_some(html)
}

/// A whole number with its digits in groups.
fn grouped(value: f64) -> String {
    if value.fract() != 0.0 || value.abs() >= 1e18 {
        return format!("{value}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Everything that the last lines hold, one row each: HTML.
pub fn everything(runs: &[&Run], heads: &[String]) -> String {
    let meanings = meanings();
    let mut paths: Vec<String> = Vec::new();
    let mut values: Vec<BTreeMap<String, String>> = Vec::new();
    for run in runs {
        let mut leaves = Vec::new();
        flatten("", &run.end, &mut leaves);
        for (path, _) in &leaves {
            if !paths.contains(path) {
                paths.push(path.clone());
            }
        }
        values.push(leaves.into_iter().collect());
    }
    let mut columns = vec![words("Field")];
    columns.extend(heads.iter().map(figures));
    columns.push(words("Meaning"));
    let mut table = Table::new("All counters", &columns);
    for path in &paths {
        let mut cells = vec![words(format!("<code>{}</code>", text(path)))];
        let cell = |values: &BTreeMap<String, String>| {
            figures(text(values.get(path).map_or("-", String::as_str)))
        };
        cells.extend(values.iter().map(cell));
        let meaning = meanings.get(path.as_str()).or_else(|| {
            // The parts of a profile are explained as a whole.
            meanings.get(path.rsplit_once('.')?.0)
        });
        cells.push(words(
            meaning.map_or(String::new(), |meaning| explained(meaning)),
        ));
        table.row(&cells);
    }
    table.end()
}

/// Every value that is no object, with its path. What is shown elsewhere is left out.
fn flatten(prefix: &str, value: &Value, into: &mut Vec<(String, String)>) {
    const SHOWN_ELSEWHERE: [&str; 4] = ["kind", "program", "settings", "report.latencies"];
    match value {
        _ if SHOWN_ELSEWHERE.contains(&prefix) => {}
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            let dot = if prefix.is_empty() { "" } else { "." };
            flatten(&format!("{prefix}{dot}{name}"), value, into);
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(at, item)| flatten(&format!("{prefix}[{at}]"), item, into)),
        Value::Number(number) => {
            let text = number.as_f64().map_or_else(|| number.to_string(), grouped);
            into.push((prefix.to_owned(), text));
        }
        Value::String(text) => into.push((prefix.to_owned(), text.clone())),
        Value::Null if prefix.is_empty() => {}
        other => into.push((prefix.to_owned(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_decision_is_a_counter_that_the_documentation_explains() {
        let meanings = meanings();
        for name in DECISIONS.iter().flat_map(|(_, names)| *names) {
            let path = format!("report.engine.{name}");
            assert!(
                meanings
                    .get(path.as_str())
                    .is_some_and(|meaning| meaning.len() > 10),
                "{name}"
            );
        }
        assert!(meanings.len() > 150);
    }

    #[test]
    fn digits_stand_in_groups_of_three() {
        for (value, text) in [
            (0.0, "0"),
            (999.0, "999"),
            (1000.0, "1,000"),
            (-1_234_567.0, "-1,234,567"),
            (2.5, "2.5"),
        ] {
            assert_eq!(grouped(value), text);
        }
    }

    #[test]
    fn backticks_become_code_and_the_rest_is_escaped() {
        assert_eq!(explained("as `a<b` & c"), "as <code>a&lt;b</code> &amp; c");
    }
}
