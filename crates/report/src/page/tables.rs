//! Tables of the page: runs beside each other, processes, settings.

use super::html::{figures, name, text, words, Table};
use crate::figures::{Figure, FIGURES};
use crate::processes::Process;
use crate::read::Run;
use crate::unit::Unit;
use pleat_plot::{human_bytes, human_count, human_time};
use serde_json::Value;

/// Processes that are shown; the rest waited for less.
const PROCESSES_SHOWN: usize = 100;

/// The figures of all runs, with the difference of each to the first. HTML.
pub fn compared(runs: &[&Run], heads: &[String]) -> String {
    let mut columns = vec![words("Figure")];
    columns.extend(heads.iter().map(figures));
    let mut table = Table::new(
        "Key figures, and how far each differs from the first run",
        &columns,
    );
    for figure in &FIGURES {
        let values: Vec<Option<f64>> = runs.iter().map(|run| (figure.of)(run)).collect();
        if values.iter().all(|value| value.unwrap_or(0.0) == 0.0) {
            continue;
        }
        let mut cells = vec![words(figure.name)];
        cells.extend(values.iter().enumerate().map(|(at, value)| {
            let shown = value.map_or("-".into(), |value| figure.unit.text(value));
            match at {
                0 => figures(shown),
                _ => figures(format!(
                    "{shown} <small>{}</small>",
                    difference(values[0], *value)
                )),
            }
        }));
        table.row(&cells);
    }
    table.end()
}

/// As `+12%`, or as a multiple where it is much.
fn difference(first: Option<f64>, other: Option<f64>) -> String {
    let (Some(first), Some(other)) = (first, other) else {
        return String::new();
    };
    match (first, other / first) {
        _ if first == other => "=".into(),
        (0.0, _) => "new".into(),
        (_, times) if (times - 1.0).abs() < 0.0005 => "=".into(),
        (_, times) if times >= 3.0 => format!("{} x", human_count(times)),
        (_, times) => format!(
            "{:+.*}%",
            usize::from((times - 1.0).abs() < 0.1),
            100.0 * (times - 1.0)
        ),
    }
}

/// The figures that are seen first. HTML.
pub fn tiles(run: &Run) -> String {
    const SHOWN: [&str; 6] = [
        "Time",
        "Budget",
        "Most needed",
        "Needed over budget",
        "Threads that waited, on average",
        "Compression ratio",
    ];
    let is_shown = |figure: &&Figure| SHOWN.contains(&figure.name);
    let tile = |figure: &Figure| {
        let shown = figure.unit.text((figure.of)(run)?);
        Some(format!(
            "<div><dt>{}</dt><dd>{shown}</dd></div>\n",
            figure.name
        ))
    };
    let tiles: String = FIGURES.iter().filter(is_shown).filter_map(tile).collect();
    format!("<dl class=\"tiles\">\n{tiles}</dl>\n")
}

/// The processes of a run. HTML; `None` where no sample told of one.
pub fn processes(run: &Run) -> Option<String> {
    let all = run.processes.sorted();
    if all.is_empty() {
        return None;
    }
    let mut columns = vec![words("Process"), figures("PID"), words("Managed")];
    columns.extend(
        [
            "Most in memory",
            "Most away",
            "Most not compressible",
            "Waited",
        ]
        .map(figures),
    );
    let mut table = Table::new("Processes, by how long they waited for pages", &columns);
    for process in all.iter().take(PROCESSES_SHOWN) {
        let mut cells = vec![
            words(name(&process.name)),
            figures(process.pid.to_string()),
            words(managed(process)),
        ];
        cells.extend(
            [
                process.resident_most_bytes,
                process.away_most_bytes,
                process.unfoldable_most_bytes,
            ]
            .map(|bytes| figures(human_bytes(bytes))),
        );
        cells.push(figures(human_time(process.stall_us as f64 / 1e6)));
        table.row(&cells);
    }
    let mut html = table.end();
    let (forgotten, left_out) = run.processes.missing();
    let more = all.len().saturating_sub(PROCESSES_SHOWN) as u64 + forgotten;
    let mut notes = Vec::new();
    if more > 0 {
        notes.push(format!(
            "{more} more that waited no longer and had no more memory are not shown"
        ));
    }
    if left_out > 0 {
        notes.push(format!("samples tell of the largest processes only: up to {left_out} others ran at the same time"));
    }
    if !notes.is_empty() {
        html += &format!("<p class=\"note\">{}.</p>\n", notes.join("; "));
    }
    Some(html)
}

