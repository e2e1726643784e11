//! What the watcher asks: names as the source has them, beside what the kernel was told.
#![forbid(unsafe_code)]

use super::stat::Stat;
use super::trust::Trust;
use super::{Home, Node, Tree};
use std::ffi::CStr;
use std::sync::Arc;

/// A name that something happened to.
pub(crate) enum Compared {
    /// The kernel has under it what is there.
    AsTold(Arc<Node>),
    /// The kernel may have something else, or nothing. The nodes, if it knows them, that it was told of and
    /// that is there.
    Other {
        told: Option<Arc<Node>>,
        found: Option<Arc<Node>>,
    },
}

impl Tree {
    pub(crate) fn compare(&self, directory: &Node, name: &CStr) -> Compared {
        let told = self.table.named(directory.number(), name);
        let stat = directory
            .place()
            .and_then(|place| Stat::named(&place, name));
        let found = stat.ok().and_then(|stat| self.table.find(&stat));
        match (&told, &found) {
            (Some(told), Some(found)) if Arc::ptr_eq(told, found) => {
                Compared::AsTold(Arc::clone(told))
            }
            _ => Compared::Other { told, found },
        }
    }

    /// The kernel is about to be told that this name is not what it was.
    pub(crate) fn untold(&self, directory: &Node, name: &CStr) {
        self.table.untold(directory.number(), name);
    }

    /// What was last seen under this name.
    pub(crate) fn last_seen_as(&self, directory: &Node, name: &CStr) -> Option<Arc<Node>> {
        self.table.at_home(directory.number(), name)
    }

    /// Somebody else moved a node there; false if it is not there (any more).
    pub(crate) fn moved(&self, node: &Node, home: Home) -> bool {
        let stat = home
            .parent
            .place()
            .and_then(|place| Stat::named(&place, &home.name));
        let is_there = stat.is_ok_and(|stat| node.is_same_as(&stat));
        if is_there {
            self.table.moved(node, home);
        }
        is_there
    }

    /// Everything that the kernel knows.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.table.all()
    }

    /// Whether the kernel may believe this file's attributes for long.
    pub(crate) fn is_trusted(&self, node: &Node) -> bool {
        self.trust_in(node) != Trust::None
    }

    /// Whether the watch of its directory does not tell of every change of the file.
    pub(crate) fn needs_own_watch(&self, node: &Node) -> bool {
        self.trust_in(node) == Trust::None || node.stat().is_ok_and(|stat| stat.links() > 1)
    }
}
