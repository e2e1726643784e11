//! Flags of mappings, from /proc/PID/smaps. Dear (the kernel walks all page tables), so only for the rare
//! question that nothing else answers.

use super::Pid;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

/// The mappings of `pid` that are wiped in forked children (MADV_WIPEONFORK), as `(start, end)`, ascending.
///
/// # Errors
/// The process has ended or may not be looked at.
pub fn wiped_on_fork(pid: Pid) -> io::Result<Vec<(u64, u64)>> {
    let smaps = BufReader::new(File::open(format!("/proc/{pid}/smaps"))?);
    with_flag(smaps, "wf")
}

/// Whether a process has memory that is registered with a userfaultfd; not one that has ended.
pub fn has_userfaultfd(pid: Pid) -> bool {
    registered(pid).is_ok_and(|found| !found.is_empty())
}

/// Memory that is registered with a userfaultfd, and whether it is wiped in forked children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its first address.
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// It is under MADV_WIPEONFORK.
    pub is_wiped: bool,
}

/// What a process has registered, ascending.
///
/// # Errors
/// As for [`wiped_on_fork`].
pub fn registered(pid: Pid) -> io::Result<Vec<Registered>> {
    let smaps = BufReader::new(File::open(format!("/proc/{pid}/smaps"))?);
    let mut found = Vec::new();
    for_each(smaps, |start, end, flags| {
        let has = |flag| flags.split_whitespace().any(|name| name == flag);
        let is_wiped = has("wf");
        if has("um") || has("uw") {
            found.push(Registered {
                start,
                end,
                is_wiped,
            });
        }
    })?;
    Ok(found)
}

fn with_flag(smaps: impl BufRead, flag: &str) -> io::Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    for_each(smaps, |start, end, flags| {
        if flags.split_whitespace().any(|name| name == flag) {
            found.push((start, end));
        }
    })?;
    Ok(found)
}

fn for_each(smaps: impl BufRead, mut each: impl FnMut(u64, u64, &str)) -> io::Result<()> {
    let mut mapping = None;
    for line in smaps.lines() {
        let line = line?;
        if let Some(bounds) = bounds(&line) {
            mapping = Some(bounds);
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            if let Some((start, end)) = mapping.take() {
                each(start, end, flags);
            }
        }
    }
    Ok(())
}

/// `55d0c0000000-55d0c0021000 rw-p ...`; other lines have a name and a colon first.
fn bounds(line: &str) -> Option<(u64, u64)> {
    let (start, rest) = line.split_once('-')?;
    let end = rest.split(' ').next()?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0    [heap]
Size:                132 kB
VmFlags: rd wr mr mw me ac sd
7f0000000000-7f0000002000 rw-p 00000000 00:00 0
Rss:                   4 kB
VmFlags: rd wr mr mw me ac wf sd
7f0000002000-7f0000003000 rw-p 00000000 00:00 0
Rss:                   4 kB
VmFlags: rd wr mr mw me ac sd
";

    #[test]
    fn mappings_with_the_flag_are_found_and_no_others() {
        let wiped = with_flag(SMAPS.as_bytes(), "wf").unwrap();
        assert_eq!(wiped, [(0x7f00_0000_0000, 0x7f00_0000_2000)]);
    }

    #[test]
    fn an_ordinary_mapping_of_ours_is_not_wiped() {
        let local = 0u8;
        let address = std::ptr::from_ref(&local) as u64;
        let wiped = wiped_on_fork(std::process::id() as Pid).unwrap();
        assert!(!wiped.iter().any(|(s, e)| (*s..*e).contains(&address)));
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        let error = wiped_on_fork(Pid::MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
