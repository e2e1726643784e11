//! Large private mappings of files become anonymous memory that the supervisor fills from the file.
//!
//! Called by the program's own threads, from `mmap`, before the mapping's address is known to anybody.
//! The order is what makes it safe:
//!
//! ```text
//! native mapping --> anonymous memory in its place --> request --> registered, origin known --> return
//!        ^                                               | no
//!        +----------- the file mapped again -------------+
//! ```
//!
//! Between the second step and the answer the memory would read as zeros, but only a thread that
//! guesses the address can look; the supervisor makes sure that nothing was touched, or says no. There
//! is no time limit on the answer: given up by us and granted by the supervisor later, the range could
//! by then be other memory. A supervisor that is gone ends the connection.
//!
//! The connection is made for each request, because the agent's is in another descriptor table.

use crate::raw::{self, Errno};
use crate::{serve, start};
use core::sync::atomic::{AtomicBool, Ordering};
use pleat_wire::message::{FileAnswer, FileRequest, ASK_FILE, FILE_ANSWER, MAP_FILE};
use pleat_wire::PAGE;
use syscalls::Sysno;

/// Smaller mappings stay as they are.
const LEN_MIN: usize = 1 << 20;

/// Whether any mapping was converted, here or in a process that this one was forked from.
static ANY: AtomicBool = AtomicBool::new(false);

/// A mapping just made, with the arguments of its making.
pub struct Mapping {
    /// Where it is.
    pub address: usize,
    /// Bytes.
    pub len: usize,
    /// `PROT_*`.
    pub protection: i32,
    /// `MAP_*`.
    pub flags: i32,
    /// The file.
    pub fd: i32,
    /// Where in the file it begins.
    pub offset: u64,
}

impl Mapping {
    /// Whether its pages may become memory. Readable and writable, because the kernel moves pages of
    /// no other kind (UFFDIO_MOVE), so they could never be taken away; not at an address that the
    /// program chose, because what is replaced there may be in use; not where it asked for all pages
    /// to be in memory.
    fn is_candidate(&self) -> bool {
        const TYPE: i32 = 0xf;
        let unwanted = libc::MAP_ANONYMOUS
            | libc::MAP_FIXED
            | libc::MAP_FIXED_NOREPLACE
            | libc::MAP_GROWSDOWN
            | libc::MAP_HUGETLB
            | libc::MAP_LOCKED
            | libc::MAP_POPULATE;
        self.len >= LEN_MIN
            && self.protection == libc::PROT_READ | libc::PROT_WRITE
            && self.flags & TYPE == libc::MAP_PRIVATE
            && self.flags & unwanted == 0
    }

    /// How much of it, in whole pages, holds anything of the file; 0 when that is no regular file, or one
    /// that the supervisor itself serves: filling pages from it could make it wait for itself. Pages
    /// behind stay as they are: to touch them raises SIGBUS, or finds what the file has grown by.
    fn backed_len(&self) -> usize {
        // SAFETY: all zeros is a valid `stat`, and it outlives the call.
        let status = unsafe {
            let mut status: libc::stat = core::mem::zeroed();
            let pointer = (&raw mut status) as usize;
            match raw::call(Sysno::fstat, [self.fd as usize, pointer, 0, 0, 0, 0]) {
                Ok(_) => status,
                Err(_) => return 0,
            }
        };
        if status.st_mode & libc::S_IFMT != libc::S_IFREG || start::is_of_supervisor(status.st_dev)
        {
            return 0;
        }
        let rest = (status.st_size as u64).saturating_sub(self.offset);
        let pages = |bytes: u64| bytes.div_ceil(PAGE as u64);
        (pages(rest).min(pages(self.len as u64)) * PAGE as u64) as usize
    }

    /// Puts anonymous memory in place of the first `len` bytes.
    fn make_anonymous(&self, len: usize) -> Result<usize, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let flags = flags | self.flags & libc::MAP_NORESERVE;
        self.map(len, flags, usize::MAX, 0)
    }

    /// Puts the file back in place of the first `len` bytes. If even that fails there is no mapping.
    fn restore(&self, len: usize) -> Result<(), Errno> {
        let flags = self.flags | libc::MAP_FIXED;
        let restored = self.map(len, flags, self.fd as usize, self.offset as usize);
        restored.map(|_| ()).inspect_err(|_| {
            // SAFETY: the mapping was made just now, and the program does not know of it.
            let _ = unsafe { raw::call(Sysno::munmap, [self.address, self.len, 0, 0, 0, 0]) };
        })
    }

    fn map(&self, len: usize, flags: i32, fd: usize, offset: usize) -> Result<usize, Errno> {
        let protection = self.protection as usize;
        let arguments = [self.address, len, protection, flags as usize, fd, offset];
        // SAFETY: replaces what was mapped just now, of which nobody knows.
        unsafe { raw::call(Sysno::mmap, arguments) }
    }
}

/// Makes memory of a mapping of a file, if it is of the kind and the supervisor agrees; else it stays as
/// it is. An error only when there is no mapping any more.
pub fn convert(mapping: &Mapping) -> Result<(), Errno> {
    if !mapping.is_candidate() || start::agent_thread() == 0 {
        return Ok(());
    }
    let len = mapping.backed_len();
    if len < LEN_MIN {
        return Ok(());
    }
    let Ok(socket) = start::connect() else {
        return Ok(());
    };
    let granted = mapping.make_anonymous(len).is_ok()
        && ask(
            socket,
            MAP_FILE,
            mapping.address,
            len,
            mapping.offset,
            &[mapping.fd],
        ) == Some(true);
    raw::close(socket);
    if granted {
        ANY.store(true, Ordering::Release);
        return Ok(());
    }
    mapping.restore(len)
}

/// Whether a range has pages that are filled from a file. Where that cannot be told it is taken to have.
pub fn is_filled_from_file(address: usize, len: usize) -> bool {
    if !ANY.load(Ordering::Acquire) {
        return false;
    }
    let Ok(socket) = start::connect() else {
        return true;
    };
    let answer = ask(socket, ASK_FILE, address, len, 0, &[]);
    raw::close(socket);
    answer != Some(false)
}

/// Sends a request and waits for the answer; `None` when the supervisor is gone.
fn ask(
    socket: i32,
    kind: u32,
    address: usize,
    len: usize,
    offset: u64,
    descriptors: &[i32],
) -> Option<bool> {
    let request = FileRequest {
        kind,
        agent_thread: start::agent_thread(),
        address: address as u64,
        len: len as u64,
        offset,
    };
    serve::send(socket, &request, descriptors);
    let mut answer = FileAnswer::default();
    let pointer = (&raw mut answer) as usize;
    let size = core::mem::size_of::<FileAnswer>();
    loop {
        // SAFETY: the answer has room for `size` bytes and is made of integers.
        match unsafe { raw::call(Sysno::recvfrom, [socket as usize, pointer, size, 0, 0, 0]) } {
            Err(libc::EINTR) => {}
            Ok(got) if got == size && answer.kind == FILE_ANSWER => return Some(answer.yes == 1),
            _ => return None,
        }
    }
}
