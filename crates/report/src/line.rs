//! The lines of a series, as they stand in the file. Fields that are not needed are not read, and those that a file lacks are 0: files of
//! older versions have fewer, those of newer ones more.

use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;

/// The format that is read here.
pub const FORMAT: u64 = 1;

/// The first line: what was run, where, and how.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Start {
    pub format: u64,
    pub pleat_version: String,
    pub started_unix_ms: u64,
    pub program: Vec<String>,
    pub settings: Value,
    pub machine: Machine,
}

/// What it ran on.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Machine {
    pub kernel: String,
    pub cpus: u64,
    pub cpu: String,
    pub memory_bytes: u64,
}

/// Most other lines: how the job stood. `docs/control.md` explains each field.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Sample<'a> {
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
    pub pid: i64,
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    pub wall_us: u64,
    pub budget_bytes: u64,
    pub used_bytes: u64,
    pub pages_away: u64,
    pub processes: u64,
    pub tiers: Tiers,
    pub totals: Totals,
    #[serde(borrow)]
    pub rows: Vec<Row<'a>>,
    pub rows_left_out: u64,
}

/// Where memory was.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Tiers {
    pub uncompressed_bytes: u64,
    pub staged_bytes: u64,
    pub compressed_bytes: u64,
    pub raw_bytes: u64,
    pub file_bytes: u64,
    pub unfoldable_bytes: u64,
    pub own_bytes: u64,
    pub swap_bytes: u64,
    pub swap_file_bytes: u64,
}

/// What the job had done.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Totals {
    pub faults: u64,
    pub zero_pages: u64,
    pub file_pages: u64,
    pub staged_pages: u64,
    pub compressed_pages: u64,
    pub swap_pages: u64,
    pub taken_pages: u64,
    pub stall_us: u64,
    pub rested_us: u64,
    pub fold_us: u64,
    pub swap_read_bytes: u64,
    pub swap_written_bytes: u64,
    pub kept_pages: u64,
    pub kept_bytes: u64,
}

/// One of its processes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Row<'a> {
    pub pid: i64,
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    #[serde(borrow)]
    pub managed: Cow<'a, str>,
    #[serde(borrow)]
    pub why: Option<Cow<'a, str>>,
    pub resident_bytes: u64,
    pub away_bytes: u64,
    pub unfoldable_bytes: u64,
    pub stall_us: u64,
}

/// Which of the lines this is: `None` where it is no line of a series.
pub fn kind_of(value: &Value) -> Option<&str> {
    value.get("kind")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// What of the structures here is in the answer `detail`, by its documentation.
    #[test]
    fn fields_are_called_what_the_control_socket_calls_them() {
        let page = include_str!("../../../docs/control.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
        let documented: BTreeSet<&str> = rows
            .filter_map(|row| Some(row.split_once('`')?.0))
            .collect();
        let source = include_str!("line.rs");
        let fields = |of: &str| -> Vec<String> {
            let body = source
                .split(&format!("pub struct {of}"))
                .nth(1)
                .expect("there is one");
            let body = body.split("\n}").next().expect("it ends");
            let fields = body
                .lines()
                .filter_map(|line| line.trim().strip_prefix("pub "));
            fields
                .filter_map(|field| Some(field.split_once(':')?.0.to_owned()))
                .collect()
        };
        let own = ["kind", "tiers", "totals", "rows"];
        for (of, prefix) in [
            ("Sample<", ""),
            ("Tiers", "tiers."),
            ("Totals", "totals."),
            ("Row<", "rows."),
        ] {
            let fields = fields(of);
            assert!(fields.len() > 5, "{of}: {fields:?}");
            for field in fields.iter().filter(|field| !own.contains(&field.as_str())) {
                let name = format!("{prefix}{field}");
                assert!(documented.contains(name.as_str()), "{name}");
            }
        }
    }

    #[test]
    fn names_with_escapes_are_read_like_all_others() {
        let line = r#"{"kind":"sample","rows":[{"pid":7,"name":"a\"b\u0001","why":"no\nway","new":{"x":[1]}}]}"#;
        let sample: Sample = serde_json::from_str(line).unwrap();
        assert_eq!(sample.rows[0].name, "a\"b\u{1}");
        assert_eq!(sample.rows[0].why.as_deref(), Some("no\nway"));
    }
}
