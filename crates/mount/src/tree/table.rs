//! Which nodes the kernel knows, and how often it was told of each.
#![forbid(unsafe_code)]

use super::node::{Found, Node};
use super::source::OpenSources;
use super::stat::{Identity, Stat};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
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
    /// A name by which the kernel may have it, unless it was asked to forget that already.
    name: Option<Name>,
}

#[derive(Debug, Default)]
struct Nodes {
    by_number: HashMap<u64, Known>,
    by_identity: HashMap<Identity, u64>,
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

/// Directory and name in it.
pub type Name = (u64, CString);

/// All nodes. `by_number` and `by_identity` have the same nodes.
#[derive(Debug)]
pub struct Table {
    nodes: RwLock<Nodes>,
    sources: Arc<OpenSources>,
}

impl Table {
    pub fn new(root: OwnedFd, stat: Stat, sources: Arc<OpenSources>) -> Table {
        let mut nodes = Nodes::default();
        nodes.devices.push(stat.identity().device);
        let found = Found {
            place: root,
            number: ROOT,
            shown_inode: stat.identity().inode,
            stat,
        };
        let node = Node::new(found, &sources);
        // The kernel never forgets the root.
        nodes.insert(node, None);
        Table {
            nodes: RwLock::new(nodes),
            sources,
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
    pub fn find(&self, identity: Identity) -> Option<Arc<Node>> {
        let nodes = self.read();
        let number = nodes.by_identity.get(&identity)?;
        nodes
            .by_number
            .get(number)
            .map(|known| Arc::clone(&known.node))
    }

    /// The node of this object, counted once more. The kernel must be told of it, or `forget` be called.
    pub fn look_up(&self, place: OwnedFd, stat: Stat, directory: u64, name: &CStr) -> Arc<Node> {
        let name = Some((directory, name.to_owned()));
        let identity = stat.identity();
        let mut nodes = self.write();
        if let Some(number) = nodes.by_identity.get(&identity).copied() {
            if let Some(known) = nodes.by_number.get_mut(&number) {
                known.lookups += 1;
                known.name = name;
                return Arc::clone(&known.node);
            }
        }
        let shown_inode = nodes.shown_inode(identity);
        let found = Found {
            number: nodes.number(identity),
            place,
            shown_inode,
            stat,
        };
        let node = Node::new(found, &self.sources);
        nodes.insert(Arc::clone(&node), name);
        node
    }

    /// Takes `count` lookups back. When none are left, `last` runs before the number can be given out again.
    pub fn forget(&self, number: u64, count: u64, last: impl FnOnce(&Arc<Node>)) {
        let mut nodes = self.write();
        let Some(known) = nodes.by_number.get_mut(&number) else {
            return;
        };
        known.lookups = known.lookups.saturating_sub(count);
        if known.lookups > 0 || number == ROOT {
            return;
        }
        let node = Arc::clone(&known.node);
        last(&node);
        nodes.by_identity.remove(&node.identity());
        nodes.by_number.remove(&number);
        // Closing files takes time; the lock is not needed for it.
        drop(nodes);
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
    pub fn take_names(&self, count: usize, which: Which) -> Vec<Name> {
        let mut nodes = self.write();
        let known = nodes.by_number.values_mut();
        let eligible = known.filter(|known| which == Which::All || !known.node.is_directory());
        eligible
            .filter_map(|known| known.name.take())
            .take(count)
            .collect()
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
    fn insert(&mut self, node: Arc<Node>, name: Option<Name>) {
        let number = node.number();
        self.by_identity.insert(node.identity(), number);
        let known = Known {
            node,
            lookups: 1,
            name,
        };
        self.by_number.insert(number, known);
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
