//! Limits of CPU time, as containers have them.

use std::path::PathBuf;
use std::{fs, io};

use crate::cgroup::{parents, Version};
use crate::sys;

const PERIOD_US: u32 = 1_000_000;

/// A group whose processes have so little of a CPU that each of their threads waits for one most of the time.
pub struct CpuGroup {
    dir: PathBuf,
    version: Version,
}

impl CpuGroup {
    /// Moves a process into a fresh group, which has a CPU for so much of each second.
    ///
    /// # Errors
    /// Why this machine refuses.
    pub fn throttle(pid: i32, us_per_s: u32) -> Result<CpuGroup, String> {
        if sys::user() != 0 {
            return Err("a CPU cgroup needs root".into());
        }
        let made = parents("cpu").into_iter().find_map(|(version, parent)| {
            if version == Version::V2 {
                // As for memory: refused where it is on already, or not ours to turn on.
                let _ = fs::write(parent.join("cgroup.subtree_control"), "+cpu");
            }
            let dir = parent.join(format!("pleat-e2e-cpu-{pid}"));
            fs::create_dir(&dir).ok()?;
            let group = CpuGroup { dir, version };
            group.limit(Some(us_per_s)).is_ok().then_some(group)
        });
        let group = made.ok_or("no writable CPU cgroup")?;
        fs::write(group.dir.join("cgroup.procs"), pid.to_string())
            .map_err(|error| format!("{}: {error}", group.dir.display()))?;
        Ok(group)
    }

    /// Lets its processes run as they like again.
    pub fn release(&self) {
        let _ = self.limit(None);
    }

    fn limit(&self, us_per_s: Option<u32>) -> io::Result<()> {
        let quota = us_per_s.map(|us| us.to_string());
        match self.version {
            Version::V1 => {
                fs::write(self.dir.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
                let quota = quota.unwrap_or("-1".into());
                fs::write(self.dir.join("cpu.cfs_quota_us"), quota)
            }
            Version::V2 => {
                let quota = quota.unwrap_or("max".into());
                fs::write(self.dir.join("cpu.max"), format!("{quota} {PERIOD_US}"))
            }
        }
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        self.release();
        // Its processes go back to where they can be.
        if let (Ok(text), Some(parent)) = (
            fs::read_to_string(self.dir.join("cgroup.procs")),
            self.dir.parent(),
        ) {
            for pid in text.lines() {
                let _ = fs::write(parent.join("cgroup.procs"), pid);
            }
        }
        let _ = fs::remove_dir(&self.dir);
    }
}
