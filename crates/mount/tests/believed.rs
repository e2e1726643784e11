//! The kernel believes names and attributes for an hour. What must be seen nevertheless, and what must not
//! cost it what it has cached.

// Each file of tests uses a part of it.
#[allow(dead_code)]
mod fixture;

use fixture::Mounted;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// By when a change made in the source is seen.
const BOUND: Duration = Duration::from_secs(2);
/// Names are told for long after this: their directory is watched, and what was told before has expired.
const SETTLED: Duration = Duration::from_millis(1300);

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < BOUND, "not seen: {what}");
        sleep(Duration::from_millis(20));
    }
}

fn says(path: &Path, text: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|seen| seen == text)
}

/// Files with their names as contents, looked up and read, and believed.
fn with_files(names: &[&str]) -> Option<Mounted> {
    let mount = Mounted::new()?;
    for name in names {
        let path = mount.source(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    believe(&mount, names);
    Some(mount)
}

fn believe(mount: &Mounted, names: &[&str]) {
    for round in 0..2 {
        for name in names {
            assert!(says(&mount.path(name), name), "{name}");
            assert!(!mount.path(&format!("{name}-absent")).exists());
        }
        if round == 0 {
            sleep(SETTLED);
        }
    }
}

#[test]
fn pages_outlive_a_file_that_is_closed_late() {
    let Some(mount) = with_files(&["a", "dir/b"]) else {
        return;
    };
    let open = ["a", "dir/b"].map(|name| File::open(mount.path(name)).unwrap());
    let reads = mount.reads();
    sleep(Duration::from_millis(2500));
    drop(open);
    assert!(says(&mount.path("a"), "a") && says(&mount.path("dir/b"), "dir/b"));
    assert_eq!(mount.reads(), reads);
}

#[test]
fn a_file_that_is_changed_is_seen() {
    let Some(mount) = with_files(&["a", "dir/b", "c"]) else {
        return;
    };
    let mut file = OpenOptions::new()
        .append(true)
        .open(mount.source("a"))
        .unwrap();
    file.write_all(b" and more").unwrap();
    eventually("append", || says(&mount.path("a"), "a and more"));
    fs::write(mount.source("dir/b"), "other").unwrap();
    eventually("overwriting", || says(&mount.path("dir/b"), "other"));
    let (reads, mode) = (mount.reads(), Permissions::from_mode(0o640));
    fs::set_permissions(mount.source("c"), mode).unwrap();
    let seen = || fs::metadata(mount.path("c")).unwrap().mode() & 0o777;
    eventually("chmod", || seen() == 0o640);
    assert!(says(&mount.path("c"), "c"));
    assert_eq!(mount.reads(), reads, "a change of mode costs no data");
    let time = std::time::UNIX_EPOCH + Duration::from_secs(1000);
    let file = OpenOptions::new()
        .write(true)
        .open(mount.source("c"))
        .unwrap();
    file.set_modified(time).unwrap();
    let seen = || fs::metadata(mount.path("c")).unwrap().mtime();
    eventually("utimes", || seen() == 1000);
}

#[test]
fn a_name_that_comes_or_goes_is_seen() {
    let names = ["a", "b", "dir/c", "dir/d", "gone/e"];
    let Some(mount) = with_files(&names) else {
        return;
    };
    fs::write(mount.source("a-absent"), "new").unwrap();
    eventually("creation", || says(&mount.path("a-absent"), "new"));
    fs::create_dir(mount.source("dir/c-absent")).unwrap();
    eventually("a directory", || mount.path("dir/c-absent").is_dir());
    fs::remove_file(mount.source("a")).unwrap();
    eventually("removal", || !mount.path("a").exists());
    fs::remove_dir_all(mount.source("gone")).unwrap();
    eventually("removal of all", || !mount.path("gone/e").exists());
    eventually("removal of all", || !mount.path("gone").exists());
    fs::rename(mount.source("b"), mount.source("dir/b")).unwrap();
    eventually("renaming", || says(&mount.path("dir/b"), "b"));
    eventually("renaming", || !mount.path("b").exists());
    fs::write(mount.source("new"), "replaced").unwrap();
    fs::rename(mount.source("new"), mount.source("dir/d")).unwrap();
    eventually("replacing", || says(&mount.path("dir/d"), "replaced"));
    fs::write(mount.source("dir/d"), "and changed").unwrap();
    eventually("a change after that", || {
        says(&mount.path("dir/d"), "and changed")
    });
    // There and back: the kernel may have believed it gone.
    fs::rename(mount.source("dir/d"), mount.source("away")).unwrap();
    eventually("moved away", || !mount.path("dir/d").exists());
    fs::rename(mount.source("away"), mount.source("dir/d")).unwrap();
    eventually("moved back", || says(&mount.path("dir/d"), "and changed"));
}

#[test]
fn a_file_that_replaces_another_known_one_is_seen() {
    let Some(mount) = with_files(&["a", "b", "c", "d"]) else {
        return;
    };
    let open = File::open(mount.path("b")).unwrap();
    fs::rename(mount.source("a"), mount.source("b")).unwrap();
    eventually("a known file over another", || says(&mount.path("b"), "a"));
    let mut seen = [0];
    open.read_at(&mut seen, 0).unwrap();
    assert_eq!(&seen, b"b", "who had it open still has it");
    use rustix::fs::{renameat_with, RenameFlags, CWD};
    let (c, d) = (mount.source("c"), mount.source("d"));
    renameat_with(CWD, c, CWD, d, RenameFlags::EXCHANGE).unwrap();
    eventually("exchange", || {
        says(&mount.path("c"), "d") && says(&mount.path("d"), "c")
    });
    fs::write(mount.source("c"), "changed").unwrap();
    eventually("a change after that", || says(&mount.path("c"), "changed"));
}

#[test]
fn a_change_by_another_name_is_seen() {
    let Some(mount) = with_files(&["a", "dir/b"]) else {
        return;
    };
    fs::create_dir(mount.source("unknown")).unwrap();
    fs::hard_link(mount.source("a"), mount.source("dir/a")).unwrap();
    fs::hard_link(mount.source("a"), mount.source("unknown/a")).unwrap();
    eventually("links", || {
        fs::metadata(mount.path("a")).unwrap().nlink() == 3
    });
    assert!(says(&mount.path("dir/a"), "a"));
    sleep(SETTLED);
    assert!(says(&mount.path("a"), "a") && says(&mount.path("dir/a"), "a"));
    fs::write(mount.source("unknown/a"), "changed").unwrap();
    eventually("a change", || {
        says(&mount.path("a"), "changed") && says(&mount.path("dir/a"), "changed")
    });
    fs::set_permissions(mount.source("unknown/a"), Permissions::from_mode(0o600)).unwrap();
    let mode = || fs::metadata(mount.path("a")).unwrap().mode() & 0o777;
    eventually("chmod", || mode() == 0o600);
    // By our own link as well.
    fs::hard_link(mount.path("dir/b"), mount.path("unknown/b")).unwrap();
    assert!(says(&mount.path("dir/b"), "dir/b"));
    sleep(SETTLED);
    fs::write(mount.source("unknown/b"), "changed").unwrap();
    eventually("a change", || says(&mount.path("dir/b"), "changed"));
    fs::remove_file(mount.source("dir/a")).unwrap();
    eventually("removal", || !mount.path("dir/a").exists());
    assert!(says(&mount.path("a"), "changed"));
}

#[test]
fn a_directory_that_is_moved_outside_is_followed() {
    let Some(mount) = Mounted::with(|options| options.places_max = Some(3)) else {
        return;
    };
    let names = ["top/middle/low/a", "top/middle/b", "other/c", "d", "e", "f"];
    for name in names {
        let path = mount.source(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    believe(&mount, &names);
    let open = File::open(mount.path(names[0])).unwrap();
    let low = File::open(mount.path("top/middle/low")).unwrap();
    believe(&mount, &["d", "e", "f"]);
    fs::rename(mount.source("top/middle"), mount.source("between")).unwrap();
    fs::rename(mount.source("between"), mount.source("other/moved")).unwrap();
    eventually("where it is", || low.metadata().is_ok());
    eventually("the new name", || {
        says(&mount.path("other/moved/b"), names[1])
    });
    eventually("the old name", || !mount.path("top/middle").exists());
    believe(&mount, &["d", "e", "f"]);
    mount
        .mount()
        .notifier()
        .inval_inode(open.metadata().unwrap().ino(), 0, 0)
        .unwrap();
    let mut seen = [0; 16];
    open.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(&seen, names[0].as_bytes());
    low.metadata().unwrap();
    fs::write(mount.source("other/moved/low/a"), "changed").unwrap();
    eventually("a change below", || {
        says(&mount.path("other/moved/low/a"), "changed")
    });
}

#[test]
fn own_changes_cost_hardly_any_pages() {
    let names = ["a", "dir/b", "dir/c"];
    let Some(mount) = with_files(&names) else {
        return;
    };
    let large = vec![7; 100_000];
    fs::write(mount.path("large"), &large).unwrap();
    assert_eq!(fs::read(mount.path("large")).unwrap(), large);
    let reads = mount.reads();
    let begun = Instant::now();
    let mut round = 0;
    let mut now = "large".to_owned();
    while begun.elapsed() < Duration::from_secs(4) {
        let next = format!("dir/large-{}", round % 3);
        fs::rename(mount.path(&now), mount.path(&next)).unwrap();
        now = next;
        let mode = Permissions::from_mode(0o600 + (round & 0o77));
        fs::set_permissions(mount.path(&now), mode).unwrap();
        assert!(!mount.path("temporary").exists());
        fs::write(mount.path("temporary"), "x").unwrap();
        fs::rename(mount.path("temporary"), mount.path("file")).unwrap();
        fs::write(mount.path("lock"), "").unwrap();
        fs::remove_file(mount.path("lock")).unwrap();
        fs::create_dir(mount.path("made")).unwrap();
        fs::remove_dir(mount.path("made")).unwrap();
        let data = fs::read(mount.path(&now)).unwrap();
        assert!(data == large);
        assert_eq!(
            fs::metadata(mount.path(&now)).unwrap().mode() & 0o777,
            0o600 + (round & 0o77)
        );
        for name in names {
            assert!(says(&mount.path(name), name));
        }
        round += 1;
    }
    sleep(Duration::from_millis(1500));
    assert_eq!(fs::read(mount.path(&now)).unwrap(), large);
    // A worker that did not get to run for 50 ms between a change and its note looks like somebody else.
    let again = mount.reads() - reads;
    assert!(again <= round as usize / 100, "{again} in {round} rounds");
    assert_eq!(mount.outside_changes(), 0);
}

#[test]
fn lost_events_are_made_up_for() {
    let Some(mount) = with_files(&["a", "b", "c"]) else {
        return;
    };
    let begun = Instant::now();
    for number in 0..30_000 {
        fs::write(mount.source(&format!("{number}")), "").unwrap();
    }
    fs::write(mount.source("a"), "changed").unwrap();
    fs::remove_file(mount.source("b")).unwrap();
    fs::set_permissions(mount.source("c"), Permissions::from_mode(0o604)).unwrap();
    eprintln!("{:?} for all", begun.elapsed());
    eventually("a change", || says(&mount.path("a"), "changed"));
    eventually("removal", || !mount.path("b").exists());
    let mode = || fs::metadata(mount.path("c")).unwrap().mode() & 0o777;
    eventually("chmod", || mode() == 0o604);
}
