//! Which lines there are: jobs, each with its processes, in the order that is wanted.

use super::model::{Model, Shown};
use crate::pager::control::Row;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

/// By what lines are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Memory,
    Away,
    Stall,
    Name,
    Pid,
}

impl Sort {
    /// What it is called on the screen.
    pub fn name(self) -> &'static str {
        match self {
            Sort::Memory => "memory",
            Sort::Away => "away",
            Sort::Stall => "stall",
            Sort::Name => "name",
            Sort::Pid => "pid",
        }
    }

    /// The next.
    pub fn next(self) -> Sort {
        match self {
            Sort::Memory => Sort::Away,
            Sort::Away => Sort::Stall,
            Sort::Stall => Sort::Name,
            Sort::Name => Sort::Pid,
            Sort::Pid => Sort::Memory,
        }
    }
}

/// In which order lines come, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub sort: Sort,
    /// The other way round than is usual: largest first, but names and numbers from the beginning.
    pub is_reversed: bool,
    pub is_tree: bool,
    pub has_processes: bool,
}

/// Who a line is about, which stays the same however lines are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub job: i32,
    /// `None`: the job itself.
    pub process: Option<i32>,
}

/// One line.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    pub job: &'a Shown,
    pub row: Option<&'a Row>,
    /// How deep in the tree.
    pub depth: u16,
}

impl Line<'_> {
    pub fn key(&self) -> Key {
        Key {
            job: self.job.pid,
            process: self.row.map(|row| row.pid),
        }
    }
}

/// All lines: of all jobs, or of the processes of the one that is opened.
pub fn lines<'a>(model: &'a Model, order: &Order, opened: Option<i32>) -> Vec<Line<'a>> {
    let mut jobs: Vec<&Shown> = model.jobs.iter().collect();
    if let Some(pid) = opened {
        jobs.retain(|job| job.pid == pid);
        return jobs
            .into_iter()
            .flat_map(|job| processes(job, order))
            .collect();
    }
    jobs.sort_by(|one, other| order.jobs(one, other));
    let mut lines = Vec::new();
    for job in jobs {
        lines.push(Line {
            job,
            row: None,
            depth: 0,
        });
        if order.has_processes {
            lines.extend(processes(job, order));
        }
    }
    lines
}

fn processes<'a>(job: &'a Shown, order: &Order) -> Vec<Line<'a>> {
    let mut rows: Vec<&Row> = job.detail.rows.iter().collect();
    rows.sort_by(|one, other| order.rows(job, one, other));
    let line = |(row, depth)| Line {
        job,
        row: Some(row),
        depth,
    };
    if !order.is_tree {
        return rows.into_iter().map(|row| line((row, 1))).collect();
    }
    tree(&rows).into_iter().map(line).collect()
}

/// Children behind their parents, in the order that they have. Parents are as of different moments, so there may be circles: each
/// process comes once.
fn tree<'a>(rows: &[&'a Row]) -> Vec<(&'a Row, u16)> {
    let pids: HashSet<i32> = rows.iter().map(|row| row.pid).collect();
    let mut children: HashMap<i32, Vec<&Row>> = HashMap::new();
    let mut roots = Vec::new();
    for row in rows {
        match pids.contains(&row.ppid) && row.ppid != row.pid {
            true => children.entry(row.ppid).or_default().push(row),
            false => roots.push(*row),
        }
    }
    let (mut placed, mut seen) = (Vec::with_capacity(rows.len()), HashSet::new());
    // Whoever is in a circle is below no root.
    for root in roots.into_iter().chain(rows.iter().copied()) {
        let mut open = vec![(root, 1)];
        while let Some((row, depth)) = open.pop() {
            if seen.insert(row.pid) {
                placed.push((row, depth));
                let below = children.get(&row.pid).into_iter().flatten().rev();
                open.extend(below.map(|child| (*child, depth + 1)));
            }
        }
    }
    placed
}

impl Order {
    fn jobs(&self, one: &Shown, other: &Shown) -> Ordering {
        let status = |job: &Shown| (job.detail.status.used_bytes, job.detail.status.pages_away);
        let usual = match self.sort {
            Sort::Memory => status(other).0.cmp(&status(one).0),
            Sort::Away => status(other).1.cmp(&status(one).1),
            Sort::Stall => other
                .rates
                .stalled_threads
                .total_cmp(&one.rates.stalled_threads),
            Sort::Name => one.detail.status.name.cmp(&other.detail.status.name),
            Sort::Pid => Ordering::Equal,
        };
        self.turned(usual.then(one.pid.cmp(&other.pid)))
    }

    fn rows(&self, job: &Shown, one: &Row, other: &Row) -> Ordering {
        let memory = |row: &Row| row.resident_bytes.saturating_add(row.unfoldable_bytes);
        let stall = |row: &Row| job.stalled.get(&row.pid).copied().unwrap_or(0.0);
        let usual = match self.sort {
            Sort::Memory => memory(other).cmp(&memory(one)),
            Sort::Away => other.away_bytes.cmp(&one.away_bytes),
            Sort::Stall => stall(other).total_cmp(&stall(one)),
            Sort::Name => one.name.cmp(&other.name),
            Sort::Pid => Ordering::Equal,
        };
        self.turned(usual.then(one.pid.cmp(&other.pid)))
    }

    fn turned(&self, usual: Ordering) -> Ordering {
        match self.is_reversed {
            true => usual.reverse(),
            false => usual,
        }
    }
}
