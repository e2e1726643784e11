//! Limits of CPU time, as containers have them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sys;

/// Where groups of the CPU controller may be made: of cgroup v1, and of v2.
const PARENTS: [&str; 3] = [
    "/sys/fs/cgroup/cpu",
    "/sys/fs/cgroup/cpu,cpuacct",
    "/sys/fs/cgroup",
];
const PERIOD_US: u32 = 1_000_000;

/// A group whose processes have so little of a CPU that each of their threads waits for one most of the time.
pub struct CpuGroup {
    dir: PathBuf,
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
        let made = PARENTS.iter().find_map(|parent| {
            let dir = Path::new(parent).join(format!("pleat-e2e-cpu-{pid}"));
            fs::create_dir(&dir).ok()?;
            let group = CpuGroup { dir };
            group.limit(Some(us_per_s)).then_some(group)
        });
        let group = made.ok_or("no writable CPU cgroup")?;
        fs::write(group.dir.join("cgroup.procs"), pid.to_string())
            .map_err(|error| format!("{}: {error}", group.dir.display()))?;
        Ok(group)
    }

    /// Lets its processes run as they like again.
    pub fn release(&self) {
        self.limit(None);
    }

    fn limit(&self, us_per_s: Option<u32>) -> bool {
        let write = |file: &str, text: String| fs::write(self.dir.join(file), text).is_ok();
        let quota = us_per_s.map(|us| us.to_string());
        let v2 = quota.clone().unwrap_or("max".into());
        let v1 = quota.unwrap_or("-1".into());
        write("cpu.cfs_period_us", PERIOD_US.to_string()) && write("cpu.cfs_quota_us", v1)
            || write("cpu.max", format!("{v2} {PERIOD_US}"))
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
