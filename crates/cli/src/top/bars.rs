//! Memory as a bar: a letter for each part of the budget.

use super::look::Kind;
use crate::pager::control::Tiers;

/// Bytes of a kind.
pub fn bytes_of(tiers: &Tiers, kind: Kind) -> u64 {
    match kind {
        Kind::Uncompressed => tiers.uncompressed_bytes,
        Kind::Compressed => tiers.staged_bytes + tiers.compressed_bytes,
        Kind::Raw => tiers.raw_bytes,
        Kind::File => tiers.file_bytes,
        Kind::Unfoldable => tiers.unfoldable_bytes,
        Kind::Own => tiers.own_bytes,
        Kind::Free => 0,
    }
}

/// Parts of a bar of this width, in cells; together they fill it. What is over the budget makes the bar stand for more.
pub fn cells(parts: &[(Kind, u64)], budget_bytes: u64, width: u16) -> Vec<(Kind, u16)> {
    let used: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
    let whole = used.max(budget_bytes).max(1);
    let mut cells = Vec::with_capacity(parts.len() + 1);
    let (mut sum, mut drawn) = (0u64, 0u16);
    // Each part ends where the sum up to there does, so that roundings do not add up.
    for (kind, bytes) in parts.iter().chain([&(Kind::Free, whole - used)]) {
        sum += bytes;
        let end =
            (u128::from(sum) * u128::from(width) * 2 + u128::from(whole)) / (u128::from(whole) * 2);
        let end = (end as u16).min(width);
        cells.push((*kind, end - drawn));
        drawn = end;
    }
    cells
}

/// The parts of a job's memory.
pub fn of_job(tiers: &Tiers) -> Vec<(Kind, u64)> {
    Kind::USED
        .iter()
        .map(|kind| (*kind, bytes_of(tiers, *kind)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_wide_as_it_is_told_and_its_parts_in_proportion() {
        let parts = [(Kind::Uncompressed, 50), (Kind::Compressed, 25)];
        let cells_of = |budget, width| cells(&parts, budget, width);
        assert_eq!(
            cells_of(100, 20),
            [
                (Kind::Uncompressed, 10),
                (Kind::Compressed, 5),
                (Kind::Free, 5)
            ]
        );
        for (budget, width) in [(0, 10), (75, 7), (10, 3), (1 << 60, 200), (100, 0)] {
            let sum: u16 = cells_of(budget, width).iter().map(|(_, cells)| cells).sum();
            assert_eq!(sum, width, "{budget} {width}");
        }
    }

    #[test]
    fn what_is_over_the_budget_leaves_nothing_free() {
        let cells = cells(&[(Kind::Uncompressed, 300), (Kind::Own, 100)], 200, 8);
        assert_eq!(
            cells,
            [(Kind::Uncompressed, 6), (Kind::Own, 2), (Kind::Free, 0)]
        );
    }
}
