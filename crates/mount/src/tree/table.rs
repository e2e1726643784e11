//! Which nodes the kernel knows, how often it was told of each, and by which name last.
//!
//! Lock order: the table before a node's place (never the other way: a place is opened without the table).
#![forbid(unsafe_code)]

use super::node::{Found, Node, Opened};
use super::place::Home;
use super::stat::{Identity, Stat};
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The number of the root, by the protocol.
pub const ROOT: u64 = 1;
/// Inode numbers below this are node numbers as they are; the bits above say on which device.
const INODE_BITS: u32 = 48;
/// Marks numbers that have nothing to do with the inode.
const MADE_UP: u64 = 1 << 63;

#[derive(Debug)]
struct Known {
    node: Arc<Node>,
    /// How often the kernel was told of it, less what it forgot.
    lookups: u64,
}

#[derive(Debug, Default)]
struct Nodes {
    by_number: HashMap<u64, Known>,
    by_identity: HashMap<Identity, u64>,
    /// By the hash of each node's home, which is the name that the kernel was told last. Names that share a hash push each
    /// other out, which costs a needless look, so nothing is believed without asking the node.
    by_name: HashMap<u64, u64>,
    /// Directories that the kernel forgot, but below which it knows something.
    forgotten: HashSet<u64>,
    /// Every device seen, the root's first: the position is part of the numbers.
    devices: Vec<u64>,
    made_up: u64,
}

/// Whose names to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    All,
    NoDirectories,
}

/// All nodes. `by_number` has all; `by_identity` those whose inode was not seen used for another object.
#[derive(Debug)]
pub struct Table {
    nodes: RwLock<Nodes>,
    hasher: RandomState,
    opened: Arc<Opened>,
}

impl Table {
    pub fn new(root: OwnedFd, stat: Stat, opened: Arc<Opened>) -> Table {
        let mut nodes = Nodes::default();
        nodes.devices.push(stat.identity().device);
        let found = Found {
            place: root,
            home: None,
            number: ROOT,
            shown_inode: stat.identity().inode,
            stat,
        };
        // The kernel never forgets the root.
        nodes.insert(Node::new(found, &opened));
        Table {
            nodes: RwLock::new(nodes),
            hasher: RandomState::new(),
            opened,
        }
    }

    pub fn get(&self, number: u64) -> Option<Arc<Node>> {
        let nodes = self.read();
        nodes
            .by_number
            .get(&number)
            .map(|known| Arc::clone(&known.node))
    }

    /// The node of this object, if the kernel knows it.
    pub fn find(&self, stat: &Stat) -> Option<Arc<Node>> {
        let nodes = self.read();
        let number = nodes.by_identity.get(&stat.identity())?;
        let known = nodes.by_number.get(number)?;
        Some(Arc::clone(&known.node)).filter(|node| node.is_same_as(stat))
    }

    /// The node of this object, counted once more. The kernel must be told of it, or `forget` be called.
    pub fn look_up(&self, place: OwnedFd, stat: Stat, home: Home) -> Arc<Node> {
        let identity = stat.identity();
        let mut nodes = self.write();
        if let Some(number) = nodes.by_identity.get(&identity).copied() {
            if let Some(known) = nodes.by_number.get_mut(&number) {
                if known.node.is_same_as(&stat) {
                    known.lookups += 1;
                    let node = Arc::clone(&known.node);
                    nodes.forgotten.remove(&number);
                    drop(nodes);
                    node.take_place(place);
                    return node;
                }
            }
        }
        let shown_inode = nodes.shown_inode(identity);
        let found = Found {
            number: nodes.number(identity),
            place,
            home: Some(home),
            shown_inode,
            stat,
        };
        let node = Node::new(found, &self.opened);
        nodes.insert(Arc::clone(&node));
        node
    }

    /// The kernel is told that this is a name of the node.
    pub fn told(&self, node: &Node, home: Home) {
        if node.number() == ROOT || home.parent.number() == node.number() {
            return;
        }
        let name = self.hash(home.parent.number(), &home.name);
        let mut nodes = self.write();
        if !nodes.by_number.contains_key(&node.number()) {
            return;
        }
        self.take_name(&mut nodes, node);
        node.set_home(home, true);
        if let Some(other) = nodes.by_name.insert(name, node.number()) {
            if let Some(known) = nodes.by_number.get(&other) {
                known.node.is_not_told();
            }
        }
    }

    /// It was seen there, but the kernel was not told.
    pub fn moved(&self, node: &Node, home: Home) {
        let mut nodes = self.write();
        let is_known = nodes.by_number.contains_key(&node.number());
        // Else it was us, who told already.
        if is_known && !node.is_told_as(home.parent.number(), &home.name) {
            let name = self.hash(home.parent.number(), &home.name);
            self.take_name(&mut nodes, node);
            node.set_home(home, false);
            nodes.by_name.entry(name).or_insert(node.number());
        }
    }

    /// We took this name of the node away.
    pub fn lost(&self, node: &Node, directory: u64, name: &CStr) {
        if node.home().is_some_and(|home| home.is(directory, name)) {
            let mut nodes = self.write();
            self.take_name(&mut nodes, node);
            node.lost_name(directory, name);
        }
    }

    /// Nothing that the kernel was told is this name, if it was that.
    pub fn untold(&self, directory: u64, name: &CStr) {
        if let Some(node) = self.at_home(directory, name) {
            node.is_not_told();
        }
    }

    /// The node that the kernel has by this name, as far as is known.
    pub fn named(&self, directory: u64, name: &CStr) -> Option<Arc<Node>> {
        self.at_home(directory, name)
            .filter(|node| node.is_told_as(directory, name))
    }

