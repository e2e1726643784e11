//! A memory cgroup of the job's own, with the supervisor beside it: what the job uses is counted exactly, and
//! whoever would take more than there is waits in the kernel until something is free.
//!
//! With cgroup v1 (as root) the group lies below the supervisor's own, and its limit has the OOM killer off:
//! threads that touch new memory wait. (System calls that need memory at that moment fail with ENOMEM instead,
//! or EFAULT where the kernel writes into memory that was never touched; so the limit is set only where being
//! killed is the alternative.) With v2 the group slows whoever goes beyond `memory.high`; no process may be in a
//! group that has others below, so the supervisor makes one for itself as well.
//!
//! A limit that nobody minds any more would leave processes waiting for ever. So the keeper has the [`Place`] and
//! lifts it when the supervisor dies; and the directory is locked (flock) as long as one of the two lives, so that
//! any later job can tell a group that was left behind, lift its limit, and remove it.
#![forbid(unsafe_code)]

use crate::inherited::renumbered;
use crate::limits;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

mod notices;
mod version2;

pub use notices::Notices;

/// How the names of groups begin: those of jobs, and those that v2 needs for supervisors.
const OF_JOBS: &str = "pleat-job-";
const OF_SUPERVISORS: &str = "pleat-supervisor-";
/// The lock has a descriptor above that of the socket on which the supervisor listens: the kernel closes those of a killed process
/// from the last to the first, and who finds nobody listening looks whether the lock is held (`agent/src/abandoned.rs`).
const LOCK_FROM: RawFd = 512;
/// A killed process leaves its group a moment later: so long a group that is to go is tried again.
const EMPTY_WITHIN: Duration = Duration::from_millis(100);
const TRY_AGAIN: Duration = Duration::from_millis(1);
/// Processes that stay are moved out; those that they fork meanwhile in the next round.
const ROUNDS: usize = 16;

/// The version of the cgroup file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Each controller has a hierarchy of its own; threads can be made to wait.
    V1,
    /// One hierarchy; threads are slowed.
    V2,
}

/// Where a job's group is: all that is needed to undo it.
#[derive(Clone, Debug)]
pub struct Place {
    version: Version,
    /// The job's group.
    dir: PathBuf,
    /// The group in which everything was before.
    home: PathBuf,
    /// v2: the supervisor's group, where it had to leave its home.
    supervisor: Option<PathBuf>,
}

/// The group, held open.
#[derive(Debug)]
pub struct JobGroup {
    place: Place,
    entrance: File,
    usage: File,
    stat: File,
    bound: File,
    notices: Notices,
    /// Tells others that somebody minds the group. The keeper shares this process's descriptors, and so the lock.
    _lock: File,
}

impl JobGroup {
    /// Makes a group below or beside that of this process, and removes those that dead supervisors left there.
    ///
    /// # Errors
    /// Why it cannot be had here, with what helps.
    pub fn make() -> Result<JobGroup, String> {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let groups =
            limits::memory_groups(&text("/proc/self/mountinfo"), &text("/proc/self/cgroup"));
        let of = |version| groups.iter().find(|group| group.version() == version);
        // Where both are mounted, memory is v1's if that has its files.
        let group = of(Version::V1).or_else(|| of(Version::V2));
        let group = group.ok_or("no cgroup file system with memory is mounted")?;
        let home = group.directory();
        if !members(home).contains(&(std::process::id() as i32)) {
            // A job elsewhere would be out of whatever limits this process has.
            return Err(format!(
                "{} is not the group of this process",
                home.display()
            ));
        }
        match group.version() {
            Version::V1 => JobGroup::make_below(home),
            Version::V2 => version2::make_in(home),
        }
    }

    /// v1: any group may have others below.
    fn make_below(home: &Path) -> Result<JobGroup, String> {
        sweep(home, Version::V1);
        let (dir, lock) = fresh_dir(home)?;
        let place = Place {
            version: Version::V1,
            dir,
            home: home.to_owned(),
            supervisor: None,
        };
        JobGroup::open(place, lock)
    }

    fn open(place: Place, lock: File) -> Result<JobGroup, String> {
        let opened = JobGroup::open_files(&place, lock);
        opened.map_err(|error| {
            place.remove();
            format!("{}: {error}", place.dir.display())
        })
    }

