//! How long the kernel may believe what it is told.
//!
//! Long only if any later change raises an event: the watch was there before the source was asked. Whoever
//! answers takes a [`Trust`] first, then looks, then answers. A change between is heard of while the kernel
//! still waits for the answer, and the watcher's word reaches it after the answer or makes it void: a dropped
//! name waits for whoever looks up in that directory, dropped attributes outdate those asked for before.
#![forbid(unsafe_code)]

use super::stat::Stat;
use super::{Node, Tree};
use fuse_backend_rs::api::filesystem::Entry;
use std::sync::Arc;
use std::time::Duration;

/// What raised no event that was lost leaves no trace either, where there is no name: so not for long.
const ABSENCE_MAX: Duration = Duration::from_secs(60);

/// What vouches for an answer. Newer watches do not: they are taken before the source is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    None,
    /// The directory's watch tells of its names, and of files that have no name elsewhere.
    Names,
    /// The file's own watch.
    Own,
}

impl Tree {
    /// In names of this directory; sees to it that there is more trust next time.
    pub(super) fn trust_names_in(&self, directory: &Arc<Node>) -> Trust {
        if directory.has_watch() {
            return Trust::Names;
        }
        self.watch(directory);
        Trust::None
    }

    /// In attributes of a node.
    pub(super) fn trust_in(&self, node: &Node) -> Trust {
        if !node.is_file() {
            Trust::None
        } else if node.has_watch() {
            Trust::Own
        } else {
            match node.told_home() {
                Some(home) if home.parent.has_watch() => Trust::Names,
                _ => Trust::None,
            }
        }
    }

    /// What the kernel is told of a node that was just looked at.
    pub(super) fn entry(&self, node: &Node, stat: Stat, trust: Trust) -> Entry {
        let entry_timeout = match trust {
            Trust::None => self.entry_timeout,
            Trust::Names | Trust::Own => self.watched_timeout,
        };
        let stat = self.seen(node, stat);
        Entry {
            inode: node.number(),
            generation: node.generation(),
            attr: stat.attributes(node.shown_inode()),
            attr_flags: 0,
            attr_timeout: self.attr_timeout(node, &stat, trust),
            entry_timeout,
        }
    }

    pub(super) fn attr_timeout(&self, node: &Node, stat: &Stat, trust: Trust) -> Duration {
        match trust {
            Trust::Own => self.watched_timeout,
            Trust::Names if node.is_file() && stat.links() == 1 => self.watched_timeout,
            _ => self.attr_timeout,
        }
    }

    /// For a name that is not there.
    pub(super) fn absence_timeout(&self, trust: Trust) -> Duration {
        match trust {
            Trust::None => self.entry_timeout,
            Trust::Names | Trust::Own => self.watched_timeout.min(ABSENCE_MAX),
        }
    }
}
