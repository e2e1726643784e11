//! What `pleat run --mount SOURCE:MOUNTPOINT` means on this machine.
//!
//! Refused is what would make pleat wait for itself (a swap file in what it serves), and what hides files
//! that somebody is bound to miss.

use pleat_mount::MountOptions;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The agent knows no more devices.
const MOUNTS_MAX: usize = pleat_wire::DEVICES_MAX;

/// A directory to be shown while the job runs; both resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobMount {
    /// Which.
    pub source: PathBuf,
    /// Where.
    pub mountpoint: PathBuf,
    /// Nothing can be changed through it.
    pub read_only: bool,
}

/// What is wrong with one; the message names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum JobMountError {
    /// Not of the form.
    #[error(
        "--mount {0}: write SOURCE:MOUNTPOINT, or SOURCE:MOUNTPOINT:ro so that nothing can be changed \
         through it; neither may have a colon"
    )]
    Form(String),
    /// No such directory to show.
    #[error("--mount: source {path}: {source}; name a directory that this user can read")]
    Source {
        /// As given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No such directory to show it in.
    #[error(
        "--mount: mount point {path}: {source}; name a directory that exists (mkdir it first)"
    )]
    MountPoint {
        /// As given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Left behind by a server that died.
    #[error("--mount: on {0} is a mount whose server has died; unmount it first (umount, or fusermount3 -u)")]
    Dead(PathBuf),
    /// Something is mounted there.
    #[error(
        "--mount: on {0} something is mounted already; unmount it, or choose another mount point"
    )]
    Busy(PathBuf),
    /// Files are there.
    #[error("--mount: mount point {0} is not empty, and what is in it would be hidden; name an empty directory")]
    NotEmpty(PathBuf),
    /// Two that do not go together, or one with itself.
    #[error(
        "--mount: {0} and {1} lie within each other; choose mount points outside of all sources and of \
         each other"
    )]
    Nested(PathBuf, PathBuf),
    /// Too many.
    #[error("--mount: at most {MOUNTS_MAX} are possible")]
    TooMany,
    /// Something that pleat itself needs would be hidden or, worse, served by itself.
    #[error("{what} {path} lies below the mount point {mountpoint}, and pleat would wait for itself; {remedy}")]
    Inside {
        /// What it is.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// Below which.
        mountpoint: PathBuf,
        /// What to do.
        remedy: &'static str,
    },
}

impl JobMount {
    /// Settles what was typed.
    ///
    /// # Errors
    /// The first mistake.
    pub fn resolve_all(typed: &[OsString]) -> Result<Vec<JobMount>, JobMountError> {
        if typed.len() > MOUNTS_MAX {
            return Err(JobMountError::TooMany);
        }
        let resolved: Result<Vec<JobMount>, _> =
            typed.iter().map(|text| JobMount::resolve(text)).collect();
        let mounts = resolved?;
        refuse_nesting(&mounts)?;
        Ok(mounts)
    }

    fn resolve(text: &OsStr) -> Result<JobMount, JobMountError> {
        let (source, mountpoint, read_only) =
            split(text).ok_or_else(|| JobMountError::Form(text.to_string_lossy().into_owned()))?;
        Ok(JobMount {
            source: resolve_source(source)?,
            mountpoint: resolve_mountpoint(mountpoint)?,
            read_only,
        })
    }

    /// For the mount.
    pub fn options(&self) -> MountOptions {
        let mut options = MountOptions::new(&self.source, &self.mountpoint);
        options.read_only = self.read_only;
        options
    }
}

/// Refuses a file or directory of pleat's own that lies below one of the mount points.
///
/// # Errors
/// It does.
pub fn refuse_inside(
    mounts: &[JobMount],
    what: &'static str,
    path: &Path,
    remedy: &'static str,
) -> Result<(), JobMountError> {
    // A file need not exist yet.
    let resolved = path.canonicalize().or_else(|_| {
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        parent.unwrap_or(Path::new(".")).canonicalize()
    });
    let Ok(resolved) = resolved else {
        // Whoever opens it finds out, and knows better why.
        return Ok(());
    };
    match mounts
        .iter()
        .find(|mount| resolved.starts_with(&mount.mountpoint))
    {
        None => Ok(()),
        Some(mount) => Err(JobMountError::Inside {
            what,
            path: path.to_owned(),
            mountpoint: mount.mountpoint.clone(),
            remedy,
        }),
    }
}

