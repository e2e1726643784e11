//! Measurements as an aligned table, with each time and size also as a multiple of LZ4's.

use super::{totals, Measured};
use crate::Lz4;

const TITLES: [&str; 2] = [
    "                           compress       decompress           stored",
    "pages of         codec        us  /lz4       us  /lz4      bytes  /lz4  same %   raw %",
];

/// One line for each codec and pool, in the order given, a blank line between pools; then one for
/// each codec over all pages, if there is more than one pool. `-` where LZ4 was not measured.
pub fn table(measured: &[Measured]) -> String {
    let mut text = TITLES.join("\n") + "\n";
    for pool in measured.chunk_by(|a, b| a.pool == b.pool) {
        text += &lines(pool);
        text += "\n";
    }
    if measured.iter().any(|one| one.pool != measured[0].pool) {
        text += &lines(&totals(measured));
        text += "\n";
    }
    text
}

/// The lines of one pool.
fn lines(pool: &[Measured]) -> String {
    let lz4 = pool.iter().find(|one| one.codec == Lz4::NAME);
    pool.iter().map(|one| line(one, lz4)).collect()
}

fn line(one: &Measured, lz4: Option<&Measured>) -> String {
    let share = |count: usize| 100.0 * count as f64 / one.pages as f64;
    let ratio = |of: fn(&Measured) -> f64| match lz4 {
        Some(lz4) if of(lz4) > 0.0 => format!("{:.2}", of(one) / of(lz4)),
        _ => "-".to_owned(),
    };
    format!(
        "{:<16} {:<8} {:>6.2} {:>5} {:>8.2} {:>5} {:>10.0} {:>5} {:>7.1} {:>7.1}\n",
        one.pool,
        one.codec,
        one.compress_ns / 1000.0,
        ratio(|m| m.compress_ns),
        one.decompress_ns / 1000.0,
        ratio(|m| m.decompress_ns),
        one.bytes,
        ratio(|m| m.bytes),
        share(one.same_pages),
        share(one.raw_pages),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(codec: &str, pool: &str, ns: f64) -> Measured {
        Measured {
            codec: codec.into(),
            pool: pool.into(),
            pages: 100,
            compress_ns: ns,
            decompress_ns: ns / 4.0,
            bytes: 1000.0,
            same_pages: 10,
            raw_pages: 5,
        }
    }

    #[test]
    fn every_column_is_aligned_and_the_total_comes_last() {
        let measured = [
            one("lz4", "gcc", 3000.0),
            one("zstd:19", "gcc", 90_000.0),
            one("lz4", "python-objects", 1000.0),
            one("zstd:19", "python-objects", 30_000.0),
        ];
        let text = table(&measured);
        let widths = text
            .lines()
            .skip(1)
            .filter(|line| !line.is_empty())
            .map(str::len);
        assert!(
            widths
                .clone()
                .all(|width| width == widths.clone().max().unwrap()),
            "{text}"
        );
        let last = text.lines().rfind(|line| !line.is_empty()).unwrap();
        let words: Vec<_> = last.split_whitespace().collect();
        let expected = [
            "all", "zstd:19", "60.00", "30.00", "15.00", "30.00", "1000", "1.00", "10.0", "5.0",
        ];
        assert_eq!(words, expected, "{text}");
    }

    #[test]
    fn without_lz4_there_are_no_ratios_and_one_pool_has_no_total() {
        let text = table(&[one("fold", "gcc", 3000.0)]);
        assert!(
            !text.contains("all ") && text.contains("fold       3.00     -"),
            "{text}"
        );
        assert_eq!(table(&[]).lines().collect::<Vec<_>>(), TITLES);
    }
}
