//! Why there is no mount, told so that the user knows what to do about it.
#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;

/// Why a directory could not be mounted, or not be unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE, or a container hides it.
    #[error(
        "there is no /dev/fuse; load the module (modprobe fuse), or give the container the device"
    )]
    NoDevice,
    /// The device exists, but not for this user.
    #[error("/dev/fuse: {0}; run as root, or have the device readable and writable for this user")]
    Device(io::Error),
    /// Only root may mount without the helper.
    #[error(
        "an ordinary user needs fusermount3 to mount; install the package fuse3, or run as root"
    )]
    NoHelper,
    /// The source cannot be used.
    #[error("source {path}: {source}; name a directory that this user can read")]
    Source {
        /// As it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The mount point cannot be used.
    #[error("mount point {path}: {source}; name a directory that exists (mkdir it first)")]
    MountPoint {
        /// As it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file system would contain itself.
    #[error(
        "{mountpoint} and {source_dir} lie within each other: the mount would wait for itself; \
         choose a mount point outside the source, and not above it"
    )]
    Nested {
        /// The mount point, resolved.
        mountpoint: PathBuf,
        /// The source, resolved.
        source_dir: PathBuf,
    },
    /// The kernel or the helper said no.
    #[error(
        "mounting on {path}: {reason}; see whether something is mounted there already (findmnt), \
         and what dmesg says"
    )]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// In their words.
        reason: String,
    },
    /// It is mounted, but the kernel and we do not understand each other.
    #[error("the kernel did not begin to talk within {0} s; Linux 5.10 or later is needed")]
    Silent(u64),
    /// No thread, no descriptor.
    #[error("starting to serve: {0}; raise the limits of this user (ulimit -n, ulimit -u)")]
    Resources(#[from] io::Error),
    /// The mount stays.
    #[error("unmounting {path}: {reason}; try umount -l, or fusermount3 -u -z")]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// In their words.
        reason: String,
    },
}
