//! Finds out that files were changed behind the mount, and tells content and kernel.
//!
//! Files whose data the kernel may have are watched with inotify. Its events are taken every half second
//! rather than at once: our own writes raise them too, and a wake-up costs more than a write. A file that
//! cannot be watched (the user's watches are used up) is looked at every second.
#![forbid(unsafe_code)]

use crate::notify::Notifier;
use crate::tree::{Node, Suspect, Tree};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

const EVENTS_EVERY: Duration = Duration::from_millis(500);
const SCAN_EVERY: Duration = Duration::from_secs(1);
const EVENT_BYTES: usize = 16 * 1024;
/// Reads of events in a row; what is left then waits for the next round.
const READS_MAX: usize = 64;

enum Order {
    Watch(Weak<Node>),
    Forget(u64),
    Invalidate(u64),
    ThinOut,
}

#[derive(Default)]
struct Orders {
    waiting: Vec<Order>,
    is_urgent: bool,
    /// `ThinOut` waits, or is being obeyed.
    is_thinning: bool,
    is_over: bool,
}

/// What the workers have to say to the watcher. They never speak to the kernel themselves: it would wait for
/// pages that wait for them.
#[derive(Default)]
pub struct Outside {
    orders: Mutex<Orders>,
    changed: Condvar,
}

impl Outside {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Data of this file goes to the kernel.
    pub fn watch(&self, node: &Arc<Node>) {
        self.orders()
            .waiting
            .push(Order::Watch(Arc::downgrade(node)));
    }

    /// The kernel forgot this node.
    pub fn forget(&self, number: u64) {
        self.orders().waiting.push(Order::Forget(number));
    }

    /// What the kernel has of this file is old.
    pub fn invalidate(&self, number: u64) {
        let mut orders = self.orders();
        orders.waiting.push(Order::Invalidate(number));
        orders.is_urgent = true;
        self.changed.notify_one();
    }

    /// The kernel knows too many nodes.
    pub fn thin_out(&self) {
        let mut orders = self.orders();
        if !orders.is_thinning {
            orders.is_thinning = true;
            orders.waiting.push(Order::ThinOut);
            orders.is_urgent = true;
            self.changed.notify_one();
        }
    }

    /// Ends the watcher.
    pub fn end(&self) {
        self.orders().is_over = true;
        self.changed.notify_one();
    }

    /// What there is to do, at once if it is urgent; `None` at the end.
    fn take(&self, limit: Duration) -> Option<Vec<Order>> {
        let idle = |orders: &mut Orders| !orders.is_urgent && !orders.is_over;
        let waited = self.changed.wait_timeout_while(self.orders(), limit, idle);
        let mut orders = waited.unwrap_or_else(PoisonError::into_inner).0;
        orders.is_urgent = false;
        (!orders.is_over).then(|| std::mem::take(&mut orders.waiting))
    }
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
        }
    }

    /// Until the mount ends.
    pub fn run(mut self) {
        let mut events_at = Instant::now() + EVENTS_EVERY;
        let mut scan_at = Instant::now() + SCAN_EVERY;
        loop {
            let limit = events_at.saturating_duration_since(Instant::now());
            let Some(orders) = self.outside.take(limit) else {
                return;
            };
            for order in orders {
                self.obey(order);
            }
            let now = Instant::now();
            if now >= events_at {
                self.take_events();
                events_at = now + EVENTS_EVERY;
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
            Order::ThinOut => {
                for home in self.tree.names_to_forget() {
                    // Whatever it answers: the name is gone from its memory.
                    let _ = self.notifier.inval_entry(home.parent.number(), &home.name);
                }
                self.outside.orders().is_thinning = false;
            }
        }
    }

    fn watch(&mut self, weak: &Weak<Node>) {
        let Some(node) = weak.upgrade().filter(|node| node.is_file()) else {
            return;
        };
        match self.add_watch(&node) {
            Ok(watch) => {
                self.watched.insert(watch, Weak::clone(weak));
                self.watch_of.insert(node.number(), watch);
            }
            Err(_) => {
                self.scanned.insert(node.number(), Weak::clone(weak));
            }
        }
        // It may have changed before it was watched.
        self.tree.look_at(&node, Suspect::Anything);
    }

    fn add_watch(&self, node: &Node) -> io::Result<i32> {
        let inotify = self.inotify.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let events = WatchFlags::MODIFY | WatchFlags::ATTRIB;
        node.by_path(|path| Ok(inotify::add_watch(inotify, path, events)?))
    }

    fn forget(&mut self, number: u64) {
        self.scanned.remove(&number);
        if let (Some(watch), Some(inotify)) = (self.watch_of.remove(&number), &self.inotify) {
            self.watched.remove(&watch);
            // Gone already when the file is.
            let _ = inotify::remove_watch(inotify, watch);
        }
    }

    fn take_events(&mut self) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        let mut touched = HashSet::new();
        let mut lost_some = false;
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut events = inotify::Reader::new(inotify, &mut buffer);
        let mut reads = 0;
        while reads < READS_MAX {
            let Ok(event) = events.next() else {
                break;
            };
            lost_some |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            touched.insert(event.wd());
            reads += usize::from(events.is_buffer_empty());
        }
        if lost_some {
            self.tree.look_for_changes();
        }
        for watch in touched {
            if let Some(node) = self.watched.get(&watch).and_then(Weak::upgrade) {
                self.tree.look_at(&node, Suspect::Anything);
            }
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
