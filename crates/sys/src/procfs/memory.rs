//! How much memory a process has: a cheap reading to poll, and a thorough one.
//!
//! `statm` costs the kernel a few additions and serves the budget loop. `smaps_rollup` walks the page
//! tables, some 20 us for every MiB in memory, and alone knows a fair share of what is shared.
#![forbid(unsafe_code)]

use super::{kib_value, malformed, number, Pid};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// Memory of a process, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statm {
    /// All resident pages.
    pub resident_pages: u64,
    /// Those of them that belong to files or shared memory.
    pub shared_pages: u64,
    /// Mapped writable and private, stacks included, whether resident or not.
    pub data_pages: u64,
}

/// An open /proc/PID/statm. It stays with its process: a later process of the same id is not read.
pub struct StatmReader(File);

impl StatmReader {
    /// # Errors
    /// `NotFound` when there is no such process.
    pub fn open(pid: Pid) -> io::Result<StatmReader> {
        File::open(format!("/proc/{pid}/statm")).map(StatmReader)
    }

    /// Its memory now; none resident when the process is ending. 1 to 2 us, no allocation.
    ///
    /// # Errors
    /// ESRCH when the process has ended.
    pub fn read(&self) -> io::Result<Statm> {
        let mut text = [0; 192];
        let len = self.0.read_at(&mut text, 0)?;
        parse_statm(&text[..len]).ok_or_else(|| malformed("statm"))
    }
}

/// `size resident shared text lib data dt`
fn parse_statm(text: &[u8]) -> Option<Statm> {
    // The newline tells a whole line from one cut short.
    let mut fields = text
        .strip_suffix(b"\n")?
        .split(|&byte| byte == b' ')
        .skip(1);
    Some(Statm {
        resident_pages: number(fields.next()?)?,
        shared_pages: number(fields.next()?)?,
        data_pages: number(fields.nth(2)?)?,
    })
}

/// An open /proc/PID/stat, read for one figure. It stays with its process.
pub struct MinorFaults(File);

impl MinorFaults {
    /// # Errors
    /// `NotFound` when there is no such process.
    pub fn open(pid: Pid) -> io::Result<MinorFaults> {
        File::open(format!("/proc/{pid}/stat")).map(MinorFaults)
    }

    /// How often the kernel has given a thread of it a page without reading anything, so far. A page shared since a
    /// fork becomes two by such a fault. Some 10 us, more with many threads.
    ///
    /// # Errors
    /// ESRCH when the process has ended.
    pub fn read(&self) -> io::Result<u64> {
        let mut text = [0; 1024];
        let len = self.0.read_at(&mut text, 0)?;
        parse_minor_faults(&text[..len]).ok_or_else(|| malformed("stat"))
    }
}

/// `pid (name) state ppid pgrp session tty tpgid flags minflt ...`; the name may hold anything.
fn parse_minor_faults(text: &[u8]) -> Option<u64> {
    let after_name = text.iter().rposition(|&byte| byte == b')')? + 2;
    let mut fields = text.get(after_name..)?.split(|&byte| byte == b' ');
    number(fields.nth(7)?)
}

/// Memory of a process from /proc/PID/smaps_rollup, in bytes. In the proportional sizes a page that
/// n processes map counts as 1/n page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rollup {
    /// Resident pages of all kinds.
    pub rss_bytes: u64,
    /// Proportional share of anonymous pages.
    pub pss_anon_bytes: u64,
    /// Proportional share of file pages.
    pub pss_file_bytes: u64,
    /// Proportional share of shared memory.
    pub pss_shmem_bytes: u64,
    /// Anonymous pages, each counted whole.
    pub anonymous_bytes: u64,
    /// The part of the anonymous pages that is in huge pages.
    pub anon_huge_bytes: u64,
    /// Pages in the kernel's swap.
    pub swap_bytes: u64,
    /// Proportional share of locked pages.
    pub locked_bytes: u64,
}

/// Reads the memory of a process thoroughly.
///
/// # Errors
/// The process has ended (ESRCH), may not be looked at, or a field is missing.
pub fn rollup(pid: Pid) -> io::Result<Rollup> {
    let text = fs::read(format!("/proc/{pid}/smaps_rollup"))?;
    parse_rollup(&text).ok_or_else(|| malformed("smaps_rollup"))
}