    /// The node that was last seen there.
    pub fn at_home(&self, directory: u64, name: &CStr) -> Option<Arc<Node>> {
        let nodes = self.read();
        let number = nodes.by_name.get(&self.hash(directory, name))?;
        let node = Arc::clone(&nodes.by_number.get(number)?.node);
        drop(nodes);
        let is_there = node.home().is_some_and(|home| home.is(directory, name));
        is_there.then_some(node)
    }

    fn hash(&self, directory: u64, name: &CStr) -> u64 {
        self.hasher.hash_one((directory, name))
    }

    fn take_name(&self, nodes: &mut Nodes, node: &Node) {
        if let Some(home) = node.home() {
            let name = self.hash(home.parent.number(), &home.name);
            if nodes.by_name.get(&name) == Some(&node.number()) {
                nodes.by_name.remove(&name);
            }
        }
        node.is_not_told();
    }

    /// Takes `count` lookups back. When none are left, `last` runs before the number can be given out again;
    /// for a directory only when nothing refers to it.
    pub fn forget(&self, number: u64, count: u64, last: impl FnOnce(&Arc<Node>)) {
        let mut nodes = self.write();
        let Some(known) = nodes.by_number.get_mut(&number) else {
            return;
        };
        known.lookups = known.lookups.saturating_sub(count);
        if known.lookups > 0 || number == ROOT {
            return;
        }
        if known.node.is_directory() && Arc::strong_count(&known.node) > 1 {
            nodes.forgotten.insert(number);
            return;
        }
        let node = self.remove(&mut nodes, number, last);
        // Closing files takes time; the lock is not needed for it.
        drop(nodes);
        drop(node);
    }

    /// Removes directories that the kernel forgot and that nothing refers to any more.
    pub fn sweep(&self, mut last: impl FnMut(&Arc<Node>)) {
        if self.read().forgotten.is_empty() {
            return;
        }
        let mut nodes = self.write();
        let mut removed = Vec::new();
        loop {
            let is_free = |number: &u64| {
                let known = nodes.by_number.get(number);
                known.is_none_or(|known| Arc::strong_count(&known.node) == 1)
            };
            let free: Vec<u64> = nodes.forgotten.iter().copied().filter(is_free).collect();
            if free.is_empty() {
                break;
            }
            // Then perhaps those above them are.
            for number in free {
                nodes.forgotten.remove(&number);
                removed.extend(self.remove(&mut nodes, number, &mut last));
            }
        }
        drop(nodes);
        drop(removed);
    }

    fn remove(
        &self,
        nodes: &mut Nodes,
        number: u64,
        last: impl FnOnce(&Arc<Node>),
    ) -> Option<Arc<Node>> {
        let node = Arc::clone(&nodes.by_number.get(&number)?.node);
        last(&node);
        self.take_name(nodes, &node);
        if nodes.by_identity.get(&node.identity()) == Some(&number) {
            nodes.by_identity.remove(&node.identity());
        }
        nodes.by_number.remove(&number);
        node.leave_home();
        Some(node)
    }

    /// The inode number that programs see: unlike those of other file systems below the source.
    pub fn shown_inode(&self, identity: Identity) -> u64 {
        let nodes = self.read();
        if nodes.devices[0] == identity.device {
            return identity.inode;
        }
        drop(nodes);
        self.write().shown_inode(identity)
    }

    /// Names that the kernel may be asked to forget, at most so many, each once.
    pub fn take_names(&self, count: usize, which: Which) -> Vec<Home> {
        let nodes = self.read();
        let known = nodes.by_number.values().map(|known| &known.node);
        let eligible = known.filter(|node| which == Which::All || !node.is_directory());
        let told: Vec<(Arc<Node>, Home)> = eligible
            .filter_map(|node| Some((Arc::clone(node), node.told_home()?)))
            .take(count)
            .collect();
        for (node, _) in &told {
            node.is_not_told();
        }
        drop(nodes);
        told.into_iter().map(|(_, home)| home).collect()
    }

    pub fn len(&self) -> usize {
        self.read().by_number.len()
    }

    pub fn all(&self) -> Vec<Arc<Node>> {
        let nodes = self.read();
        nodes
            .by_number
            .values()
            .map(|known| Arc::clone(&known.node))
            .collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Nodes> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Nodes> {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Nodes {
    fn insert(&mut self, node: Arc<Node>) {
        let number = node.number();
        self.by_identity.insert(node.identity(), number);
        self.by_number.insert(number, Known { node, lookups: 1 });
    }

    /// Which of the devices seen; there are never so many that it would reach the highest bit.
    fn device_index(&mut self, device: u64) -> u64 {
        let seen = self.devices.iter().position(|&other| other == device);
        let index = seen.unwrap_or_else(|| {
            self.devices.push(device);
            self.devices.len() - 1
        });
        index as u64 % (MADE_UP >> INODE_BITS)
    }

    fn shown_inode(&mut self, identity: Identity) -> u64 {
        identity.inode ^ (self.device_index(identity.device) << INODE_BITS)
    }

    /// The same for the same object at any time, wherever its inode number leaves room for the device. Such
    /// a number is free: its object is another, and two objects share it only after 32768 devices.
    fn number(&mut self, identity: Identity) -> u64 {
        let number = self.shown_inode(identity);
        if identity.inode >> INODE_BITS == 0
            && number > ROOT
            && !self.by_number.contains_key(&number)
        {
            return number;
        }
        self.made_up += 1;
        MADE_UP | self.made_up
    }
}
