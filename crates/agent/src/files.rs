//! Large private mappings of files become anonymous memory that the supervisor fills from the file; in
//! place of those that are shared and only read, memory of the supervisor's is mapped, which stands in for
//! the file until somebody is about to write to that.
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
//! Memory that stands in is mapped without access at first: mlockall would fill it with zeros, and not
//! for this process alone. It becomes readable when the supervisor has agreed.
//!
//! The connection is made for each request, because the agent's is in another descriptor table.

use crate::raw::{self, Errno};
use crate::{frozen, serve, start};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use pleat_wire::message::{
    FileAnswer, FileRequest, ASK_FILE, ASK_STAND_IN, BORROW, FILE_ANSWER, MAP_FILE, MAP_MEMORY,
    MAP_STAND_IN, REMOVE_SHARED,
};
use pleat_wire::PAGE;
use syscalls::Sysno;

/// Smaller mappings stay as they are.
const LEN_MIN: usize = 1 << 20;

/// Whether any mapping was converted, here or in a process that this one was forked from.
static ANY: AtomicBool = AtomicBool::new(false);
/// From the first to the last address where anything stands in for a file, or did.
static STAND_INS_START: AtomicUsize = AtomicUsize::new(usize::MAX);
static STAND_INS_END: AtomicUsize = AtomicUsize::new(0);

/// What may become of a mapping.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Anonymous memory.
    Private,
    /// Memory of the supervisor's in place of the file.
    Shared,
}

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
    /// Whether its pages may become memory, and which. Private ones have to be readable and writable,
    /// because the kernel moves pages of no other kind (UFFDIO_MOVE), so they could never be taken away;
    /// shared ones must only be read. None at an address that the program chose, because what is replaced
    /// there may be in use, nor where it asked for all pages to be in memory.
    fn kind(&self) -> Option<Kind> {
        const TYPE: i32 = 0xf;
        let unwanted = libc::MAP_ANONYMOUS
            | libc::MAP_FIXED
            | libc::MAP_FIXED_NOREPLACE
            | libc::MAP_GROWSDOWN
            | libc::MAP_HUGETLB
            | libc::MAP_LOCKED
            | libc::MAP_POPULATE;
        if self.len < LEN_MIN || self.flags & unwanted != 0 {
            return None;
        }
        let both = libc::PROT_READ | libc::PROT_WRITE;
        match (self.flags & TYPE, self.protection) {
            (libc::MAP_PRIVATE, protection) if protection == both => Some(Kind::Private),
            (libc::MAP_SHARED, libc::PROT_READ) => Some(Kind::Shared),
            _ => None,
        }
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
        self.map(len, self.protection, flags, usize::MAX, 0)
    }

    /// Puts memory in place of the first `len` bytes that nobody can touch yet.
    fn make_stand_in(&self, len: usize, memory: i32) -> Result<(), Errno> {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let offset = self.offset as usize;
        self.map(len, libc::PROT_NONE, flags, memory as usize, offset)?;
        // A huge page is not punched out as a whole.
        // SAFETY: the mapping was made just now, and the advice changes no content.
        unsafe { raw::advise(self.address, len, libc::MADV_NOHUGEPAGE) }?;
        Ok(())
    }

    /// Lets the program read what stands in.
    fn uncover(&self, len: usize) -> Result<(), Errno> {
        let arguments = [self.address, len, self.protection as usize, 0, 0, 0];
        // SAFETY: of the mapping just made, of which nobody knows.
        unsafe { raw::call(Sysno::mprotect, arguments) }.map(|_| ())
    }

    /// Puts the file back in place of the first `len` bytes. If even that fails there is no mapping.
    fn restore(&self, len: usize) -> Result<(), Errno> {
        let flags = self.flags | libc::MAP_FIXED;
        let (fd, offset) = (self.fd as usize, self.offset as usize);
        let restored = self.map(len, self.protection, flags, fd, offset);
        restored.map(|_| ()).inspect_err(|_| {
            // SAFETY: the mapping was made just now, and the program does not know of it.
            let _ = unsafe { raw::call(Sysno::munmap, [self.address, self.len, 0, 0, 0, 0]) };
        })
    }

    fn map(
        &self,
        len: usize,
        protection: i32,
        flags: i32,
        fd: usize,
        offset: usize,
    ) -> Result<usize, Errno> {
        let (protection, flags) = (protection as usize, flags as usize);
        let arguments = [self.address, len, protection, flags, fd, offset];
        // SAFETY: replaces what was mapped just now, of which nobody knows.
        unsafe { raw::call(Sysno::mmap, arguments) }
    }
}

/// Makes memory of a mapping of a file, if it is of the kind and the supervisor agrees; else it stays as
/// it is. An error only when there is no mapping any more.
pub fn convert(mapping: &Mapping) -> Result<(), Errno> {
    let Some(kind) = mapping.kind() else {
        return Ok(());
    };
    if !start::is_served() {
        return Ok(());
    }
    let len = mapping.backed_len();
    match kind {
        _ if len < LEN_MIN => Ok(()),
        Kind::Private => make_private(mapping, len),
        Kind::Shared => make_shared(mapping, len),
    }
}

