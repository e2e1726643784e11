//! Makes the file that pages go to: one without a name, that only this user can open and that
//! vanishes with the process.
#![forbid(unsafe_code)]

use crate::error::{BackingError, Operation, Site};
use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const NAME_ATTEMPTS_MAX: u32 = 16;

/// What messages call the swap file in `dir`.
pub fn name_in(dir: &Path) -> String {
    format!("swap file in {}", dir.display())
}

/// Makes one in `dir`.
///
/// # Errors
/// Whatever the system answers, when `dir` is no directory one can write to.
pub fn create(dir: &Path) -> Result<File, BackingError> {
    open_unnamed(dir)
        .or_else(|error| match error.raw_os_error() {
            // File systems without O_TMPFILE, and kernels that see only its O_DIRECTORY part.
            Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL) => open_and_unlink(dir),
            _ => Err(error),
        })
        .map_err(|error| {
            let site = Site {
                operation: Operation::Create,
                name: name_in(dir),
                offset: None,
            };
            BackingError::new(site, error)
        })
}

/// A file that never has a name. O_EXCL keeps it from being given one. (std adds O_CLOEXEC.)
fn open_unnamed(dir: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_TMPFILE | libc::O_EXCL)
        .open(dir)
}

/// The same where the file system needs a name: one that nobody can guess, for a moment.
fn open_and_unlink(dir: &Path) -> io::Result<File> {
    let mut last = io::Error::from_raw_os_error(libc::EEXIST);
    for attempt in 0..NAME_ATTEMPTS_MAX {
        let name = format!(".pleat-swap-{:016x}", RandomState::new().hash_one(attempt));
        let path = dir.join(name);
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path);
        match opened {
            Ok(file) => return fs::remove_file(&path).map(|()| file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn nobody_else_can_find_or_open_the_file() {
        let dir = tempfile::tempdir().unwrap();
        for file in [
            open_unnamed(dir.path()).unwrap(),
            open_and_unlink(dir.path()).unwrap(),
        ] {
            let metadata = file.metadata().unwrap();
            assert_eq!(metadata.mode() & 0o777, 0o600);
            assert_eq!(metadata.nlink(), 0);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_is_not_there_is_named_with_a_remedy() {
        let message = create(Path::new("/nonexistent/dir"))
            .err()
            .unwrap()
            .to_string();
        assert!(
            message.contains("/nonexistent/dir, creating it"),
            "{message}"
        );
        assert!(message.contains("--swap-dir"), "{message}");
    }
}
