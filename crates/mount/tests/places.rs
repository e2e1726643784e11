//! What must hold when most of what the kernel knows has no descriptor of its own.

// Each file of tests uses a part of it.
#[allow(dead_code)]
mod fixture;

use fixture::Mounted;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const PLACES_MAX: usize = 40;

fn with_few_places() -> Option<Mounted> {
    Mounted::with(|options| options.places_max = Some(PLACES_MAX))
}

/// Flags of the descriptors of something in the source, or that was there.
fn open_in_source(mount: &Mounted) -> Vec<i32> {
    let source = mount.source("");
    let flags_of = |entry: fs::DirEntry| {
        let number = entry.file_name().into_string().ok()?;
        let to = fs::read_link(entry.path()).ok()?;
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = i32::from_str_radix(flags.trim(), 8).ok()?;
        to.starts_with(&source).then_some(flags)
    };
    fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| flags_of(entry.ok()?))
        .collect()
}

fn open_places(mount: &Mounted) -> usize {
    let flags = open_in_source(mount).into_iter();
    flags.filter(|flags| flags & libc::O_PATH != 0).count()
}

/// Names of files in the mount, each with its name as contents.
fn make_tree(mount: &Mounted, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count)
        .map(|number| format!("{}/{}/file-{number}", number % 7, number % 5))
        .collect();
    for name in &names {
        let path = mount.source(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    names
}

fn assert_all_read(mount: &Mounted, names: &[String]) {
    for name in names {
        assert_eq!(&fs::read_to_string(mount.path(name)).unwrap(), name);
    }
}

#[test]
fn files_without_a_place_are_read_and_written() {
    let Some(mount) = with_few_places() else {
        return;
    };
    let names = make_tree(&mount, 300);
    assert_all_read(&mount, &names);
    for name in names.iter().rev() {
        let file = OpenOptions::new().append(true).open(mount.path(name));
        file.unwrap().write_all(b" and more").unwrap();
    }
    for name in &names {
        let text = fs::read_to_string(mount.source(name)).unwrap();
        assert_eq!(text, format!("{name} and more"));
        assert_eq!(
            fs::metadata(mount.path(name)).unwrap().len(),
            text.len() as u64
        );
    }
    let places = open_places(&mount);
    assert!(places <= PLACES_MAX + 1, "{places} places are open");
    assert!(mount.mount().tree().known_nodes() > 300);
}

#[test]
fn names_are_moved_and_exchanged() {
    use rustix::fs::{renameat_with, RenameFlags, CWD};
    let Some(mount) = with_few_places() else {
        return;
    };
    let mut names = make_tree(&mount, 300);
    let open: Vec<File> = names
        .iter()
        .map(|name| File::open(mount.path(name)).unwrap())
        .collect();
    for (number, name) in names.iter().enumerate() {
        fs::rename(mount.path(name), mount.path(&format!("moved-{number}"))).unwrap();
    }
    fs::rename(mount.path("1"), mount.path("one")).unwrap();
    for number in (0..300).step_by(2) {
        let [a, b] = [number, number + 1].map(|number| mount.path(&format!("moved-{number}")));
        renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
        names.swap(number, number + 1);
    }
    for (number, name) in names.iter().enumerate() {
        let text = fs::read_to_string(mount.path(&format!("moved-{number}"))).unwrap();
        assert_eq!(&text, name);
        let mut seen = vec![0; 200];
        let len = open[number ^ 1].read_at(&mut seen, 0).unwrap();
        assert_eq!(&seen[..len], name.as_bytes());
    }
}

#[test]
fn what_is_below_a_moved_directory_is_found() {
    let Some(mount) = with_few_places() else {
        return;
    };
    let mut deep = PathBuf::from("top");
    for level in 0..60 {
        deep.push(format!("level-{level}"));
    }
    let deep = deep.to_str().unwrap().to_owned();
    fs::create_dir_all(mount.path(&deep)).unwrap();
    fs::write(mount.path(&format!("{deep}/file")), "deep").unwrap();
    let open = File::open(mount.path(&format!("{deep}/file"))).unwrap();
    let names = make_tree(&mount, 300);
    assert_all_read(&mount, &names);
    fs::rename(mount.path("top"), mount.path("1/other")).unwrap();
    assert_all_read(&mount, &names);
    open.metadata().unwrap();
    let mut seen = [0; 4];
    open.read_exact_at(&mut seen, 0).unwrap();
    let moved = deep.replacen("top", "1/other", 1);
    let mut text = fs::read_to_string(mount.path(&format!("{moved}/file"))).unwrap();
    assert_eq!((text.as_bytes(), &seen), (&b"deep"[..], b"deep"));
    fs::write(mount.path(&format!("{moved}/file")), "deeper").unwrap();
    text = fs::read_to_string(mount.source(&format!("{moved}/file"))).unwrap();
    assert_eq!(text, "deeper");
}

#[test]
fn files_without_a_name_live_until_they_are_closed() {
    let Some(mount) = with_few_places() else {
        return;
    };
    let names = make_tree(&mount, 300);
    let open: Vec<File> = names
        .iter()
        .map(|name| {
            let mut options = OpenOptions::new();
            options
                .read(true)
                .write(true)
                .open(mount.path(name))
                .unwrap()
        })
        .collect();
    for (number, name) in names.iter().enumerate() {
        if number % 2 == 0 {
            fs::remove_file(mount.path(name)).unwrap();
        } else {
            fs::write(mount.path("new"), "new").unwrap();
            fs::rename(mount.path("new"), mount.path(name)).unwrap();
        }
    }
    for (file, name) in open.iter().zip(&names) {
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        let mut seen = vec![0; name.len()];
        file.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(seen, name.as_bytes());
        file.write_all_at(b"x", 100).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 101);
    }
    drop(open);
    let mut places = 0;
    for _ in 0..100 {
        places = open_places(&mount);
        if places <= PLACES_MAX + 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(places <= PLACES_MAX + 1, "{places} places are open");
}

#[test]
fn a_file_with_several_names_is_found_by_any_that_is_left() {
    let Some(mount) = with_few_places() else {
        return;
    };
    fs::write(mount.path("a"), "text").unwrap();
    fs::hard_link(mount.path("a"), mount.path("b")).unwrap();
    fs::hard_link(mount.path("a"), mount.path("c")).unwrap();
    let open = OpenOptions::new()
        .write(true)
        .open(mount.path("c"))
        .unwrap();
    let names = make_tree(&mount, 300);
    for (removed, left) in [("b", "a"), ("c", "a"), ("a", "")] {
        fs::remove_file(mount.path(removed)).unwrap();
        assert_all_read(&mount, &names);
        open.write_all_at(removed.as_bytes(), 0).unwrap();
        if !left.is_empty() {
            let text = fs::read_to_string(mount.path(left)).unwrap();
            assert_eq!(text, format!("{removed}ext"));
        }
    }
    assert_eq!(open.metadata().unwrap().nlink(), 0);
}

#[test]
fn a_program_works_in_a_directory_whose_place_is_closed() {
    let Some(mount) = with_few_places() else {
        return;
    };
    fs::create_dir_all(mount.path("here/below")).unwrap();
    fs::create_dir(mount.path("gone")).unwrap();
    let names = make_tree(&mount, 300);
    let script = "cd here; read line; pwd -P; echo text > below/file; cat below/file; \
                  cd ../gone; rmdir ../gone; ls -la > /dev/null; read line; ls -la > /dev/null; \
                  ! touch x 2> /dev/null";
    let mut shell = Command::new("sh")
        .args(["-ec", script])
        .current_dir(mount.path(""))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = shell.stdin.take().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    for _ in 0..2 {
        assert_all_read(&mount, &names);
        lines.write_all(b"\n").unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
    let output = shell.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = format!("{}\ntext\n", mount.path("here").display());
    assert!(output.status.success());
    assert_eq!(text, expected);
}

#[test]
fn no_descriptor_is_lost() {
    let Some(mount) = with_few_places() else {
        return;
    };
    for round in 0..5 {
        for number in 0..200 {
            let (a, b) = (format!("a{number}"), format!("b{number}"));
            fs::create_dir_all(mount.path("dir")).unwrap();
            fs::write(mount.path(&a), format!("{round}")).unwrap();
            fs::rename(mount.path(&a), mount.path(&format!("dir/{b}"))).unwrap();
            fs::hard_link(mount.path(&format!("dir/{b}")), mount.path(&b)).unwrap();
            fs::metadata(mount.path(&b)).unwrap();
        }
        for number in 0..200 {
            fs::remove_file(mount.path(&format!("b{number}"))).unwrap();
        }
        fs::remove_dir_all(mount.path("dir")).unwrap();
    }
    std::thread::sleep(Duration::from_millis(1500));
    let known = mount.mount().tree().known_nodes();
    assert!(known < 10, "{known} nodes are known");
    let open = open_in_source(&mount).len();
    assert!(open < 10, "{open} descriptors are open");
}
