//! What programs may expect of a mount, tried through a real one.

// Each file of tests uses a part of it.
#[allow(dead_code)]
mod fixture;

use fixture::Mounted;
use std::collections::HashSet;
use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{symlink, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

#[test]
fn what_is_written_can_be_read_and_is_in_the_source() {
    let Some(mount) = Mounted::new() else { return };
    let data: Vec<u8> = (0..3_000_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
    fs::write(mount.path("file"), &data).unwrap();
    assert_eq!(fs::read(mount.path("file")).unwrap(), data);
    assert_eq!(fs::read(mount.source("file")).unwrap(), data);
    let mut file = OpenOptions::new()
        .append(true)
        .open(mount.path("file"))
        .unwrap();
    file.write_all(b"more").unwrap();
    drop(file);
    assert_eq!(fs::metadata(mount.path("file")).unwrap().len(), 3_000_004);
    assert!(fs::read(mount.source("file")).unwrap().ends_with(b"more"));
}

#[test]
fn a_truncated_file_has_zeros_where_it_grows_again() {
    let Some(mount) = Mounted::new() else { return };
    fs::write(mount.path("file"), [7; 10_000]).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(mount.path("file"))
        .unwrap();
    file.set_len(5000).unwrap();
    file.set_len(9000).unwrap();
    let data = fs::read(mount.path("file")).unwrap();
    assert!(data[..5000].iter().all(|&byte| byte == 7));
    assert_eq!(data[5000..], [0; 4000]);
    File::create(mount.path("file")).unwrap();
    assert_eq!(fs::metadata(mount.source("file")).unwrap().len(), 0);
}

#[test]
fn names_move_and_files_have_several() {
    let Some(mount) = Mounted::new() else { return };
    fs::create_dir(mount.path("dir")).unwrap();
    fs::write(mount.path("a"), "a").unwrap();
    fs::write(mount.path("b"), "b").unwrap();
    fs::rename(mount.path("a"), mount.path("dir/a")).unwrap();
    fs::rename(mount.path("b"), mount.path("dir/a")).unwrap();
    assert_eq!(fs::read_to_string(mount.path("dir/a")).unwrap(), "b");
    fs::hard_link(mount.path("dir/a"), mount.path("c")).unwrap();
    let (first, second) = (
        fs::metadata(mount.path("c")).unwrap(),
        fs::metadata(mount.path("dir/a")).unwrap(),
    );
    assert_eq!((first.nlink(), first.ino()), (2, second.ino()));
    symlink("dir/a", mount.path("link")).unwrap();
    assert_eq!(fs::read_to_string(mount.path("link")).unwrap(), "b");
    assert_eq!(
        fs::read_link(mount.path("link")).unwrap().to_str(),
        Some("dir/a")
    );
    assert_eq!(
        fs::remove_dir(mount.path("dir"))
            .unwrap_err()
            .raw_os_error(),
        Some(libc::ENOTEMPTY)
    );
    fs::remove_dir_all(mount.path("dir")).unwrap();
    assert!(fs::metadata(mount.path("link")).is_err());
}

#[test]
fn rename_without_replacing_and_exchange() {
    use rustix::fs::{renameat_with, RenameFlags, CWD};
    let Some(mount) = Mounted::new() else { return };
    fs::write(mount.path("a"), "a").unwrap();
    fs::write(mount.path("b"), "b").unwrap();
    let rename = |flags| renameat_with(CWD, mount.path("a"), CWD, mount.path("b"), flags);
    assert_eq!(
        rename(RenameFlags::NOREPLACE),
        Err(rustix::io::Errno::EXIST)
    );
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(mount.path("a")).unwrap(), "b");
    assert_eq!(fs::read_to_string(mount.path("b")).unwrap(), "a");
}

#[test]
fn a_file_without_a_name_lives_until_it_is_closed() {
    let Some(mount) = Mounted::new() else { return };
    let mut file = OpenOptions::new()
        .create_new(true)
        .read(true)
        .write(true)
        .open(mount.path("file"))
        .unwrap();
    file.write_all(b"before").unwrap();
    fs::remove_file(mount.path("file")).unwrap();
    file.write_all(b" and after").unwrap();
    file.set_len(12).unwrap();
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before and a");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
}

#[test]
fn another_user_has_their_own_rights() {
    let Some(mount) = Mounted::new() else { return };
    if !fixture::may_become_others() {
        return;
    }
    fs::write(mount.path("secret"), "s").unwrap();
    fs::set_permissions(mount.path("secret"), Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(mount.path("shared")).unwrap();
    fs::set_permissions(mount.path("shared"), Permissions::from_mode(0o2777)).unwrap();
    let script = "! cat secret && echo x > shared/file && mkdir shared/dir && ! touch other && \
                  umask 077 && echo y > shared/own && ln -s file shared/link";
    let status = Command::new("setpriv")
        .args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "sh",
            "-c",
            script,
        ])
        .current_dir(mount.path(""))
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let file = fs::metadata(mount.source("shared/file")).unwrap();
    assert_eq!(
        (file.uid(), file.gid()),
        (65534, 0),
        "the group is the directory's"
    );
    let dir = fs::metadata(mount.source("shared/dir")).unwrap();
    assert_eq!(dir.mode() & 0o2000, 0o2000, "directories hand it on");
    let own = fs::metadata(mount.source("shared/own")).unwrap();
    assert_eq!(own.mode() & 0o777, 0o600);
    let link = fs::symlink_metadata(mount.source("shared/link")).unwrap();
    assert_eq!(link.uid(), 65534);
}

