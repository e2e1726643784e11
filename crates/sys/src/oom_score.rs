//! Whom the kernel kills first when memory runs out: the supervisor and its helpers last, for with them goes the
//! job's memory. The job's programs are judged as they would be without pleat.

use crate::inherited::write_number;
use std::fs;
use std::io;
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
    /// Makes this process, and what it forks from now on, the last to be killed. `None`: it is so already.
    ///
    /// # Errors
    /// EACCES where that is not allowed: it takes CAP_SYS_RESOURCE in the first user namespace. EROFS where /proc is
    /// for reading only.
    pub fn lower() -> io::Result<Option<OomScore>> {
        let text = fs::read_to_string(FILE)?;
        let before: i32 = text.trim().parse().map_err(io::Error::other)?;
        if before <= LAST {
            return Ok(None);
        }
        fs::write(FILE, LAST.to_string())?;
        Ok(Some(OomScore { before }))
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
