//! What a job is told in detail to who watches it, on the main thread, between two looks at memory.
//!
//! It must cost next to nothing, whoever asks how often: an answer is made at most ten times a second and then given again, names and
//! parents are those that were read when memory was measured, and the engine's lock is held for a few processes at a time.

use super::Supervisor;
use crate::census::{Process, Stage};
use crate::control::{done, Detail, Managed, Row, Tiers, Totals};
use crate::shared::{Link, Shared};
use pleat_engine::{Counters, SpacePages};
use pleat_types::PAGE_SIZE;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PAGE: u64 = PAGE_SIZE as u64;
/// An answer is given again within this time.
const FRESH_FOR: Duration = Duration::from_millis(100);
/// The least budget, for which files of processes are read, is found again after this time.
const LEAST_FRESH_FOR: Duration = Duration::from_secs(5);
/// Processes that are told of: an answer has room in a socket, so that nobody need wait for who reads it.
const ROWS_MAX: usize = 256;
/// Processes whose name and parent are read again with each answer, and those whose are read for the first time; 20 us each.
const READ_AGAIN: usize = 4;
const READ_MAX: usize = 64;
/// Bytes of a reason.
const WHY_BYTES_MAX: usize = 200;
/// Spaces that are looked up with one hold of the engine's lock: some microseconds.
const SPACES_A_HOLD: usize = 32;

/// What was told last.
#[derive(Default)]
pub(super) struct Told {
    /// The answer, and when it was made.
    line: Option<(Instant, String)>,
    least_budget: Option<(Instant, u64)>,
    /// The process behind which names are read again.
    read_up_to: i32,
}

impl Told {
    /// Something has changed that who asks next wants to see.
    pub(super) fn forget(&mut self) {
        self.line = None;
        self.least_budget = None;
    }
}

impl Supervisor<'_> {
    /// The line that answers who watches.
    pub(super) fn detail_line(&mut self) -> String {
        if let Some((at, line)) = &self.detail_told.line {
            if at.elapsed() < FRESH_FOR {
                return line.clone();
            }
        }
        let line = done(self.detail());
        self.detail_told.line = Some((Instant::now(), line.clone()));
        line
    }

    fn detail(&mut self) -> Detail {
        self.read_names();
        let least = self.least_budget_lately();
        let counters = self.shared.engine().counters();
        let (mut rows, to_come) = self.rows();
        let left_out = keep_largest(&mut rows, ROWS_MAX);
        Detail {
            status: self.status_with(&counters, least),
            tiers: self.tiers(&counters, to_come),
            totals: self.totals(&counters),
            rows,
            rows_left_out: left_out as u64,
        }
    }

    fn least_budget_lately(&mut self) -> u64 {
        match self.detail_told.least_budget {
            Some((at, least)) if at.elapsed() < LEAST_FRESH_FOR => least,
            _ => {
                let least = self.least_budget(self.budget.bytes).0;
                self.detail_told.least_budget = Some((Instant::now(), least));
                least
            }
        }
    }

    /// Names that were never read, and a few that were: a process may have executed another program, or lost its parent.
    fn read_names(&mut self) {
        let mut again: Vec<i32> = self.census.processes.keys().copied().collect();
        let up_to = self.detail_told.read_up_to;
        again.sort_unstable_by_key(|&pid| (pid <= up_to, pid));
        again.truncate(READ_AGAIN);
        self.detail_told.read_up_to = again.last().copied().unwrap_or(0);
        let due = self
            .census
            .processes
            .iter_mut()
            .filter(|(pid, process)| again.contains(pid) || process.wants_name());
        due.take(READ_MAX)
            .for_each(|(pid, process)| process.sample_status(*pid));
    }

    /// Every process, and how many bytes of those not yet managed can be compressed once they are.
    fn rows(&self) -> (Vec<Row>, u64) {
        let processes: Vec<(&i32, &Process)> = self.census.processes.iter().collect();
        let mut rows = Vec::with_capacity(processes.len());
        let mut to_come = 0;
        for some in processes.chunks(SPACES_A_HOLD) {
            let pages = pages_of(&self.shared, some);
            for ((pid, process), pages) in some.iter().zip(pages) {
                let managed = self.managed(**pid, process);
                let known = (pages.resident + pages.stuck) * PAGE;
                let unknown = process.anon_bytes.saturating_sub(known);
                // While memory is plenty not all that is new is announced.
                let is_to_come = match managed {
                    Managed::Yes => self.is_at_ease,
                    Managed::Later => true,
                    Managed::No => false,
                };
                let (more, never) = if is_to_come {
                    (unknown, 0)
                } else {
                    (0, unknown)
                };
                to_come += more;
                rows.push(Row {
                    resident_bytes: pages.resident * PAGE + more,
                    away_bytes: pages.away * PAGE,
                    unfoldable_bytes: pages.stuck * PAGE + never + process.common_bytes(),
                    managed,
                    ..who(**pid, process)
                });
            }
        }
        (rows, to_come)
    }

    fn managed(&self, pid: i32, process: &Process) -> Managed {
        match &process.stage {
            Stage::Managed(_) => Managed::Yes,
            Stage::Ready(_) | Stage::Preparing(..) => Managed::Later,
            Stage::Silent if self.injections.is_hopeful(pid) => Managed::Later,
            Stage::Silent | Stage::Unmanageable => Managed::No,
        }
    }

    fn tiers(&self, counters: &Counters, to_come: u64) -> Tiers {
        let kept = self.shared.engine().kept_bytes();
        let staged = counters.staged_pages * PAGE;
        let raw = (counters.raw_pages * PAGE).min(kept);
        let own = self.own_bytes.saturating_sub(kept);
        let file = self.files_beyond_bytes + self.held_files();
        let movable = (counters.resident_pages - counters.stuck_pages) * PAGE + to_come;
        let beside = staged + kept + own + file;
        // What is shared since a fork is once in the programs' memory and several times in the engine's.
        let uncompressed = movable.min(self.used_bytes.saturating_sub(beside));
        Tiers {
            uncompressed_bytes: uncompressed,
            staged_bytes: staged,
            compressed_bytes: kept - raw,
            raw_bytes: raw,
            file_bytes: file,
            unfoldable_bytes: self.used_bytes.saturating_sub(beside + uncompressed),
            own_bytes: own,
            swap_bytes: counters.disk_pages * PAGE,
            swap_file_bytes: counters.swap_used_bytes,
        }
    }

    /// What holders hold of files. Memory that processes share is theirs.
    fn held_files(&self) -> u64 {
        let segments = self.shared.segments.get();
        let shared = segments.map_or(0, |segments| segments.bytes());
        self.shared.held().bytes.saturating_sub(shared)
    }

    fn totals(&self, counters: &Counters) -> Totals {
        let meters = &self.shared.meters;
        let file_pages = meters.file_faults.get();
        Totals {
            faults: meters.faults.get(),
            // To the engine, pages filled from a mapped file are first touches like others.
            zero_pages: counters.filled_zero_pages.saturating_sub(file_pages),
            file_pages,
            staged_pages: counters.filled_staged_pages,
            compressed_pages: counters.filled_stored_pages + counters.filled_same_pages,
            swap_pages: counters.filled_disk_pages,
            taken_pages: counters.taken_pages,
            stall_us: meters.stall_us.get(),
            rested_us: meters.rested_us.get(),
            fold_us: meters.fold_us.get(),
            swap_read_bytes: meters.swap_read_bytes.get(),
            swap_written_bytes: meters.swap_written_bytes.get(),
            kept_pages: counters.stored_pages + counters.writing_pages + counters.clean_pages,
            kept_bytes: counters.payload_bytes,
        }
    }
}

