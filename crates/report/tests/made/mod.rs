//! Series as `pleat run --trace-stats` writes them, of jobs that never were: a program that grows beyond its budget, works on some of its
//! memory, and ends.

use serde_json::{json, Value};
use std::fmt::Write;

const MB: u64 = 1 << 20;

/// A job to be made up.
#[derive(Clone)]
pub struct Made {
    pub program: Vec<String>,
    pub name: String,
    pub process: String,
    pub seconds: u64,
    /// Seconds between samples.
    pub interval: u64,
    pub processes: u64,
    pub budget_mb: u64,
    pub needed_mb: u64,
    pub ending: Option<Value>,
    pub has_latencies: bool,
    pub seed: u64,
}

impl Default for Made {
    fn default() -> Made {
        Made {
            program: ["python3", "train.py", "--epochs", "30"]
                .map(String::from)
                .to_vec(),
            name: "train".into(),
            process: "python3".into(),
            seconds: 1800,
            interval: 1,
            processes: 16,
            budget_mb: 2048,
            needed_mb: 4600,
            ending: Some(
                json!({"kind": "exited", "exit_code": 0, "signal": null, "message": null}),
            ),
            has_latencies: true,
            seed: 1,
        }
    }
}

/// Numbers that look like chance and are always the same.
struct Chance(u64);

impl Chance {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below.max(1)
    }
}

/// What only grows.
#[derive(Default)]
struct Totals {
    zero: u64,
    file: u64,
    staged: u64,
    compressed: u64,
    swap: u64,
    taken: u64,
    stall_us: u64,
    rested_us: u64,
    fold_us: u64,
}

impl Made {
    /// All lines of it.
    pub fn text(&self) -> String {
        let mut text = self.start() + "\n";
        let mut lines = self.samples();
        for line in lines.by_ref() {
            let _ = writeln!(text, "{line}");
        }
        if let Some(ending) = &self.ending {
            let _ = writeln!(text, "{}", self.end(ending, &lines.totals));
        }
        text
    }

    pub fn start(&self) -> String {
        json!({
            "kind": "start", "format": 1, "pleat_version": "0.2.0", "started_unix_ms": 1_795_824_357_250u64, "program": self.program,
            "settings": self.settings(),
            "machine": {"kernel": "6.18.44", "cpus": 2, "cpu": "Intel(R) Xeon(R) Processor", "memory_bytes": 25_276_502_016u64},
        })
        .to_string()
    }

    fn settings(&self) -> Value {
        json!({"budget_bytes": self.budget_mb * MB, "budget_reason": "as given", "swap_dir": "/var/tmp", "swap_max_bytes": null,
               "swap_protection": "encrypted", "preset": "pleat", "codec": "auto", "recompress": false, "paranoid": false,
               "file_maps": true, "shared_memory": false, "load_control": true, "own_cgroup": "auto", "layout": "extents",
               "sizing": "ghosts", "admission": "all"})
    }

    /// A line for each interval.
    pub fn samples(&self) -> Samples<'_> {
        Samples {
            made: self,
            second: 0,
            chance: Chance(self.seed),
            totals: Totals::default(),
        }
    }

    fn end(&self, ending: &Value, totals: &Totals) -> Value {
        let mut report = json!({
            "wall_us": self.seconds * 1_000_000 + 2_345, "budget_bytes": self.budget_mb * MB, "budget_changes": 0,
            "peak_bytes": self.budget_mb * MB - 300_000, "pages_folded": totals.taken, "compression_ratio": 3.17,
            "stall_us": totals.stall_us,
            "hits": {"zero": totals.zero, "file": totals.file, "staged": totals.staged, "compressed": totals.compressed, "swap": totals.swap},
            "pager": {"faults": totals.zero + totals.swap, "stall_us": totals.stall_us, "rested_us": totals.rested_us, "fold_us": totals.fold_us,
                      "needed_peak_bytes": self.needed_mb * MB, "own_peak_bytes": 15 * MB, "swap_reads": totals.swap,
                      "swap_read_us": totals.stall_us / 2, "file_read_us": totals.stall_us / 50,
                      "swap_read_bytes": totals.swap * 4096, "swap_written_bytes": totals.taken * 900},
            "engine": {"growths": 81_234, "growths_denied": 5_321, "growth_locks": 12, "growth_unlocks": 11, "shrinks_released": 20_411,
                       "forced_starved_pages": 0, "chosen_pages": totals.taken + 900, "taken_pages": totals.taken,
                       "spared_pages": 4_003, "refused_busy_pages": 900, "folded_packed_pages": totals.taken / 10 * 9,
                       "folded_raw_pages": totals.taken / 20, "folded_same_pages": totals.taken / 20}
        });
        if self.has_latencies {
            report["latencies"] = self.latencies(totals);
        }
        json!({"kind": "end", "pleat_version": "0.2.0", "program": self.program, "settings": self.settings(), "ending": ending,
               "report": report, "profile": null, "mounts": []})
    }

    fn latencies(&self, totals: &Totals) -> Value {
        let of = |count: u64, median_ns: f64| {
            let buckets: Vec<Value> = (-24..60)
                .filter_map(|step: i32| {
                    let ns = median_ns * (f64::from(step) / 8.0).exp2();
                    let width = if step < 0 { 8.0 } else { 14.0 };
                    let faults = count as f64 * 0.07 * (-(f64::from(step) / width).powi(2)).exp();
                    (faults >= 1.0).then(|| json!([ns as u64, faults as u64]))
                })
                .collect();
            let mean_ns = (median_ns * 1.4) as u64;
            json!({"count": count, "total_ns": count * mean_ns, "mean_ns": mean_ns, "median_ns": median_ns as u64,
                   "p99_ns": (median_ns * 9.0) as u64, "p999_ns": (median_ns * 21.0) as u64, "buckets": buckets})
        };
        json!({"zero": of(totals.zero, 1_900.0), "file": of(totals.file, 7_000.0), "staged": of(totals.staged, 2_600.0),
               "compressed": of(totals.compressed, 6_100.0), "swap": of(totals.swap, 240_000.0)})
    }
}