    fn open_files(place: &Place, lock: File) -> io::Result<JobGroup> {
        let (entrance, usage, bound) = match place.version {
            // A single thread enters without the wait for others that moving a process takes (14 ms).
            Version::V1 => ("tasks", "memory.usage_in_bytes", "memory.limit_in_bytes"),
            Version::V2 => ("cgroup.procs", "memory.current", "memory.high"),
        };
        let read = |name: &str| File::open(place.dir.join(name));
        let write = |name: &str| File::options().write(true).open(place.dir.join(name));
        Ok(JobGroup {
            entrance: write(entrance)?,
            usage: read(usage)?,
            stat: read("memory.stat")?,
            bound: write(bound)?,
            notices: match place.version {
                Version::V1 => Notices::of_waiting(&place.dir)?,
                Version::V2 => Notices::of_events(&place.dir)?,
            },
            place: place.clone(),
            _lock: lock,
        })
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The name of its directory, which no other job's has.
    pub fn name(&self) -> &str {
        let name = self.place.dir.file_name().and_then(|name| name.to_str());
        name.unwrap_or_default()
    }

    /// The version of the cgroup file system it is in.
    pub fn version(&self) -> Version {
        self.place.version
    }

    /// The file through which a new process enters, by writing "0" to it.
    pub fn entrance(&self) -> RawFd {
        self.entrance.as_fd().as_raw_fd()
    }

    /// Tells when somebody has begun to wait, or was slowed.
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// All that is charged to the group and those below, page cache included.
    pub fn usage_bytes(&self) -> Option<u64> {
        number(&self.usage)
    }

    /// Of that, file pages: the kernel drops them when the limit is met.
    pub fn file_bytes(&self) -> Option<u64> {
        file_bytes(&self.stat)
    }

    /// Has those wait (v1) or slowed (v2) who would take the group beyond so many bytes. From then on the kernel
    /// does not swap the group's pages: what is to leave memory is pleat's to say.
    ///
    /// # Errors
    /// EBUSY when more than that is in use.
    pub fn limit(&self, bytes: u64) -> io::Result<()> {
        self.bound.write_all_at(bytes.to_string().as_bytes(), 0)
    }

    /// To be called before the first limit.
    ///
    /// # Errors
    /// When the kernel does not have it: the limit would kill.
    pub fn prepare_to_limit(&self) -> io::Result<()> {
        let dir = &self.place.dir;
        match self.place.version {
            Version::V1 => {
                let _ = fs::write(dir.join("memory.swappiness"), "0");
                self.spare(true)
            }
            Version::V2 => {
                // There is no such file on a machine without swap.
                let _ = fs::write(dir.join("memory.swap.max"), "0");
                Ok(())
            }
        }
    }

    /// v1: whether the OOM killer is off, so that threads wait at the limit.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn spare(&self, is_off: bool) -> io::Result<()> {
        match self.place.version {
            Version::V1 => {
                let off = if is_off { "1" } else { "0" };
                fs::write(self.place.dir.join("memory.oom_control"), off)
            }
            Version::V2 => Ok(()),
        }
    }

    /// v2: the limit at which the kernel kills.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn kill_from(&self, bytes: u64) -> io::Result<()> {
        match self.place.version {
            Version::V1 => Ok(()),
            Version::V2 => fs::write(self.place.dir.join("memory.max"), bytes.to_string()),
        }
    }
}

impl Drop for JobGroup {
    fn drop(&mut self) {
        self.place.lift();
        self.place.remove();
    }
}

impl Place {
    /// The file in which the kernel counts whom it killed in this group.
    pub fn kills_file(&self) -> PathBuf {
        self.dir.join(match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        })
    }

    /// Takes all limits away: whoever waits goes on.
    pub fn lift(&self) {
        let files = match self.version {
            Version::V1 => [("memory.limit_in_bytes", "-1"), ("memory.oom_control", "0")],
            Version::V2 => [("memory.high", "max"), ("memory.max", "max")],
        };
        for (file, text) in files {
            // It may be gone, and then nobody waits.
            let _ = fs::write(self.dir.join(file), text);
        }
    }

    /// The processes in it, and in those that jobs inside of this one have made.
    pub fn members(&self) -> Vec<i32> {
        let mut dirs = vec![self.dir.clone()];
        let mut all = Vec::new();
        while let Some(dir) = dirs.pop() {
            all.extend(members(&dir));
            dirs.extend(groups_in(&dir));
        }
        all
    }

    /// Removes the group; processes that are still in it stay, and go where they would have been without it.
    /// Answers whether it is gone. A group that is not is removed by a later job.
    pub fn remove(&self) -> bool {
        if let (Version::V2, Some(_)) = (self.version, &self.supervisor) {
            // A group that hands out a controller can hold no processes. Their limits end with it.
            let _ = fs::write(self.home.join("cgroup.subtree_control"), "-memory");
        }
        let is_gone = empty_into(&self.dir, &self.home);
        match &self.supervisor {
            Some(supervisor) => empty_into(supervisor, &self.home) && is_gone,
            None => is_gone,
        }
    }
}

/// Moves everybody in `dir` to `home`, and removes `dir`.
fn empty_into(dir: &Path, home: &Path) -> bool {
    for _ in 0..ROUNDS {
        let members = members(dir);
        if members.is_empty() {
            break;
        }
        for pid in members {
            // It may have ended.
            let _ = fs::write(home.join("cgroup.procs"), pid.to_string());
        }
    }
    let start = Instant::now();
    loop {
        match remove_tree(dir) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
            Err(_) if start.elapsed() > EMPTY_WITHIN => return false,
            // The last to go is on its way out.
            Err(_) => std::thread::sleep(TRY_AGAIN),
        }
    }
}

/// Removes a group that has no processes, with what jobs inside of this one may have left in it.
fn remove_tree(dir: &Path) -> io::Result<()> {
    for below in groups_in(dir) {
        let _ = fs::remove_dir(below);
    }
    fs::remove_dir(dir)
}

