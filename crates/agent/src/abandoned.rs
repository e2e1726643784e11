//! Whether this process is in the group of a job that nobody minds any more.
//!
//! A supervisor and its keeper may be killed by one stroke while a process of the job is between its fork, or its exec, and
//! having an agent. That process finds no supervisor. Nothing of its memory is away, or its fork handler would end it; but
//! it would run on without the limit it was started with, or wait at that of the job's group for ever. A supervisor that ends as it should
//! moves everybody out of that group before it stops listening, and one that cannot be reached for another reason (this
//! process is in another network namespace) has its group locked.

use crate::raw;
use core::ffi::CStr;
use syscalls::Sysno;

const TEXT_MAX: usize = 4096;
const PATH_MAX: usize = 1024;

/// Whether the group named as the supervisor's socket is that of this process, or one above, and is not locked. `false`
/// where that cannot be told.
#[cold]
#[inline(never)]
pub fn is_abandoned(name: &[u8]) -> bool {
    let mut text = [0u8; TEXT_MAX];
    let length = raw::read_file(c"/proc/self/cgroup", &mut text);
    let mut lines = text[..length].split(|byte| *byte == b'\n');
    lines.any(|line| {
        let mut path = [0u8; PATH_MAX];
        group_of(line, name, &mut path).is_some_and(is_unlocked)
    })
}

/// The directory of the group called `name` on the way to the one that a line of /proc/self/cgroup names, where the memory
/// controller of either version usually is.
fn group_of<'a>(line: &[u8], name: &[u8], path: &'a mut [u8; PATH_MAX]) -> Option<&'a CStr> {
    let mut fields = line.splitn(3, |byte| *byte == b':');
    let (number, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
    let root: &[u8] = match (number, controllers) {
        (b"0", b"") => b"/sys/fs/cgroup",
        (_, b"memory") => b"/sys/fs/cgroup/memory",
        _ => return None,
    };
    // Where each part of the group's path ends, and whether it is the name.
    let mut ends = group.split(|byte| *byte == b'/').scan(0, |next, part| {
        let end = *next + part.len();
        *next = end + 1;
        Some((end, part == name))
    });
    let (end, _) = ends.find(|(_, is_named)| *is_named)?;
    let length = root.len() + end;
    if length >= PATH_MAX {
        return None;
    }
    path[..root.len()].copy_from_slice(root);
    path[root.len()..length].copy_from_slice(&group[..end]);
    path[length] = 0;
    CStr::from_bytes_until_nul(path).ok()
}

/// Nobody holds the lock that a supervisor and its keeper hold as long as one of them lives.
fn is_unlocked(dir: &CStr) -> bool {
    let Ok(fd) = raw::open(dir, libc::O_RDONLY | libc::O_DIRECTORY) else {
        return false;
    };
    let shared = (libc::LOCK_SH | libc::LOCK_NB) as usize;
    // SAFETY: plain numbers.
    let locked = unsafe { raw::call(Sysno::flock, [fd as usize, shared, 0, 0, 0, 0]) };
    raw::close(fd);
    locked.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::ffi::OsStrExt;

    fn group(line: &str) -> Option<String> {
        let mut path = [0; PATH_MAX];
        let found = group_of(line.as_bytes(), b"pleat-job-7", &mut path);
        found.map(|path| path.to_str().unwrap().to_owned())
    }

    #[test]
    fn the_group_is_found_by_its_whole_name_in_either_version() {
        let in_v2 = group("0::/user.slice/pleat-job-7/pleat-job-9");
        assert_eq!(
            in_v2.as_deref(),
            Some("/sys/fs/cgroup/user.slice/pleat-job-7")
        );
        let in_v1 = group("4:memory:/a/pleat-job-77/pleat-job-7");
        assert_eq!(
            in_v1.as_deref(),
            Some("/sys/fs/cgroup/memory/a/pleat-job-77/pleat-job-7")
        );
        assert_eq!(group("4:memory:/a/pleat-job-77"), None);
        assert_eq!(group("4:cpu:/a/pleat-job-7"), None);
        assert_eq!(group("0::/xpleat-job-7"), None);
        assert_eq!(group(""), None);
        assert_eq!(
            group(&format!("0::/{}/pleat-job-7", "x".repeat(PATH_MAX))),
            None
        );
    }

    #[test]
    fn a_group_is_minded_as_long_as_somebody_holds_its_lock() {
        let dir = std::env::temp_dir().join(format!("pleat-abandoned-{}", raw::process()));
        std::fs::create_dir(&dir).unwrap();
        let name = std::ffi::CString::new(dir.as_os_str().as_bytes()).unwrap();
        let lock = File::open(&dir).unwrap();
        lock.try_lock().unwrap();
        assert!(!is_unlocked(&name));
        drop(lock);
        assert!(is_unlocked(&name));
        std::fs::remove_dir(&dir).unwrap();
        assert!(!is_unlocked(&name));
        assert!(!is_abandoned(b"pleat-job-of-nobody"));
    }
}
