//! What the kernel asks, passed on to where it is done.
#![forbid(unsafe_code)]

use super::{errno, Tree};
use fuse_backend_rs::abi::fuse_abi::{
    stat64, statvfs64, CreateIn, FsOptions, OpenOptions, SetattrValid,
};
use fuse_backend_rs::api::filesystem::{
    Context, DirEntry, Entry, FileSystem, GetxattrReply, ListxattrReply,
};
use rustix::fs::AtFlags;
use std::ffi::CStr;
use std::io;
use std::time::Duration;

/// What is asked of the kernel. Locks are not: it then keeps them itself, among the users of the mount. Nor are
/// requests of more than 128 KiB: every worker would come to hold a megabyte or two.
fn wanted(writeback: bool) -> FsOptions {
    let mut options = FsOptions::ASYNC_READ
        | FsOptions::BIG_WRITES
        | FsOptions::PARALLEL_DIROPS
        | FsOptions::DO_READDIRPLUS
        | FsOptions::READDIRPLUS_AUTO
        | FsOptions::EXPLICIT_INVAL_DATA
        | FsOptions::HANDLE_KILLPRIV_V2
        | FsOptions::ZERO_MESSAGE_OPEN;
    if writeback {
        options |= FsOptions::WRITEBACK_CACHE;
    }
    options
}

/// READ and WRITE are not here: they never reach the server.
impl FileSystem for Tree {
    type Inode = u64;
    type Handle = u64;

    fn init(&self, _capable: FsOptions) -> io::Result<FsOptions> {
        self.is_now_ready();
        Ok(wanted(self.writeback))
    }

    fn lookup(&self, _: &Context, parent: u64, name: &CStr) -> io::Result<Entry> {
        self.find(parent, name)
    }

    fn forget(&self, _: &Context, number: u64, count: u64) {
        self.forget_lookups(number, count);
    }

    fn getattr(&self, _: &Context, number: u64, _: Option<u64>) -> io::Result<(stat64, Duration)> {
        self.look_again(number)
    }

    fn setattr(
        &self,
        _: &Context,
        number: u64,
        wish: stat64,
        _: Option<u64>,
        valid: SetattrValid,
    ) -> io::Result<(stat64, Duration)> {
        self.set_attributes(number, wish, valid)
    }

    fn readlink(&self, _: &Context, number: u64) -> io::Result<Vec<u8>> {
        self.target(number)
    }

    fn symlink(&self, ctx: &Context, target: &CStr, parent: u64, name: &CStr) -> io::Result<Entry> {
        self.make_symlink(ctx, target, parent, name)
    }

    fn mknod(
        &self,
        ctx: &Context,
        parent: u64,
        name: &CStr,
        mode: u32,
        device: u32,
        _umask: u32,
    ) -> io::Result<Entry> {
        self.make_node(ctx, parent, name, mode, device)
    }

    fn mkdir(
        &self,
        ctx: &Context,
        parent: u64,
        name: &CStr,
        mode: u32,
        _umask: u32,
    ) -> io::Result<Entry> {
        self.make_directory(ctx, parent, name, mode)
    }

    fn unlink(&self, _: &Context, parent: u64, name: &CStr) -> io::Result<()> {
        self.take_away(parent, name, AtFlags::empty())
    }

    fn rmdir(&self, _: &Context, parent: u64, name: &CStr) -> io::Result<()> {
        self.take_away(parent, name, AtFlags::REMOVEDIR)
    }

    fn rename(
        &self,
        _: &Context,
        old: u64,
        old_name: &CStr,
        new: u64,
        new_name: &CStr,
        flags: u32,
    ) -> io::Result<()> {
        self.rename_object((old, old_name), (new, new_name), flags)
    }

    fn link(&self, _: &Context, number: u64, parent: u64, name: &CStr) -> io::Result<Entry> {
        self.link_object(number, parent, name)
    }

    /// "Not implemented" once, and the kernel asks no more: neither for OPEN nor for RELEASE.
    fn open(
        &self,
        _: &Context,
        _: u64,
        _: u32,
        _: u32,
    ) -> io::Result<(Option<u64>, OpenOptions, Option<u32>)> {
        Err(errno(libc::ENOSYS))
    }

    fn create(
        &self,
        ctx: &Context,
        parent: u64,
        name: &CStr,
        args: CreateIn,
    ) -> io::Result<(Entry, Option<u64>, OpenOptions, Option<u32>)> {
        let entry = self.make_and_open(ctx, parent, name, args)?;
        Ok((entry, None, OpenOptions::KEEP_CACHE, None))
    }

    /// Files that were made are released, others were never opened.
    fn release(
        &self,
        _: &Context,
        _: u64,
        _: u32,
        _: u64,
        _: bool,
        _: bool,
        _: Option<u64>,
    ) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self, _: &Context, _: u64, _: u64, _: u64) -> io::Result<()> {
        Err(errno(libc::ENOSYS))
    }

    fn statfs(&self, _: &Context, number: u64) -> io::Result<statvfs64> {
        crate::sys::statvfs(&*self.known(number)?.place()?)
    }

    fn fsync(&self, _: &Context, number: u64, data_only: bool, _: u64) -> io::Result<()> {
        self.content.sync(&*self.known(number)?, data_only)
    }

    fn fallocate(
        &self,
        ctx: &Context,
        number: u64,
        _: u64,
        mode: u32,
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        self.allocate(number, mode, offset, len, ctx.uid == 0)
    }

    fn lseek(&self, _: &Context, number: u64, _: u64, offset: u64, whence: u32) -> io::Result<u64> {
        self.seek(number, offset, whence)
    }

    fn setxattr(
        &self,
        _: &Context,
        number: u64,
        name: &CStr,
        value: &[u8],
        flags: u32,
    ) -> io::Result<()> {
        self.set_extended(number, name, value, flags)
    }

    fn getxattr(
        &self,
        _: &Context,
        number: u64,
        name: &CStr,
        size: u32,
    ) -> io::Result<GetxattrReply> {
        self.get_extended(number, name, size)
    }

    fn listxattr(&self, _: &Context, number: u64, size: u32) -> io::Result<ListxattrReply> {
        self.list_extended(number, size)
    }

    fn removexattr(&self, _: &Context, number: u64, name: &CStr) -> io::Result<()> {
        self.remove_extended(number, name)
    }

    fn opendir(&self, _: &Context, number: u64, _: u32) -> io::Result<(Option<u64>, OpenOptions)> {
        Ok((Some(self.open_directory(number)?), OpenOptions::empty()))
    }

    fn readdir(
        &self,
        _: &Context,
        number: u64,
        handle: u64,
        size: u32,
        offset: u64,
        add: &mut dyn FnMut(DirEntry<'_>) -> io::Result<usize>,
    ) -> io::Result<()> {
        self.read_directory(number, handle, size, offset, add)
    }

    fn readdirplus(
        &self,
        _: &Context,
        number: u64,
        handle: u64,
        size: u32,
        offset: u64,
        add: &mut dyn FnMut(DirEntry<'_>, Entry) -> io::Result<usize>,
    ) -> io::Result<()> {
        self.read_directory_plus(number, handle, size, offset, add)
    }

    fn fsyncdir(&self, _: &Context, _: u64, _: bool, handle: u64) -> io::Result<()> {
        self.sync_directory(handle)
    }

    fn releasedir(&self, _: &Context, _: u64, _: u32, handle: u64) -> io::Result<()> {
        self.streams.close(handle);
        Ok(())
    }
}
