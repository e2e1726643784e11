//! The processes of a job: the most memory that each had, and how long it waited. A bounded number is remembered.

use crate::line::Row;
use std::cmp::Reverse;
use std::collections::HashMap;

/// When there are more, half of them are forgotten: those that neither waited nor had much memory.
const PROCESSES_MAX: usize = 2048;

/// What is known of a process when all has been read.
#[derive(Clone, Debug, Default)]
pub struct Process {
    pub pid: i64,
    pub name: String,
    pub managed: String,
    pub why: Option<String>,
    pub resident_most_bytes: u64,
    pub away_most_bytes: u64,
    pub unfoldable_most_bytes: u64,
    pub stall_us: u64,
}

/// All that were seen.
#[derive(Debug, Default)]
pub struct Processes {
    all: Vec<Process>,
    /// Where the last process with this number is.
    by_pid: HashMap<i64, usize>,
    forgotten: u64,
    /// The most that a sample left out.
    left_out_most: u64,
}

impl Process {
    fn saw(&mut self, row: &Row) {
        if self.name != row.name {
            self.name = row.name.clone().into_owned();
        }
        if self.managed != row.managed {
            self.managed = row.managed.clone().into_owned();
        }
        if row.why.is_some() && self.why.as_deref() != row.why.as_deref() {
            self.why = row.why.as_deref().map(str::to_owned);
        }
        self.resident_most_bytes = self.resident_most_bytes.max(row.resident_bytes);
        self.away_most_bytes = self.away_most_bytes.max(row.away_bytes);
        self.unfoldable_most_bytes = self.unfoldable_most_bytes.max(row.unfoldable_bytes);
        self.stall_us = row.stall_us;
    }

    /// Those first whom waiting, then memory, concerned most.
    fn rank(&self) -> impl Ord {
        let memory = self
            .resident_most_bytes
            .saturating_add(self.unfoldable_most_bytes);
        Reverse((self.stall_us, memory, Reverse(self.pid)))
    }
}

impl Processes {
    /// Takes in what a sample says.
    pub fn add(&mut self, rows: &[Row], left_out: u64) {
        self.left_out_most = self.left_out_most.max(left_out);
        for row in rows {
            let known = self.by_pid.get(&row.pid).copied();
            // Who has waited less than before is another, with the same number.
            let known = known.filter(|at| self.all[*at].stall_us <= row.stall_us);
            let at = known.unwrap_or_else(|| self.begin(row.pid));
            self.all[at].saw(row);
        }
    }

    fn begin(&mut self, pid: i64) -> usize {
        if self.all.len() >= PROCESSES_MAX {
            self.forget();
        }
        self.all.push(Process {
            pid,
            ..Process::default()
        });
        self.by_pid.insert(pid, self.all.len() - 1);
        self.all.len() - 1
    }

    fn forget(&mut self) {
        self.all.sort_by_cached_key(Process::rank);
        let kept = PROCESSES_MAX / 2;
        self.forgotten += self.all.len().saturating_sub(kept) as u64;
        self.all.truncate(kept);
        let places = self.all.iter().enumerate();
        self.by_pid = places.map(|(at, process)| (process.pid, at)).collect();
    }

    /// All, in the order in which they are told.
    pub fn sorted(&self) -> Vec<&Process> {
        let mut all: Vec<&Process> = self.all.iter().collect();
        all.sort_by_cached_key(|process| process.rank());
        all
    }

    /// How many were forgotten, and how many at most were in no sample at a time.
    pub fn missing(&self) -> (u64, u64) {
        (self.forgotten, self.left_out_most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: i64, resident_bytes: u64, stall_us: u64) -> Row<'static> {
        Row {
            pid,
            resident_bytes,
            stall_us,
            ..Row::default()
        }
    }

    #[test]
    fn processes_are_told_by_how_long_they_waited_with_their_peaks() {
        let mut processes = Processes::default();
        processes.add(&[row(1, 500, 0), row(2, 100, 10)], 0);
        processes.add(&[row(1, 50, 5), row(2, 10, 20), row(3, 7, 5)], 4);
        let told: Vec<(i64, u64, u64)> = processes
            .sorted()
            .iter()
            .map(|one| (one.pid, one.resident_most_bytes, one.stall_us))
            .collect();
        assert_eq!(told, [(2, 100, 20), (1, 500, 5), (3, 7, 5)]);
        assert_eq!(processes.missing(), (0, 4));
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let mut processes = Processes::default();
        processes.add(&[row(7, 500, 900)], 0);
        processes.add(&[row(7, 20, 3)], 0);
        processes.add(&[row(7, 30, 4)], 0);
        let told: Vec<(u64, u64)> = processes
            .sorted()
            .iter()
            .map(|one| (one.resident_most_bytes, one.stall_us))
            .collect();
        assert_eq!(told, [(500, 900), (30, 4)]);
    }

    #[test]
    fn of_a_great_many_processes_those_are_kept_that_matter() {
        let mut processes = Processes::default();
        processes.add(&[row(1, 1 << 40, 1)], 0);
        for pid in 2..100_000 {
            processes.add(&[row(pid, 10, 0)], 0);
        }
        processes.add(&[row(1, 5, 2)], 0);
        assert!(processes.all.len() <= PROCESSES_MAX);
        let first = processes.sorted()[0];
        assert_eq!(
            (first.pid, first.resident_most_bytes, first.stall_us),
            (1, 1 << 40, 2)
        );
        let (forgotten, _) = processes.missing();
        assert_eq!(forgotten as usize + processes.all.len(), 99_999);
    }
}
