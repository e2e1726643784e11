//! One page of memory of our own, mapped where the kernel likes and used by nobody else.

use std::io;
use std::os::fd::AsRawFd;

const PAGE: usize = pleat_wire::PAGE;
const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// A mapping of one page, which ends with it.
#[derive(Debug)]
pub(crate) struct OnePage(*mut libc::c_void);

// SAFETY: a mapping of the process's own, which any thread may use; nothing is kept of it beside.
unsafe impl Send for OnePage {}

impl OnePage {
    /// Fresh memory of zeros, private or shared.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn anonymous(is_shared: bool) -> io::Result<OnePage> {
        let sharing = match is_shared {
            true => libc::MAP_SHARED,
            false => libc::MAP_PRIVATE,
        };
        OnePage::map(sharing | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// A page of a file, shared with all who map it.
    ///
    /// # Errors
    /// Of the kernel.
    pub(crate) fn of_file(file: &impl AsRawFd, offset: u64) -> io::Result<OnePage> {
        OnePage::map(libc::MAP_SHARED, file.as_raw_fd(), offset)
    }

    fn map(flags: libc::c_int, fd: libc::c_int, offset: u64) -> io::Result<OnePage> {
        let (start, offset) = (std::ptr::null_mut(), offset as libc::off_t);
        // SAFETY: a new mapping, where the kernel likes.
        match unsafe { libc::mmap(start, PAGE, READ_WRITE, flags, fd, offset) } {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            at => Ok(OnePage(at)),
        }
    }

    /// Where it is, for as long as this lives.
    pub(crate) fn start(&self) -> *mut libc::c_void {
        self.0
    }
}

impl Drop for OnePage {
    fn drop(&mut self) {
        // SAFETY: ours, and used by nobody else.
        unsafe { libc::munmap(self.0, PAGE) };
    }
}
