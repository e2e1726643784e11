//! The userfaultfd ABI of Linux 6.8 and later, as far as pleat uses it (`linux/userfaultfd.h`).

/// The only API number there is.
pub const API: u64 = 0xAA;

/// Write-protect faults are reported as such.
pub const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
/// fork() is reported and the child's memory stays served.
pub const FEATURE_EVENT_FORK: u64 = 1 << 1;
/// mremap() is reported.
pub const FEATURE_EVENT_REMAP: u64 = 1 << 2;
/// madvise(MADV_DONTNEED) and the like are reported.
pub const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
/// munmap() is reported.
pub const FEATURE_EVENT_UNMAP: u64 = 1 << 6;
/// Faults carry the thread id.
pub const FEATURE_THREAD_ID: u64 = 1 << 8;
/// UFFDIO_POISON exists.
pub const FEATURE_POISON: u64 = 1 << 14;
/// UFFDIO_MOVE exists.
pub const FEATURE_MOVE: u64 = 1 << 16;

/// What the supervisor needs to follow a process.
pub const FEATURES_FOLLOW: u64 = FEATURE_PAGEFAULT_FLAG_WP
    | FEATURE_EVENT_REMAP
    | FEATURE_EVENT_REMOVE
    | FEATURE_EVENT_UNMAP
    | FEATURE_THREAD_ID
    | FEATURE_POISON
    | FEATURE_MOVE;

/// Faults on absent pages are reported.
pub const REGISTER_MODE_MISSING: u64 = 1 << 0;
/// Faults on write-protected pages are reported.
pub const REGISTER_MODE_WP: u64 = 1 << 1;
/// Protect; without it, unprotect.
pub const WRITEPROTECT_MODE_WP: u64 = 1 << 0;
/// Do not wake threads that wait for a page to be unprotected.
pub const WRITEPROTECT_MODE_DONTWAKE: u64 = 1 << 1;
/// Do not wake waiting threads.
pub const MODE_DONTWAKE: u64 = 1 << 0;
/// The fault was a write.
pub const PAGEFAULT_FLAG_WRITE: u64 = 1 << 0;
/// The fault was on a write-protected page.
pub const PAGEFAULT_FLAG_WP: u64 = 1 << 1;

/// A page fault.
pub const EVENT_PAGEFAULT: u8 = 0x12;
/// A fork; the message carries the child's userfaultfd.
pub const EVENT_FORK: u8 = 0x13;
/// Pages moved to another address.
pub const EVENT_REMAP: u8 = 0x14;
/// Pages are about to be dropped.
pub const EVENT_REMOVE: u8 = 0x15;
/// Pages are gone with their mapping.
pub const EVENT_UNMAP: u8 = 0x16;

const fn iowr(number: u64, size: usize) -> u64 {
    (3 << 30) | ((size as u64) << 16) | (0xAA << 8) | number
}
const fn ior(number: u64, size: usize) -> u64 {
    (2 << 30) | ((size as u64) << 16) | (0xAA << 8) | number
}

/// `USERFAULTFD_IOC_NEW` of `/dev/userfaultfd`.
pub const IOC_NEW: u64 = 0xAA << 8;
/// Handshake: `Api`.
pub const IOC_API: u64 = iowr(0x3F, 24);
/// Register a range: `Register`.
pub const IOC_REGISTER: u64 = iowr(0x00, 32);
/// Unregister a range: `Range`.
pub const IOC_UNREGISTER: u64 = ior(0x01, 16);
/// Wake waiters in a range: `Range`.
pub const IOC_WAKE: u64 = ior(0x02, 16);
/// Fill pages with bytes: `Copy`.
pub const IOC_COPY: u64 = iowr(0x03, 40);
/// Fill pages with the zero page: `ZeroPage`.
pub const IOC_ZEROPAGE: u64 = iowr(0x04, 32);
/// Move pages within one address space: `Move`.
pub const IOC_MOVE: u64 = iowr(0x05, 40);

/// Protect pages against writing, or unprotect them: `WriteProtect`.
pub const IOC_WRITEPROTECT: u64 = iowr(0x06, 24);

/// Have an absent page raise SIGBUS when it is touched: `Poison`.
pub const IOC_POISON: u64 = iowr(0x08, 32);

