//! `pleat mount` as a directory: what is in it is what is below it, whoever changes which, within the
//! memory it was given, and it ends as it was told to.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{symlink, FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pleat_e2e::{
    eventually, resident_bytes, set_attribute, signal, Listing, Machine, Megabytes, SmallDisk,
};

/// Little enough that the files of these tests do not fit.
const MEMORY: Megabytes = Megabytes(16);
/// What is changed below is seen above within so long.
const SEEN_WITHIN: Duration = Duration::from_secs(2);
const READ_ONLY: i32 = 30;
const NO_SPACE: i32 = 28;

/// A page's worth and more of text that says where it is.
fn text(name: &str, bytes: usize) -> Vec<u8> {
    let lines = (0u64..).flat_map(|i| format!("line {i} of {name}\n").into_bytes());
    lines.take(bytes).collect()
}

/// Files of 4 MiB below the mount, larger together than its memory.
fn fill(dir: &Path, count: usize) {
    for number in 0..count {
        let name = format!("filler-{number}");
        fs::write(dir.join(&name), text(&name, 4 << 20)).expect("scratch is writable");
    }
}

/// Reads what [`fill`] made through the mount, so that everything else has to make room.
fn read_fillers(dir: &Path, count: usize) {
    for number in 0..count {
        let name = format!("filler-{number}");
        let found = fs::read(dir.join(&name)).expect("the mount serves reads");
        assert!(found == text(&name, 4 << 20), "{name} reads wrong");
    }
}

#[test]
fn what_is_changed_below_is_seen_above_within_two_seconds() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    let mount = machine.mount(MEMORY);
    let names = ["rewritten", "longer", "shorter", "removed", "replaced"];
    for name in names {
        fs::write(mount.below(name), text(name, 300_000)).expect("scratch is writable");
    }
    let seen = |name: &str| fs::read(mount.path(name));
    assert!(eventually(SEEN_WITHIN, || names
        .iter()
        .all(|n| seen(n).is_ok())));
    let open = File::open(mount.path("rewritten")).expect("it is there");

    // Same size, so that only content and times tell.
    fs::write(mount.below("rewritten"), text("REWRITTEN", 300_000)).expect("writable");
    fs::write(mount.below("longer"), text("longer", 500_000)).expect("writable");
    fs::write(mount.below("shorter"), text("shorter", 5_000)).expect("writable");
    fs::remove_file(mount.below("removed")).expect("writable");
    fs::write(mount.below("new"), text("new", 300_000)).expect("writable");
    fs::rename(mount.below("new"), mount.below("replaced")).expect("writable");

    let expected = |name: &str, content: Vec<u8>| {
        let same = || seen(name).is_ok_and(|found| found == content);
        assert!(
            eventually(SEEN_WITHIN, same),
            "{name} is stale after two seconds"
        );
    };
    expected("rewritten", text("REWRITTEN", 300_000));
    expected("longer", text("longer", 500_000));
    expected("shorter", text("shorter", 5_000));
    expected("replaced", text("new", 300_000));
    let gone = || seen("removed").is_err_and(|e| e.kind() == ErrorKind::NotFound);
    assert!(
        eventually(SEEN_WITHIN, gone),
        "a removed file is still there"
    );
    let new_start = || {
        let mut start = [0; 19];
        open.read_exact_at(&mut start, 0).is_ok() && &start == b"line 0 of REWRITTEN"
    };
    assert!(
        eventually(SEEN_WITHIN, new_start),
        "stale through an open descriptor"
    );
    drop(open);
    mount.end();
}

#[test]
fn what_is_written_above_is_below_after_fsync_and_after_the_end() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    let mount = machine.mount(MEMORY);
    let mut synced = File::create(mount.path("synced")).expect("writable");
    synced
        .write_all(&text("synced", 3_000_000))
        .expect("writable");
    synced.sync_all().expect("fsync");
    assert!(fs::read(mount.below("synced")).expect("it is there") == text("synced", 3_000_000));
    fs::write(mount.path("closed"), text("closed", 3_000_000)).expect("writable");
    let closed = mount.below("closed");
    drop(synced);
    mount.end();
    assert!(fs::read(closed).expect("it is there") == text("closed", 3_000_000));
}

