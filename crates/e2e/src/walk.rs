//! A directory tree as a list that can be compared: everything that `cp -a` has to keep.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::sys;

/// The attribute that the trees of these tests carry.
const ATTRIBUTE: &str = "user.pleat-test";

/// Every entry of a tree by its path, the root left out.
#[derive(Debug, PartialEq, Eq)]
pub struct Listing(BTreeMap<PathBuf, Entry>);

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    mode: u32,
    owner: (u32, u32),
    modified_ns: (i64, i64),
    content: Content,
    attribute: Option<Vec<u8>>,
    /// The first path of the same file, when it has several names.
    same_as: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Eq)]
enum Content {
    Directory,
    Link(PathBuf),
    /// Size and a hash, so that a difference prints in a line.
    File(u64, u64),
}

impl Listing {
    /// Reads the whole tree.
    pub fn of(root: &Path) -> Listing {
        let (mut entries, mut names) = (BTreeMap::new(), BTreeMap::new());
        let mut paths = paths_below(root);
        paths.sort();
        for path in paths {
            let meta = fs::symlink_metadata(&path).expect("the tree does not change");
            let name = path.strip_prefix(root).expect("it is below").to_path_buf();
            let first = names
                .entry(meta.ino())
                .or_insert_with(|| name.clone())
                .clone();
            let same_as = (!meta.is_dir() && first != name).then_some(first);
            entries.insert(name, Entry::of(&path, &meta, same_as));
        }
        Listing(entries)
    }

    /// Each path whose entries differ, with both; empty when the trees are equal.
    pub fn differences(&self, other: &Listing) -> Vec<String> {
        let paths = self
            .0
            .keys()
            .chain(other.0.keys().filter(|p| !self.0.contains_key(*p)));
        paths
            .filter(|path| self.0.get(*path) != other.0.get(*path))
            .map(|path| {
                let (ours, theirs) = (self.0.get(path), other.0.get(path));
                format!("{}: {ours:?}, not {theirs:?}", path.display())
            })
            .collect()
    }
}

impl Entry {
    fn of(path: &Path, meta: &Metadata, same_as: Option<PathBuf>) -> Entry {
        Entry {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            modified_ns: (meta.mtime(), meta.mtime_nsec()),
            content: Content::of(path, meta),
            attribute: sys::attribute(path, ATTRIBUTE),
            same_as,
        }
    }
}

impl Content {
    fn of(path: &Path, meta: &Metadata) -> Content {
        if meta.is_dir() {
            return Content::Directory;
        }
        if meta.is_symlink() {
            return Content::Link(fs::read_link(path).expect("the tree does not change"));
        }
        let bytes = fs::read(path).expect("the tree does not change");
        assert_eq!(bytes.len() as u64, meta.len(), "{}", path.display());
        Content::File(meta.len(), fnv1a(&bytes))
    }
}

fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn paths_below(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).unwrap_or_else(|e| panic!("{}: {e}", root.display()));
    let paths = entries.map(|e| e.expect("readable directory").path());
    paths
        .flat_map(|path| {
            let deeper = match path.is_dir() && !path.is_symlink() {
                true => paths_below(&path),
                false => vec![],
            };
            std::iter::once(path).chain(deeper)
        })
        .collect()
}
