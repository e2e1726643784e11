//! `--trace-stats FILE`: how the job stood, a line of JSON each second, for `pleat report` and whoever reads JSON.
//!
//! `docs/report.md` explains the lines. Each is written whole as soon as there is one, so the file can be read while the job runs, and what is
//! there when pleat is killed is good.

use crate::pager::control::Detail;
use crate::settings::Settings;
use crate::stats::{self, Stats};
use pleat_sys::limits;
use serde::Serialize;
use serde_json::{json, Value};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Which lines there are, and what is in them.
const FORMAT: u32 = 1;
/// Processes told of in a line: those with most memory.
const ROWS_MAX: usize = 16;

/// The file, open since before the program started.
pub struct Series {
    path: PathBuf,
    /// `None` when it is not written to any more.
    file: Mutex<Option<File>>,
}

#[derive(Serialize)]
struct Line<'a, T> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_unix_ms: Option<u64>,
    #[serde(flatten)]
    what: &'a T,
}

impl Series {
    /// Creates or empties the file.
    ///
    /// # Errors
    /// One line: it cannot be written.
    pub fn create(path: &Path) -> Result<Series, String> {
        match File::create(path) {
            Ok(file) => Ok(Series {
                path: path.to_owned(),
                file: Mutex::new(Some(file)),
            }),
            Err(error) => Err(format!(
                "cannot write --trace-stats {}: {error}",
                path.display()
            )),
        }
    }

    /// The first line: what runs, on which machine.
    pub fn begin(&self, settings: &Settings) {
        let mut what = stats::beginning(settings);
        what["format"] = FORMAT.into();
        what["started_unix_ms"] = unix_ms().into();
        what["machine"] = machine();
        self.write("start", None, &what);
    }

    /// The job stands so now.
    pub fn sample(&self, detail: &Detail) {
        let mut detail = detail.clone();
        let size = |row: &crate::pager::control::Row| {
            row.resident_bytes + row.away_bytes + row.unfoldable_bytes
        };
        detail.rows.sort_by_key(|row| std::cmp::Reverse(size(row)));
        let left_out = detail.rows.len().saturating_sub(ROWS_MAX);
        detail.rows.truncate(ROWS_MAX);
        detail.rows_left_out += left_out as u64;
        self.write("sample", Some(unix_ms()), &detail);
    }

    /// The last line. Nothing is written after it.
    pub fn end(&self, stats: &Stats<'_>) {
        self.write("end", Some(unix_ms()), stats);
        *self.lock() = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write<T: Serialize>(&self, kind: &'static str, time_unix_ms: Option<u64>, what: &T) {
        let mut place = self.lock();
        let Some(file) = place.as_mut() else { return };
        let line = Line {
            kind,
            time_unix_ms,
            what,
        };
        if let Err(error) = write_line(file, &line) {
            *place = None;
            crate::say(&format!(
                "warning: cannot write --trace-stats {}: {error}; it ends here",
                self.path.display()
            ));
        }
    }
}

fn write_line(file: &mut File, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}

fn machine() -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    json!({
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "cpu": model.map_or("", |model| model.trim_start_matches([' ', '\t', ':'])),
        "memory_bytes": limits::mem_total_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pager::control::Row;

    #[test]
    fn a_line_has_what_the_answer_had_and_the_largest_processes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("series.jsonl");
        let series = Series::create(&path).unwrap();
        let row = |pid: i32| Row {
            pid,
            resident_bytes: pid as u64,
            ..Row::default()
        };
        let detail = Detail {
            rows: (1..=20).map(row).collect(),
            rows_left_out: 3,
            ..Detail::default()
        };
        series.sample(&detail);
        series.sample(&detail);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (&lines[0]["kind"], &lines[0]["rows_left_out"]),
            (&"sample".into(), &7.into())
        );
        let pids: Vec<i64> = lines[0]["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["pid"].as_i64().unwrap())
            .collect();
        assert_eq!(pids, (5..=20).rev().collect::<Vec<i64>>());
        assert!(
            lines[0]["tiers"]["compressed_bytes"].is_u64() && lines[0]["time_unix_ms"].is_u64()
        );
    }

    #[test]
    fn a_full_disk_ends_the_series_and_not_the_job() {
        let series = Series::create(Path::new("/dev/full")).unwrap();
        series.sample(&Detail::default());
        assert!(series.lock().is_none());
        series.sample(&Detail::default());
        let error = Series::create(Path::new("/nonexistent/a")).err().unwrap();
        assert!(error.contains("--trace-stats /nonexistent/a"), "{error}");
    }
}