#[test]
fn a_shared_mapping_written_by_one_process_is_read_by_another() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    if !machine.installed(&["python3"]) {
        return;
    }
    let mount = machine.mount(MEMORY);
    fill(&mount.below(""), 6);
    fs::write(mount.path("shared"), vec![0; 4 << 20]).expect("writable");
    let reader = concat!(
        "import mmap, sys, time\n",
        "f = open(sys.argv[1], 'r+b')\n",
        "m = mmap.mmap(f.fileno(), 0)\n",
        "print('mapped', flush=True)\n",
        "end = time.time() + 60\n",
        "while m[-1] != 7 and time.time() < end: time.sleep(0.01)\n",
        "print('same' if all(m[i] == i // 4096 % 251 for i in range(0, len(m) - 1, 4096))",
        " and m[-1] == 7 else 'differs')\n",
    );
    let writer = concat!(
        "import mmap, sys\n",
        "f = open(sys.argv[1], 'r+b')\n",
        "m = mmap.mmap(f.fileno(), 0)\n",
        "for i in range(0, len(m), 4096): m[i] = i // 4096 % 251\n",
        "m[-1] = 7\n",
    );
    let python = |script: &str| {
        machine
            .job("python3")
            .args(["-c", script])
            .arg(mount.path("shared"))
    };
    let reads = python(reader).spawn();
    reads.wait_for_output("mapped");
    read_fillers(&mount.path(""), 6);
    python(writer).run().expect_success();
    let read = reads.wait();
    read.expect_success();
    assert!(
        read.stdout_text().contains("same"),
        "{}",
        read.stdout_text()
    );
    mount.end();
}

#[test]
fn an_unlinked_file_stays_whole_while_it_is_open() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    let mount = machine.mount(MEMORY);
    fill(&mount.below(""), 12);
    let content = text("unlinked", 8 << 20);
    let path = mount.path("unlinked");
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(true);
    let mut file = options.open(&path).expect("writable");
    file.write_all(&content).expect("writable");
    fs::remove_file(&path).expect("removable");
    read_fillers(&mount.path(""), 12);
    file.write_all(b"and more").expect("writable when unlinked");
    let mut found = vec![0; content.len() + 8];
    file.read_exact_at(&mut found, 0)
        .expect("readable when unlinked");
    assert!(found[..content.len()] == content && &found[content.len()..] == b"and more");
    assert!(!mount.below("unlinked").exists());
    drop(file);
    mount.end();
}

#[test]
fn a_read_only_mount_refuses_every_change() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    let source = machine.scratch().join("source");
    fs::create_dir(&source).expect("scratch is writable");
    fs::write(source.join("file"), "as it was").expect("scratch is writable");
    let mount = machine.mount_dir(&source, MEMORY, &["--read-only"]);
    let file = mount.path("file");
    let refused = [
        (
            "open",
            OpenOptions::new().append(true).open(&file).map(drop),
        ),
        ("create", File::create(mount.path("new")).map(drop)),
        ("remove", fs::remove_file(&file)),
        ("rename", fs::rename(&file, mount.path("other"))),
        ("mkdir", fs::create_dir(mount.path("dir"))),
        ("link", fs::hard_link(&file, mount.path("link"))),
        (
            "chmod",
            fs::set_permissions(&file, fs::Permissions::from_mode(0o777)),
        ),
    ];
    for (what, result) in refused {
        let error = result.expect_err(what).raw_os_error();
        assert_eq!(
            error,
            Some(READ_ONLY),
            "{what} is refused for another reason"
        );
    }
    assert_eq!(fs::read_to_string(&file).expect("readable"), "as it was");
    mount.end();
    assert_eq!(
        fs::read_to_string(source.join("file")).expect("readable"),
        "as it was"
    );
}

/// Runs `pleat mount` with arguments that it must refuse in one line that mentions `mentioned`.
fn refuses(machine: &Machine, args: &[&str], mentioned: &str) {
    let outcome = machine.mount_refused(args);
    outcome.expect_code(2).expect_one_line_of_error();
    assert!(outcome.stderr.contains(mentioned), "{}", outcome.describe());
}

#[test]
fn wrong_arguments_are_refused_in_one_line() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    for name in ["source", "mount"] {
        fs::create_dir(machine.scratch().join(name)).expect("scratch is writable");
    }
    fs::write(machine.scratch().join("a-file"), "").expect("scratch is writable");
    // Relative to the scratch directory, where jobs run.
    refuses(&machine, &["no-such-source", "mount"], "no-such-source");
    refuses(&machine, &["source", "no-such-mount"], "no-such-mount");
    refuses(&machine, &["a-file", "mount"], "a-file");
    refuses(&machine, &["source", "a-file"], "a-file");
    refuses(&machine, &["--memory", "many", "source", "mount"], "many");
    refuses(&machine, &["--memory", "0", "source", "mount"], "memory");
    let preset = ["--preset", "no-such-preset", "source", "mount"];
    refuses(&machine, &preset, "no-such-preset");
}

#[test]
fn sigterm_and_sigint_unmount() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    for signal in [signal::SIGTERM, signal::SIGINT] {
        let mount = machine.mount(MEMORY);
        fs::write(mount.path("file"), text("file", 100_000)).expect("writable");
        let below = mount.below("file");
        mount.end_by(signal);
        assert!(fs::read(below).expect("it is there") == text("file", 100_000));
    }
}