/// Argument of [`IOC_POISON`].
#[repr(C)]
#[derive(Default)]
pub struct Poison {
    /// Which pages.
    pub range: Range,
    /// 0 or [`MODE_DONTWAKE`].
    pub mode: u64,
    /// Answer: bytes poisoned, or a negative errno.
    pub poisoned: i64,
}

/// Argument of [`IOC_WRITEPROTECT`].
#[repr(C)]
#[derive(Default)]
pub struct WriteProtect {
    /// Which pages; absent ones are passed over.
    pub range: Range,
    /// `WRITEPROTECT_MODE_*`.
    pub mode: u64,
}

/// Argument of [`IOC_API`].
#[repr(C)]
#[derive(Default)]
pub struct Api {
    /// [`API`].
    pub api: u64,
    /// Wanted, then available features.
    pub features: u64,
    /// Available ioctls.
    pub ioctls: u64,
}

/// A range of bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Range {
    /// First address.
    pub start: u64,
    /// Length.
    pub len: u64,
}

/// Argument of [`IOC_REGISTER`].
#[repr(C)]
#[derive(Default)]
pub struct Register {
    /// What to register.
    pub range: Range,
    /// [`REGISTER_MODE_MISSING`].
    pub mode: u64,
    /// Answer: what can be done with the range.
    pub ioctls: u64,
}

/// Argument of [`IOC_COPY`].
#[repr(C)]
#[derive(Default)]
pub struct Copy {
    /// Where to, in the managed process.
    pub dst: u64,
    /// Where from, in the calling process.
    pub src: u64,
    /// Length.
    pub len: u64,
    /// 0 or [`MODE_DONTWAKE`].
    pub mode: u64,
    /// Answer: bytes copied, or a negative errno.
    pub copied: i64,
}

/// Argument of [`IOC_ZEROPAGE`].
#[repr(C)]
#[derive(Default)]
pub struct ZeroPage {
    /// What to fill.
    pub range: Range,
    /// 0 or [`MODE_DONTWAKE`].
    pub mode: u64,
    /// Answer: bytes filled, or a negative errno.
    pub filled: i64,
}

/// Argument of [`IOC_MOVE`].
#[repr(C)]
#[derive(Default)]
pub struct Move {
    /// Where to.
    pub dst: u64,
    /// Where from.
    pub src: u64,
    /// Length.
    pub len: u64,
    /// 0 or [`MODE_DONTWAKE`].
    pub mode: u64,
    /// Answer: bytes moved, or a negative errno.
    pub moved: i64,
}

/// Bytes of one message read from a userfaultfd.
pub const MESSAGE_BYTES: usize = 32;

/// One message read from a userfaultfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A thread waits for a page.
    Fault {
        /// Address of the fault, page-aligned.
        address: u64,
        /// `PAGEFAULT_FLAG_*`.
        flags: u64,
        /// Which thread.
        thread: u32,
    },
    /// The process forked; `child` is the descriptor of the child's userfaultfd.
    Fork {
        /// Descriptor, already open in the reader.
        child: i32,
    },
    /// Pages moved.
    Remap {
        /// Old address.
        from: u64,
        /// New address.
        to: u64,
        /// Bytes.
        len: u64,
    },
    /// Pages are about to be dropped: `[start, end)`.
    Remove {
        /// First address.
        start: u64,
        /// First address after.
        end: u64,
    },
    /// The mapping is gone: `[start, end)`.
    Unmap {
        /// First address.
        start: u64,
        /// First address after.
        end: u64,
    },
}

impl Message {
    /// Reads one message; `None` for an event this crate does not know.
    pub fn parse(bytes: &[u8; MESSAGE_BYTES]) -> Option<Message> {
        let word = |at: usize| {
            let mut w = [0u8; 8];
            w.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(w)
        };
        Some(match bytes[0] {
            EVENT_PAGEFAULT => Message::Fault {
                flags: word(8),
                address: word(16) & !(crate::PAGE as u64 - 1),
                thread: word(24) as u32,
            },
            EVENT_FORK => Message::Fork {
                child: word(8) as u32 as i32,
            },
            EVENT_REMAP => Message::Remap {
                from: word(8),
                to: word(16),
                len: word(24),
            },
            EVENT_REMOVE => Message::Remove {
                start: word(8),
                end: word(16),
            },
            EVENT_UNMAP => Message::Unmap {
                start: word(8),
                end: word(16),
            },
            _ => return None,
        })
    }
}
