//! Attributes of an object of the source, in the kernel's form, and the mark by which changes show.
#![forbid(unsafe_code)]

use fuse_backend_rs::abi::fuse_abi::{stat64, Attr};
use rustix::fs::{makedev, statx, AtFlags, Statx, StatxFlags, StatxTimestamp};
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;

/// A moment, in nanoseconds since 1970.
fn nanoseconds(time: StatxTimestamp) -> i128 {
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// What differs after a file was changed. Equal stamps mean equal contents, as far as the source's clock is
/// fine enough (Linux 6.13 made it so on most file systems; before, changes within the same 4 ms look alike).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Last change of the contents, in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Last change of contents or attributes, likewise.
    pub ctime_ns: i128,
    /// Bytes.
    pub size: u64,
    /// When the file was made, where the source knows: tells apart files that had the same inode.
    pub birth_ns: Option<i128>,
}

/// What two stamps differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    None,
    /// Only the time of the last change of anything: attributes, links, or contents whose time was set back.
    Attributes,
    Contents,
}

impl Stamp {
    pub(super) fn compare(&self, later: &Stamp) -> Change {
        let same_contents = Stamp {
            ctime_ns: later.ctime_ns,
            ..*self
        };
        match () {
            () if self == later => Change::None,
            () if same_contents == *later => Change::Attributes,
            () => Change::Contents,
        }
    }
}

/// Which object it is, among all of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
}

/// Attributes as `statx` tells them.
#[derive(Clone, Copy)]
pub struct Stat(Statx);

impl Stat {
    /// Of the object that is open here, be it with `O_PATH` only.
    pub fn of(file: impl AsFd) -> io::Result<Stat> {
        Stat::at(file, c"", AtFlags::EMPTY_PATH)
    }

    /// Of what has this name in this directory, symbolic links as themselves.
    pub fn named(directory: impl AsFd, name: &CStr) -> io::Result<Stat> {
        Stat::at(directory, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn at(file: impl AsFd, name: &CStr, flags: AtFlags) -> io::Result<Stat> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        Ok(Stat(statx(file, name, flags, wanted)?))
    }

    pub fn identity(&self) -> Identity {
        Identity {
            device: makedev(self.0.stx_dev_major, self.0.stx_dev_minor),
            inode: self.0.stx_ino,
        }
    }

    pub fn stamp(&self) -> Stamp {
        let has_birth = self.0.stx_mask & StatxFlags::BTIME.bits() != 0;
        Stamp {
            mtime_ns: nanoseconds(self.0.stx_mtime),
            ctime_ns: nanoseconds(self.0.stx_ctime),
            size: self.0.stx_size,
            birth_ns: has_birth.then(|| nanoseconds(self.0.stx_btime)),
        }
    }

    /// For the protocol: number and generation together are never used for two objects.
    pub fn generation(&self) -> u64 {
        self.stamp().birth_ns.unwrap_or(0) as u64
    }

    pub fn size(&self) -> u64 {
        self.0.stx_size
    }

    /// File type and permissions.
    pub fn mode(&self) -> u32 {
        u32::from(self.0.stx_mode)
    }

    pub fn uid(&self) -> u32 {
        self.0.stx_uid
    }

    pub fn links(&self) -> u32 {
        self.0.stx_nlink
    }

    pub fn is_directory(&self) -> bool {
        self.mode() & libc::S_IFMT == libc::S_IFDIR
    }

    pub fn is_file(&self) -> bool {
        self.mode() & libc::S_IFMT == libc::S_IFREG
    }

    /// For the protocol, with the inode number that programs see.
    pub fn attributes(&self, shown_inode: u64) -> stat64 {
        let stat = &self.0;
        let attributes = Attr {
            ino: shown_inode,
            size: stat.stx_size,
            blocks: stat.stx_blocks,
            atime: stat.stx_atime.tv_sec as u64,
            mtime: stat.stx_mtime.tv_sec as u64,
            ctime: stat.stx_ctime.tv_sec as u64,
            atimensec: stat.stx_atime.tv_nsec,
            mtimensec: stat.stx_mtime.tv_nsec,
            ctimensec: stat.stx_ctime.tv_nsec,
            mode: self.mode(),
            nlink: stat.stx_nlink,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            // The protocol has 32 bits, in which all devices of Linux fit.
            rdev: makedev(stat.stx_rdev_major, stat.stx_rdev_minor) as u32,
            blksize: stat.stx_blksize,
            flags: 0,
        };
        attributes.into()
    }
}
