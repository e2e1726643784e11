//! The kernel's pages by way of the mount itself, as any program gets at them: a page that is cached costs
//! a copy, and one that is clean and not in use is dropped without waiting for anybody. Asking by
//! NOTIFY_RETRIEVE and NOTIFY_INVAL_INODE costs several times as much (the answer comes as a request, which
//! wakes a worker), and makes the kernel ask for the file's attributes again. It remains for whoever may not
//! open files by number, and for pages that are mapped or being written.
//!
//! Nothing here makes the kernel ask for anything: files are opened by number (which needs no name to be
//! looked up, and finds only what the kernel knows already), within the size that it believes, and only
//! pages that are there are read. Should one go just then it is read from us, as if a program wanted it; the
//! workers answer that without the thread that takes pages.
#![forbid(unsafe_code)]

use super::lock;
use crate::sys;
use pleat_types::PAGE_SIZE;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, CWD};
use rustix::mount::OpenTreeFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A mount, seen from outside.
#[derive(Debug)]
pub(super) struct Window {
    mountpoint: PathBuf,
    /// Of its files: what is at the mount point may be something else by now.
    device: u64,
    state: Mutex<State>,
}

/// Files are opened by number relative to the mount's directory, which must be open for that.
#[derive(Debug)]
enum State {
    Closed,
    /// A thread of its own opens it: the kernel asks a worker for that, and all of them may be waiting for the
    /// thread that takes pages.
    Opening,
    /// The mount cannot end until it is closed again.
    Open(Arc<File>),
    /// For good: this process may not open files by number, or the mount is to end.
    Shut,
}

impl Window {
    /// # Errors
    /// It is not mounted any more.
    pub(super) fn new(mountpoint: &Path) -> io::Result<Arc<Window>> {
        Ok(Arc::new(Window {
            mountpoint: mountpoint.to_owned(),
            device: rustix::fs::stat(mountpoint)?.st_dev,
            state: Mutex::new(State::Closed),
        }))
    }

    /// The mount's directory. `None` when it cannot be used, or not yet.
    pub(super) fn open(self: &Arc<Self>) -> Option<Arc<File>> {
        let mut state = lock(&self.state);
        match &*state {
            State::Open(root) => return Some(root.clone()),
            State::Opening | State::Shut => return None,
            State::Closed => {}
        }
        let window = self.clone();
        let opener = std::thread::Builder::new().name("pleat-window".into());
        let opener = opener.spawn(move || {
            let root = open_apart(&window.mountpoint);
            let mut state = lock(&window.state);
            if matches!(*state, State::Opening) {
                *state = root.map_or(State::Shut, |root| State::Open(Arc::new(root)));
            }
        });
        *state = opener.map_or(State::Closed, |_| State::Opening);
        None
    }

    /// Whether it is open, or soon will be.
    pub(super) fn is_open(&self) -> bool {
        matches!(*lock(&self.state), State::Opening | State::Open(_))
    }

    /// Nothing is taken for now: should it be unmounted, it is to end.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        if matches!(*state, State::Open(_)) {
            *state = State::Closed;
        }
    }

    /// It is not to be opened again.
    pub(super) fn shut(&self) {
        *lock(&self.state) = State::Shut;
    }

    /// A file that the kernel knows, and its size there.
    pub(super) fn file(&self, root: &File, node: u64, generation: u32) -> Option<(File, u64)> {
        let file = match sys::open_by_number(root, node, generation) {
            Ok(file) => file,
            Err(error) => {
                // Forgotten by now, or we have too many open.
                let is_passing = matches!(error.raw_os_error(), Some(libc::ESTALE | libc::EMFILE));
                if !is_passing {
                    self.shut();
                }
                return None;
            }
        };
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = rustix::fs::statx(&file, c"", flags, StatxFlags::SIZE).ok()?;
        let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        (device == self.device).then_some((file, stat.stx_size))
    }
}

/// The directory of a mount, by way of a second mount of the same file system which nobody can see: so that
/// the first is not in use, and can be unmounted.
fn open_apart(mountpoint: &Path) -> io::Result<File> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let apart = rustix::mount::open_tree(CWD, mountpoint, flags)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(apart, c".", flags, Mode::empty())?.into())
}

/// Copies whole pages from `first` on into `buffer`, if the kernel has all of them; answers how many bytes,
/// fewer than asked for at the end of the file only.
pub(super) fn copy_cached<'a>(
    (file, size): &(File, u64),
    first: u64,
    pages: usize,
    buffer: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    let offset = first * PAGE_SIZE as u64;
    let wanted = size.saturating_sub(offset).min((pages * PAGE_SIZE) as u64);
    if wanted.div_ceil(PAGE_SIZE as u64) != pages as u64 {
        return None;
    }
    let cached = sys::cached_pages(file, offset, wanted).ok()?;
    if cached != pages as u64 {
        return None;
    }
    buffer.resize(wanted as usize, 0);
    file.read_exact_at(buffer, offset).ok()?;
    Some(buffer)
}

/// Drops these pages; answers whether the kernel has none of them any more.
pub(super) fn drop_cached((file, _): &(File, u64), first: u64, pages: usize) -> bool {
    let (offset, len) = (first * PAGE_SIZE as u64, (pages * PAGE_SIZE) as u64);
    sys::drop_cached(file, offset, len).is_ok()
        && matches!(sys::cached_pages(file, offset, len), Ok(0))
}
