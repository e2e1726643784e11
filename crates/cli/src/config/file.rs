//! Which file of settings is read, and whether it may be.
//!
//! What stands in it steers a job with the rights of who runs it: it can have a file overwritten (`stats`), memory written
//! to a disk in plain (`swap-plain`), a directory shown to others. So a file counts only if nobody but that user and root
//! can have written it, and none is taken from the working directory, which may be a stranger's: an unpacked archive, a
//! cloned repository, /tmp.

use std::env;
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Below the directory of the user's settings.
const NAME: &str = "pleat/pleat.toml";
/// Nobody writes so much by hand.
const BYTES_MAX: u64 = 1 << 20;
/// Who else than the owner may write.
const BY_OTHERS: u32 = 0o022;

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system says so.
    #[error("{}: cannot be read: {source}: give another with --config, or say --no-config", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directory, a device, a pipe.
    #[error("{}: is no ordinary file: give another with --config, or say --no-config", .0.display())]
    NoFile(PathBuf),
    /// It is another's.
    #[error(
        "{}: is not read, as it belongs to user {owner}, not to user {user} or root: make one of your own, or say --no-config",
        path.display()
    )]
    Foreign {
        /// Which.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who runs pleat.
        user: u32,
    },
    /// Others can change it.
    #[error("{path}: is not read, as others than its owner can write to it: chmod go-w {path}", path = path.display())]
    Writable {
        /// Which.
        path: PathBuf,
    },
    /// It cannot be settings.
    #[error("{}: is larger than {} KiB, and so no file of settings: give another with --config, or say --no-config", .0.display(), BYTES_MAX >> 10)]
    TooLarge(PathBuf),
}

/// The user's own file, if there is one to be seen.
///
/// # Errors
/// It is there, but cannot or must not be read.
pub fn read_own(user: u32) -> Result<Option<(PathBuf, String)>, FileError> {
    let Some(path) = own_path(env::var_os("XDG_CONFIG_HOME"), env::var_os("HOME")) else {
        return Ok(None);
    };
    match read(&path, user) {
        Err(FileError::Unreadable { .. }) if is_absent(&path) => Ok(None),
        read => read.map(|text| Some((path, text))),
    }
}

/// $HOME is often still root's where a service has given up root: that it cannot be looked into is no mistake.
fn is_absent(path: &Path) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    let looked = path.metadata().map_err(|error| error.kind());
    matches!(looked, Err(NotADirectory | NotFound | PermissionDenied))
}

/// By the XDG base directories: only an absolute path counts there.
fn own_path(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |dir: Option<OsString>| dir.map(PathBuf::from).filter(|dir| dir.is_absolute());
    let dir = absolute(xdg).or_else(|| Some(absolute(home)?.join(".config")));
    Some(dir?.join(NAME))
}

/// A file's text, if `user` may trust it. What is looked at is what was opened, whatever its name leads to later.
///
/// # Errors
/// It cannot or must not be read.
pub fn read(path: &Path, user: u32) -> Result<String, FileError> {
    let unreadable = |source| FileError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = open(path).map_err(unreadable)?;
    check(path, &file.metadata().map_err(unreadable)?, user)?;
    let mut text = String::new();
    file.take(BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    match text.len() as u64 > BYTES_MAX {
        true => Err(FileError::TooLarge(path.to_owned())),
        false => Ok(text),
    }
}

/// A pipe that nobody writes to must not keep pleat waiting.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
}

fn check(path: &Path, status: &Metadata, user: u32) -> Result<(), FileError> {
    let path = path.to_owned();
    let owner = status.uid();
    match () {
        () if !status.is_file() => Err(FileError::NoFile(path)),
        () if owner != user && owner != 0 => Err(FileError::Foreign { path, owner, user }),
        () if status.mode() & BY_OTHERS != 0 => Err(FileError::Writable { path }),
        () => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    /// A file of this user's with these rights.
    fn file(mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, "memory = '1G'\n").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        file
    }

    fn owner(file: &tempfile::NamedTempFile) -> u32 {
        fs::metadata(file).unwrap().uid()
    }

    #[test]
    fn a_file_of_ones_own_is_read() {
        for mode in [0o600, 0o644, 0o444] {
            let file = file(mode);
            assert_eq!(read(file.path(), owner(&file)).unwrap(), "memory = '1G'\n");
        }
    }

    #[test]
    fn one_that_others_can_write_is_not_and_the_remedy_mends_it() {
        for mode in [0o664, 0o646, 0o666, 0o602] {
            let file = file(mode);
            let error = read(file.path(), owner(&file)).unwrap_err().to_string();
            let (_, remedy) = error.rsplit_once(": ").unwrap();
            assert!(remedy.starts_with("chmod go-w /"), "{error}");
            let mended = std::process::Command::new("sh")
                .args(["-c", remedy])
                .status();
            assert!(mended.unwrap().success());
            assert!(read(file.path(), owner(&file)).is_ok());
        }
    }

    #[test]
    fn one_of_another_user_is_not_but_for_roots() {
        let file = file(0o644);
        let owner = owner(&file);
        let another = owner + 1;
        match (owner, read(file.path(), another)) {
            (0, read) => assert!(read.is_ok(), "root's is everybody's"),
            (_, read) => assert!(matches!(read, Err(FileError::Foreign { .. }))),
        }
        // Whoever else it is: as seen by a user who is neither.
        if owner == 0 {
            std::os::unix::fs::chown(file.path(), Some(4711), None).unwrap();
            let error = read(file.path(), 0).unwrap_err().to_string();
            assert!(
                error.contains("belongs to user 4711, not to user 0"),
                "{error}"
            );
            assert!(error.contains("--no-config"), "{error}");
            assert!(read(file.path(), 4711).is_ok());
        }
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success());
        let user = fs::metadata(&pipe).unwrap().uid();
        for path in [pipe.as_path(), dir.path(), Path::new("/dev/null")] {
            assert!(
                matches!(read(path, user), Err(FileError::NoFile(_))),
                "{path:?}"
            );
        }
    }

    #[test]
    fn a_file_that_cannot_be_settings_is_not_read_to_its_end() {
        let file = file(0o600);
        file.as_file().set_len(1 << 40).unwrap();
        let error = read(file.path(), owner(&file)).unwrap_err();
        assert!(matches!(error, FileError::TooLarge(_)), "{error}");
    }

    #[test]
    fn the_users_own_file_is_where_xdg_says_else_in_the_home_directory() {
        let path = |xdg: &str, home: &str| own_path(Some(xdg.into()), Some(home.into()));
        let expect = |text: &str| Some(PathBuf::from(text));
        assert_eq!(path("/x", "/h"), expect("/x/pleat/pleat.toml"));
        assert_eq!(path("", "/h"), expect("/h/.config/pleat/pleat.toml"));
        assert_eq!(path("x", "/h"), expect("/h/.config/pleat/pleat.toml"));
        assert_eq!(path("x", ""), None);
        assert_eq!(own_path(None, None), None);
    }
}
