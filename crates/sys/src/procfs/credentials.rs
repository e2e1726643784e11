//! With whose rights a thread acts, as /proc/PID/status tells.
#![forbid(unsafe_code)]

use super::{malformed, number, value, Pid};
use std::{fs, io};

/// CAP_SETUID's bit.
const SETUID: u64 = 1 << 7;

/// Users, groups and capabilities of a thread, as numbers of our user namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Real, effective and saved user.
    pub users: [u32; 3],
    /// The same of groups.
    pub groups: [u32; 3],
    /// Further groups.
    pub more: Vec<u32>,
    /// Capabilities that it may put in effect.
    pub permitted: u64,
    /// Filters of system calls.
    pub filters: u32,
}

impl Credentials {
    /// Whether it may become any user.
    pub fn may_be_anybody(&self) -> bool {
        self.permitted & SETUID != 0
    }
}

/// Reads them, of a process's first thread or of any thread.
///
/// # Errors
/// It has ended, or the text is malformed.
pub fn credentials(pid: Pid) -> io::Result<Credentials> {
    parse(&fs::read(format!("/proc/{pid}/status"))?).ok_or_else(|| malformed("status"))
}

fn parse(text: &[u8]) -> Option<Credentials> {
    let three = |key| {
        let ids = ids(value(text, key)?)?;
        ids.first_chunk().copied()
    };
    let permitted = std::str::from_utf8(value(text, "CapPrm")?).ok()?;
    Some(Credentials {
        users: three("Uid")?,
        groups: three("Gid")?,
        more: ids(value(text, "Groups")?)?,
        permitted: u64::from_str_radix(permitted, 16).ok()?,
        filters: value(text, "Seccomp_filters").and_then(number).unwrap_or(0),
    })
}

fn ids(text: &[u8]) -> Option<Vec<u32>> {
    let words = text.split(|byte| byte.is_ascii_whitespace());
    words.filter(|word| !word.is_empty()).map(number).collect()
}

/// Whether numbers of users mean the same to a process as to us.
pub fn is_in_our_user_namespace(pid: Pid) -> bool {
    let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    of("self").is_some_and(|own| of(&pid.to_string()) == Some(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_read_as_the_kernel_writes_them() {
        let text = b"Name:\tx\nUid:\t0\t1000\t0\t1000\nGid:\t5\t6\t7\t6\nGroups:\t4 24 27 \n\
            CapPrm:\t00000000000000c0\nSeccomp_filters:\t2\n";
        let read = parse(text).unwrap();
        assert_eq!((read.users, read.groups), ([0, 1000, 0], [5, 6, 7]));
        assert_eq!((read.more.as_slice(), read.filters), (&[4, 24, 27][..], 2));
        assert!(read.may_be_anybody());
        let none = b"Uid:\t1\t1\t1\t1\nGid:\t1\t1\t1\t1\nGroups:\t \nCapPrm:\t0\n";
        let read = parse(none).unwrap();
        assert!(read.more.is_empty() && !read.may_be_anybody());
        assert!(parse(b"Uid:\t1\t1\n").is_none());
    }

    #[test]
    fn we_are_in_our_own_namespace() {
        let own = std::process::id() as Pid;
        assert!(is_in_our_user_namespace(own) && credentials(own).is_ok());
    }
}
