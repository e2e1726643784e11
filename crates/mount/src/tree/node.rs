//! One object of the source that the kernel knows.
//!
//! Lock order: `sources.queue` before `data`; `state` before `data`, and before those of places (see
//! [`super::place`]), as it is held while the file is looked at. No lock is held across a call of `Content`.
#![forbid(unsafe_code)]

use super::place::{Home, OpenPlaces, Place};
use super::source::{OpenSources, Source};
use super::stat::{Change, Identity, Stamp, Stat};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use Ordering::{Acquire, Relaxed, Release};

/// The stamp, and how many of our own changes are under way.
#[derive(Debug)]
struct State {
    stamp: Stamp,
    changes_under_way: u32,
    /// By somebody else, and not acted on yet.
    noticed: Change,
}

impl State {
    fn notice(&mut self, now: Stamp) {
        self.noticed = self.noticed.max(self.stamp.compare(&now));
        self.stamp = now;
    }
}

/// One file, directory, link or device of the source, for as long as the kernel knows it.
pub struct Node {
    number: u64,
    identity: Identity,
    shown_inode: u64,
    generation: u64,
    /// What its generation would be now.
    born: AtomicU64,
    is_file: bool,
    is_directory: bool,
    pub(super) place: Place,
    state: Mutex<State>,
    data: Mutex<Option<Arc<Source>>>,
    was_used: AtomicBool,
    /// It is to be watched: data of the file, or names in the directory, went to the kernel.
    is_watched: AtomicBool,
    /// Changes of the file, or of names in the directory, raise events.
    has_watch: AtomicBool,
    opened: Arc<Opened>,
    this: Weak<Node>,
}

/// What all nodes share: which of them have something open.
#[derive(Debug)]
pub(super) struct Opened {
    pub places: OpenPlaces,
    pub sources: OpenSources,
}

/// What a node is made from.
pub(super) struct Found {
    pub place: OwnedFd,
    /// None for the root.
    pub home: Option<Home>,
    pub stat: Stat,
    pub number: u64,
    pub shown_inode: u64,
}

impl Node {
    pub(super) fn new(found: Found, opened: &Arc<Opened>) -> Arc<Node> {
        let is_queued = found.home.is_some();
        let node = Arc::new_cyclic(|this| Node {
            number: found.number,
            identity: found.stat.identity(),
            shown_inode: found.shown_inode,
            generation: found.stat.generation(),
            born: AtomicU64::new(found.stat.generation()),
            is_file: found.stat.is_file(),
            is_directory: found.stat.is_directory(),
            place: Place::new(found.place, found.home),
            state: Mutex::new(State {
                stamp: found.stat.stamp(),
                changes_under_way: 0,
                noticed: Change::None,
            }),
            data: Mutex::default(),
            was_used: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            has_watch: AtomicBool::new(false),
            opened: Arc::clone(opened),
            this: this.clone(),
        });
        if is_queued {
            opened.places.opened(node.this());
        }
        node
    }

    /// The number by which the kernel calls it. The same whenever the same file is found again.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What the kernel knows it by: number, and which of those that had it.
    pub(crate) fn name(&self) -> (u64, u32) {
        // The kernel keeps so many bits.
        (self.number, self.generation as u32)
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.is_file
    }