/// Where the pages of these processes are, of those that are managed.
fn pages_of(shared: &Shared, some: &[(&i32, &Process)]) -> Vec<SpacePages> {
    let engine = shared.engine();
    let link_of = |process: &&Process| match &process.stage {
        Stage::Managed(link) => Some(link.id),
        _ => None,
    };
    some.iter()
        .map(|(_, process)| link_of(process).map(|id| engine.space_pages(id)))
        .map(Option::unwrap_or_default)
        .collect()
}

/// What is known of a process beside its memory.
fn who(pid: i32, process: &Process) -> Row {
    let identity = process.identity.clone().unwrap_or_default();
    let link: Option<&Arc<Link>> = match &process.stage {
        Stage::Managed(link) => Some(link),
        _ => None,
    };
    Row {
        pid,
        ppid: identity.ppid,
        name: identity.name,
        why: process.why_unmanaged.as_deref().map(shortened),
        stall_us: link.map_or(0, |link| link.stalled_us.get()),
        rests: link.is_some_and(|link| link.rests()),
        ..Row::default()
    }
}

/// A reason, cut off where it is very long: programs choose their names.
fn shortened(why: &str) -> String {
    let mut end = why.len().min(WHY_BYTES_MAX);
    while !why.is_char_boundary(end) {
        end -= 1;
    }
    why[..end].to_owned()
}

/// Leaves so many of the largest; answers how many are gone.
fn keep_largest(rows: &mut Vec<Row>, most: usize) -> usize {
    let left_out = rows.len().saturating_sub(most);
    if left_out > 0 {
        let size = |row: &Row| row.resident_bytes + row.away_bytes + row.unfoldable_bytes;
        rows.sort_unstable_by_key(|row| std::cmp::Reverse((size(row), row.pid)));
        rows.truncate(most);
    }
    rows.sort_unstable_by_key(|row| row.pid);
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Status;

    #[test]
    fn the_largest_processes_are_told_of_in_the_order_of_their_numbers() {
        let row = |pid, resident_bytes| Row {
            pid,
            resident_bytes,
            ..Row::default()
        };
        let mut rows = vec![row(9, 5), row(3, 1), row(4, 7), row(1, 2)];
        assert_eq!(keep_largest(&mut rows, 2), 2);
        assert_eq!(rows.iter().map(|row| row.pid).collect::<Vec<_>>(), [4, 9]);
        assert_eq!(keep_largest(&mut rows, 2), 0);
    }

    #[test]
    fn a_reason_is_cut_between_letters() {
        let why = shortened(&"ä".repeat(WHY_BYTES_MAX));
        assert_eq!(why.chars().count(), WHY_BYTES_MAX / 2);
    }

    /// An answer fits the room that a socket has for data that was not read (212,992 bytes by default), with what the kernel
    /// reckons for each piece of it.
    #[test]
    fn the_longest_answer_fits_a_socket() {
        let row = Row {
            pid: i32::MAX,
            ppid: i32::MAX,
            name: "\u{fffd}".repeat(15),
            managed: Managed::Yes,
            why: Some("\"".repeat(WHY_BYTES_MAX)),
            resident_bytes: 1 << 45,
            away_bytes: 1 << 45,
            unfoldable_bytes: 1 << 45,
            stall_us: 1 << 50,
            rests: true,
        };
        let detail = Detail {
            status: Status {
                command: vec!["x".repeat(4096)],
                ..Status::default()
            },
            rows: vec![row; ROWS_MAX],
            ..Detail::default()
        };
        let length = done(detail).len();
        assert!(length < 200_000, "{length}");
    }
}
