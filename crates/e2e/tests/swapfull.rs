//! The place for the swap file runs full: the job goes on in memory while it can, then ends with
//! a clear message. No program ever reads wrong data, whichever of the two happens.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pleat_e2e::{skip, Job, Machine, Megabytes, Outcome};

/// A small file system in memory, unmounted on drop.
struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    /// None, after a SKIP line, where mounting is not allowed.
    fn mount(at: PathBuf, size: Megabytes) -> Option<SmallDisk> {
        fs::create_dir(&at).expect("scratch is writable");
        let options = format!("size={}", size.bytes());
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "pleat-e2e"])
            .arg(&at)
            .output()
            .expect("mount is installed");
        if mount.status.success() {
            return Some(SmallDisk { at });
        }
        skip(format!(
            "no small disk: {}",
            String::from_utf8_lossy(&mount.stderr)
        ));
        None
    }

    fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a job that was killed may still be closing its swap file.
        let done = Command::new("umount").arg("-l").arg(&self.at).status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("could not unmount {}", self.at.display());
        }
    }
}

/// 96 MB that do not compress need far more than budget and swap together. No hard limit here:
/// the small disk's own memory would count against it.
fn too_much_for(job: Job<'_>) -> Outcome {
    let outcome = job.budget(Megabytes(44)).timeout(180).run();
    let printed = outcome.stdout_text();
    assert!(
        !printed.contains("FAIL"),
        "{printed}\n{}",
        outcome.describe()
    );
    outcome.expect_orderly_end();
    outcome
}

fn completes_or_says_why_not(outcome: &Outcome) {
    if outcome.status.success() {
        assert!(
            outcome.stdout_text().ends_with("ok walk\n"),
            "{}",
            outcome.describe()
        );
    } else {
        let said = outcome.stderr.to_lowercase();
        let clear = said.contains("pleat") && said.contains("swap");
        assert!(clear, "no clear message: {}", outcome.describe());
    }
}

#[test]
fn a_full_swap_directory_corrupts_nothing() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    let disk = SmallDisk::mount(machine.scratch().join("disk"), Megabytes(8));
    let Some(disk) = disk else { return };
    let walk = machine.job(torture).args(["walk", "96", "2", "random"]);
    completes_or_says_why_not(&too_much_for(walk.swap_dir(disk.path())));
}

#[test]
fn a_small_swap_max_corrupts_nothing() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    let walk = machine.job(torture).args(["walk", "96", "2", "random"]);
    completes_or_says_why_not(&too_much_for(walk.pleat_args(["--swap-max", "8M"])));
}

#[test]
fn memory_without_swap_that_overflows_corrupts_nothing() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    let walk = machine.job(torture).args(["walk", "96", "2", "random"]);
    completes_or_says_why_not(&too_much_for(walk.pleat_args(["--no-swap"])));
}

/// What compresses into the budget has no need of the disk and must not fail for want of it.
#[test]
fn compressible_data_completes_beside_a_full_swap_directory() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(torture) = machine.torture() else {
        return;
    };
    let disk = SmallDisk::mount(machine.scratch().join("disk"), Megabytes(1));
    let Some(disk) = disk else { return };
    let walk = machine
        .job(torture)
        .args(["walk", "64", "2", "compressible"]);
    let outcome = walk.swap_dir(disk.path()).budget(Megabytes(44)).run();
    outcome.expect_success().expect_folded();
}
