//! Jobs inside of this one: to it they are memory that others manage. No agent is put into their processes, and nobody need be
//! told of that.

use pleat_sys::procfs;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// A chain of parents is followed no further.
const PARENTS_MAX: usize = 1000;

/// Whether a process that descends from this one is another supervisor, or descends from one: it runs the same program, which is
/// told by its file. A process that only looks like that is counted as ever, and not named.
pub(super) fn is_of_inner_job(pid: i32) -> bool {
    let own = std::process::id() as i32;
    let Some(program) = program_of(own) else {
        return false;
    };
    let mut at = pid;
    for _ in 0..PARENTS_MAX {
        if at == own || at <= 1 {
            return false;
        }
        if program_of(at) == Some(program) {
            return true;
        }
        match procfs::status(at) {
            Ok(status) => at = status.ppid,
            Err(_) => return false,
        }
    }
    false
}

/// Device and number of the file that a process executes.
fn program_of(pid: i32) -> Option<(u64, u64)> {
    let file = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_of_another_program_is_of_no_inner_job() {
        let mut child = Command::new("sleep").arg("9").spawn().unwrap();
        // The same program until it has executed the other.
        let is_other = || program_of(child.id() as i32) != program_of(std::process::id() as i32);
        while !is_other() {
            std::thread::yield_now();
        }
        assert!(!is_of_inner_job(child.id() as i32));
        assert!(!is_of_inner_job(std::process::id() as i32));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