/// Everything that `cp -a` keeps: modes, times, links of both kinds, attributes, holes.
fn plant_tree(root: &Path) {
    fs::create_dir_all(root.join("dir/empty")).expect("scratch is writable");
    for number in 0..50 {
        let path = root.join(format!("dir/file-{number}"));
        fs::write(&path, text("file", number * 1_777)).expect("scratch is writable");
        let mode = fs::Permissions::from_mode(0o600 + number as u32 % 8);
        fs::set_permissions(&path, mode).expect("our own file");
    }
    let sparse = File::create(root.join("sparse")).expect("scratch is writable");
    sparse.set_len(32 << 20).expect("scratch is writable");
    for at in [0, 7 << 20, (32 << 20) - 5] {
        sparse
            .write_all_at(b"data!", at)
            .expect("scratch is writable");
    }
    symlink("dir/file-3", root.join("symlink")).expect("scratch is writable");
    symlink("nowhere", root.join("dangling")).expect("scratch is writable");
    fs::hard_link(root.join("dir/file-4"), root.join("same")).expect("scratch is writable");
    set_attribute(&root.join("dir/file-5"), "user.pleat-test", b"kept").expect("xattrs");
}

#[test]
fn a_tree_copied_in_and_out_again_is_the_same_tree() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    let (tree, back) = (
        machine.scratch().join("tree"),
        machine.scratch().join("back"),
    );
    plant_tree(&tree);
    let mount = machine.mount(MEMORY);
    let copy = |from: &Path, to: &Path| {
        machine
            .job("cp")
            .arg("-a")
            .args([from, to])
            .run()
            .expect_success();
    };
    copy(&tree, &mount.path("copy"));
    copy(&mount.path("copy"), &back);
    let original = Listing::of(&tree);
    let places = [mount.path("copy"), mount.below("copy"), back];
    for place in places {
        let differences = Listing::of(&place).differences(&original);
        assert!(
            differences.is_empty(),
            "{}: {differences:#?}",
            place.display()
        );
    }
    let sparse = fs::metadata(mount.below("copy/sparse")).expect("it is there");
    assert!(
        sparse.blocks() * 512 < sparse.len() / 2,
        "the holes are gone"
    );
    mount.end();
}

/// What fsync reported as written is there, what did not fit was reported as such.
#[test]
fn a_full_disk_below_is_reported_and_loses_nothing() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    let Some(disk) = SmallDisk::new(&machine, Megabytes(48)) else {
        return;
    };
    let mount = machine.mount_dir(disk.path(), MEMORY, &[]);
    fs::write(mount.path("ballast"), text("ballast", 4 << 20)).expect("writable");
    let mut kept = 0;
    let refusal = loop {
        let name = format!("file-{kept}");
        let content = text(&name, 1 << 20);
        let file = File::create(mount.path(&name));
        let written = file.and_then(|mut f| f.write_all(&content).and_then(|()| f.sync_all()));
        match written {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
        assert!(kept < 64, "more fits than the disk has");
    };
    assert_eq!(refusal.raw_os_error(), Some(NO_SPACE), "{refusal}");
    assert!(kept > 10);
    let whole = |place: &dyn Fn(&str) -> std::path::PathBuf| {
        for number in 0..kept {
            let name = format!("file-{number}");
            let found = fs::read(place(&name)).expect("it was kept");
            assert!(found == text(&name, 1 << 20), "{name} is damaged");
        }
    };
    whole(&|name| mount.path(name));
    whole(&|name| mount.below(name));
    fs::remove_file(mount.path("ballast")).expect("removable");
    let mut file = File::create(mount.path("after")).expect("there is room again");
    file.write_all(&text("after", 1 << 20))
        .expect("there is room again");
    file.sync_all().expect("there is room again");
    drop(file);
    mount.end();
}

/// Everything is read twice, once by read and once by a mapping's pages, while its memory is watched.
#[test]
fn the_memory_given_is_not_exceeded() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    const COUNT: usize = 32;
    let memory = Megabytes(32);
    let mount = machine.mount(memory);
    fill(&mount.below(""), COUNT);
    let files: Vec<File> = (0..COUNT)
        .map(|n| File::open(mount.path(format!("filler-{n}"))).expect("it is there"))
        .collect();
    let done = AtomicBool::new(false);
    let peak = std::thread::scope(|scope| {
        let (files, mount, done) = (&files, &mount, &done);
        let watcher = scope.spawn(move || {
            let mut peak = 0;
            while !done.load(Ordering::Relaxed) {
                let cached = files.iter().map(|f| resident_bytes(f).expect("mincore"));
                peak = peak.max(cached.sum::<u64>() + mount.rss_bytes());
            }
            peak
        });
        read_fillers(&mount.path(""), COUNT);
        read_fillers(&mount.path(""), COUNT);
        done.store(true, Ordering::Relaxed);
        watcher.join().expect("the watcher does not panic")
    });
    let allowed = memory.percent(110).bytes();
    assert!(
        peak <= allowed,
        "{} KiB of {} KiB",
        peak >> 10,
        allowed >> 10
    );
    drop(files);
    mount.end();
}
