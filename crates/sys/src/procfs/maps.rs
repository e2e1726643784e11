//! /proc/PID/maps: which ranges of addresses a process has, and what is behind them.
//!
//! Read again and again for processes with thousands of mappings, hence a reader that keeps its
//! buffers and a parser that looks at each byte once.
#![forbid(unsafe_code)]

use super::{malformed, Pid};
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

/// Whether a process may have shared memory other than what is named like this: any mapping that is
/// shared and on no disk.
///
/// # Errors
/// As for [`MapsReader::read`].
pub fn has_shared_memory_beside(pid: Pid, name: &str) -> io::Result<bool> {
    let text = std::fs::read(format!("/proc/{pid}/maps"))?;
    let name = format!("/memfd:{name}");
    let is_other = |line: &[u8]| {
        let shared = line
            .split(|&byte| byte == b' ')
            .nth(1)
            .and_then(|p| p.get(3))
            == Some(&b's');
        let is_on_disk = file_of(line).is_some_and(|(_, (device, _))| libc::major(device) != 0);
        shared && !is_on_disk && !contains(line, name.as_bytes())
    };
    Ok(text.split(|&byte| byte == b'\n').any(is_other))
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