#[test]
fn a_write_by_another_user_takes_set_uid_away() {
    let Some(mount) = Mounted::new() else { return };
    if !fixture::may_become_others() {
        return;
    }
    let path = mount.path("program");
    for change in ["echo x >> program", "truncate -s 0 program"] {
        fs::write(&path, "p").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
        let status = Command::new("setpriv")
            .args(["--reuid", "65534", "--clear-groups", "sh", "-c", change])
            .current_dir(mount.path(""))
            .status()
            .unwrap();
        assert!(status.success());
        let mode = fs::metadata(mount.source("program")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o777, "{change}");
    }
}

#[test]
fn extended_attributes_are_those_of_the_source() {
    use rustix::fs::{getxattr, listxattr, removexattr, setxattr, XattrFlags};
    let Some(mount) = Mounted::new() else { return };
    let path = mount.path("file");
    fs::write(&path, "x").unwrap();
    if setxattr(mount.source("file"), "user.probe", b"1", XattrFlags::CREATE).is_err() {
        return pleat_testing::skip("the source has no extended attributes");
    }
    setxattr(&path, "user.colour", b"blue", XattrFlags::CREATE).unwrap();
    let again = setxattr(&path, "user.colour", b"red", XattrFlags::CREATE);
    assert_eq!(again, Err(rustix::io::Errno::EXIST));
    let mut value = [0; 64];
    assert_eq!(
        getxattr(mount.source("file"), "user.colour", &mut value[..]),
        Ok(4)
    );
    assert_eq!(
        getxattr(&path, "user.colour", &mut value[..2]),
        Err(rustix::io::Errno::RANGE)
    );
    let len = listxattr(&path, &mut value[..]).unwrap();
    let names = String::from_utf8_lossy(&value[..len]).into_owned();
    assert!(names.contains("user.colour\0"), "{names:?}");
    removexattr(&path, "user.colour").unwrap();
    assert_eq!(
        getxattr(&path, "user.colour", &mut value[..]),
        Err(rustix::io::Errno::NODATA)
    );
}