fn parse_rollup(text: &[u8]) -> Option<Rollup> {
    Some(Rollup {
        rss_bytes: kib_value(text, "Rss")?,
        pss_anon_bytes: kib_value(text, "Pss_Anon")?,
        pss_file_bytes: kib_value(text, "Pss_File")?,
        pss_shmem_bytes: kib_value(text, "Pss_Shmem")?,
        anonymous_bytes: kib_value(text, "Anonymous")?,
        anon_huge_bytes: kib_value(text, "AnonHugePages")?,
        swap_bytes: kib_value(text, "Swap")?,
        locked_bytes: kib_value(text, "Locked")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    const ROLLUP: &[u8] = b"5638aced6000-7fff03bce000 ---p 00000000 00:00 0      [rollup]
Rss:                1616 kB
Pss:                 403 kB
Pss_Dirty:           112 kB
Pss_Anon:            110 kB
Pss_File:            291 kB
Pss_Shmem:             2 kB
Anonymous:           112 kB
AnonHugePages:         8 kB
Swap:                  4 kB
SwapPss:               3 kB
Locked:                5 kB
";

    fn own_pid() -> Pid {
        std::process::id() as Pid
    }

    #[test]
    fn statm_is_read_and_cut_lines_are_refused() {
        let text = b"765 404 376 5 0 123 0\n";
        let expected = Statm {
            resident_pages: 404,
            shared_pages: 376,
            data_pages: 123,
        };
        assert_eq!(parse_statm(text), Some(expected));
        for end in 0..text.len() {
            assert_eq!(parse_statm(&text[..end]), None);
        }
    }

    #[test]
    fn minor_faults_are_found_behind_any_name() {
        let text = b"12 (a) b (c) S 1 12 12 0 -1 4194560 345 0 7 0 1 2 0 0 20 0 1 0\n";
        assert_eq!(parse_minor_faults(text), Some(345));
        assert_eq!(parse_minor_faults(b"12 (sh) S 1"), None);
        assert_eq!(parse_minor_faults(b"12 (sh)"), None);
    }

    #[test]
    fn rollup_fields_are_told_apart_by_their_whole_name() {
        let rollup = parse_rollup(ROLLUP).unwrap();
        let kib = [
            rollup.rss_bytes,
            rollup.pss_anon_bytes,
            rollup.pss_file_bytes,
            rollup.pss_shmem_bytes,
            rollup.anonymous_bytes,
            rollup.anon_huge_bytes,
            rollup.swap_bytes,
            rollup.locked_bytes,
        ];
        assert_eq!(
            kib.map(|bytes| bytes / 1024),
            [1616, 110, 291, 2, 112, 8, 4, 5]
        );
    }

    #[test]
    fn a_missing_field_is_an_error_not_zero() {
        let without_shmem = ROLLUP
            .split(|&b| b == b'\n')
            .filter(|l| !l.starts_with(b"Pss_Shmem"));
        assert_eq!(
            parse_rollup(&without_shmem.collect::<Vec<_>>().join(&b'\n')),
            None
        );
    }

    #[test]
    fn touched_memory_shows_in_both_readings() {
        const PAGES: usize = 4096;
        let reader = StatmReader::open(own_pid()).unwrap();
        let before = (reader.read().unwrap(), rollup(own_pid()).unwrap());
        let touched = black_box(vec![1u8; PAGES * 4096]);
        let after = (reader.read().unwrap(), rollup(own_pid()).unwrap());
        drop(touched);
        // Other tests of this process allocate and free meanwhile: leave them some room.
        assert!(after.0.resident_pages >= before.0.resident_pages + PAGES as u64 / 2);
        let grown = after.1.anonymous_bytes - before.1.anonymous_bytes;
        assert!(grown >= PAGES as u64 * 2048, "{grown}");
        assert!(after.1.rss_bytes >= after.1.anonymous_bytes);
    }

    #[test]
    fn the_reader_of_a_process_that_has_ended_says_so() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let reader = StatmReader::open(child.id() as Pid).unwrap();
        assert!(reader.read().is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(reader.read().unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
