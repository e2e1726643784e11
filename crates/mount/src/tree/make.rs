//! Making objects. The kernel has taken the umask off their mode already; root gives them to whoever asked.
#![forbid(unsafe_code)]

use super::names::check;
use super::place::open_named;
use super::source::{path_of, Source};
use super::stat::Stat;
use super::trust::Trust;
use super::{errno, Node, Tree};
use fuse_backend_rs::abi::fuse_abi::CreateIn;
use fuse_backend_rs::api::filesystem::{Context, Entry};
use rustix::fs::{chmodat, chownat, AtFlags, FileType, Gid, Mode, OFlags, Uid, CWD};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

const PERMISSIONS: u32 = 0o7777;
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

impl Tree {
    /// Makes a file, or finds it made by somebody else meanwhile, for an `open` with `O_CREAT`.
    pub(super) fn make_and_open(
        &self,
        ctx: &Context,
        parent: u64,
        name: &CStr,
        args: CreateIn,
    ) -> io::Result<Entry> {
        check(name)?;
        let directory = self.known(parent)?;
        let wish = args.flags as i32;
        match self.make_file(ctx, &directory, name, args.mode) {
            Err(error)
                if error.raw_os_error() == Some(libc::EEXIST) && wish & libc::O_EXCL == 0 =>
            {
                self.open_existing(&directory, name, wish)
            }
            answer => answer,
        }
    }

    /// The kernel asks for permissions after this; of truncation, it must be sure itself.
    fn open_existing(&self, directory: &Arc<Node>, name: &CStr, wish: i32) -> io::Result<Entry> {
        let mut entry = self.find_in(directory, name)?;
        if wish & libc::O_TRUNC != 0 {
            let truncated = self.known(entry.inode).and_then(|node| {
                self.resize(&node, 0)?;
                Ok(self.entry(&node, node.stat()?, Trust::None))
            });
            match truncated {
                Ok(newer) => entry = newer,
                Err(error) => {
                    self.forget_lookups(entry.inode, 1);
                    return Err(error);
                }
            }
        }
        Ok(entry)
    }

    fn make_file(
        &self,
        ctx: &Context,
        directory: &Arc<Node>,
        name: &CStr,
        mode: u32,
    ) -> io::Result<Entry> {
        let trust = self.trust_names_in(directory);
        let above = directory.place()?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let permissions = Mode::from_raw_mode(mode & PERMISSIONS);
        let file = File::from(rustix::fs::openat(&*above, name, flags, permissions)?);
        self.give(ctx, directory, name, file.as_fd(), mode)?;
        let place = rustix::fs::open(
            path_of(file.as_fd()),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let entry = self.admit(place, directory, name, trust)?;
        self.told(&entry, directory, name);
        if let Some(node) = self.node(entry.inode) {
            let source = Source::from_file(file, true);
            if self.is_root || mode & 0o600 == 0o600 {
                node.adopt(source);
            } else {
                // git makes its objects with mode 0444 and writes to them.
                node.pin(source);
            }
        }
        Ok(entry)
    }

    pub(super) fn make_node(
        &self,
        ctx: &Context,
        parent: u64,
        name: &CStr,
        mode: u32,
        device: u32,
    ) -> io::Result<Entry> {
        check(name)?;
        let directory = self.known(parent)?;
        let kind = FileType::from_raw_mode(mode);
        if kind == FileType::RegularFile {
            return self.make_file(ctx, &directory, name, mode);
        }
        let permissions = Mode::from_raw_mode(mode & PERMISSIONS);
        let (trust, above) = (self.trust_names_in(&directory), directory.place()?);
        rustix::fs::mknodat(&*above, name, kind, permissions, device.into())?;
        self.made(ctx, &directory, name, mode, trust)
    }

    pub(super) fn make_directory(
        &self,
        ctx: &Context,
        parent: u64,
        name: &CStr,
        mode: u32,
    ) -> io::Result<Entry> {
        check(name)?;
        let directory = self.known(parent)?;
        let permissions = Mode::from_raw_mode(mode & PERMISSIONS);
        let (trust, above) = (self.trust_names_in(&directory), directory.place()?);
        rustix::fs::mkdirat(&*above, name, permissions)?;
        self.made(ctx, &directory, name, libc::S_IFDIR | mode, trust)
    }

    pub(super) fn make_symlink(
        &self,
        ctx: &Context,
        target: &CStr,
        parent: u64,
        name: &CStr,
    ) -> io::Result<Entry> {
        check(name)?;
        let directory = self.known(parent)?;
        let (trust, above) = (self.trust_names_in(&directory), directory.place()?);
        rustix::fs::symlinkat(target, &*above, name)?;
        self.made(ctx, &directory, name, libc::S_IFLNK | 0o777, trust)
    }

    /// Gives away what was just made under this name, unless somebody put something else there.
    fn made(
        &self,
        ctx: &Context,
        directory: &Arc<Node>,
        name: &CStr,
        mode: u32,
        trust: Trust,
    ) -> io::Result<Entry> {
        let place = open_named(&*directory.place()?, name)?;
        let stat = Stat::of(&place)?;
        let is_directory = mode & libc::S_IFMT == libc::S_IFDIR;
        let is_ours = stat.uid() == rustix::process::geteuid().as_raw()
            && (stat.mode() ^ mode) & libc::S_IFMT == 0
            && (is_directory || stat.links() == 1);
        if !is_ours {
            return Err(errno(libc::EAGAIN));
        }
        self.give(ctx, directory, name, place.as_fd(), mode)?;
        let entry = self.admit(place, directory, name, trust)?;
        self.told(&entry, directory, name);
        Ok(entry)
    }

    /// Changes owner and group to what the kernel itself would have set. Takes the object away again when
    /// that fails.
    fn give(
        &self,
        ctx: &Context,
        directory: &Node,
        name: &CStr,
        object: BorrowedFd<'_>,
        mode: u32,
    ) -> io::Result<()> {
        if !self.is_root {
            return Ok(());
        }
        let result = give(ctx, directory, object, mode);
        if result.is_err() {
            let is_directory = mode & libc::S_IFMT == libc::S_IFDIR;
            let flags = if is_directory {
                AtFlags::REMOVEDIR
            } else {
                AtFlags::empty()
            };
            // Nothing better to do if that fails too; the first error tells more.
            let _ = directory
                .place()
                .map(|above| rustix::fs::unlinkat(&*above, name, flags));
        }
        result
    }
}

fn give(ctx: &Context, directory: &Node, object: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    let above = directory.stat()?;
    // In such a directory the source has set the group (and a directory's bit) already.
    let inherits = above.mode() & libc::S_ISGID != 0;
    let group = (!inherits).then(|| Gid::from_raw(ctx.gid));
    let is_root_s = ctx.uid == 0 && (inherits || ctx.gid == rustix::process::getegid().as_raw());
    if is_root_s {
        return Ok(());
    }
    chownat(
        object,
        c"",
        Some(Uid::from_raw(ctx.uid)),
        group,
        AtFlags::EMPTY_PATH,
    )?;
    let is_directory = mode & libc::S_IFMT == libc::S_IFDIR;
    // chown has cleared these.
    if mode & SET_ID != 0 && !is_directory {
        let permissions = Mode::from_raw_mode(mode & PERMISSIONS);
        chmodat(CWD, path_of(object), permissions, AtFlags::empty())?;
    }
    Ok(())
}