#[test]
fn a_large_directory_is_read_whole_and_from_any_place() {
    let Some(mount) = Mounted::new() else { return };
    for number in 0..3000 {
        File::create(mount.source(&format!("file-{number:05}"))).unwrap();
    }
    let names: HashSet<_> = fs::read_dir(mount.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 3000);
    let entries = fixture::entries_and_offsets(&mount.path(""));
    assert_eq!(entries.len(), 3002);
    for at in [0, 1, 17, 1500, 2999, 3000] {
        let next = fixture::entry_after(&mount.path(""), entries[at].1);
        assert_eq!(next.as_ref(), Some(&entries[at + 1].0), "after entry {at}");
    }
}

#[test]
fn sparse_files_stay_sparse() {
    let Some(mount) = Mounted::new() else { return };
    let file = File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(mount.path("sparse"))
        .unwrap();
    file.write_all_at(b"x", 8 << 20).unwrap();
    assert!(file.metadata().unwrap().blocks() < 1000);
    let seek = |from| rustix::fs::seek(&file, from);
    assert_eq!(seek(rustix::fs::SeekFrom::Data(0)).unwrap(), 8 << 20);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)).unwrap(), 0);
    let end = seek(rustix::fs::SeekFrom::Data((8 << 20) + 1));
    assert_eq!(end, Err(rustix::io::Errno::NXIO));
}

#[test]
fn a_punched_hole_reads_as_zeros() {
    use rustix::fs::{fallocate, FallocateFlags};
    let Some(mount) = Mounted::new() else { return };
    fs::write(mount.path("file"), vec![9; 1 << 20]).unwrap();
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(mount.path("file"))
        .unwrap();
    // In the kernel's cache, too.
    file.read_to_end(&mut Vec::new()).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 4096, 8192).unwrap();
    let data = fs::read(mount.path("file")).unwrap();
    assert!(data[4096..12288].iter().all(|&byte| byte == 0));
    assert_eq!((data[4095], data[12288], data.len()), (9, 9, 1 << 20));
    fallocate(&file, FallocateFlags::empty(), 1 << 20, 4096).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (1 << 20) + 4096);
    file.seek(SeekFrom::Start(0)).unwrap();
}

#[test]
fn times_are_kept_to_the_nanosecond() {
    let Some(mount) = Mounted::new() else { return };
    let file = File::create(mount.path("file")).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    let times = FileTimes::new().set_modified(time).set_accessed(time);
    file.set_times(times).unwrap();
    for path in [mount.path("file"), mount.source("file")] {
        let seen = fs::metadata(path).unwrap();
        assert_eq!(
            (seen.mtime(), seen.mtime_nsec()),
            (1_234_567_890, 123_456_789)
        );
        assert_eq!(
            (seen.atime(), seen.atime_nsec()),
            (1_234_567_890, 123_456_789)
        );
    }
}

#[test]
fn changes_from_outside_are_seen_within_two_seconds() {
    let Some(mount) = Mounted::new() else { return };
    fs::write(mount.source("file"), "old contents").unwrap();
    let open = File::open(mount.path("file")).unwrap();
    assert_eq!(
        fs::read_to_string(mount.path("file")).unwrap(),
        "old contents"
    );
    fs::write(mount.source("file"), "new contents").unwrap();
    let begun = Instant::now();
    let mut seen = [0; 12];
    while &seen != b"new contents" {
        assert!(begun.elapsed() < Duration::from_secs(2), "still {seen:?}");
        std::thread::sleep(Duration::from_millis(20));
        open.read_exact_at(&mut seen, 0).unwrap();
    }
    fs::write(mount.source("another"), "x").unwrap();
    fs::remove_file(mount.source("file")).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    assert!(mount.path("another").exists() && !mount.path("file").exists());
}

#[test]
fn own_writes_are_not_taken_for_changes_from_outside() {
    let Some(mount) = Mounted::new() else { return };
    let file = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(mount.path("file"))
        .unwrap();
    let begun = Instant::now();
    let mut round = 0u64;
    while begun.elapsed() < Duration::from_secs(2) {
        file.write_all_at(&[round as u8; 4096], round % 64 * 4096)
            .unwrap();
        mount.mount().tree().look_for_changes();
        round += 1;
    }
    assert_eq!(mount.outside_changes(), 0, "in {round} writes");
}

