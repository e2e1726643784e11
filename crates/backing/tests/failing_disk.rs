//! Disks that fill up or fail, for real: small file systems mounted for the length of a test.
//!
//! They need root; without it, or where mounting is forbidden, each test says that it was skipped.

use pleat_backing::{BackingError, SwapFile};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Written to the terminal past the test harness, which would keep it to itself.
fn skipped(test: &str) {
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED {test}: cannot mount a file system here"
    );
}

fn cluster(number: u64) -> Vec<u8> {
    let word = (number + 1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .to_ne_bytes();
    word.repeat(CLUSTER_BYTES / word.len())
}

/// Writes clusters until one is refused; returns how many were accepted and the refusal.
fn write_until_refused(swap: &SwapFile, clusters_max: u64) -> (u64, BackingError) {
    for number in 0..clusters_max {
        let offset = number * CLUSTER_BYTES as u64;
        if let Err(error) = swap.write_at(offset, &cluster(number)) {
            return (number, error);
        }
    }
    panic!("{clusters_max} clusters were accepted");
}

fn read_cluster(swap: &SwapFile, number: u64) -> Result<Vec<u8>, BackingError> {
    let mut bytes = vec![0; CLUSTER_BYTES];
    swap.read_at(number * CLUSTER_BYTES as u64, &mut bytes)?;
    Ok(bytes)
}

#[test]
fn a_full_disk_is_told_as_such_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["-t", "tmpfs", "-o", "size=3m", "tmpfs"];
    let Some(mount) = Mount::new(dir.path().join("small"), &options) else {
        return skipped("a_full_disk_is_told_as_such_and_loses_nothing");
    };
    let swap = SwapFile::create(&mount.0).unwrap();
    let (accepted, error) = write_until_refused(&swap, 13);
    assert!(matches!(error, BackingError::NoSpace(_)), "{error}");
    assert!(
        error
            .to_string()
            .contains("no space left; free some space there"),
        "{error}"
    );
    assert!(accepted > 8, "only {accepted} clusters fitted into 3 MiB");
    for number in 0..accepted {
        assert!(read_cluster(&swap, number).unwrap() == cluster(number));
    }
    let room = (accepted - 1) * CLUSTER_BYTES as u64;
    swap.punch(room, CLUSTER_BYTES as u64).unwrap();
    swap.write_at(room, &cluster(77)).unwrap();
    assert!(read_cluster(&swap, accepted - 1).unwrap() == cluster(77));
}

/// The file system believes in 256 MiB, but the device under it has 8: writes are accepted and fail
/// on their way to the disk, the way a dying disk behaves.
#[test]
fn a_disk_that_drops_writes_is_found_out_and_never_believed_again() {
    let dir = tempfile::tempdir().unwrap();
    let Some((_memory, disk)) = disk_that_drops_writes(dir.path()) else {
        return skipped("a_disk_that_drops_writes_is_found_out_and_never_believed_again");
    };
    let swap = SwapFile::create(&disk.0).unwrap();
    let (accepted, error) = write_until_refused(&swap, 400);
    assert!(matches!(error, BackingError::Lost(_)), "{error}");
    for number in 0..accepted {
        let answer = read_cluster(&swap, number);
        assert!(matches!(
            answer,
            Err(BackingError::Lost(_) | BackingError::Device(_))
        ));
    }
}

#[test]
fn a_read_notices_a_dropped_write_before_any_other_call_does() {
    let dir = tempfile::tempdir().unwrap();
    let Some((_memory, disk)) = disk_that_drops_writes(dir.path()) else {
        return skipped("a_read_notices_a_dropped_write_before_any_other_call_does");
    };
    let filler = File::create(disk.0.join("filler")).unwrap();
    for _ in 0..40 {
        (&filler).write_all(&cluster(1)).unwrap();
    }
    let _ = filler.sync_all();
    let swap = SwapFile::create(&disk.0).unwrap();
    swap.write_at(0, &cluster(2)).unwrap();
    run("sync", &["-f"], &disk.0);
    let answer = read_cluster(&swap, 0);
    assert!(
        matches!(answer, Err(BackingError::Lost(_))),
        "{:?}",
        answer.err()
    );
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