    /// As of the last change that we made or saw.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.state().stamp
    }

    /// Its size now.
    ///
    /// # Errors
    /// What the source answered.
    pub fn size(&self) -> io::Result<u64> {
        Ok(self.stat()?.size())
    }

    /// The file, for reading from it.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn reading(&self) -> io::Result<Arc<Source>> {
        self.source(false)
    }

    /// The file, for reading and writing.
    ///
    /// # Errors
    /// It cannot be opened so.
    pub fn writing(&self) -> io::Result<Arc<Source>> {
        self.source(true)
    }

    /// Puts on disk what was written to the source.
    ///
    /// # Errors
    /// What the source answered.
    pub fn sync_source(&self, data_only: bool) -> io::Result<()> {
        let source = self.reading()?;
        if data_only {
            source.file().sync_data()
        } else {
            source.file().sync_all()
        }
    }

    /// Says that what happens to the file until the answer is dropped is our own doing. What happened before
    /// would be taken for ours at its end, so it is noticed now.
    pub fn changing(&self) -> OwnChange<'_> {
        if self.is_file {
            let mut state = self.state();
            if state.changes_under_way == 0 && self.is_watched() {
                if let Ok(stat) = self.stat() {
                    state.notice(stat.stamp());
                }
            }
            state.changes_under_way += 1;
        }
        OwnChange { node: self }
    }

    pub(super) fn this(&self) -> Weak<Node> {
        self.this.clone()
    }

    pub(super) fn places(&self) -> &OpenPlaces {
        &self.opened.places
    }

    /// Whether these are attributes of this object, not of a later one with its inode number.
    pub(super) fn is_same_as(&self, stat: &Stat) -> bool {
        let looks_the_same = self.identity == stat.identity()
            && self.is_file == stat.is_file()
            && self.is_directory == stat.is_directory();
        if !looks_the_same {
            return false;
        }
        // Files of overlayfs are born anew when they are written to first.
        if self.born.load(Relaxed) != stat.generation() && self.is_open() {
            self.born.store(stat.generation(), Relaxed);
        }
        self.born.load(Relaxed) == stat.generation()
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.is_directory
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    pub(super) fn shown_inode(&self) -> u64 {
        self.shown_inode
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// What somebody else changed of the file since the last look. Looks while no change of ours is under
    /// way and none can begin; one that is will be followed by a look of its own.
    pub(super) fn changed_outside(&self) -> Change {
        let mut state = self.state();
        if !self.is_file || state.changes_under_way > 0 {
            return Change::None;
        }
        if let Ok(stat) = self.stat() {
            state.notice(stat.stamp());
        }
        std::mem::replace(&mut state.noticed, Change::None)
    }

    /// True the first time only.
    pub(super) fn begin_to_watch(&self) -> bool {
        !self.is_watched.load(Relaxed) && !self.is_watched.swap(true, Relaxed)
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Relaxed)
    }

    /// Must be asked before what it is to vouch for is read.
    pub(crate) fn has_watch(&self) -> bool {
        self.has_watch.load(Acquire)
    }

    /// For the watcher only.
    pub(crate) fn set_has_watch(&self, has_watch: bool) {
        self.has_watch.store(has_watch, Release);
    }

    /// Takes over a source that was opened by making the file.
    pub(super) fn adopt(&self, source: Source) {
        if self.data().replace(Arc::new(source)).is_none() {
            self.opened.sources.opened(self.this.clone());
        }
    }

    /// Opens the source, if it can be, and keeps it.
    pub(super) fn keep_open(&self) {
        if self.data_if_open().is_some_and(|source| source.is_pinned) {
            return;
        }
        let opened = self.place().and_then(|place| {
            let place = place.as_fd();
            Source::open(place, true).or_else(|_| Source::open(place, false))
        });
        if let Ok(source) = opened {
            self.pin(source);
        }
    }

    /// Keeps a source that could not be opened again.
    pub(super) fn pin(&self, mut source: Source) {
        source.is_pinned = true;
        *self.data() = Some(Arc::new(source));
    }

    fn source(&self, for_writing: bool) -> io::Result<Arc<Source>> {
        if !self.was_used.load(Relaxed) {
            self.was_used.store(true, Relaxed);
        }
        let serves = |source: &Arc<Source>| source.is_writable() || !for_writing;
        if let Some(source) = self.data_if_open().filter(serves) {
            return Ok(source);
        }
        let place = self.place()?;
        let source = Arc::new(Source::open(place.as_fd(), for_writing)?);
        let mut data = self.data();
        // Somebody else opened it meanwhile.
        if let Some(source) = data.as_ref().filter(|source| serves(source)) {
            return Ok(Arc::clone(source));
        }
        let is_new = data.replace(Arc::clone(&source)).is_none();
        drop(data);
        if is_new {
            self.opened.sources.opened(self.this());
        }
        Ok(source)
    }

    pub(super) fn data_if_open(&self) -> Option<Arc<Source>> {
        self.data().clone()
    }

    /// False when it was used since the last call, or must stay open.
    pub(super) fn close_unless_used(&self) -> bool {
        if self.was_used.swap(false, Relaxed) {
            return false;
        }
        let mut data = self.data();
        let closes = data.as_ref().is_none_or(|source| !source.is_pinned);
        if closes {
            *data = None;
        }
        closes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn data(&self) -> MutexGuard<'_, Option<Arc<Source>>> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("number", &self.number)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// A change of ours under way; its end takes the new stamp.
#[must_use]
#[derive(Debug)]
pub struct OwnChange<'a> {
    node: &'a Node,
}

impl Drop for OwnChange<'_> {
    fn drop(&mut self) {
        if !self.node.is_file {
            return;
        }
        let mut state = self.node.state();
        state.changes_under_way -= 1;
        if state.changes_under_way == 0 {
            // A file that cannot even be looked at keeps its old stamp and counts as changed later.
            if let Ok(stat) = self.node.stat() {
                self.node.born.store(stat.generation(), Relaxed);
                state.stamp = stat.stamp();
            }
        }
    }
}
