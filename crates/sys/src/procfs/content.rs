//! The memory of another process.

use super::pagemap::PageTable;
use super::Pid;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The memory of a process, to be read.
pub struct Content {
    bytes: File,
    page_table: PageTable,
}

impl Content {
    /// Of this process. It stays that process's, also when its number is given to another.
    ///
    /// # Errors
    /// It has ended, or may not be looked at.
    pub fn open(pid: Pid) -> io::Result<Content> {
        Ok(Content {
            bytes: File::open(format!("/proc/{pid}/mem"))?,
            page_table: PageTable::open(pid)?,
        })
    }

    /// Its page table.
    pub fn page_table(&self) -> &PageTable {
        &self.page_table
    }

    /// Reads what is at an address. A page that does not exist reads as zeros, and does from then on; where it is
    /// registered with a userfaultfd, this waits as its own threads would.
    ///
    /// # Errors
    /// Nothing is mapped there; the process is gone.
    pub fn read(&self, address: u64, to: &mut [u8]) -> io::Result<()> {
        self.bytes.read_exact_at(to, address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const PAGE: u64 = pleat_wire::PAGE as u64;

    #[test]
    fn what_exists_is_read() {
        let len = 4 * PAGE as usize;
        // SAFETY: a new mapping at an address of the kernel's choice, of which one page is written to.
        let start = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let start = libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            libc::madvise(start, len, libc::MADV_NOHUGEPAGE);
            start.cast::<u8>().add(PAGE as usize).write_bytes(7, 5);
            start as u64
        };
        let memory = Content::open(std::process::id() as Pid).unwrap();
        let exist = memory.page_table().which_exist(start, 4).unwrap();
        assert_eq!(exist, [false, true, false, false]);
        let mut bytes = [1; 6];
        memory.read(start + PAGE, &mut bytes).unwrap();
        assert_eq!(bytes, [7, 7, 7, 7, 7, 0]);
        assert!(memory.page_table().which_exist(1 << 60, 1).is_err());
        assert!(memory.page_table().which_exist(start + 1, 1).is_err());
        // SAFETY: ours, and not used any more.
        unsafe { libc::munmap(start as *mut _, len) };
        assert!(memory.read(start, &mut bytes).is_err());
    }
}
