//! Shared memory that stands in the place of a file (memfd).
//!
//! Processes map it where they would map the file. Its pages exist from when they are filled until they
//! are punched out; where there is none, who touches the mapping raises a userfault.

use std::fs::{File, Permissions};
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
        // SAFETY: plain numbers. The position that this sets is used by nobody.
        let hole = unsafe {
            libc::lseek(
                self.file.as_raw_fd(),
                offset as libc::off_t,
                libc::SEEK_HOLE,
            )
        };
        hole >= 0 && hole as u64 >= offset + len
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
        // SAFETY: as above.
        let data = unsafe { libc::lseek(fd, offset as libc::off_t, libc::SEEK_DATA) };
        data < 0 || data as u64 >= offset + len
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
    }
}
