//! Changing attributes and size.
#![forbid(unsafe_code)]

use super::source::path_of;
use super::{Node, Tree};
use fuse_backend_rs::abi::fuse_abi::{stat64, SetattrValid};
use rustix::fs::{
    chmodat, chownat, utimensat, AtFlags, FallocateFlags, Gid, Mode, SeekFrom, Timespec,
    Timestamps, Uid, CWD, UTIME_NOW, UTIME_OMIT,
};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

impl Tree {
    pub(super) fn set_attributes(
        &self,
        number: u64,
        wish: stat64,
        valid: SetattrValid,
    ) -> io::Result<(stat64, Duration)> {
        let node = self.known(number)?;
        {
            let _ours = node.changing();
            self.apply(&node, &wish, valid)?;
        }
        let trust = self.trust_in(&node);
        let stat = node.stat()?;
        let timeout = self.attr_timeout(&node, &stat, trust);
        Ok((stat.attributes(node.shown_inode()), timeout))
    }

    /// In this order: a change of owner clears bits of the mode, one of size changes times.
    fn apply(&self, node: &Node, wish: &stat64, valid: SetattrValid) -> io::Result<()> {
        if valid.intersects(SetattrValid::UID | SetattrValid::GID) {
            let uid = valid
                .contains(SetattrValid::UID)
                .then(|| Uid::from_raw(wish.st_uid));
            let gid = valid
                .contains(SetattrValid::GID)
                .then(|| Gid::from_raw(wish.st_gid));
            chownat(&*node.place()?, c"", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if valid.contains(SetattrValid::MODE) {
            self.set_mode(node, wish.st_mode)?;
        }
        if valid.contains(SetattrValid::SIZE) {
            self.resize(node, wish.st_size as u64)?;
        }
        if valid.contains(SetattrValid::KILL_SUIDGID) {
            self.drop_privileges(node)?;
        }
        if valid.intersects(SetattrValid::ATIME | SetattrValid::MTIME) {
            set_times(node, wish, valid)?;
        }
        Ok(())
    }

    fn set_mode(&self, node: &Node, mode: u32) -> io::Result<()> {
        if !self.is_root && node.is_file() && mode & 0o600 != 0o600 {
            // Programs that have it open go on reading and writing; it could not be opened later.
            node.keep_open();
        }
        let mode = Mode::from_raw_mode(mode & 0o7777);
        // By way of /proc: a descriptor with O_PATH is not enough for fchmod.
        let place = node.place()?;
        Ok(chmodat(
            CWD,
            path_of(place.as_fd()),
            mode,
            AtFlags::empty(),
        )?)
    }

    /// Cuts the file off, or adds zeros.
    pub(super) fn resize(&self, node: &Node, size: u64) -> io::Result<()> {
        let source = node.writing()?;
        let _ours = node.changing();
        let range = node.size()?.min(size)..u64::MAX;
        self.content
            .alter(node, range, &mut || source.file().set_len(size))
    }

    /// What the kernel does on a native file system when somebody else than root writes. (Capabilities in
    /// extended attributes the source's kernel takes away at every write.)
    pub(super) fn drop_privileges(&self, node: &Node) -> io::Result<()> {
        let mode = node.stat()?.mode();
        let mut kept = mode & !libc::S_ISUID;
        // Without the group's right to execute, this bit means mandatory locking.
        if mode & libc::S_IXGRP != 0 {
            kept &= !libc::S_ISGID;
        }
        if kept != mode {
            let mode = Mode::from_raw_mode(kept & 0o7777);
            let place = node.place()?;
            chmodat(CWD, path_of(place.as_fd()), mode, AtFlags::empty())?;
        }
        Ok(())
    }

    pub(super) fn allocate(
        &self,
        number: u64,
        mode: u32,
        offset: u64,
        len: u64,
        by_root: bool,
    ) -> io::Result<()> {
        let node = self.known(number)?;
        let source = node.writing()?;
        let _ours = node.changing();
        let flags = FallocateFlags::from_bits_retain(mode);
        let moves = FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE;
        let end = if flags.intersects(moves) {
            u64::MAX
        } else {
            offset.saturating_add(len)
        };
        self.content.alter(&node, offset..end, &mut || {
            Ok(rustix::fs::fallocate(source.file(), flags, offset, len)?)
        })?;
        if by_root {
            Ok(())
        } else {
            self.drop_privileges(&node)
        }
    }

    /// Where the next data or hole is.
    pub(super) fn seek(&self, number: u64, offset: u64, whence: u32) -> io::Result<u64> {
        let source = self.known(number)?.reading()?;
        let target = match whence as i32 {
            libc::SEEK_DATA => SeekFrom::Data(offset),
            libc::SEEK_HOLE => SeekFrom::Hole(offset),
            // All others need nothing but the size, which the kernel has.
            _ => return Err(super::errno(libc::EINVAL)),
        };
        // Moves the descriptor's position, which nobody uses.
        Ok(rustix::fs::seek(source.file(), target)?)
    }
}

fn set_times(node: &Node, wish: &stat64, valid: SetattrValid) -> io::Result<()> {
    let time = |set, now, sec, nsec| Timespec {
        tv_sec: sec,
        tv_nsec: match (valid.contains(set), valid.contains(now)) {
            (false, _) => UTIME_OMIT,
            (true, true) => UTIME_NOW,
            (true, false) => nsec,
        },
    };
    let times = Timestamps {
        last_access: time(
            SetattrValid::ATIME,
            SetattrValid::ATIME_NOW,
            wish.st_atime,
            wish.st_atime_nsec,
        ),
        last_modification: time(
            SetattrValid::MTIME,
            SetattrValid::MTIME_NOW,
            wish.st_mtime,
            wish.st_mtime_nsec,
        ),
    };
    Ok(utimensat(
        &*node.place()?,
        c"",
        &times,
        AtFlags::EMPTY_PATH,
    )?)
}
