//! Reading directories. A program's position in one is that of the source, so it can go back to any.
#![forbid(unsafe_code)]

use super::stat::Identity;
use super::{errno, names, Node, Tree};
use fuse_backend_rs::api::filesystem::{DirEntry, Entry};
use rustix::fs::{FileType, Mode, OFlags, RawDir, RawDirEntry, SeekFrom};
use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of the source's answer taken at once. One entry has at most 280.
const BATCH_MAX: usize = 32 * 1024;
const BATCH_MIN: usize = 512;
/// An entry of the protocol is at most so many times as long as one of the source.
const LONGER: usize = 2;
/// The same with attributes.
const LONGER_PLUS: usize = 6;

/// A directory that a program has open.
#[derive(Debug)]
pub struct Stream {
    directory: OwnedFd,
    /// Where the descriptor stands, if known.
    position: Option<u64>,
}

/// All directories that are open, by handle.
#[derive(Debug, Default)]
pub struct Streams {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    streams: HashMap<u64, Arc<Mutex<Stream>>>,
    last_handle: u64,
}

impl Streams {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, stream: Stream) -> u64 {
        let mut open = self.open();
        open.last_handle += 1;
        let handle = open.last_handle;
        open.streams.insert(handle, Arc::new(Mutex::new(stream)));
        handle
    }

    fn get(&self, handle: u64) -> io::Result<Arc<Mutex<Stream>>> {
        let stream = self.open().streams.get(&handle).map(Arc::clone);
        stream.ok_or_else(|| errno(libc::EBADF))
    }

    pub fn close(&self, handle: u64) {
        let closed = self.open().streams.remove(&handle);
        // Outside the lock.
        drop(closed);
    }
}

impl Stream {
    /// Hands entries from `offset` on to `take` until it says that it has no room, or a batch is through:
    /// the kernel asks again.
    fn read(
        &mut self,
        offset: u64,
        batch: usize,
        mut take: impl FnMut(&RawDirEntry<'_>) -> io::Result<bool>,
    ) -> io::Result<()> {
        if self.position.take() != Some(offset) {
            rustix::fs::seek(&self.directory, SeekFrom::Start(offset))?;
        }
        let mut buffer = [MaybeUninit::uninit(); BATCH_MAX];
        let batch = batch.clamp(BATCH_MIN, BATCH_MAX);
        let mut entries = RawDir::new(&self.directory, &mut buffer[..batch]);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if !take(&entry)? {
                return Ok(());
            }
            let next = entry.next_entry_cookie();
            if entries.is_buffer_empty() {
                self.position = Some(next);
                return Ok(());
            }
        }
        Ok(())
    }
}

/// `DT_*`.
fn kind(file_type: FileType) -> u32 {
    match file_type {
        FileType::Unknown => 0,
        known => known.as_raw_mode() >> 12,
    }
}

impl Tree {
    pub(super) fn open_directory(&self, number: u64) -> io::Result<u64> {
        let node = self.known(number)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(&*node.place()?, c".", flags, Mode::empty())?;
        Ok(self.streams.add(Stream {
            directory,
            position: Some(0),
        }))
    }

    pub(super) fn sync_directory(&self, handle: u64) -> io::Result<()> {
        let stream = self.streams.get(handle)?;
        let stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(rustix::fs::fsync(&stream.directory)?)
    }

    pub(super) fn read_directory(
        &self,
        number: u64,
        handle: u64,
        size: u32,
        offset: u64,
        add: &mut dyn FnMut(DirEntry<'_>) -> io::Result<usize>,
    ) -> io::Result<()> {
        let node = self.known(number)?;
        let stream = self.streams.get(handle)?;
        let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.read(offset, size as usize / LONGER, |entry| {
            Ok(add(self.shown(&node, entry))? > 0)
        })
    }

    /// As `read_directory`, with a lookup of each entry.
    pub(super) fn read_directory_plus(
        &self,
        number: u64,
        handle: u64,
        size: u32,
        offset: u64,
        add: &mut dyn FnMut(DirEntry<'_>, Entry) -> io::Result<usize>,
    ) -> io::Result<()> {
        let node = self.known(number)?;
        let stream = self.streams.get(handle)?;
        let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.read(offset, size as usize / LONGER_PLUS, |entry| {
            let name = entry.file_name();
            let found = names::check(name).and_then(|()| self.look_up(&node, name));
            // "." and "..", and what is gone already: number 0 means a name and nothing more.
            let found = found.unwrap_or_default();
            let taken = add(self.shown(&node, entry), found);
            let is_taken = matches!(taken, Ok(bytes) if bytes > 0);
            if found.inode != 0 {
                if is_taken {
                    self.told(&found, &node, name);
                } else {
                    self.forget_lookups(found.inode, 1);
                }
            }
            taken.map(|_| is_taken)
        })
    }

    fn shown<'a>(&self, directory: &Node, entry: &'a RawDirEntry<'_>) -> DirEntry<'a> {
        let identity = Identity {
            device: directory.identity().device,
            inode: entry.ino(),
        };
        DirEntry {
            ino: self.table.shown_inode(identity),
            offset: entry.next_entry_cookie(),
            type_: kind(entry.file_type()),
            name: entry.file_name().to_bytes(),
        }
    }
}
