//! What events mean: what the kernel is to forget.
//!
//! Most events are of our own doing, and must cost nothing that the kernel has cached. So what decides is not
//! the event but what is there now, beside what the kernel was told last: see [`Compared`]. A change of ours
//! may be on disk already and not yet noted; what looks wrong is therefore looked at twice.
#![forbid(unsafe_code)]

use super::events::Batch;
use super::Watcher;
use crate::tree::{Compared, Home, Node, Suspect};
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Longer than any request takes from the source's answer to our note of it.
const DOUBT: Duration = Duration::from_millis(50);
/// Between looks at everything, however many events are lost.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Names that looked wrong once.
#[derive(Default)]
pub struct Doubts {
    names: Vec<(Home, Suspect)>,
    since: Option<Instant>,
}

impl Doubts {
    fn add(&mut self, home: Home, suspect: Suspect) {
        self.names.push((home, suspect));
        self.since.get_or_insert_with(Instant::now);
    }

    /// When to look again.
    pub fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + DOUBT)
    }
}

/// Renames of which one half was seen.
#[derive(Default)]
pub struct Halves {
    now: HashMap<u32, Weak<Node>>,
    before: HashMap<u32, Weak<Node>>,
}

/// Events that were lost.
pub struct Losses {
    checked_at: Instant,
    is_due: bool,
}

impl Default for Losses {
    fn default() -> Self {
        Losses {
            checked_at: Instant::now(),
            is_due: false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    First,
    Second,
}

impl Watcher {
    /// How many events there were.
    pub(super) fn take_events(&mut self) -> usize {
        let Some(inotify) = &self.inotify else {
            return 0;
        };
        let batch = Batch::read(inotify);
        self.follow_moves(&batch);
        for (watch, names) in &batch.names {
            if let Some(directory) = self.watched.get(watch).and_then(Weak::upgrade) {
                for (name, suspect) in names {
                    self.look(&Home::new(&directory, name), *suspect, Look::First);
                }
            }
        }
        for (watch, suspect) in &batch.files {
            if let Some(node) = self.watched.get(watch).and_then(Weak::upgrade) {
                self.touch(&node, *suspect);
            }
        }
        for watch in &batch.moved {
            let node = self.watched.get(watch).and_then(Weak::upgrade);
            if let Some(home) = node.and_then(|node| node.home()) {
                self.doubt(home);
            }
        }
        self.end_watches(&batch.ended);
        self.losses.is_due |= batch.lost_some;
        self.check_everything();
        batch.len
    }

    /// Nodes that were moved from outside are known by their new names, so that they and what is below them
    /// can be found.
    fn follow_moves(&mut self, batch: &Batch) {
        // Seen between two moves only.
        let mut passed: HashMap<(u64, &CStr), Weak<Node>> = HashMap::new();
        for half in &batch.halves {
            let Some(directory) = self.watched.get(&half.watch).and_then(Weak::upgrade) else {
                continue;
            };
            let name = (directory.number(), &*half.name);
            if half.is_from {
                let node = passed
                    .remove(&name)
                    .and_then(|node| node.upgrade())
                    .or_else(|| self.tree.last_seen_as(&directory, &half.name));
                if let Some(node) = node {
                    self.halves.now.insert(half.cookie, Arc::downgrade(&node));
                }
            } else {
                let node = self.halves.now.remove(&half.cookie);
                let node = node.or_else(|| self.halves.before.remove(&half.cookie));
                if let Some(node) = node.and_then(|node| node.upgrade()) {
                    if !self.tree.moved(&node, Home::new(&directory, &half.name)) {
                        passed.insert(name, Arc::downgrade(&node));
                    }
                }
            }
        }
        // The other half of one may be the first event of the next batch.
        self.halves.before = std::mem::take(&mut self.halves.now);
    }

    /// As after an event.
    pub(super) fn doubt(&mut self, home: Home) {
        self.look(&home, Suspect::Anything, Look::First);
    }

    pub(super) fn settle_doubts(&mut self) {
        self.doubts.since = None;
        for (home, suspect) in std::mem::take(&mut self.doubts.names) {
            self.look(&home, suspect, Look::Second);
        }
    }

    fn look(&mut self, home: &Home, suspect: Suspect, look: Look) {
        match self.tree.compare(&home.parent, &home.name) {
            Compared::AsTold(node) => {
                if !self.touch(&node, suspect) {
                    // The answer that tells of it is on its way, perhaps with attributes from before.
                    match look {
                        Look::First => self.doubts.add(home.clone(), suspect),
                        Look::Second => self.drop_name(home),
                    }
                }
            }
            Compared::Other { .. } if look == Look::First => {
                self.doubts.add(home.clone(), suspect);
            }
            Compared::Other { told, found } => {
                self.drop_name(home);
                for node in told.iter().chain(&found) {
                    self.touch(node, Suspect::Anything);
                    self.watch_if_needed(node);
                }
            }
        }
    }

    /// Its directory may not tell of its changes any more: it has another name, or one more.
    pub(super) fn watch_if_needed(&mut self, node: &Arc<Node>) {
        let has_data = node.is_file() && node.is_watched() && !node.has_watch();
        if has_data && self.tree.needs_own_watch(node) {
            self.watch(&Arc::downgrade(node));
        }
    }

    fn drop_name(&self, home: &Home) {
        self.tree.untold(&home.parent, &home.name);
        // Whatever it answers: the name is gone from the kernel's memory.
        let _ = self.notifier.inval_entry(home.parent.number(), &home.name);
    }

    /// Something happened to the file: its attributes are asked for again, and its data if that changed from
    /// outside. False if the kernel does not have it (yet).
    fn touch(&self, node: &Node, suspect: Suspect) -> bool {
        if !node.is_file() {
            // Attributes of others are never believed for long.
            return true;
        }
        let reached = self.notifier.inval_attributes(node.number());
        self.tree.look_at(node, suspect);
        reached.unwrap_or(true)
    }

    /// These directories are gone, or their file system is; a name in them is not heard of any more.
    fn end_watches(&mut self, ended: &[i32]) {
        let mut directories = HashSet::new();
        for watch in ended {
            if let Some(node) = self.watched.remove(watch).and_then(|node| node.upgrade()) {
                node.set_has_watch(false);
                self.watch_of.remove(&node.number());
                if node.is_directory() {
                    directories.insert(node.number());
                }
            }
        }
        if directories.is_empty() {
            return;
        }
        for node in self.tree.nodes() {
            if let Some(home) = node.home() {
                if directories.contains(&home.parent.number()) {
                    self.drop_name(&home);
                    self.watch_if_needed(&node);
                }
            }
        }
    }

    /// After events were lost. (Names that are not there are not believed for longer than a minute.)
    pub(super) fn check_everything(&mut self) {
        if !self.losses.is_due || self.losses.checked_at.elapsed() < CHECK_EVERY {
            return;
        }
        for node in self.tree.nodes() {
            match node.home() {
                Some(home) => self.look(&home, Suspect::Anything, Look::First),
                None => {
                    self.touch(&node, Suspect::Anything);
                }
            }
        }
        self.losses = Losses::default();
    }
}
