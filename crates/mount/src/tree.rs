//! The tree of files: which nodes the kernel knows, and everything it can ask of them but READ and WRITE,
//! which go to the [`Content`] directly.
//!
//! Every object is reached through a descriptor, never by a path: of names, only single ones are looked up,
//! in a directory that is open, without following links. So nothing outside the source can be reached.
#![forbid(unsafe_code)]

mod attributes;
mod compare;
mod directory;
mod extended;
mod file_system;
mod make;
mod names;
mod node;
mod place;
mod source;
mod stat;
mod table;
mod trust;

pub(crate) use compare::Compared;
pub use node::{Node, OwnChange};
pub(crate) use place::Home;
pub use source::Source;
pub use stat::Stamp;

use crate::content::{Content, Ticket};
use crate::mount::MountOptions;
use crate::watch::Outside;
use crate::wire::{Transfer, WRITE_KILL_SUIDGID};
use directory::Streams;
use fuse_backend_rs::api::filesystem::Entry;
use node::Opened;
use place::OpenPlaces;
use rustix::fs::{Mode, OFlags};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use source::OpenSources;
use stat::{Change, Stat};
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use table::{Table, Which};
use trust::Trust;

/// At most so many source files are open at once, each perhaps twice.
const SOURCES_MAX: u64 = 4096 / 2;
/// At most so many places.
const PLACES_MAX: u64 = 4096;
/// So many nodes take about half a gigabyte.
const NODES_MAX: usize = 1 << 20;
/// As many descriptors as Linux gives a process unless it was told otherwise.
const DESCRIPTORS_MAX: u64 = 1 << 20;

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// The source directory, as the kernel sees it through the mount.
pub struct Tree {
    table: Table,
    content: Arc<dyn Content>,
    outside: Arc<Outside>,
    streams: Streams,
    nodes_max: usize,
    entry_timeout: Duration,
    attr_timeout: Duration,
    watched_timeout: Duration,
    writeback: bool,
    /// Root gives new objects to whoever asked for them.
    is_root: bool,
    is_ready: Mutex<bool>,
    became_ready: Condvar,
}

