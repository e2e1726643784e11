//! A memory cgroup (v1 or v2) with a hard limit and no swap, for one job. Going over the limit
//! is an out-of-memory kill, which the group counts. The group is removed on drop, and whatever
//! still runs in it is killed first.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::machine::eventually;
use crate::sys;

/// A memory cgroup with a hard limit, for one job.
pub struct Cgroup {
    dir: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Version {
    V1,
    V2,
}

impl Cgroup {
    /// A fresh group limited to `limit_bytes`; the error says why this machine refuses.
    pub fn limited_to(limit_bytes: u64) -> Result<Cgroup, String> {
        if sys::user() != 0 {
            return Err("a memory cgroup needs root".into());
        }
        let mut refusals = vec![];
        for (version, parent) in parents("memory") {
            match create(version, &parent, limit_bytes) {
                Ok(group) => return Ok(group),
                Err(why) => refusals.push(format!("{}: {why}", parent.display())),
            }
        }
        Err(format!(
            "no writable memory cgroup ({})",
            refusals.join("; ")
        ))
    }

    /// The file into which a process writes 0 to join.
    pub fn procs(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// How many processes the kernel has killed in this group for want of memory.
    pub fn oom_kills(&self) -> u64 {
        let file = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let text = fs::read_to_string(self.dir.join(file)).expect("the group exists until drop");
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count
            .expect("the kernel counts oom kills")
            .trim()
            .parse()
            .expect("a number")
    }

    /// Lowers the limit to what is in use and so much more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn tighten(&self, spare_bytes: u64) -> io::Result<()> {
        let usage = match self.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        let used = fs::read_to_string(self.dir.join(usage))?;
        let used: u64 = used.trim().parse().map_err(io::Error::other)?;
        self.limit(used + spare_bytes)
    }

    /// Waits a moment for the last processes to go; returns those that did not.
    pub fn left_behind(&self) -> Vec<i32> {
        eventually(Duration::from_secs(3), || self.members().is_empty());
        self.members()
    }

    /// The processes in this group and those that jobs have made inside of it.
    pub fn members(&self) -> Vec<i32> {
        let dirs = self.below().into_iter().chain([self.dir.clone()]);
        let texts =
            dirs.map(|dir| fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default());
        let members = texts.map(|text| text.lines().filter_map(|line| line.parse().ok()).collect());
        members.collect::<Vec<Vec<i32>>>().concat()
    }

    /// The groups that jobs have made for themselves inside of this one.
    pub fn below(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        dirs.map(|entry| entry.path()).collect()
    }

    /// Ends every process of the group, however it hid from its process group.
    pub fn kill_all(&self) {
        for pid in self.members() {
            sys::kill_process(pid, libc::SIGKILL);
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let gone = eventually(Duration::from_secs(10), || {
            self.kill_all();
            for dir in self.below() {
                let _ = fs::remove_dir(dir);
            }
            fs::remove_dir(&self.dir).is_ok()
        });
        if !gone {
            eprintln!("could not remove {}", self.dir.display());
        }
    }
}

fn create(version: Version, parent: &Path, limit_bytes: u64) -> io::Result<Cgroup> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let dir = parent.join(format!("pleat-e2e-{}-{number}", std::process::id()));
    if version == Version::V2 {
        // Refused where it is on already or not ours to turn on; memory.max below tells.
        let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
    }
    fs::create_dir(&dir)?;
    let group = Cgroup { dir, version };
    group.limit(limit_bytes)?; // on error the drop removes the directory again
    Ok(group)
}

impl Cgroup {
    fn limit(&self, limit_bytes: u64) -> io::Result<()> {
        let limit = limit_bytes.to_string();
        let (hard, swap) = match self.version {
            Version::V1 => (
                "memory.limit_in_bytes",
                ("memory.memsw.limit_in_bytes", &*limit),
            ),
            Version::V2 => ("memory.max", ("memory.swap.max", "0")),
        };
        fs::write(self.dir.join(hard), &limit)?;
        // Absent where the kernel does not account swap; then swappiness 0 has to do.
        if self.dir.join(swap.0).exists() {
            fs::write(self.dir.join(swap.0), swap.1)?;
        } else if self.version == Version::V1 {
            fs::write(self.dir.join("memory.swappiness"), "0")?;
        }
        Ok(())
    }
}

/// Where a group may be made: below our own group, beside it (cgroup v2 gives controllers only to
/// groups whose parent has no processes), or at the top.
pub(crate) fn parents(controller: &str) -> Vec<(Version, PathBuf)> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts
        .lines()
        .filter_map(|line| mount_of(controller, line))
        .flat_map(|(v, top)| candidates(v, controller, &top, &own))
        .collect()
}

