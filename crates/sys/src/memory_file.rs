//! Shared memory that processes map: made here, to stand in the place of a file (memfd), or by a process of a job, and found.
//!
//! Its pages exist from when they are filled until they are punched out; where there is none, who touches a mapping of it
//! raises a userfault.

use crate::procfs::{FilePart, Pid};
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

/// What every such mapping is called in /proc/PID/maps, followed by the file's own name.
pub const NAME: &str = "pleat:";
/// Longest name that the kernel takes, with the prefix.
const NAME_MAX: usize = 200;

/// A file of memory.
#[derive(Debug)]
pub struct MemoryFile {
    file: File,
    identity: (u64, u64),
}

impl AsRawFd for MemoryFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl MemoryFile {
    /// Empty memory of so many bytes, named after a file.
    ///
    /// # Errors
    /// When no descriptor can be had.
    pub fn new(name: &str, bytes: u64) -> io::Result<MemoryFile> {
        let mut name: String = format!("{NAME}{name}").replace('\0', "");
        while name.len() > NAME_MAX {
            name.pop();
        }
        let name = std::ffi::CString::new(name).map_err(io::Error::other)?;
        // SAFETY: the name outlives the call; the descriptor is fresh.
        let file = unsafe {
            let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(fd)
        };
        file.set_len(bytes)?;
        // Or whoever sees it in /proc could open it.
        file.set_permissions(Permissions::from_mode(0o600))?;
        let status = file.metadata()?;
        Ok(MemoryFile {
            file,
            identity: (status.dev(), status.ino()),
        })
    }

    /// The memory that a process has mapped there, if it is this: by device and inode.
    ///
    /// # Errors
    /// Something else is mapped there by now, or nothing; or this process may not look (CAP_SYS_ADMIN or
    /// CAP_CHECKPOINT_RESTORE).
    pub fn of_mapping(pid: Pid, part: &FilePart, identity: (u64, u64)) -> io::Result<MemoryFile> {
        let (start, end) = (part.mapping.start, part.mapping.end);
        let path = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let status = file.metadata()?;
        if (status.dev(), status.ino()) != identity {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(MemoryFile { file, identity })
    }

    /// Bytes from its first page to its last, whether they exist or not.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Puts pages into a hole. A mapping shows each of them whole or not at all: the kernel has it locked until it is.
    ///
    /// # Errors
    /// Of the kernel; there may be some then.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Where its pages are: offsets and bytes of runs without a hole.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn runs(&self) -> io::Result<Vec<(u64, u64)>> {
        let (mut runs, mut at) = (Vec::new(), 0);
        while let Some(start) = self.seek(at, libc::SEEK_DATA)? {
            // Behind the last page there is always a hole.
            let end = self.seek(start, libc::SEEK_HOLE)?.unwrap_or(start);
            if end <= start {
                break;
            }
            runs.push((start, end - start));
            at = end;
        }
        Ok(runs)
    }

    fn seek(&self, from: u64, what: i32) -> io::Result<Option<u64>> {
        // SAFETY: plain numbers. The position that this sets is used by nobody.
        let at = unsafe { libc::lseek(self.file.as_raw_fd(), from as libc::off_t, what) };
        if at >= 0 {
            return Ok(Some(at as u64));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENXIO) => Ok(None),
            _ => Err(error),
        }
    }

    /// Device and inode, as /proc/PID/maps shows them.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Reads a range; where there is no page, zeros. Ask [`MemoryFile::is_present`] after, not before.
    ///
    /// # Errors
    /// Of the kernel; a range behind the end.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    /// Whether every page of a range exists.
    pub fn is_present(&self, offset: u64, len: u64) -> bool {
        let hole = self.seek(offset, libc::SEEK_HOLE);
        matches!(hole, Ok(Some(hole)) if hole >= offset + len)
    }

    /// Removes the pages of a range, from every process that maps them. `false`: some are still there.
    pub fn punch(&self, offset: u64, len: u64) -> bool {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let fd = self.file.as_raw_fd();
        loop {
            // SAFETY: plain numbers.
            if unsafe { libc::fallocate(fd, mode, offset as libc::off_t, len as libc::off_t) } == 0
            {
                break;
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return false;
            }
        }
        // A huge page that cannot be split stays, with zeros in the place of what was to go. There
        // should be none; but those zeros must not be taken for the file.
        let data = self.seek(offset, libc::SEEK_DATA);
        !matches!(data, Ok(Some(data)) if data < offset + len)
    }

    /// Bytes of memory that its pages take.
    pub fn bytes(&self) -> u64 {
        self.file
            .metadata()
            .map_or(0, |status| status.blocks() * 512)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_punched_out_is_absent_and_counts_no_more() {
        let memory = MemoryFile::new("a file", 10 * 4096 + 5).unwrap();
        memory.file.write_all_at(&[7; 8192], 4096).unwrap();
        assert_eq!(memory.bytes(), 8192);
        assert!(memory.is_present(4096, 8192) && !memory.is_present(4096, 8193));
        let mut bytes = [0; 4096];
        memory.read(4096, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 4096]);
        assert!(memory.punch(4096, 4096));
        assert!(!memory.is_present(4096, 4096) && memory.is_present(8192, 4096));
        assert_eq!(memory.bytes(), 4096);
        assert_eq!(memory.runs().unwrap(), [(8192, 4096)]);
        memory.write(0, &[1; 4096]).unwrap();
        assert_eq!(memory.runs().unwrap(), [(0, 4096), (8192, 4096)]);
    }

    #[test]
    fn memory_without_a_name_is_found_by_its_mapping_and_nothing_else_is() {
        let page = crate::one_page::OnePage::anonymous(true).unwrap();
        let pid = std::process::id() as Pid;
        let parts = crate::procfs::nameless_parts(pid).unwrap();
        let at = page.start() as u64;
        let is_it = |one: &&crate::procfs::NamelessPart| one.part.mapping.start == at;
        let found = parts.iter().find(is_it).expect("it is mapped");
        assert_eq!(found.identity.0, crate::procfs::nameless_device().unwrap());
        let other = (found.identity.0, found.identity.1 + 1);
        assert!(MemoryFile::of_mapping(pid, &found.part, other).is_err());
        match MemoryFile::of_mapping(pid, &found.part, found.identity) {
            Ok(memory) => assert_eq!(memory.size().unwrap(), 4096),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }
}