fn make_private(mapping: &Mapping, len: usize) -> Result<(), Errno> {
    let Ok(socket) = start::connect() else {
        return Ok(());
    };
    let granted = mapping.make_anonymous(len).is_ok() && ask_for(socket, MAP_FILE, mapping, len).0;
    raw::close(socket);
    if granted {
        ANY.store(true, Ordering::Release);
        return Ok(());
    }
    mapping.restore(len)
}

fn make_shared(mapping: &Mapping, len: usize) -> Result<(), Errno> {
    // Nothing is given back meanwhile.
    let _inside = frozen::enter();
    let Some(memory) = borrow(mapping, len) else {
        return Ok(());
    };
    let placed = mapping.make_stand_in(len, memory);
    raw::close(memory);
    // Before anybody may know the address.
    note_stand_in(mapping.address, len);
    let is_granted = || match start::connect() {
        Ok(socket) => {
            let (yes, _) = ask_for(socket, MAP_STAND_IN, mapping, len);
            raw::close(socket);
            yes
        }
        Err(_) => false,
    };
    if placed.is_ok() && is_granted() && mapping.uncover(len).is_ok() {
        ANY.store(true, Ordering::Release);
        return Ok(());
    }
    mapping.restore(len)
}

/// Memory that may stand in for the file.
fn borrow(mapping: &Mapping, len: usize) -> Option<i32> {
    let socket = start::connect().ok()?;
    let (yes, memory) = ask_for(socket, BORROW, mapping, len);
    raw::close(socket);
    match (yes, memory) {
        (true, memory) => memory,
        (false, stray) => {
            stray.into_iter().for_each(raw::close);
            None
        }
    }
}

fn ask_for(socket: i32, kind: u32, mapping: &Mapping, len: usize) -> (bool, Option<i32>) {
    let (address, offset) = (mapping.address, mapping.offset);
    let answer = ask(socket, kind, address, len, offset, &[mapping.fd]);
    answer.unwrap_or((false, None))
}

/// Memory there may stand in for a file.
fn note_stand_in(address: usize, len: usize) {
    STAND_INS_START.fetch_min(address, Ordering::AcqRel);
    STAND_INS_END.fetch_max(address + len, Ordering::AcqRel);
}

/// Memory has moved, and what it was may have stood in for a file.
pub fn note_moved(from: usize, to: usize, len: usize) {
    if may_stand_in(from, len) {
        note_stand_in(to, len);
    }
}

fn may_stand_in(address: usize, len: usize) -> bool {
    let start = STAND_INS_START.load(Ordering::Acquire);
    let end = STAND_INS_END.load(Ordering::Acquire);
    address < end && address.saturating_add(len) > start
}

/// Whether anything of a range stands in for a file. Where that cannot be told it is taken to. The
/// supervisor is asked only about a range that may.
pub fn stands_in(address: usize, len: usize) -> bool {
    if !may_stand_in(address, len) {
        return false;
    }
    inquire(ASK_STAND_IN, address, len).is_none_or(|yes| yes)
}

/// Whether a range has pages that are filled from a file. Where that cannot be told it is taken to have.
pub fn is_filled_from_file(address: usize, len: usize) -> bool {
    if !ANY.load(Ordering::Acquire) {
        return false;
    }
    inquire(ASK_FILE, address, len).is_none_or(|yes| yes)
}

/// Lets the supervisor have this process managed before fresh memory is filled, if it wants to; returns when
/// the program may go on.
pub fn announce_memory(address: usize, len: usize) {
    if start::is_served() {
        // A supervisor that does not answer has nothing to prepare.
        let _ = inquire(MAP_MEMORY, address, len);
    }
}

/// Has the supervisor remove pages of shared memory, of which some may be away. `false`: nothing was done, and nothing of it is
/// away.
pub fn remove_shared(address: usize, len: usize) -> bool {
    let whole = len.next_multiple_of(PAGE);
    start::is_served() && inquire(REMOVE_SHARED, address, whole).is_some_and(|yes| yes)
}

/// Asks about a range, over a connection of its own; `None` when the supervisor is gone.
fn inquire(kind: u32, address: usize, len: usize) -> Option<bool> {
    let socket = start::connect().ok()?;
    let answer = ask(socket, kind, address, len, 0, &[]);
    raw::close(socket);
    answer.map(|(yes, _)| yes)
}

/// Sends a request and waits for the answer, and a descriptor if there is one; `None` when the supervisor
/// is gone.
fn ask(
    socket: i32,
    kind: u32,
    address: usize,
    len: usize,
    offset: u64,
    descriptors: &[i32],
) -> Option<(bool, Option<i32>)> {
    let request = FileRequest {
        kind,
        agent_thread: start::agent_thread(),
        address: address as u64,
        len: len as u64,
        offset,
    };
    serve::send(socket, &request, descriptors);
    let mut answer = FileAnswer::default();
    let bytes = (&raw mut answer).cast();
    let size = core::mem::size_of::<FileAnswer>();
    // SAFETY: the answer has room for `size` bytes and is made of integers.
    let (got, descriptors) = unsafe { serve::receive(socket, bytes, size) }?;
    (got == size && answer.kind == FILE_ANSWER).then_some((answer.yes == 1, descriptors[0]))
}
