//! Which directory the swap file goes into, and whether it can be used.
//!
//! A directory is judged by writing to it, not by its mode bits, so read-only mounts, quotas and
//! access lists are seen before the job starts rather than in the middle of it.

use crate::probe;
use std::collections::hash_map::RandomState;
use std::fs::OpenOptions;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A directory in which files can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapDir {
    /// The directory, absolute: the job may change directories.
    pub path: PathBuf,
    /// Room on its disk for this user.
    pub free_bytes: u64,
    /// On tmpfs: a swap file there would eat the memory it is to save.
    pub in_memory: bool,
}

/// Why a directory is of no use.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to the swap directory {}: {source}", path.display())]
pub struct SwapDirError {
    path: PathBuf,
    source: io::Error,
}

/// Looks at a directory and makes a file in it for a moment.
///
/// # Errors
/// When there is no such directory or nothing can be created in it.
pub fn inspect(dir: &Path) -> Result<SwapDir, SwapDirError> {
    let look = || {
        let path = dir.canonicalize()?;
        try_to_create(&path)?;
        let filesystem = probe::filesystem(&path)?;
        Ok((path, filesystem))
    };
    let (path, filesystem) = look().map_err(|source| SwapDirError {
        path: dir.to_owned(),
        source,
    })?;
    Ok(SwapDir {
        path,
        free_bytes: filesystem.free_bytes,
        in_memory: filesystem.in_memory,
    })
}

/// The first of `candidates` that can be written and is not memory itself; if there is none,
/// why each was passed over.
///
/// # Errors
/// One reason per candidate.
pub fn first_usable(candidates: &[PathBuf]) -> Result<SwapDir, String> {
    let mut reasons = Vec::new();
    for dir in candidates {
        match inspect(dir) {
            Ok(found) if !found.in_memory => return Ok(found),
            Ok(found) => reasons.push(format!("{} is in memory (tmpfs)", found.path.display())),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(reasons.join("; "))
}

/// Where a swap file goes when nobody says: `$TMPDIR`, then `/var/tmp`, which by convention is on
/// a disk where `/tmp` often is not.
pub fn default_candidates(tmpdir: Option<PathBuf>) -> Vec<PathBuf> {
    let tmpdir = tmpdir.filter(|dir| !dir.as_os_str().is_empty());
    tmpdir
        .into_iter()
        .chain([PathBuf::from("/var/tmp")])
        .collect()
}

fn try_to_create(dir: &Path) -> io::Result<()> {
    // Random, because containers that share a directory also share process ids.
    let random = RandomState::new().build_hasher().finish();
    let path = dir.join(format!(".pleat-{random:016x}"));
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_and_a_file_are_refused_by_name() {
        let missing = inspect(Path::new("/nonexistent/swap"))
            .unwrap_err()
            .to_string();
        assert!(missing.contains("/nonexistent/swap") && missing.contains("No such file"));
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(inspect(file.path())
            .unwrap_err()
            .to_string()
            .contains("Not a directory"));
    }

    #[test]
    fn inspecting_leaves_nothing_behind() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        inspect(dir.path()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn memory_is_passed_over_for_a_disk() {
        let (memory, disk) = (PathBuf::from("/dev/shm"), PathBuf::from("/var/tmp"));
        let on_disk = |dir| inspect(dir).is_ok_and(|found| !found.in_memory);
        if !inspect(&memory).is_ok_and(|found| found.in_memory) || !on_disk(&disk) {
            pleat_testing::skip("needs /dev/shm in memory and /var/tmp on a disk");
            return;
        }
        assert_eq!(
            first_usable(&[memory.clone(), disk.clone()]).unwrap().path,
            disk
        );
        assert!(first_usable(&[memory]).unwrap_err().contains("tmpfs"));
    }

    #[test]
    fn tmpdir_comes_before_var_tmp_unless_it_is_empty() {
        let candidates = |tmpdir: Option<&str>| default_candidates(tmpdir.map(PathBuf::from));
        assert_eq!(
            candidates(Some("/data")),
            [Path::new("/data"), Path::new("/var/tmp")]
        );
        assert_eq!(candidates(Some("")), [Path::new("/var/tmp")]);
        assert_eq!(candidates(None), [Path::new("/var/tmp")]);
    }
}
