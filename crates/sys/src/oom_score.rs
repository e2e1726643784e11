//! Whom the kernel kills first when memory runs out: the supervisor and its helpers last, for with them goes the
//! job's memory. The job's programs are judged as they would be without pleat.

use crate::inherited::write_number;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

const FILE: &str = "/proc/self/oom_score_adj";
/// The last of all, and not exempt: were nothing else left, the kernel could not go on.
const LAST: i32 = -999;

/// What this process was started with.
#[derive(Clone, Copy, Debug)]
pub struct OomScore {
    before: i32,
}

impl OomScore {
    /// Makes this process, and what it forks from now on, the last to be killed, where that is allowed (root,
    /// CAP_SYS_RESOURCE). `None`: nothing was changed.
    pub fn lower() -> Option<OomScore> {
        let before: i32 = fs::read_to_string(FILE).ok()?.trim().parse().ok()?;
        if before <= LAST {
            return None;
        }
        fs::write(FILE, LAST.to_string()).ok()?;
        Some(OomScore { before })
    }

    /// Has `command` start its program with what there was before.
    pub fn leave_to(self, command: &mut Command) {
        let restore = move || {
            // Where it fails, the program is merely killed later.
            write_number(c"/proc/self/oom_score_adj", self.before);
            Ok(())
        };
        // SAFETY: `restore` allocates nothing and takes no lock.
        unsafe { command.pre_exec(restore) };
    }
}
