//! Names: which are allowed, and taking away, moving and linking what has them.
#![forbid(unsafe_code)]

use super::place::Home;
use super::source::path_of;
use super::stat::Stat;
use super::trust::Trust;
use super::{errno, Node, Tree};
use fuse_backend_rs::abi::fuse_abi::stat64;
use fuse_backend_rs::api::filesystem::Entry;
use rustix::fs::{AtFlags, RenameFlags, CWD};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// # Errors
/// EINVAL: it would lead somewhere else than to an object of this directory.
pub fn check(name: &CStr) -> io::Result<()> {
    let bytes = name.to_bytes();
    if matches!(bytes, b"" | b"." | b"..") || bytes.contains(&b'/') {
        return Err(errno(libc::EINVAL));
    }
    Ok(())
}

impl Tree {
    pub(super) fn take_away(&self, parent: u64, name: &CStr, flags: AtFlags) -> io::Result<()> {
        check(name)?;
        let directory = self.known(parent)?;
        let above = directory.place()?;
        let object = self.object_named(&above, name);
        // Programs that have it open go on using it.
        let _held = object.as_ref().map(|node| node.hold(&above, name));
        let _ours = object.as_deref().map(Node::changing);
        rustix::fs::unlinkat(&*above, name, flags)?;
        self.table.untold(parent, name);
        if let Some(node) = &object {
            self.table.lost(node, parent, name);
        }
        Ok(())
    }

    pub(super) fn rename_object(
        &self,
        from: (u64, &CStr),
        to: (u64, &CStr),
        flags: u32,
    ) -> io::Result<()> {
        check(from.1)?;
        check(to.1)?;
        let old = self.known(from.0)?;
        let new = self.known(to.0)?;
        let (old_place, new_place) = (old.place()?, new.place()?);
        let moved = self.object_named(&old_place, from.1);
        let replaced = self.object_named(&new_place, to.1);
        // Between the rename and our knowing of it, nobody must look for them.
        let _held = [(&moved, &old_place, from.1), (&replaced, &new_place, to.1)]
            .map(|(node, above, name)| node.as_ref().map(|node| node.hold(above, name)));
        let _ours = [&moved, &replaced].map(|node| node.as_deref().map(Node::changing));
        // The kernel looked at the flags; those that the source does not have it refuses itself.
        let flags = RenameFlags::from_bits_retain(flags);
        rustix::fs::renameat_with(&*old_place, from.1, &*new_place, to.1, flags)?;
        self.table.untold(from.0, from.1);
        self.table.untold(to.0, to.1);
        if flags.contains(RenameFlags::EXCHANGE) {
            if let Some(node) = &replaced {
                self.table.told(node, Home::new(&old, from.1));
            }
        } else if let Some(node) = &replaced {
            self.table.lost(node, to.0, to.1);
        }
        if let Some(node) = &moved {
            self.table.told(node, Home::new(&new, to.1));
        }
        Ok(())
    }

    pub(super) fn link_object(&self, number: u64, parent: u64, name: &CStr) -> io::Result<Entry> {
        check(name)?;
        let node = self.known(number)?;
        let directory = self.known(parent)?;
        let (place, above) = (node.place()?, directory.place()?);
        {
            let _ours = node.changing();
            // By way of /proc: linking a descriptor itself is for root only.
            let object = path_of(place.as_fd());
            let flags = AtFlags::SYMLINK_FOLLOW;
            rustix::fs::linkat(CWD, object, &*above, name, flags)?;
        }
        let entry = self.admit(place.try_clone()?, &directory, name, Trust::None)?;
        self.told(&entry, &directory, name);
        if node.is_watched() {
            // Events of its directory do not tell of changes by the other name.
            self.outside.watch(&node);
        }
        Ok(entry)
    }

    pub(super) fn target(&self, number: u64) -> io::Result<Vec<u8>> {
        let place = self.known(number)?.place()?;
        let target = rustix::fs::readlinkat(&*place, c"", Vec::new())?;
        Ok(target.into_bytes())
    }

    pub(super) fn find(&self, parent: u64, name: &CStr) -> io::Result<Entry> {
        check(name)?;
        let directory = self.known(parent)?;
        let trust = self.trust_names_in(&directory);
        match self.find_in(&directory, name) {
            // Number 0: the kernel may remember for a while that there is no such name.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                self.table.untold(parent, name);
                Ok(Entry {
                    entry_timeout: self.absence_timeout(trust),
                    ..Entry::default()
                })
            }
            answer => answer,
        }
    }

    /// As `look_up`, for an answer that the kernel will take in.
    pub(super) fn find_in(&self, directory: &Arc<Node>, name: &CStr) -> io::Result<Entry> {
        let entry = self.look_up(directory, name)?;
        self.told(&entry, directory, name);
        Ok(entry)
    }

    pub(super) fn told(&self, entry: &Entry, directory: &Arc<Node>, name: &CStr) {
        if let Some(node) = self.node(entry.inode) {
            self.table.told(&node, Home::new(directory, name));
        }
    }

    pub(super) fn look_again(&self, number: u64) -> io::Result<(stat64, Duration)> {
        let node = self.known(number)?;
        let trust = self.trust_in(&node);
        let stat = node.stat().inspect_err(|error| self.doubt(&node, error))?;
        let stat = self.seen(&node, stat);
        let timeout = self.attr_timeout(&node, &stat, trust);
        Ok((stat.attributes(node.shown_inode()), timeout))
    }

    /// The object of this name, if the kernel knows it: its time of change is about to be another.
    fn object_named(&self, directory: &OwnedFd, name: &CStr) -> Option<Arc<Node>> {
        let stat = Stat::named(directory, name).ok()?;
        self.table.find(&stat)
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in [c"", c".", c"..", c"/", c"a/b", c"../etc", c"a/"] {
            assert!(check(name).is_err(), "{name:?}");
        }
        for name in [c"a", c"...", c".hidden", c"with space", c"\\", c"\xff\n"] {
            assert!(check(name).is_ok(), "{name:?}");
        }
    }
}
