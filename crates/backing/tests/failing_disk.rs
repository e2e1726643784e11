//! Disks that fill up or fail, for real: small file systems mounted for the length of a test.
//!
//! They need root; without it, or where mounting is forbidden, each test says that it was skipped.

use pleat_backing::{
    Backing, BackingError, Buffer, DirectFile, Patience, Queue, Request, Rings, Transfer,
};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const CANNOT_MOUNT: &str = "no file system can be mounted here";
const CLUSTER_BYTES: usize = 256 * 1024;

/// A mounted file system, unmounted when dropped (also by a failing test).
struct Mount(PathBuf);

impl Mount {
    fn new(point: PathBuf, arguments: &[&str]) -> Option<Mount> {
        fs::create_dir(&point).unwrap();
        run("mount", arguments, &point).then_some(Mount(point))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !run("umount", &[], &self.0) {
            run("umount", &["-l"], &self.0);
        }
    }
}

fn run(program: &str, arguments: &[&str], last: &Path) -> bool {
    let output = Command::new(program).args(arguments).arg(last).output();
    output.is_ok_and(|output| output.status.success())
}

fn cluster(number: u64) -> Vec<u8> {
    let word = (number + 1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .to_ne_bytes();
    word.repeat(CLUSTER_BYTES / word.len())
}

/// A swap file, one transfer at a time.
struct Swap {
    file: DirectFile,
    queue: Box<dyn Queue>,
}

impl Swap {
    fn create(dir: &Path) -> Swap {
        let file = DirectFile::create(dir, Rings::WherePossible).unwrap();
        let queue = file.queue(1).unwrap();
        Swap { file, queue }
    }

    fn run(
        &mut self,
        transfer: Transfer,
        number: u64,
        buffer: Buffer,
    ) -> Result<Buffer, BackingError> {
        let offset = number * CLUSTER_BYTES as u64;
        self.queue.submit(Request {
            id: number,
            transfer,
            offset,
            buffer,
        });
        let mut done = Vec::new();
        while done.is_empty() {
            let patience = Patience::Sleep(Duration::from_secs(1));
            self.queue.complete(patience, &mut done);
        }
        let done = done.remove(0);
        done.result.map(|()| done.buffer)
    }

    fn write(&mut self, number: u64, bytes: &[u8]) -> Result<(), BackingError> {
        let buffer = Buffer::from(bytes);
        self.run(Transfer::Write, number, buffer).map(drop)
    }

    fn read(&mut self, number: u64) -> Result<Vec<u8>, BackingError> {
        let buffer = Buffer::new(CLUSTER_BYTES);
        let read = self.run(Transfer::Read, number, buffer)?;
        Ok(read.to_vec())
    }

    /// Writes clusters until one is refused; returns how many were accepted and the refusal.
    fn write_until_refused(&mut self, clusters_max: u64) -> (u64, BackingError) {
        for number in 0..clusters_max {
            if let Err(error) = self.write(number, &cluster(number)) {
                return (number, error);
            }
        }
        panic!("{clusters_max} clusters were accepted");
    }
}

#[test]
fn a_full_disk_is_told_as_such_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["-t", "tmpfs", "-o", "size=3m", "tmpfs"];
    let Some(mount) = Mount::new(dir.path().join("small"), &options) else {
        return pleat_testing::skip(CANNOT_MOUNT);
    };
    let mut swap = Swap::create(&mount.0);
    let (accepted, error) = swap.write_until_refused(13);
    assert!(matches!(error, BackingError::NoSpace(_)), "{error}");
    assert!(
        error
            .to_string()
            .contains("no space left; free some space there"),
        "{error}"
    );
    assert!(accepted > 8, "only {accepted} clusters fitted into 3 MiB");
    for number in 0..accepted {
        assert!(swap.read(number).unwrap() == cluster(number));
    }
    let last = accepted - 1;
    let room = last * CLUSTER_BYTES as u64;
    swap.file.discard(room, CLUSTER_BYTES as u64).unwrap();
    swap.write(last, &cluster(77)).unwrap();
    assert!(swap.read(last).unwrap() == cluster(77));
}

/// The file system believes in 256 MiB, but the device under it has 8, the way a dying disk behaves. Past
/// the page cache it says so at once, but for the very last cluster, which it may take and tear: that
/// is what seals are for.
#[test]
fn a_disk_that_drops_writes_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let Some((_memory, disk)) = disk_that_drops_writes(dir.path()) else {
        return pleat_testing::skip(CANNOT_MOUNT);
    };
    let mut swap = Swap::create(&disk.0);
    if !swap.file.describe().contains("O_DIRECT") {
        return pleat_testing::skip(CANNOT_MOUNT);
    }
    let (accepted, error) = swap.write_until_refused(400);
    let told = error.to_string();
    assert!(told.contains("writing at byte"), "{told}");
    assert!(accepted > 8, "only {accepted} clusters were accepted");
    for number in 0..accepted - 1 {
        assert!(swap.read(number).unwrap() == cluster(number), "{number}");
    }
}

fn disk_that_drops_writes(dir: &Path) -> Option<(Mount, Mount)> {
    let options = ["-t", "tmpfs", "-o", "size=8m", "tmpfs"];
    let memory = Mount::new(dir.join("memory"), &options)?;
    let image = memory.0.join("image");
    File::create(&image).unwrap().set_len(256 << 20).unwrap();
    if !run("mkfs.ext4", &["-q", "-O", "^has_journal"], &image) {
        return None;
    }
    let image = image.to_str().unwrap().to_owned();
    let disk = Mount::new(dir.join("disk"), &["-o", "loop", &image])?;
    Some((memory, disk))
}
