//! Where control sockets lie: a directory for each user, in which nobody else can look or put anything.
//!
//! It is opened without following links, looked at by its descriptor, and used through that: whatever is put in its place
//! later, what was looked at is what is used.

use pleat_sys::local::effective_user;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How the names of sockets end; the supervisor's process id stands before it.
const SUFFIX: &str = ".sock";
/// So long a supervisor that has made its socket may take to listen there.
const NEW_FOR: Duration = Duration::from_secs(10);
/// Sockets looked at in one directory.
const SOCKETS_MAX: usize = 1024;

/// A user's directory of control sockets.
#[derive(Debug)]
pub struct Place {
    dir: File,
    path: PathBuf,
    uid: u32,
}

impl Place {
    /// This user's directory, made if it is not there: the first of those there are that can be had.
    ///
    /// # Errors
    /// Why none can, with what helps.
    pub fn make() -> Result<Place, String> {
        let uid = effective_user();
        let mut why = String::new();
        for path in own_paths(uid) {
            let made = DirBuilder::new().mode(0o700).create(&path);
            let found = match made {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    Err(format!("{}: {error}", path.display()))
                }
                _ => Place::open(&path, uid),
            };
            match found {
                Ok(place) => return Ok(place),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// The directories there are whose sockets this user may use: root those of all users.
    pub fn all() -> Vec<Place> {
        let uid = effective_user();
        let mut paths: Vec<(PathBuf, u32)> = Vec::new();
        paths.extend(own_paths(uid).map(|path| (path, uid)));
        if uid == 0 {
            paths.extend(numbered("/run/user", "", "/pleat"));
            paths.extend(numbered("/tmp", "pleat-", ""));
        } else {
            paths.push((format!("/run/user/{uid}/pleat").into(), uid));
        }
        paths.sort();
        paths.dedup();
        let open = |(path, uid): (PathBuf, u32)| Place::open(&path, uid).ok();
        paths.into_iter().filter_map(open).collect()
    }

    /// # Errors
    /// There is none, or it is not one that only this user can have made: why.
    pub(super) fn open(path: &Path, uid: u32) -> Result<Place, String> {
        let why = |what: String| format!("{}: {what}", path.display());
        let dir = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
            .open(path)
            .map_err(|error| why(error.to_string()))?;
        let found = dir.metadata().map_err(|error| why(error.to_string()))?;
        if found.uid() != uid || found.mode() & 0o077 != 0 {
            return Err(why(format!(
                "it belongs to user {} with mode {:03o}, and not to user {uid} alone; remove it, or set it to mode 700",
                found.uid(),
                found.mode() & 0o777
            )));
        }
        Ok(Place {
            dir,
            path: path.to_owned(),
            uid,
        })
    }

    /// The user whose it is.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The path of a supervisor's socket as it is shown.
    pub fn shown(&self, pid: i32) -> PathBuf {
        self.path.join(name_of(pid))
    }

    /// The same by way of the directory that was looked at. It is short enough for any address.
    pub fn socket(&self, pid: i32) -> PathBuf {
        let dir = format!("/proc/self/fd/{}", self.dir.as_raw_fd());
        Path::new(&dir).join(name_of(pid))
    }

    /// Process ids of the supervisors that have a socket here.
    pub fn supervisors(&self) -> Vec<i32> {
        let dir = format!("/proc/self/fd/{}", self.dir.as_raw_fd());
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let sockets = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
        let pids = sockets.filter_map(|entry| {
            let name = entry.file_name();
            let pid: i32 = name.to_str()?.strip_suffix(SUFFIX)?.parse().ok()?;
            (pid > 0).then_some(pid)
        });
        pids.take(SOCKETS_MAX).collect()
    }

    /// The same directory once more.
    ///
    /// # Errors
    /// When no descriptor can be had.
    pub fn try_clone(&self) -> io::Result<Place> {
        Ok(Place {
            dir: self.dir.try_clone()?,
            path: self.path.clone(),
            uid: self.uid,
        })
    }

    /// Removes a socket on which nobody listens, unless its supervisor is just about to.
    pub fn remove_if_stale(&self, pid: i32) {
        let found = fs::symlink_metadata(self.socket(pid));
        let age = found
            .and_then(|found| found.modified())
            .map(|at| at.elapsed());
        let is_old = age.is_ok_and(|age| age.is_ok_and(|age| age > NEW_FOR));
        if is_old || !Path::new(&format!("/proc/{pid}")).exists() {
            self.remove(pid);
        }
    }

    /// Removes the socket of a supervisor.
    pub fn remove(&self, pid: i32) {
        let path = self.socket(pid);
        let kind = fs::symlink_metadata(&path).map(|found| found.file_type());
        if kind.is_ok_and(|kind| kind.is_socket()) {
            // Somebody else may have done so.
            let _ = fs::remove_file(path);
        }
    }
}

fn name_of(pid: i32) -> String {
    format!("{pid}{SUFFIX}")
}

/// Where this user's directory may be, best first.
fn own_paths(uid: u32) -> impl Iterator<Item = PathBuf> {
    let first = match uid {
        0 => Some("/run/pleat".into()),
        _ => runtime_dir(uid).map(|dir| dir.join("pleat")),
    };
    first
        .into_iter()
        .chain([format!("/tmp/pleat-{uid}").into()])
}

/// `$XDG_RUNTIME_DIR`, if it is this user's.
fn runtime_dir(uid: u32) -> Option<PathBuf> {
    let dir = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    let found = fs::metadata(&dir).ok()?;
    let is_own = dir.is_absolute() && found.is_dir() && found.uid() == uid;
    is_own.then_some(dir)
}

/// What lies in `dir` and has a user's number in its name, with that number.
fn numbered(dir: &str, prefix: &str, suffix: &str) -> Vec<(PathBuf, u32)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let uid: u32 = name.strip_prefix(prefix)?.parse().ok()?;
        Some((format!("{dir}/{name}{suffix}").into(), uid))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{symlink, PermissionsExt};
    use std::os::unix::net::UnixListener;

    fn refused(path: &Path) -> String {
        Place::open(path, effective_user()).expect_err("must be refused")
    }

    #[test]
    fn a_directory_is_used_only_if_nobody_else_can_have_put_something_there() {
        let dir = tempfile::tempdir().unwrap();
        let (open, link) = (dir.path().join("open"), dir.path().join("link"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o750)).unwrap();
        assert!(refused(&open).contains("750"));
        fs::set_permissions(&open, Permissions::from_mode(0o700)).unwrap();
        Place::open(&open, effective_user()).unwrap();
        assert!(Place::open(&open, effective_user() + 1).is_err());
        symlink(&open, &link).unwrap();
        refused(&link);
        fs::write(dir.path().join("file"), "").unwrap();
        refused(&dir.path().join("file"));
    }

    #[test]
    fn sockets_are_found_by_their_names_and_nothing_else_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        let place = Place::open(dir.path(), effective_user()).unwrap();
        let _listener = UnixListener::bind(place.socket(4711)).unwrap();
        for name in ["12.sock", "x.sock", "13"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(place.supervisors(), [4711]);
        place.remove(12);
        place.remove(4711);
        assert!(dir.path().join("12.sock").exists());
        assert!(!place.shown(4711).exists());
    }
}
