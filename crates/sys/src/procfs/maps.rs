//! /proc/PID/maps: which ranges of addresses a process has, and what is behind them.
//!
//! Read again and again for processes with thousands of mappings, hence a reader that keeps its
//! buffers and a parser that looks at each byte once.
#![forbid(unsafe_code)]

use super::{malformed, Pid};
use crate::one_page::OnePage;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};

/// What is behind a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingKind {
    /// Anonymous memory, with or without a name given by the program.
    Anonymous,
    /// The heap of brk().
    Heap,
    /// The stack of the main thread.
    Stack,
    /// A file, deleted or not, and all shared memory: System V, memfd, shared anonymous.
    File,
    /// Mappings of the kernel's own: vdso, vvar, vsyscall and the like.
    Special,
}

/// One line of /proc/PID/maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after the mapping.
    pub end: u64,
    /// PROT_READ.
    pub readable: bool,
    /// PROT_WRITE.
    pub writable: bool,
    /// PROT_EXEC.
    pub executable: bool,
    /// MAP_SHARED rather than MAP_PRIVATE.
    pub shared: bool,
    /// What is behind it.
    pub kind: MappingKind,
}

/// Reads mappings into buffers that are used again.
#[derive(Default)]
pub struct MapsReader {
    text: Vec<u8>,
    mappings: Vec<Mapping>,
}

impl MapsReader {
    /// The mappings of a process now, in order of address. None when it is ending.
    ///
    /// A process that maps and unmaps meanwhile may be seen half before and half after.
    ///
    /// # Errors
    /// The process has ended, may not be looked at, or the text is malformed.
    pub fn read(&mut self, pid: Pid) -> io::Result<&[Mapping]> {
        self.text.clear();
        self.mappings.clear();
        File::open(format!("/proc/{pid}/maps"))?.read_to_end(&mut self.text)?;
        for line in self.text.split_inclusive(|&byte| byte == b'\n') {
            let mapping = parse_line(line.trim_ascii_end()).ok_or_else(|| malformed("maps"))?;
            self.mappings.push(mapping);
        }
        Ok(&self.mappings)
    }
}

/// [`MapsReader::read`] with buffers for this once.
///
/// # Errors
/// As for the reader.
pub fn maps(pid: Pid) -> io::Result<Vec<Mapping>> {
    let mut reader = MapsReader::default();
    reader.read(pid)?;
    Ok(reader.mappings)
}

/// A part of a file that a process has mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// Where, and how it is protected.
    pub mapping: Mapping,
    /// Where in the file it begins.
    pub offset: u64,
}

/// The mappings of a file, given by device and inode, that a process has now.
///
/// # Errors
/// As for [`MapsReader::read`].
pub fn mappings_of(pid: Pid, identity: (u64, u64)) -> io::Result<Vec<FilePart>> {
    let text = std::fs::read(format!("/proc/{pid}/maps"))?;
    let mut parts = Vec::new();
    for line in text
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let (offset, of) = file_of(line).ok_or_else(|| malformed("maps"))?;
        if of == identity {
            let mapping = parse_line(line.trim_ascii_end()).ok_or_else(|| malformed("maps"))?;
            parts.push(FilePart { mapping, offset });
        }
    }
    Ok(parts)
}

/// What the kernel calls shared memory that has no name and no descriptor: MAP_SHARED with MAP_ANONYMOUS, or of /dev/zero.
const NAMELESS: &[u8] = b"/dev/zero (deleted)";

/// A mapping of shared memory that has no name and no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamelessPart {
    /// Where, and from where on in that memory.
    pub part: FilePart,
    /// Device and inode of the memory.
    pub identity: (u64, u64),
}

/// Such mappings of a process. A deleted file may have the same name: its device is another than that of
/// [`nameless_device`].
///
/// # Errors
/// As for [`MapsReader::read`].
pub fn nameless_parts(pid: Pid) -> io::Result<Vec<NamelessPart>> {
    let text = std::fs::read(format!("/proc/{pid}/maps"))?;
    let lines = text.split(|&byte| byte == b'\n');
    let is_meant = |line: &&[u8]| line.ends_with(NAMELESS) || contains(line, b"[anon_shmem:");
    let parts = lines.filter(is_meant).filter_map(|line| {
        let (offset, identity) = file_of(line)?;
        let mapping = parse_line(line.trim_ascii_end())?;
        let part = FilePart { mapping, offset };
        Some(NamelessPart { part, identity })
    });
    Ok(parts.collect())
}

