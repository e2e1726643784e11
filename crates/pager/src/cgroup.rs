//! The memory cgroup that would kill the job, as a second opinion on how much it uses.
//!
//! What processes share after a fork is only estimated between samples; the kernel's own count of a
//! limited cgroup is exact at any moment. It is asked only where the limit is close to the budget:
//! the group may hold others than the job, and what they use is taken off as it was at the start.

use pleat_sys::job_group::{file_bytes, file_bytes_in, number, read_text, STAT_MAX};
use pleat_sys::limits;
use std::fs::File;

/// A limit up to this many times the budget, in eighths, is close.
const CLOSE_EIGHTHS: u64 = 10;

/// File pages of a cgroup.
#[derive(Clone, Copy, Debug)]
pub struct Files {
    /// What the group is charged for. Pages that another group read first are that one's, whoever maps them.
    pub bytes: u64,
    /// How many pages were read again soon after they were dropped, so far.
    pub reread_pages: u64,
    /// Bytes written to files and not yet on the disk: the kernel cannot drop these.
    pub unwritten_bytes: u64,
}

/// The counters of a limited cgroup.
pub struct Gauge {
    limit: CloseLimit,
    /// Used by others when the job began.
    others_bytes: u64,
}

/// A limit of this process's cgroup that is close to the budget, with what is counted against it.
pub struct CloseLimit {
    /// The limit.
    pub bytes: u64,
    /// The file that holds all that is charged.
    pub usage: File,
    /// `memory.stat`.
    pub stat: File,
}

impl CloseLimit {
    /// If there is one.
    pub fn find(budget_bytes: u64) -> Option<CloseLimit> {
        let limit = limits::memory_cgroup_limit()?;
        if limit.bytes > budget_bytes / 8 * CLOSE_EIGHTHS {
            return None;
        }
        CloseLimit::open(&limit)
    }

    /// What tells of that limit; nothing where it cannot be read.
    pub fn open(limit: &limits::CgroupLimit) -> Option<CloseLimit> {
        let open = |name: &str| File::open(limit.path.join(name));
        let usage = open("memory.usage_in_bytes").or_else(|_| open("memory.current"));
        Some(CloseLimit {
            bytes: limit.bytes,
            usage: usage.ok()?,
            stat: open("memory.stat").ok()?,
        })
    }

    /// Bytes that the group may still be charged for, when the kernel has dropped the file pages that it can.
    pub fn room_bytes(&self) -> Option<u64> {
        let used = number(&self.usage)?.saturating_sub(file_bytes(&self.stat)?);
        Some(self.bytes.saturating_sub(used))
    }
}

impl Gauge {
    /// The gauge of this process's cgroup, if it has a limit close to the budget.
    pub fn open(budget_bytes: u64) -> Option<Gauge> {
        let mut gauge = Gauge {
            limit: CloseLimit::find(budget_bytes)?,
            others_bytes: 0,
        };
        gauge.others_bytes = gauge.counted()?;
        Some(gauge)
    }

    /// The gauge for another budget, of a job that uses so much now: as it was where the same limit is still close.
    pub fn follow(before: Option<Gauge>, budget_bytes: u64, used_bytes: u64) -> Option<Gauge> {
        let limit = CloseLimit::find(budget_bytes)?;
        if let Some(gauge) = before.filter(|gauge| gauge.limit.bytes == limit.bytes) {
            return Some(gauge);
        }
        let mut gauge = Gauge {
            limit,
            others_bytes: 0,
        };
        gauge.others_bytes = gauge.counted()?.saturating_sub(used_bytes);
        Some(gauge)
    }

    /// The limit.
    pub fn limit_bytes(&self) -> u64 {
        self.limit.bytes
    }

    /// Bytes that the job uses, file pages that the kernel can drop left out.
    pub fn bytes(&self) -> Option<u64> {
        Some(self.counted()?.saturating_sub(self.others_bytes))
    }

    /// What the kernel says of the group's file pages; up to 2 s old.
    pub fn files(&self) -> Option<Files> {
        let mut text = [0; STAT_MAX];
        let stat = read_text(&self.limit.stat, &mut text)?;
        let value = |name: &str| {
            let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(other, _)| *other == name)?.1.parse().ok()
        };
        // cgroup v1 has groups below under a name of its own.
        let reread = value("total_workingset_refault_file");
        let dirty = value("total_dirty").or_else(|| value("file_dirty"));
        let being_written = value("total_writeback").or_else(|| value("file_writeback"));
        Some(Files {
            bytes: file_bytes_in(stat),
            reread_pages: reread.or_else(|| value("workingset_refault_file"))?,
            unwritten_bytes: dirty.unwrap_or(0) + being_written.unwrap_or(0),
        })
    }

    /// The same of everybody in the group.
    pub fn counted(&self) -> Option<u64> {
        let usage = number(&self.limit.usage)?;
        Some(usage.saturating_sub(file_bytes(&self.limit.stat)?))
    }
}
