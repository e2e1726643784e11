//! Flags of one mapping, from /proc/PID/smaps. Dear (the kernel walks the page tables of everything
//! before it), so only for the rare question that nothing else answers.

use super::Pid;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

/// Whether the mapping of `pid` that holds `address` is wiped in forked children (MADV_WIPEONFORK).
/// `false` also when nothing is mapped there.
///
/// # Errors
/// The process has ended or may not be looked at.
pub fn is_wiped_on_fork(pid: Pid, address: u64) -> io::Result<bool> {
    let smaps = BufReader::new(File::open(format!("/proc/{pid}/smaps"))?);
    find_flag(smaps, address, "wf")
}

fn find_flag(smaps: impl BufRead, address: u64, flag: &str) -> io::Result<bool> {
    let mut inside = false;
    for line in smaps.lines() {
        let line = line?;
        if let Some((start, end)) = bounds(&line) {
            if start > address {
                return Ok(false);
            }
            inside = address < end;
        } else if let (true, Some(flags)) = (inside, line.strip_prefix("VmFlags:")) {
            return Ok(flags.split_whitespace().any(|found| found == flag));
        }
    }
    Ok(false)
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
";

    #[test]
    fn the_flag_is_that_of_the_mapping_that_holds_the_address() {
        let wiped = |address| find_flag(SMAPS.as_bytes(), address, "wf").unwrap();
        assert!(!wiped(0x55d0_c000_1000));
        assert!(wiped(0x7f00_0000_1fff));
        assert!(!wiped(0x7f00_0000_2000), "nothing is mapped there");
        assert!(!wiped(0x6000_0000_0000), "between two mappings");
    }

    #[test]
    fn an_ordinary_mapping_of_ours_is_not_wiped() {
        let local = 0u8;
        let address = std::ptr::from_ref(&local) as u64;
        assert!(!is_wiped_on_fork(std::process::id() as Pid, address).unwrap());
    }
}