fn managed(process: &Process) -> String {
    let why = process.why.as_deref().map(text);
    match (process.managed.as_str(), why) {
        ("yes", _) => "yes".into(),
        ("later", None) => "not yet: memory was plenty".into(),
        ("no", Some(why)) => format!("no: {why}"),
        (other, None) => text(other),
        (other, Some(why)) => format!("{}: {why}", text(other)),
    }
}

/// What the runs were set to, and on which machine. HTML.
pub fn settings(runs: &[&Run], heads: &[String]) -> String {
    let mut columns = vec![words("Setting")];
    columns.extend(heads.iter().map(words));
    let mut table = Table::new("Settings and machine", &columns);
    let mut row = |head: String, of: &dyn Fn(&Run) -> String| {
        let mut cells = vec![words(head)];
        cells.extend(runs.iter().map(|run| words(of(run))));
        table.row(&cells);
    };
    for name in names_of_settings(runs) {
        row(format!("<code>{}</code>", text(name)), &|run| {
            setting(name, &run.start.settings[name])
        });
    }
    row("program".into(), &|run| {
        format!("<code>{}</code>", text(&run.start.program.join(" ")))
    });
    row("pleat".into(), &|run| text(&run.start.pleat_version));
    row("kernel".into(), &|run| text(&run.start.machine.kernel));
    row("CPUs".into(), &|run| match run.start.machine.cpus {
        0 => String::new(),
        cpus => format!("{cpus} x {}", text(&run.start.machine.cpu)),
    });
    row("memory".into(), &|run| {
        human_bytes(run.start.machine.memory_bytes)
    });
    row("samples".into(), &|run| human_count(run.samples as f64));
    table.end()
}

/// The settings by which the runs differ. HTML; `None` where they are the same.
pub fn different_settings(runs: &[&Run], heads: &[String]) -> Option<String> {
    let mut columns = vec![words("Setting")];
    columns.extend(heads.iter().map(words));
    let mut table = Table::new("Settings by which the runs differ", &columns);
    let mut is_empty = true;
    for name in names_of_settings(runs) {
        let values = || runs.iter().map(|run| &run.start.settings[name]);
        if values().all(|value| *value == runs[0].start.settings[name]) {
            continue;
        }
        is_empty = false;
        let mut cells = vec![words(format!("<code>{}</code>", text(name)))];
        cells.extend(values().map(|value| words(setting(name, value))));
        table.row(&cells);
    }
    (!is_empty).then(|| table.end())
}

fn names_of_settings<'a>(runs: &[&'a Run]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        for name in run
            .start
            .settings
            .as_object()
            .into_iter()
            .flat_map(|all| all.keys())
        {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    names
}

fn setting(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::String(value) => text(value),
        Value::Number(value) if name.ends_with("_bytes") => {
            Unit::Bytes.text(value.as_f64().unwrap_or(f64::NAN))
        }
        other => text(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_says_more_or_less_and_how_much() {
        for (first, other, text) in [
            (100.0, 112.0, "+12%"),
            (100.0, 95.5, "-4.5%"),
            (100.0, 40.0, "-60%"),
            (100.0, 450.0, "4.5 x"),
            (0.0, 0.0, "="),
            (10_000.0, 10_001.0, "="),
            (0.0, 5.0, "new"),
            (7.0, 0.0, "-100%"),
        ] {
            assert_eq!(difference(Some(first), Some(other)), text);
        }
        assert_eq!(difference(None, Some(1.0)), "");
    }
}
