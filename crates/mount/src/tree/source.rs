//! Source files opened for their data, and the bound on how many are open at once.
//!
//! The kernel never says that a file is opened or closed (it was told so once, which saves two requests per
//! open). So files are opened when data is wanted, by inode through `/proc/self/fd`, and closed when too
//! many others are open: second chance, in the order in which they were opened.
#![forbid(unsafe_code)]

use super::node::Node;
use rustix::fs::{Mode, OFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, OnceLock, PoisonError, Weak};

/// A source file, opened for its data.
#[derive(Debug)]
pub struct Source {
    file: File,
    is_writable: bool,
    /// Opened when first asked for; `None` inside where the file system has no direct I/O.
    direct: OnceLock<Option<File>>,
    /// Could not be opened again: its owner's rights are gone. Stays until the node goes.
    pub(super) is_pinned: bool,
}

/// The path by which an object that is open with `O_PATH` can be reached.
pub(super) fn path_of(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn reopen(file: BorrowedFd<'_>, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    Ok(rustix::fs::open(path_of(file), flags, Mode::empty())?.into())
}

impl Source {
    pub(super) fn open(place: BorrowedFd<'_>, is_writable: bool) -> io::Result<Source> {
        let flags = if is_writable {
            OFlags::RDWR
        } else {
            OFlags::RDONLY
        };
        Ok(Source::from_file(reopen(place, flags)?, is_writable))
    }

    pub(super) fn from_file(file: File, is_writable: bool) -> Source {
        Source {
            file,
            is_writable,
            direct: OnceLock::new(),
            is_pinned: false,
        }
    }

    /// Through the host's page cache.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// For reading past the host's page cache, where the file system can (offsets, sizes and buffers in
    /// multiples of its block).
    #[must_use]
    pub fn direct(&self) -> Option<&File> {
        self.direct
            .get_or_init(|| reopen(self.file.as_fd(), OFlags::RDONLY | OFlags::DIRECT).ok())
            .as_ref()
    }

    /// Whether `file` may be written to.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Appends `size` bytes from `offset` on to `out`; fewer at the end of the file only.
    ///
    /// # Errors
    /// What the source answered; `out` may have got some bytes then.
    pub fn read_at(&self, offset: u64, size: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let start = out.len();
        out.resize(start + size, 0);
        let mut filled = start;
        let result = loop {
            match self
                .file
                .read_at(&mut out[filled..], offset + (filled - start) as u64)
            {
                Ok(0) => break Ok(()),
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        out.truncate(filled);
        result
    }
}

/// All nodes whose source is open, oldest first.
#[derive(Debug)]
pub struct OpenSources {
    open_max: usize,
    queue: Mutex<VecDeque<Weak<Node>>>,
}

impl OpenSources {
    pub fn new(open_max: usize) -> Self {
        OpenSources {
            open_max,
            queue: Mutex::default(),
        }
    }

    /// Takes a node in whose source was just opened, and closes others as needed.
    pub fn opened(&self, node: Weak<Node>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(node);
        // Each is looked at twice at most: it was used, it was not.
        for _ in 0..2 * queue.len() {
            if queue.len() <= self.open_max {
                break;
            }
            let Some(oldest) = queue.pop_front() else {
                break;
            };
            match oldest.upgrade() {
                Some(node) if !node.close_unless_used() => queue.push_back(oldest),
                _ => {}
            }
        }
    }
}