#[test]
fn locks_hold_among_users_of_the_mount() {
    use rustix::fs::{flock, FlockOperation};
    let Some(mount) = Mounted::new() else { return };
    let first = File::create(mount.path("file")).unwrap();
    let second = File::open(mount.path("file")).unwrap();
    flock(&first, FlockOperation::NonBlockingLockExclusive).unwrap();
    let refused = flock(&second, FlockOperation::NonBlockingLockShared);
    assert_eq!(refused, Err(rustix::io::Errno::WOULDBLOCK));
    drop(first);
    flock(&second, FlockOperation::NonBlockingLockShared).unwrap();
}

#[test]
fn the_size_of_the_file_system_is_that_of_the_source() {
    let Some(mount) = Mounted::new() else { return };
    let ours = rustix::fs::statvfs(mount.path("")).unwrap();
    let theirs = rustix::fs::statvfs(mount.source("")).unwrap();
    assert_eq!(
        (ours.f_blocks, ours.f_bsize),
        (theirs.f_blocks, theirs.f_bsize)
    );
    assert_eq!(ours.f_namemax, 255);
}

#[test]
fn mappings_see_writes_and_writes_see_shared_mappings() {
    let Some(mount) = Mounted::new() else { return };
    let python = "import mmap,os\n\
        f=os.open('file',os.O_RDWR|os.O_CREAT); os.ftruncate(f,8192)\n\
        s=mmap.mmap(f,8192); p=mmap.mmap(f,8192,flags=mmap.MAP_PRIVATE)\n\
        s[0:5]=b'hello'; s.flush(); assert os.pread(f,5,0)==b'hello'\n\
        os.pwrite(f,b'world',4096); assert s[4096:4101]==b'world'\n\
        p[0:5]=b'XXXXX'; assert os.pread(f,5,0)==b'hello'\n";
    let Ok(status) = Command::new("python3")
        .args(["-c", python])
        .current_dir(mount.path(""))
        .status()
    else {
        return pleat_testing::skip("not installed: python3");
    };
    assert!(status.success());
    assert_eq!(&fs::read(mount.source("file")).unwrap()[..5], b"hello");
}

#[test]
fn the_kernel_hands_its_pages_over() -> io::Result<()> {
    let Some(mount) = Mounted::new() else {
        return Ok(());
    };
    let data: Vec<u8> = (0..8192).map(|i| (i / 3) as u8).collect();
    fs::write(mount.path("file"), &data)?;
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOATIME)
        .open(mount.path("file"))?;
    let mut buffer = vec![0; 8192];
    file.read_exact_at(&mut buffer, 0)?;
    let node = file.metadata()?.ino();
    let notifier = mount.mount().notifier();
    assert!(notifier.retrieve(77, node, 0, 8192)?);
    let (unique, from, offset, pages) = mount.retrieved(Duration::from_secs(2));
    assert_eq!((unique, from, offset), (77, node, 0));
    assert!(pages == data);
    assert!(notifier.store(node, 0, b"stored")?);
    file.read_exact_at(&mut buffer, 0)?;
    assert_eq!(&buffer[..6], b"stored");
    assert!(notifier.inval_inode(node, 0, 0)?);
    file.read_exact_at(&mut buffer, 0)?;
    assert!(buffer == data);
    assert!(!notifier.inval_inode(0x7777_7777, 0, 0)?);
    Ok(())
}

#[test]
fn a_busy_mount_can_be_unmounted() {
    let Some(mount) = Mounted::new() else { return };
    fs::write(mount.path("file"), "still there").unwrap();
    let mut file = File::open(mount.path("file")).unwrap();
    mount.mount().unmount().unwrap();
    assert!(!mount.path("file").exists());
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still there");
    drop(file);
    mount.mount().wait();
}