/// The samples of a made job.
pub struct Samples<'a> {
    made: &'a Made,
    second: u64,
    chance: Chance,
    totals: Totals,
}

impl Iterator for Samples<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        if self.second + self.made.interval > self.made.seconds {
            return None;
        }
        self.second += self.made.interval;
        Some(self.sample().to_string())
    }
}

impl Samples<'_> {
    fn sample(&mut self) -> Value {
        let made = self.made;
        let budget = made.budget_mb * MB;
        // It grows for a third of the time, then works in waves.
        let part = self.second as f64 / made.seconds as f64;
        let wave = 1.0 + 0.06 * (part * 40.0).sin();
        let needed =
            (made.needed_mb as f64 * MB as f64 * (part * 3.0).min(1.0) * wave.min(1.0)) as u64;
        let (own, unfoldable, file) = (14 * MB, 60 * MB, 90 * MB + self.chance.next(MB * 4));
        let room = budget - own - unfoldable - file - 2 * MB;
        let over = needed.saturating_sub(room);
        let compressed = (over / 3).min(room / 3);
        let raw = compressed / 12;
        let staged = if over > 0 {
            self.chance.next(4 * MB)
        } else {
            0
        };
        let uncompressed = if over > 0 {
            room - compressed - raw - staged
        } else {
            needed
        };
        let away = needed - uncompressed;
        let swap = away.saturating_sub(compressed * 3);
        self.work(over > 0, swap > 0);
        let totals = &self.totals;
        json!({
            "kind": "sample", "time_unix_ms": 1_795_824_357_250 + self.second * 1000, "pid": 11_549, "program_pid": 11_552, "name": made.name,
            "command": made.program, "budget_bytes": budget, "used_bytes": uncompressed + staged + compressed + raw + file + unfoldable + own,
            "settled": true, "budget_min_bytes": 16_777_216, "budget_max_bytes": 25_276_502_016u64, "limit_bytes": null,
            "compressed_bytes": compressed, "pages_away": away / 4096, "swap_bytes": swap / 3, "processes": made.processes,
            "started_unix_s": 1_795_824_357, "wall_us": self.second * 1_000_000 + self.chance.next(900), "attached_pids": [], "detaching": false,
            "inside_pid": null,
            "tiers": {"uncompressed_bytes": uncompressed, "staged_bytes": staged, "compressed_bytes": compressed, "raw_bytes": raw,
                      "file_bytes": file, "unfoldable_bytes": unfoldable, "own_bytes": own, "swap_bytes": swap, "swap_file_bytes": swap / 3},
            "totals": {"faults": totals.zero + totals.compressed, "zero_pages": totals.zero, "file_pages": totals.file,
                       "staged_pages": totals.staged, "compressed_pages": totals.compressed, "swap_pages": totals.swap,
                       "taken_pages": totals.taken, "stall_us": totals.stall_us, "rested_us": totals.rested_us, "fold_us": totals.fold_us,
                       "swap_read_bytes": totals.swap * 4096, "swap_written_bytes": totals.taken * 900,
                       "kept_pages": compressed / 1300, "kept_bytes": compressed + 1},
            "rows": self.rows(uncompressed, away), "rows_left_out": 0,
        })
    }

    fn work(&mut self, is_short: bool, is_on_disk: bool) {
        let chance = &mut self.chance;
        let totals = &mut self.totals;
        totals.zero += 500 + chance.next(3000);
        totals.file += chance.next(40);
        if is_short {
            // A storm now and then.
            let storm = if chance.next(90) == 0 { 6 } else { 1 };
            totals.staged += chance.next(120);
            totals.compressed += (900 + chance.next(1200)) * storm;
            totals.taken += (1500 + chance.next(1500)) * storm;
            totals.fold_us += 9_000 + chance.next(9_000);
            totals.stall_us += 8_000 + chance.next(9_000);
        }
        if is_on_disk {
            let pages = 60 + chance.next(260);
            totals.swap += pages;
            totals.stall_us += pages * 400;
            totals.rested_us += if chance.next(7) == 0 { 300_000 } else { 0 };
        }
    }

    fn rows(&self, uncompressed: u64, away: u64) -> Vec<Value> {
        let made = self.made;
        let row = |number: u64| {
            let part =
                2 * (made.processes - number) * 1000 / (made.processes * (made.processes + 1));
            let (managed, why) = match number {
                number if number > 0 && number == made.processes - 1 => {
                    ("no", Some("it has a seccomp filter that forbids ioctl: run it without, see docs/limits.md"))
                }
                _ => ("yes", None),
            };
            json!({"pid": 11_552 + number, "ppid": 11_549, "name": made.process, "managed": managed, "why": why,
                   "resident_bytes": uncompressed / 1000 * part, "away_bytes": away / 1000 * part,
                   "unfoldable_bytes": 3 * MB + number * 40_000, "stall_us": self.totals.stall_us / 1000 * part, "rests": false})
        };
        (0..made.processes.min(16)).map(row).collect()
    }
}