fn candidates(
    version: Version,
    controller: &str,
    top: &Path,
    own: &str,
) -> Vec<(Version, PathBuf)> {
    let own = own_path(version, controller, own).unwrap_or_default();
    let here = top.join(own.trim_start_matches('/'));
    let beside = here
        .parent()
        .filter(|p| p.starts_with(top))
        .map(Path::to_path_buf);
    let places = match version {
        Version::V1 => [Some(here), None],
        Version::V2 => [beside, None],
    };
    let places = places.into_iter().flatten().chain([top.to_path_buf()]);
    places
        .filter(|p| p.is_dir())
        .map(|p| (version, p))
        .collect()
}

/// `/proc/self/mounts` line to mount point, for hierarchies that may have this controller.
fn mount_of(controller: &str, line: &str) -> Option<(Version, PathBuf)> {
    let fields: Vec<&str> = line.split(' ').collect();
    let (at, kind, options) = (fields.get(1)?, fields.get(2)?, fields.get(3)?);
    let version = match *kind {
        "cgroup" if options.split(',').any(|o| o == controller) => Version::V1,
        "cgroup2" => Version::V2,
        _ => return None,
    };
    Some((version, PathBuf::from(at)))
}

/// Our own path in `/proc/self/cgroup`, whose lines read `4:memory:/path` or `0::/path`.
fn own_path(version: Version, controller: &str, text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let ours = match version {
            Version::V1 => controllers.split(',').any(|c| c == controller),
            Version::V2 => controllers.is_empty(),
        };
        ours.then(|| path.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_memory_hierarchy_of_either_version() {
        let v1 = "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0";
        let v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nsdelegate 0 0";
        let other = "cgroup /sys/fs/cgroup/pids cgroup rw,relatime,pids 0 0";
        assert!(mount_of("memory", v1) == Some((Version::V1, "/sys/fs/cgroup/memory".into())));
        assert!(mount_of("memory", v2) == Some((Version::V2, "/sys/fs/cgroup".into())));
        assert!(mount_of("memory", other).is_none());
    }

    #[test]
    fn finds_our_own_group_in_either_version() {
        let text = "9:name=systemd:/\n4:memory:/a/b\n0::/user.slice/c.scope\n";
        assert_eq!(
            own_path(Version::V1, "memory", text).as_deref(),
            Some("/a/b")
        );
        assert_eq!(
            own_path(Version::V2, "memory", text).as_deref(),
            Some("/user.slice/c.scope")
        );
    }

    #[test]
    fn a_limited_group_kills_what_overflows_and_counts_it() {
        let limited = Cgroup::limited_to(20 << 20);
        let Ok(group) = limited else {
            return crate::skip("no writable memory cgroup");
        };
        let hog = r#"echo 0 > "$0"; head -c 60000000 /dev/zero | tail -c 60000000 >/dev/null"#;
        let hog = std::process::Command::new("sh")
            .args(["-c", hog])
            .arg(group.procs())
            .status();
        hog.expect("sh is installed");
        // The shell or `head` may go with `tail` when the kernel looks again before it is gone.
        assert!(group.oom_kills() >= 1);
        let dir = group.dir.clone();
        drop(group);
        assert!(!dir.exists());
    }
}