/// The device that all such memory is on, and nothing that could be opened by a name.
///
/// # Errors
/// There is no memory for a page of it.
pub fn nameless_device() -> io::Result<u64> {
    let page = OnePage::anonymous(true)?;
    let own = nameless_parts(std::process::id() as Pid)?;
    let at = page.start() as u64;
    let found = own
        .iter()
        .find(|one| (one.part.mapping.start..one.part.mapping.end).contains(&at));
    let found = found.ok_or_else(|| malformed("maps"))?;
    Ok(found.identity.0)
}

/// A process that has a file mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapper {
    /// Its number.
    pub pid: Pid,
    /// Some of it is mapped privately.
    pub is_private: bool,
}

/// Lists of processes are read so often, at most.
const LISTS_MAX: usize = 32;

/// All processes that have a file mapped, of all that there are. Left out is who may not be looked at, and is older than this
/// process: the file must be such that he cannot have got it.
///
/// Processes come and go meanwhile. One that hands a mapping to a child by fork, and ends before it is looked at, must not leave
/// that child unseen; so the list of processes is read until there is nobody new. Whoever comes after the last list was forked
/// by one that was looked at, or by a child of such.
///
/// # Errors
/// The mappings of one cannot be read: nobody knows what it has. There is no end of new processes.
pub fn mappers_of(identity: (u64, u64)) -> io::Result<Vec<Mapper>> {
    let mut mappers = Vec::new();
    let mut seen = HashSet::new();
    let start = super::start_time(std::process::id() as Pid)?;
    for _ in 0..LISTS_MAX {
        let mut pids = super::pids();
        // Of a number that was given to another meanwhile both are to be looked at.
        pids.retain(|&pid| seen.insert((pid, super::start_time(pid).ok())));
        if pids.is_empty() {
            return Ok(mappers);
        }
        for pid in pids {
            mappers.extend(mapper(pid, identity, start)?);
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn mapper(pid: Pid, identity: (u64, u64), own_start: u64) -> io::Result<Option<Mapper>> {
    let mut text = Vec::new();
    if let Err(error) = read_all_maps(pid, &mut text) {
        let is_older = || super::start_time(pid).is_ok_and(|start| start < own_start);
        if !is_gone(&error) && !is_older() {
            return Err(error);
        }
    }
    let lines = text.split(|&byte| byte == b'\n');
    let of_it = lines.filter(|line| file_of(line).is_some_and(|(_, of)| of == identity));
    let is_private = |line: &[u8]| !parse_line(line).is_some_and(|mapping| mapping.shared);
    let found = of_it.map(is_private).reduce(|one, other| one || other);
    Ok(found.map(|is_private| Mapper { pid, is_private }))
}

/// Of a process whose first thread has ended the other threads tell.
fn read_all_maps(pid: Pid, text: &mut Vec<u8>) -> io::Result<()> {
    File::open(format!("/proc/{pid}/maps"))?.read_to_end(text)?;
    if !text.is_empty() {
        return Ok(());
    }
    for thread in crate::inject::threads::of(pid) {
        let read = File::open(format!("/proc/{pid}/task/{thread}/maps"))
            .and_then(|mut maps| maps.read_to_end(text));
        match read {
            Ok(0) => {}
            Ok(_) => return Ok(()),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Bytes of addresses at which a process has shared memory: mapped shared, and on no disk. Not counted is what is named like
/// this, and what of these.
///
/// # Errors
/// As for [`MapsReader::read`].
pub fn shared_memory_beside(
    pid: Pid,
    name: &str,
    known: &dyn Fn((u64, u64)) -> bool,
) -> io::Result<u64> {
    let text = std::fs::read(format!("/proc/{pid}/maps"))?;
    let name = format!("/memfd:{name}");
    let bytes_of = |line: &[u8]| {
        let mapping = parse_line(line.trim_ascii_end())?;
        let (_, (device, inode)) = file_of(line)?;
        let is_counted = mapping.shared
            && libc::major(device) == 0
            && !known((device, inode))
            && !contains(line, name.as_bytes());
        is_counted.then(|| mapping.end - mapping.start)
    };
    Ok(text.split(|&byte| byte == b'\n').filter_map(bytes_of).sum())
}

/// Whether what a process has mapped at an address has a name like this.
///
/// # Errors
/// As for [`MapsReader::read`].
pub fn is_named(pid: Pid, address: u64, name: &str) -> io::Result<bool> {
    let text = std::fs::read(format!("/proc/{pid}/maps"))?;
    let covers = |line: &&[u8]| {
        let mapping = parse_line(line.trim_ascii_end());
        mapping.is_some_and(|mapping| (mapping.start..mapping.end).contains(&address))
    };
    let mut lines = text.split(|&byte| byte == b'\n');
    Ok(lines
        .find(covers)
        .is_some_and(|line| contains(line, name.as_bytes())))
}

fn contains(line: &[u8], name: &[u8]) -> bool {
    line.windows(name.len()).any(|part| part == name)
}

/// Offset, device and inode of a line.
fn file_of(line: &[u8]) -> Option<(u64, (u64, u64))> {
    let mut fields = line.split(|&byte| byte == b' ').filter(|f| !f.is_empty());
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let (_, _, offset, device, inode) = (text()?, text()?, text()?, text()?, text()?);
    let offset = u64::from_str_radix(offset, 16).ok()?;
    let (major, minor) = device.split_once(':')?;
    let number = |hex: &str| u32::from_str_radix(hex, 16).ok();
    let device = libc::makedev(number(major)?, number(minor)?);
    Some((offset, (device, inode.parse().ok()?)))
}

/// `start-end rwxp offset device inode    name`
fn parse_line(line: &[u8]) -> Option<Mapping> {
    let (start, rest) = hex_until(line, b'-')?;
    let (end, rest) = hex_until(rest, b' ')?;
    let (permissions, rest) = rest.split_at_checked(4)?;
    Some(Mapping {
        start,
        end,
        readable: permissions[0] == b'r',
        writable: permissions[1] == b'w',
        executable: permissions[2] == b'x',
        shared: permissions[3] == b's',
        kind: kind_of(name_after_inode(rest)?),
    })
    .filter(|mapping| mapping.start < mapping.end)
}

/// A hexadecimal number up to `delimiter`, and what follows that.
fn hex_until(text: &[u8], delimiter: u8) -> Option<(u64, &[u8])> {
    let mut number = 0u64;
    for (at, &byte) in text.iter().enumerate().take(17) {
        if byte == delimiter {
            return (at > 0).then(|| (number, &text[at + 1..]));
        }
        number = number << 4 | u64::from((byte as char).to_digit(16)?);
    }
    None
}

/// `rest` is ` offset device inode`, and spaces before the name if there is one.
fn name_after_inode(rest: &[u8]) -> Option<&[u8]> {
    let mut rest = rest;
    for _ in 0..3 {
        let field = rest.strip_prefix(b" ")?;
        let end = field
            .iter()
            .position(|&byte| byte == b' ')
            .unwrap_or(field.len());
        if end == 0 {
            return None;
        }
        rest = &field[end..];
    }
    Some(rest.trim_ascii_start())
}

fn kind_of(name: &[u8]) -> MappingKind {
    match name {
        b"" => MappingKind::Anonymous,
        b"[heap]" => MappingKind::Heap,
        b"[stack]" => MappingKind::Stack,
        _ if name.starts_with(b"[anon:") => MappingKind::Anonymous,
        // Shared anonymous memory to which the program gave a name.
        _ if name.starts_with(b"[anon_shmem:") => MappingKind::File,
        _ if name.starts_with(b"[") => MappingKind::Special,
        // Paths, and what has no path either: "anon_inode:[io_uring]", "socket:[1234]".
        _ => MappingKind::File,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> MappingKind {
        parse_line(line.as_bytes())
            .unwrap_or_else(|| panic!("{line}"))
            .kind
    }

    #[test]
    fn addresses_and_permissions_are_those_of_the_line() {
        let line = b"7f4aada11000-7f4aada13000 rw-p 00031000 fe:00 325835          /usr/lib/ld.so";
        let expected = Mapping {
            start: 0x7f4aada11000,
            end: 0x7f4aada13000,
            readable: true,
            writable: true,
            executable: false,
            shared: false,
            kind: MappingKind::File,
        };
        assert_eq!(parse_line(line), Some(expected));
        let line = b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0      [vsyscall]";
        let mapping = parse_line(line).unwrap();
        assert_eq!(mapping.end, 0xffff_ffff_ff60_1000);
        assert!(!mapping.readable && mapping.executable);
        assert_eq!(mapping.kind, MappingKind::Special);
    }

    #[test]
    fn a_files_parts_are_found_by_device_and_inode() {
        let line = b"7f4aada11000-7f4aada13000 r--s 00031000 fe:01 325835          /a b";
        let device = libc::makedev(0xfe, 1);
        assert_eq!(file_of(line), Some((0x31000, (device, 325_835))));
        let own = mappings_of(std::process::id() as i32, (device, 1)).unwrap();
        assert_eq!(own, []);
    }

    #[test]
    fn every_kind_of_name_is_recognised() {
        use MappingKind::*;
        for (name, expected) in [
            ("", Anonymous),
            ("[heap]", Heap),
            ("[stack]", Stack),
            ("[anon:.bss]", Anonymous),
            ("[anon: a b ]", Anonymous),
            ("[anon_shmem:pool]", File),
            ("[vdso]", Special),
            ("[vvar]", Special),
            ("[vvar_vclock]", Special),
            ("[uprobes]", Special),
            ("/usr/bin/with space", File),
            ("/dev/zero (deleted)", File),
            ("/memfd:name (deleted)", File),
            ("/SYSV00000000 (deleted)", File),
            ("/anon_hugepage (deleted)", File),
            ("/[heap]", File),
            ("anon_inode:[io_uring]", File),
        ] {
            let line = format!("1000-2000 rw-s 00000000 00:01 1024                      {name}");
            assert_eq!(kind(&line), expected, "{name}");
        }
    }

    #[test]
    fn an_anonymous_line_may_end_at_the_inode() {
        assert_eq!(
            kind("1000-2000 rw-p 00000000 00:00 0 "),
            MappingKind::Anonymous
        );
        assert_eq!(
            kind("1000-2000 rw-p 00000000 00:00 0"),
            MappingKind::Anonymous
        );
    }

    #[test]
    fn damaged_lines_are_refused() {
        let line = b"7f00-8f00 rw-p 00000000 00:00 0";
        for end in 0..line.len() {
            assert_eq!(parse_line(&line[..end]), None, "{end} bytes");
        }
        for line in [
            "-8f00 rw-p 0 0 0",
            "9000-8000 rw-p 0 0 0",
            "zz-8f00 rw-p 0 0 0",
            "10000000000000000-20000000000000000 rw-p 0 0 0",
            "1000-2000 rw-p  0 0 0",
        ] {
            assert_eq!(parse_line(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn own_mappings_hold_own_variables() {
        let on_stack = 0u8;
        let on_heap = Box::new(0u8);
        let code = own_mappings_hold_own_variables as fn();
        let mut reader = MapsReader::default();
        for _ in 0..2 {
            let mappings = reader.read(std::process::id() as Pid).unwrap();
            assert!(mappings.windows(2).all(|pair| pair[0].end <= pair[1].start));
            let at = |address: u64| {
                *mappings
                    .iter()
                    .find(|m| m.start <= address && address < m.end)
                    .unwrap()
            };
            assert!(at(&raw const on_stack as u64).writable);
            assert!(at(&raw const *on_heap as u64).writable);
            assert!(at(code as usize as u64).executable);
            assert_eq!(at(code as usize as u64).kind, MappingKind::File);
        }
    }

    #[test]
    fn a_process_that_is_not_there_is_not_found() {
        assert_eq!(maps(Pid::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
