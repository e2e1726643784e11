//! Who belongs to a job: what descends from this process, which has started it; or, where the job was running before, the processes
//! that were named and what descends from them.

use pleat_sys::pidfd::{self, ancestors, has_ended, lineage};
use pleat_sys::procfs;
use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Where a job begins.
#[derive(Clone, Default)]
pub struct Family {
    /// The processes that were named. None: this one has started the job.
    roots: Arc<Vec<Root>>,
    /// Processes that this one has started beside the job: neither they nor what descends from them is of it.
    beside: Arc<Vec<i32>>,
}

/// A process that was named.
pub struct Root {
    /// Its number.
    pub pid: i32,
    /// Stands for it.
    pub pidfd: Arc<OwnedFd>,
}

impl Family {
    /// That of processes that were named.
    pub fn of(roots: Vec<Root>) -> Family {
        Family {
            roots: Arc::new(roots),
            beside: Arc::default(),
        }
    }

    /// The same without these, and what descends from them.
    pub fn without(self, beside: Vec<i32>) -> Family {
        Family {
            beside: Arc::new(beside),
            ..self
        }
    }

    /// The processes that were named; none where this one has started the job.
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// Whether the job was running before.
    pub fn is_given(&self) -> bool {
        !self.roots.is_empty()
    }

    /// The ancestors of the process behind `pidfd`, whose number is `pid`, if it is of the job and alive. `is_met`: a process of that
    /// number is known, is of the job and alive; so may an ancestor be that has lost its own parent.
    ///
    /// Where this process has started the job it adopts its orphans, so whatever the job starts descends from it for good. Elsewhere who
    /// loses its parent is known as long as it was met before.
    pub fn line_of(
        &self,
        pid: i32,
        process: &impl AsRawFd,
        is_met: &dyn Fn(i32) -> bool,
    ) -> Option<Vec<i32>> {
        let own = std::process::id() as i32;
        if !self.is_given() {
            let line = lineage(pid, process, own)?;
            let is_beside = |pid: &i32| self.beside.contains(pid);
            return (!is_beside(&pid) && !line.iter().any(is_beside)).then_some(line);
        }
        let line = ancestors(pid, process)?;
        let is_root = |pid: i32| {
            let mut roots = self.roots.iter().filter(|root| root.pid == pid);
            roots.any(|root| !has_ended(&root.pidfd))
        };
        // This process, and what it has started beside, may descend from a process that was named, and are none of the job.
        let mut all = std::iter::once(pid).chain(line.iter().copied());
        let first = all.find(|&pid| pid == own || is_root(pid) || is_met(pid));
        first.filter(|&pid| pid != own).map(|_| line)
    }

    /// A descriptor for a process of the job; `None` if it is none, or gone. `is_met` as for [`Family::line_of`].
    pub fn open(&self, pid: i32, is_met: &dyn Fn(i32) -> bool) -> Option<OwnedFd> {
        let process = pleat_sys::process::pidfd(pid).ok()?;
        self.line_of(pid, &process, is_met).map(|_| process)
    }

    /// All processes of the job, as far as they are found; `met` are known.
    pub fn members(&self, met: &mut dyn Iterator<Item = i32>) -> Vec<i32> {
        let own = std::process::id() as i32;
        if !self.is_given() {
            return procfs::descendants_without(own, &self.beside);
        }
        let roots: Vec<i32> = self.roots.iter().map(|root| root.pid).collect();
        let mut ours: HashSet<i32> = procfs::descendants(own).into_iter().collect();
        ours.insert(own);
        for root in &roots {
            if ours.remove(root) {
                let below = procfs::descendants(*root);
                below.iter().for_each(|pid| _ = ours.remove(pid));
            }
        }
        let mut found = Vec::new();
        let mut seen = ours;
        for first in roots.into_iter().chain(met) {
            if !seen.insert(first) {
                continue;
            }
            found.push(first);
            let children = procfs::descendants(first).into_iter();
            found.extend(children.filter(|child| seen.insert(*child)));
        }
        found
    }

    /// Kills all of them, but not `spared`; to be called while those live from whom the others descend. No number that is another
    /// process's by now is meant.
    pub fn kill(&self, spared: &[i32]) {
        if !self.is_given() {
            return pidfd::kill_descendants(std::process::id() as i32, spared);
        }
        let found = self.members(&mut std::iter::empty()).into_iter();
        let found = found.filter(|pid| !spared.contains(pid));
        // All are known before the first ends: its children have another parent then.
        let alive: Vec<OwnedFd> = found.filter_map(|pid| self.open(pid, &|_| false)).collect();
        for process in &alive {
            pleat_sys::process::signal(process.as_raw_fd(), libc::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pleat_sys::process::pidfd;
    use std::process::{Child, Command, Stdio};

    /// The number of a child, and its family.
    fn family_of(child: &Child) -> (i32, Family) {
        let pid = child.id() as i32;
        let pidfd = Arc::new(pidfd(pid).unwrap());
        (pid, Family::of(vec![Root { pid, pidfd }]))
    }

    #[test]
    fn of_a_job_that_was_running_is_what_descends_from_who_was_named() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & wait"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let (pid, family) = family_of(&shell);
        let child = loop {
            if let Some(child) = procfs::descendants(pid).first() {
                break *child;
            }
            std::thread::yield_now();
        };
        let nobody = |_| false;
        assert_eq!(family.members(&mut std::iter::empty()), [pid, child]);
        assert!(family.open(child, &nobody).is_some() && family.open(pid, &nobody).is_some());
        assert!(family.open(std::process::id() as i32, &nobody).is_none());
        assert!(family.open(1, &nobody).is_none());
        // An orphan is known by having been met.
        let orphan = pidfd(child).unwrap();
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert_eq!(family.line_of(child, &orphan, &nobody), None);
        assert!(family
            .line_of(child, &orphan, &|pid| pid == child)
            .is_some());
        pleat_sys::process::signal(orphan.as_raw_fd(), libc::SIGKILL);
    }

    #[test]
    fn all_are_killed_and_not_their_first_alone() {
        let mut shell = Command::new("sh")
            .args(["-c", "sh -c 'sleep 60 & wait' & wait"])
            .spawn()
            .unwrap();
        let (pid, family) = family_of(&shell);
        while procfs::descendants(pid).len() < 2 {
            std::thread::yield_now();
        }
        let below: Vec<OwnedFd> = procfs::descendants(pid)
            .into_iter()
            .map(|pid| pidfd(pid).unwrap())
            .collect();
        family.kill(&[]);
        shell.wait().unwrap();
        for process in &below {
            while !has_ended(process) {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn this_process_is_of_no_job_of_its_own() {
        let own = std::process::id() as i32;
        let parent = procfs::status(own).unwrap().ppid;
        let root = Root {
            pid: parent,
            pidfd: Arc::new(pidfd(parent).unwrap()),
        };
        let family = Family::of(vec![root]);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let members = family.members(&mut std::iter::empty());
        assert!(!members.contains(&own) && !members.contains(&(child.id() as i32)));
        assert!(family.open(own, &|_| false).is_none());
        assert!(family.open(child.id() as i32, &|_| false).is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