impl Tree {
    pub(crate) fn new(
        options: &MountOptions,
        content: Arc<dyn Content>,
        outside: Arc<Outside>,
    ) -> io::Result<Tree> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&options.source, flags, Mode::empty())?;
        let stat = Stat::of(&root)?;
        let descriptors = raise_descriptor_limit();
        let places_max = (descriptors / 4).min(PLACES_MAX) as usize;
        let opened = Opened {
            places: OpenPlaces::new(options.places_max.unwrap_or(places_max)),
            sources: OpenSources::new((descriptors / 8).min(SOURCES_MAX) as usize),
        };
        Ok(Tree {
            table: Table::new(root, stat, Arc::new(opened)),
            content,
            outside,
            streams: Streams::default(),
            nodes_max: options.nodes_max.unwrap_or(NODES_MAX),
            entry_timeout: options.entry_timeout,
            attr_timeout: options.attr_timeout,
            watched_timeout: options.watched_timeout,
            writeback: options.writeback,
            is_root: rustix::process::geteuid().is_root(),
            is_ready: Mutex::default(),
            became_ready: Condvar::new(),
        })
    }

    /// The node with this number, if the kernel knows it.
    #[must_use]
    pub fn node(&self, number: u64) -> Option<Arc<Node>> {
        self.table.get(number)
    }

    /// How many nodes the kernel knows.
    #[must_use]
    pub fn known_nodes(&self) -> usize {
        self.table.len()
    }

    /// Looks at every file whose data the kernel may have, and tells content and kernel of those that were
    /// changed from outside. The watcher does so by itself; this is for whoever cannot wait.
    pub fn look_for_changes(&self) {
        for node in self.table.all() {
            if node.is_watched() {
                self.look_at(&node, Suspect::Anything);
            }
        }
    }

    pub(crate) fn look_at(&self, node: &Node, suspect: Suspect) {
        let change = node.changed_outside();
        if change == Change::Contents
            || (change == Change::Attributes && suspect == Suspect::Anything)
        {
            self.content.changed_outside(node);
            self.outside.invalidate(node.number());
        }
    }

    /// Names that the kernel is to forget. It drops the node with the name, unless the file is in use.
    /// Those of directories only when that is not enough: a program that works in one cannot ask where it
    /// is until somebody looks the name up again.
    pub(crate) fn names_to_forget(&self) -> Vec<Home> {
        let known = self.table.len();
        let count = self.nodes_max / 4 + 1;
        if known > self.nodes_max + self.nodes_max / 4 {
            self.table.take_names(count, Which::All)
        } else if known > self.nodes_max {
            self.table.take_names(count, Which::NoDirectories)
        } else {
            Vec::new()
        }
    }

    /// Waits until the kernel has begun to talk.
    pub(crate) fn wait_until_ready(&self, limit: Duration) -> bool {
        let ready = self.is_ready.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .became_ready
            .wait_timeout_while(ready, limit, |ready| !*ready);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn is_now_ready(&self) {
        *self.is_ready.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.became_ready.notify_all();
    }

    /// Answers a READ: appends to `out`.
    pub(crate) fn read(
        &self,
        number: u64,
        ticket: Ticket,
        transfer: Transfer,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let node = self.node(number).ok_or(errno(libc::ESTALE))?;
        self.watch(&node);
        self.content
            .read(&node, ticket, transfer.offset, transfer.size, out)
            .inspect_err(|error| self.doubt(&node, error))
    }

    /// Does a WRITE.
    pub(crate) fn write(
        &self,
        number: u64,
        ticket: Ticket,
        transfer: Transfer,
        data: &[u8],
    ) -> io::Result<()> {
        let node = self.node(number).ok_or(errno(libc::ESTALE))?;
        self.watch(&node);
        let _ours = node.changing();
        self.content
            .write(&node, ticket, transfer.offset, data)
            .inspect_err(|error| self.doubt(&node, error))?;
        if transfer.flags & WRITE_KILL_SUIDGID != 0 {
            self.drop_privileges(&node)?;
        }
        Ok(())
    }

    fn watch(&self, node: &Arc<Node>) {
        if node.begin_to_watch() {
            self.outside.watch(node);
        }
    }

    /// What cannot be found by its name any more should not be known by it either.
    fn doubt(&self, node: &Node, error: &io::Error) {
        if error.raw_os_error() == Some(libc::ESTALE) {
            if let Some(home) = node.home() {
                self.outside.doubt(home);
            }
        }
    }

    fn known(&self, number: u64) -> io::Result<Arc<Node>> {
        self.node(number).ok_or_else(|| errno(libc::ESTALE))
    }

    /// The node of this name, counted once: `forget` unless the kernel is told of it.
    fn look_up(&self, directory: &Arc<Node>, name: &CStr) -> io::Result<Entry> {
        let trust = self.trust_names_in(directory);
        let place = place::open_named(&*directory.place()?, name)?;
        self.admit(place, directory, name, trust)
    }

    /// As `look_up`, for an object that is open.
    fn admit(
        &self,
        place: OwnedFd,
        directory: &Arc<Node>,
        name: &CStr,
        trust: Trust,
    ) -> io::Result<Entry> {
        let stat = Stat::of(&place)?;
        let node = self.table.look_up(place, stat, Home::new(directory, name));
        if self.table.len() > self.nodes_max {
            self.outside.thin_out();
        }
        Ok(self.entry(&node, stat, trust))
    }

    /// Attributes that were just read, or newer ones when they show a change that may be from outside.
    fn seen(&self, node: &Node, stat: Stat) -> Stat {
        if !node.is_file() || node.stamp() == stat.stamp() {
            return stat;
        }
        self.look_at(node, Suspect::Anything);
        node.stat().unwrap_or(stat)
    }

    fn forget_lookups(&self, number: u64, count: u64) {
        let mut removed = None;
        self.table
            .forget(number, count, |node| self.forgotten(node, &mut removed));
        // The descriptor is still open, so that no other file can get the inode.
        if let Some(node) = removed {
            self.content.removed(&node);
        }
    }

    /// Directories that the kernel forgot, but not what is in them, and now that as well.
    pub(crate) fn sweep_directories(&self) {
        self.table.sweep(|node| self.forgotten(node, &mut None));
    }

    /// With the table locked, so without opening anything: what we removed is open.
    fn forgotten(&self, node: &Arc<Node>, removed: &mut Option<Arc<Node>>) {
        if node.is_watched() {
            self.outside.forget(node.number());
        }
        if node.has_no_links() {
            *removed = Some(Arc::clone(node));
        } else {
            self.content.forgotten(node);
        }
    }
}

/// What an event may mean for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Suspect {
    /// Its contents were not written to.
    Attributes,
    Anything,
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree")
            .field("known_nodes", &self.known_nodes())
            .finish_non_exhaustive()
    }
}

/// Takes as many descriptors as this process may have; says how many.
fn raise_descriptor_limit() -> u64 {
    let limits = getrlimit(Resource::Nofile);
    let hard = limits.maximum.unwrap_or(DESCRIPTORS_MAX);
    let wishes = [hard.max(DESCRIPTORS_MAX), hard];
    for wish in wishes {
        let limits = Rlimit {
            current: Some(wish),
            maximum: Some(wish.max(hard)),
        };
        if setrlimit(Resource::Nofile, limits).is_ok() {
            break;
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(hard)
}