/// Groups of jobs in a group.
fn groups_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(OF_JOBS) || name.starts_with(OF_SUPERVISORS)
    });
    ours.map(|entry| entry.path()).collect()
}

/// Lifts and removes groups that nobody minds any more.
fn sweep(home: &Path, version: Version) {
    for dir in groups_in(home) {
        // Only a job's has a lock; a supervisor's that is in use is not empty.
        let Ok(lock) = File::open(&dir) else { continue };
        if lock.try_lock().is_ok() {
            let place = Place {
                version,
                dir: dir.clone(),
                home: home.to_owned(),
                supervisor: None,
            };
            place.lift();
            let _ = remove_tree(&dir);
        }
    }
}

/// A new directory in `home`, locked.
fn fresh_dir(home: &Path) -> Result<(PathBuf, File), String> {
    let why = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!("{} may not be written to ({error})", home.display())
        }
        _ => format!("{}: {error}", home.display()),
    };
    for _ in 0..ROUNDS {
        let dir = home.join(format!("{OF_JOBS}{}", random_name()));
        fs::create_dir(&dir).map_err(why)?;
        let lock = File::open(&dir).and_then(|file| {
            file.try_lock()?;
            Ok(renumbered(file, LOCK_FROM))
        });
        // Between the two another job may have found it without a lock: then it is gone, or about to be.
        match lock {
            Ok(lock) if dir.is_dir() => return Ok((dir, lock)),
            _ => {
                let _ = fs::remove_dir(&dir);
            }
        }
    }
    Err(format!(
        "{}: others remove what is made there",
        home.display()
    ))
}

fn random_name() -> String {
    let [high, low] = crate::random::bits128().unwrap_or([u64::from(std::process::id()), 0]);
    format!("{:016x}", high ^ low)
}

fn members(dir: &Path) -> Vec<i32> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// The number that a file of one number holds now.
pub fn number(file: &File) -> Option<u64> {
    read_text(file, &mut [0; 32])?.trim().parse().ok()
}

/// Room for what a `memory.stat` says, in bytes.
pub const STAT_MAX: usize = 8192;

/// What such a file says now, as far as there is room for it.
pub fn read_text<'a>(file: &File, text: &'a mut [u8]) -> Option<&'a str> {
    let len = file.read_at(text, 0).ok()?;
    std::str::from_utf8(&text[..len]).ok()
}

/// File pages that the kernel can drop, by a `memory.stat`.
pub fn file_bytes(stat: &File) -> Option<u64> {
    read_text(stat, &mut [0; STAT_MAX]).map(file_bytes_in)
}

/// v1 counts the group alone and, by names that begin with `total_`, with those below; v2 always with those below.
pub fn file_bytes_in(stat: &str) -> u64 {
    let sum = |names: [&str; 2]| {
        let lines = stat.lines().filter_map(|line| line.split_once(' '));
        let found = lines.filter(|(name, _)| names.contains(name));
        let bytes: Vec<u64> = found.filter_map(|(_, bytes)| bytes.parse().ok()).collect();
        (!bytes.is_empty()).then(|| bytes.iter().sum())
    };
    let with_below = sum(["total_inactive_file", "total_active_file"]);
    with_below
        .or_else(|| sum(["inactive_file", "active_file"]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_pages_are_those_of_the_whole_group() {
        let v2 = "anon 5\ninactive_file 4096\nactive_file 8192\nslab 1\n";
        assert_eq!(file_bytes_in(v2), 12288);
        let v1 = "inactive_file 1\nactive_file 2\ntotal_inactive_file 4096\ntotal_active_file 0\n";
        assert_eq!(file_bytes_in(v1), 4096);
        assert_eq!(file_bytes_in(""), 0);
    }

    /// Nothing waits at a limit that nobody minds: the next job lifts and removes what a dead one left.
    #[test]
    fn a_group_that_was_left_behind_is_swept_and_one_that_is_minded_is_not() {
        let group = match JobGroup::make() {
            Ok(group) => group,
            Err(why) => {
                pleat_testing::skip(format!("no memory cgroup of its own: {why}"));
                return;
            }
        };
        let (dir, home) = (group.place.dir.clone(), group.place.home.clone());
        let left = home.join(format!("{OF_JOBS}{}", random_name()));
        fs::create_dir(&left).unwrap();
        sweep(&home, group.version());
        assert!(dir.is_dir(), "it is minded");
        assert!(!left.exists(), "nobody minds it");
        drop(group);
        assert!(!dir.exists());
    }

    #[test]
    fn a_group_counts_what_is_charged_to_it_and_keeps_its_limit_until_it_is_lifted() {
        let Ok(group) = JobGroup::make() else {
            pleat_testing::skip("no memory cgroup of its own");
            return;
        };
        assert_eq!(group.usage_bytes(), Some(0));
        assert_eq!(group.file_bytes(), Some(0));
        group.prepare_to_limit().unwrap();
        group.limit(8 << 20).unwrap();
        let place = group.place().clone();
        assert!(place.members().is_empty());
        place.lift();
        assert!(place.remove());
        assert!(!place.dir.exists());
    }
}