#[test]
fn nothing_can_be_changed_through_a_read_only_mount() {
    let Some(mount) = Mounted::with(|options| options.read_only = true) else {
        return;
    };
    fs::write(mount.source("file"), "kept").unwrap();
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "kept");
    let refused = fs::write(mount.path("file"), "changed").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    assert!(fs::remove_file(mount.path("file")).is_err());
}

#[test]
fn writes_that_the_kernel_collects_reach_the_source() {
    let Some(mount) = Mounted::with(|options| options.writeback = true) else {
        return;
    };
    fs::write(mount.path("file"), vec![1; 20_000]).unwrap();
    let file = OpenOptions::new()
        .write(true)
        .open(mount.path("file"))
        .unwrap();
    for number in 0..1000u64 {
        file.write_all_at(&[number as u8; 7], number * 19).unwrap();
    }
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
    file.sync_all().unwrap();
    let data = fs::read(mount.source("file")).unwrap();
    assert_eq!(data.len(), 20_000);
    for number in 0..1000 {
        let at = number * 19;
        assert_eq!(
            data[at..at + 8],
            [[number as u8; 7].as_slice(), &[1]].concat()
        );
    }
    assert_eq!(fs::metadata(mount.source("file")).unwrap().mtime_nsec(), 5);
}

#[test]
fn readers_that_are_killed_do_not_hurt_the_mount() {
    let Some(mount) = Mounted::new() else { return };
    fs::write(mount.source("file"), vec![5; 64 << 20]).unwrap();
    for _ in 0..20 {
        let mut reader = Command::new("sh")
            .args([
                "-c",
                "while :; do cat file > /dev/null; ls -R . > /dev/null; done",
            ])
            .current_dir(mount.path(""))
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(20));
        reader.kill().unwrap();
        reader.wait().unwrap();
        // What it read is to be asked for again.
        fs::write(mount.source("other"), "x").unwrap();
        let node = fs::metadata(mount.path("file")).unwrap().ino();
        mount.mount().notifier().inval_inode(node, 0, 0).unwrap();
    }
    assert_eq!(fs::read(mount.path("file")).unwrap(), vec![5; 64 << 20]);
}

#[test]
fn a_mount_within_its_source_is_refused() {
    use pleat_mount::{Direct, Mount, MountError, MountOptions};
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    fs::create_dir(&inner).unwrap();
    for (source, mountpoint) in [(dir.path(), inner.as_path()), (&inner, dir.path())] {
        let options = MountOptions::new(source, mountpoint);
        let refused = Mount::start(options, std::sync::Arc::new(Direct));
        assert!(matches!(refused, Err(MountError::Nested { .. })));
    }
}

#[test]
fn the_kernel_does_not_remember_more_files_than_there_are_descriptors_for() {
    let Some(mount) = Mounted::with(|options| options.nodes_max = Some(500)) else {
        return;
    };
    let open = File::create(mount.path("open")).unwrap();
    for number in 0..5000 {
        fs::write(mount.source(&format!("{number}")), "x").unwrap();
    }
    for number in 0..5000 {
        assert_eq!(fs::read(mount.path(&format!("{number}"))).unwrap(), b"x");
    }
    open.write_all_at(b"still works", 0).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let known = mount.mount().tree().known_nodes();
    assert!(known < 1000, "{known} nodes");
}

#[test]
fn nor_more_directories() {
    let Some(mount) = Mounted::with(|options| options.nodes_max = Some(500)) else {
        return;
    };
    for number in 0..3000 {
        fs::create_dir(mount.path(&format!("{number}"))).unwrap();
    }
    for number in 0..3000 {
        fs::write(mount.path(&format!("{number}/file")), "x").unwrap();
        fs::remove_dir_all(mount.path(&format!("{number}"))).unwrap();
    }
    std::thread::sleep(Duration::from_millis(200));
    let known = mount.mount().tree().known_nodes();
    assert!(known < 1000, "{known} nodes");
}
