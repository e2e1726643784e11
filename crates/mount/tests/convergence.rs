//! Whatever is done at the same time in the source and through the mount: when it is over, both show the same.

// Each file of tests uses a part of it.
#[allow(dead_code)]
mod fixture;

use fixture::Mounted;
use rustix::fs::{renameat_with, RenameFlags, CWD};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Numbers that look random, the same at each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }

    /// Of few, so that they meet; some are used as directories.
    fn name(&mut self, root: &Path) -> PathBuf {
        let mut path = root.to_owned();
        for _ in 0..self.below(3) {
            path.push(format!("dir-{}", self.below(3)));
        }
        let kind = ["file", "file", "dir"][self.below(3) as usize];
        path.push(format!("{kind}-{}", self.below(4)));
        path
    }
}

/// Any one thing; most fail, as the names are not right for it.
fn act(root: &Path, numbers: &mut Numbers) {
    let (a, b) = (numbers.name(root), numbers.name(root));
    let _ = match numbers.below(12) {
        0 | 1 => fs::create_dir_all(&a),
        2 => fs::remove_file(&a),
        3 => fs::remove_dir(&a),
        4 | 5 => fs::rename(&a, &b),
        6 => renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).map_err(Into::into),
        7 => fs::hard_link(&a, &b),
        8 => fs::set_permissions(&a, Permissions::from_mode(0o700 + numbers.below(64) as u32)),
        9 => OpenOptions::new()
            .append(true)
            .open(&a)
            .and_then(|mut file| file.write_all(b"+")),
        _ => fs::write(&a, format!("{}", numbers.below(1000))),
    };
}

/// Everything below, with what a program sees of it.
fn contents(root: &Path) -> BTreeMap<PathBuf, (u32, u64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let about = fs::metadata(&path).unwrap();
            let data = if about.is_dir() {
                waiting.push(path.clone());
                Vec::new()
            } else {
                fs::read(&path).unwrap()
            };
            let links = if about.is_dir() { 0 } else { about.nlink() };
            let name = path.strip_prefix(root).unwrap().to_owned();
            found.insert(name, (about.mode(), links, data));
        }
    }
    found
}

fn both_do_what_they_like(seed: u64, places_max: usize) {
    let Some(mount) = Mounted::with(|options| options.places_max = Some(places_max)) else {
        return;
    };
    for round in 0..3 {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let roots = [mount.path(""), mount.source(""), mount.path("")];
            for (who, root) in roots.into_iter().enumerate() {
                let is_over = &is_over;
                let mut numbers = Numbers(seed + 1000 * round + who as u64);
                scope.spawn(move || {
                    while !is_over.load(Relaxed) {
                        act(&root, &mut numbers);
                        // Slow enough that the kernel comes to believe something.
                        sleep(Duration::from_micros(numbers.below(2000)));
                    }
                });
            }
            let root = mount.path("");
            let mut numbers = Numbers(seed + round);
            let end = Instant::now() + Duration::from_secs(2);
            while Instant::now() < end {
                let _ = fs::read(numbers.name(&root));
            }
            is_over.store(true, Relaxed);
        });
        sleep(Duration::from_secs(2));
        let (seen, there) = (contents(&mount.path("")), contents(&mount.source("")));
        for (name, object) in &there {
            assert_eq!(seen.get(name), Some(object), "{name:?} in round {round}");
        }
        assert_eq!(seen.len(), there.len(), "in round {round}");
        let names = Numbers(seed);
        assert_absent(&mount, names);
    }
}

/// Names that are not there are not found, either.
fn assert_absent(mount: &Mounted, mut names: Numbers) {
    for _ in 0..1000 {
        let name = names.name(Path::new(""));
        let name = name.to_str().unwrap();
        assert_eq!(
            mount.path(name).exists(),
            mount.source(name).exists(),
            "{name}"
        );
    }
}

#[test]
fn with_room_for_every_place() {
    both_do_what_they_like(1, 1000);
}

#[test]
fn with_hardly_any_places() {
    both_do_what_they_like(2, 4);
}