fn split(text: &OsStr) -> Option<(&Path, &Path, bool)> {
    let parts: Vec<&[u8]> = text.as_bytes().split(|&byte| byte == b':').collect();
    let path = |bytes| Path::new(OsStr::from_bytes(bytes));
    let (source, mountpoint, read_only) = match parts[..] {
        [source, mountpoint] => (source, mountpoint, false),
        [source, mountpoint, b"ro"] => (source, mountpoint, true),
        _ => return None,
    };
    let is_complete = !source.is_empty() && !mountpoint.is_empty();
    is_complete.then(|| (path(source), path(mountpoint), read_only))
}

fn resolve_source(path: &Path) -> Result<PathBuf, JobMountError> {
    directory(path).map_err(|source| JobMountError::Source {
        path: path.to_owned(),
        source,
    })
}

/// Resolves a directory that can be read.
fn directory(path: &Path) -> io::Result<PathBuf> {
    let path = path.canonicalize()?;
    std::fs::read_dir(&path)?;
    Ok(path)
}

fn resolve_mountpoint(given: &Path) -> Result<PathBuf, JobMountError> {
    let looked = directory(given).and_then(|path| {
        let is_empty = std::fs::read_dir(&path)?.next().is_none();
        let device = |path: &Path| Ok::<u64, io::Error>(std::fs::metadata(path)?.dev());
        let parent = path.parent().unwrap_or(&path);
        let is_mounted = device(parent)? != device(&path)?;
        Ok((path, is_empty, is_mounted))
    });
    match looked {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            Err(JobMountError::Dead(given.to_owned()))
        }
        Err(source) => Err(JobMountError::MountPoint {
            path: given.to_owned(),
            source,
        }),
        Ok((path, _, true)) => Err(JobMountError::Busy(path)),
        Ok((path, false, _)) => Err(JobMountError::NotEmpty(path)),
        Ok((path, true, false)) => Ok(path),
    }
}

/// No mount point may lie within a source or another mount point, nor the other way round: mounts that are
/// read through each other could wait for themselves.
fn refuse_nesting(mounts: &[JobMount]) -> Result<(), JobMountError> {
    let overlap = |a: &Path, b: &Path| a.starts_with(b) || b.starts_with(a);
    for (at, mount) in mounts.iter().enumerate() {
        let point = &mount.mountpoint;
        let others = mounts[..at].iter().map(|other| &other.mountpoint);
        let sources = mounts.iter().map(|other| &other.source);
        if let Some(other) = others.chain(sources).find(|other| overlap(point, other)) {
            return Err(JobMountError::Nested(point.clone(), other.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(error: JobMountError) -> String {
        error.to_string()
    }

    #[test]
    fn source_and_mount_point_are_parted_by_a_colon() {
        let parts =
            |text| split(OsStr::new(text)).map(|(a, b, ro)| (a.to_owned(), b.to_owned(), ro));
        assert_eq!(parts("/a:/b"), Some(("/a".into(), "/b".into(), false)));
        assert_eq!(parts("a:b:ro"), Some(("a".into(), "b".into(), true)));
        for wrong in ["", "/a", "/a:", ":/b", "/a:/b:rw", "/a:/b:ro:", ":"] {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn each_mistake_names_its_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["source/deep", "point", "full"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        std::fs::write(at("full/file"), "").unwrap();
        let resolve = |source: &str, point: &str| {
            let mut typed = at(source).into_os_string();
            typed.push(":");
            typed.push(at(point));
            JobMount::resolve_all(&[typed])
        };
        assert_eq!(resolve("source", "point").unwrap().len(), 1);
        let failed = |source, point| text(resolve(source, point).unwrap_err());
        assert!(failed("none", "point").contains("none: No such file"));
        assert!(failed("source", "none").contains("mkdir it first"));
        assert!(failed("source", "full/file").contains("Not a directory"));
        assert!(failed("source", "full").contains("not empty"));
        assert!(failed("source", "source/deep").contains("within each other"));
    }

    #[test]
    fn what_pleat_needs_may_not_lie_in_what_it_serves() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let mounts = [JobMount {
            source: "/elsewhere".into(),
            mountpoint: dir.clone(),
            read_only: false,
        }];
        let refused = |path: &Path| refuse_inside(&mounts, "the file", path, "move it").is_err();
        assert!(refused(&dir) && refused(&dir.join("new")));
        assert!(!refused(dir.parent().unwrap()));
        assert!(!refused(Path::new("new")));
    }
}
