//! Finds out that files and names were changed behind the mount, and tells content and kernel.
//!
//! Directories in which the kernel was told names are watched with inotify, and files with data where that
//! does not suffice: they have several names, or their directory cannot be watched. Events are taken every
//! half second rather than at once: our own changes raise them too, and a wake-up costs more than a write. A
//! file that cannot be watched at all (the user's watches are used up) is looked at every second.
//!
//! The thread holds no lock while it speaks to the kernel, which may wait for requests that we serve.
#![forbid(unsafe_code)]

mod events;
mod names;
mod orders;
mod sweep;

pub use orders::Outside;

use crate::notify::Notifier;
use crate::tree::{Node, Suspect, Tree};
use names::{Doubts, Halves, Losses};
use orders::Order;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use sweep::Sweep;

const EVENTS_EVERY: Duration = Duration::from_millis(500);
/// After many of them at once, so that the kernel's queue of 16384 does not run over.
const EVENTS_EVERY_BUSY: Duration = Duration::from_millis(50);
const BUSY: usize = 1000;
const SCAN_EVERY: Duration = Duration::from_secs(1);

const OF_FILES: WatchFlags = WatchFlags::MODIFY.union(WatchFlags::ATTRIB);
const OF_NAMES: WatchFlags = OF_FILES
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// File systems that nobody else can change, so that inotify tells of every change: ext2 to ext4, XFS, Btrfs,
/// F2FS, tmpfs, ZFS, bcachefs, overlayfs.
const LOCAL: [u64; 8] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0xF2F5_2010,
    0x0102_1994,
    0x2FC1_2FC1,
    0xCA45_1A4E,
    0x794C_7630,
];

fn is_local(node: &Node) -> bool {
    let kind = node
        .place()
        .and_then(|place| Ok(rustix::fs::fstatfs(&*place)?.f_type));
    // Signed or not, 32 bits or 64: it has 32.
    kind.is_ok_and(|kind| LOCAL.contains(&(kind as u64 & 0xFFFF_FFFF)))
}

/// The watcher: one thread of each mount.
pub struct Watcher {
    tree: Arc<Tree>,
    notifier: Notifier,
    outside: Arc<Outside>,
    /// `None` when this user has no more of them.
    inotify: Option<OwnedFd>,
    watched: HashMap<i32, Weak<Node>>,
    watch_of: HashMap<u64, i32>,
    /// Cannot be watched.
    scanned: HashMap<u64, Weak<Node>>,
    doubts: Doubts,
    halves: Halves,
    losses: Losses,
    sweep: Sweep,
}

impl Watcher {
    pub fn new(tree: Arc<Tree>, notifier: Notifier, outside: Arc<Outside>) -> Watcher {
        Watcher {
            tree,
            notifier,
            outside,
            inotify: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok(),
            watched: HashMap::new(),
            watch_of: HashMap::new(),
            scanned: HashMap::new(),
            doubts: Doubts::default(),
            halves: Halves::default(),
            losses: Losses::default(),
            sweep: Sweep::default(),
        }
    }

    /// Until the mount ends.
    pub fn run(mut self) {
        let mut events_at = Instant::now() + EVENTS_EVERY;
        let mut rounds_at = events_at;
        let mut scan_at = Instant::now() + SCAN_EVERY;
        loop {
            let next = self
                .doubts
                .due()
                .map_or(events_at, |due| due.min(events_at));
            let limit = next.saturating_duration_since(Instant::now());
            let Some(orders) = self.outside.take(limit) else {
                return;
            };
            for order in orders {
                self.obey(order);
            }
            let now = Instant::now();
            if self.doubts.due().is_some_and(|due| now >= due) {
                self.settle_doubts();
            }
            if now >= events_at {
                let is_busy = self.take_events() > BUSY;
                events_at = now
                    + if is_busy {
                        EVENTS_EVERY_BUSY
                    } else {
                        EVENTS_EVERY
                    };
            }
            if now >= rounds_at {
                self.sweep();
                rounds_at = now + EVENTS_EVERY;
            }
            if now >= scan_at {
                self.scan();
                scan_at = now + SCAN_EVERY;
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Watch(node) => self.watch(&node),
            Order::Forget(number) => self.forget(number),
            Order::Invalidate(number) => {
                // Whatever it answers: the node is gone, or its pages are.
                let _ = self.notifier.inval_inode(number, 0, 0);
            }
            Order::Doubt(home) => self.doubt(home),
            Order::ThinOut => {
                for home in self.tree.names_to_forget() {
                    // Whatever it answers: the name is gone from its memory.
                    let _ = self.notifier.inval_entry(home.parent.number(), &home.name);
                }
                self.outside.thinned_out();
            }
        }
    }

    fn watch(&mut self, weak: &Weak<Node>) {
        let Some(node) = weak.upgrade() else {
            return;
        };
        if node.is_directory() {
            self.watch_names(&node);
        } else if node.is_file() {
            self.watch_file(&node);
        }
    }

    /// What the kernel was told before is not believed for long.
    fn watch_names(&mut self, directory: &Arc<Node>) {
        if is_local(directory) && self.add_watch(directory, OF_NAMES).is_ok() {
            directory.set_has_watch(true);
        }
    }

    fn watch_file(&mut self, file: &Arc<Node>) {
        let is_seen = self.watch_of.contains_key(&file.number());
        if !is_seen && self.tree.needs_own_watch(file) {
            match self.add_watch(file, OF_FILES) {
                Ok(()) => {
                    self.scanned.remove(&file.number());
                    file.set_has_watch(is_local(file));
                }
                Err(_) => {
                    self.scanned.insert(file.number(), Arc::downgrade(file));
                }
            }
        }
        // It may have changed before it was watched.
        self.tree.look_at(file, Suspect::Anything);
    }

    fn add_watch(&mut self, node: &Arc<Node>, events: WatchFlags) -> io::Result<()> {
        let inotify = self.inotify.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let watch = node.by_path(|path| Ok(inotify::add_watch(inotify, path, events)?))?;
        self.watched.insert(watch, Arc::downgrade(node));
        self.watch_of.insert(node.number(), watch);
        Ok(())
    }

    fn forget(&mut self, number: u64) {
        self.scanned.remove(&number);
        if let (Some(watch), Some(inotify)) = (self.watch_of.remove(&number), &self.inotify) {
            self.watched.remove(&watch);
            // Gone already when the file is.
            let _ = inotify::remove_watch(inotify, watch);
        }
    }

    fn scan(&mut self) {
        let tree = &self.tree;
        tree.sweep_directories();
        self.scanned.retain(|_, node| {
            let node = node.upgrade();
            if let Some(node) = &node {
                tree.look_at(node, Suspect::Anything);
            }
            node.is_some()
        });
    }
}
