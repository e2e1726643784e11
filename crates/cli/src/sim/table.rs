//! The table of `pleat sim`: a block for each size of memory, a line for each preset.

use super::Row;
use std::fmt::Write;

const MB: f64 = 1e6;
const TITLES: [&str; 2] = [
    "                          elapsed         access     CPU  codec    wait    faults  from   read  written",
    "preset                          s  /none      us       s      s       s  thousand cache     MB       MB",
];

/// All of it.
pub fn tables(rows: &[Row]) -> String {
    let blocks = rows.chunk_by(|a, b| a.memory_bytes == b.memory_bytes);
    let blocks: Vec<String> = blocks.map(block).collect();
    blocks.join("\n")
}

fn block(rows: &[Row]) -> String {
    let first = &rows[0];
    let mut text = String::new();
    let _ = writeln!(
        text,
        "memory {}, processes {}, references {}\n{}",
        size(first.memory_bytes),
        first.outcome.processes.len(),
        first.outcome.references,
        TITLES.join("\n")
    );
    text.extend(rows.iter().map(line));
    text
}

fn line(row: &Row) -> String {
    let outcome = &row.outcome;
    let s = |ns: u64| ns as f64 / 1e9;
    let (cpu, wait) = (&outcome.cpu, &outcome.wait);
    let faults = outcome.faults();
    let cached = 100.0 * outcome.faults_from_cache() as f64 / faults.max(1) as f64;
    format!(
        "{:<23} {:>9.2} {:>6.2} {:>7.2} {:>7.2} {:>6.2} {:>7.2} {:>9.1} {:>4.0}% {:>6.0} {:>8.0}\n",
        row.preset,
        s(outcome.elapsed_ns),
        row.speedup,
        outcome.mean_access_ns / 1e3,
        s(cpu.total()),
        s(cpu.compress_ns + cpu.decompress_ns),
        s(wait.total()),
        faults as f64 / 1e3,
        cached,
        outcome.device.read_bytes as f64 / MB,
        outcome.device.write_bytes as f64 / MB,
    )
}

/// A size as it is typed.
pub fn size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        b if b.is_multiple_of(1 << 30) => (1 << 30, "G"),
        b if b.is_multiple_of(1 << 20) => (1 << 20, "M"),
        b if b.is_multiple_of(1 << 10) => (1 << 10, "K"),
        _ => (1, ""),
    };
    format!("{}{name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_they_are_typed() {
        let sizes = [1 << 30, 1 << 20, 1536 << 10, 1000].map(size);
        assert_eq!(sizes, ["1G", "1M", "1536K", "1000"]);
    }
}
