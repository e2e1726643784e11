//! Names: which are allowed, and taking away, moving and linking what has them.
#![forbid(unsafe_code)]

use super::source::path_of;
use super::stat::Stat;
use super::{errno, Node, Tree};
use fuse_backend_rs::api::filesystem::Entry;
use rustix::fs::{AtFlags, RenameFlags, CWD};
use std::ffi::CStr;
use std::io;

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
        let file = self.file_named(&directory, name);
        let _ours = file.as_deref().map(Node::changing);
        Ok(rustix::fs::unlinkat(directory.place(), name, flags)?)
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
        let moved = self.file_named(&old, from.1);
        let replaced = self.file_named(&new, to.1);
        let _ours = [&moved, &replaced].map(|file| file.as_deref().map(Node::changing));
        // The kernel looked at the flags; those that the source does not have it refuses itself.
        let flags = RenameFlags::from_bits_retain(flags);
        Ok(rustix::fs::renameat_with(
            old.place(),
            from.1,
            new.place(),
            to.1,
            flags,
        )?)
    }

    pub(super) fn link_object(&self, number: u64, parent: u64, name: &CStr) -> io::Result<Entry> {
        check(name)?;
        let node = self.known(number)?;
        let directory = self.known(parent)?;
        {
            let _ours = node.changing();
            // By way of /proc: linking a descriptor itself is for root only.
            let object = path_of(node.place());
            let flags = AtFlags::SYMLINK_FOLLOW;
            rustix::fs::linkat(CWD, object, directory.place(), name, flags)?;
        }
        self.admit(node.place().try_clone_to_owned()?, &directory, name)
    }

    pub(super) fn target(&self, number: u64) -> io::Result<Vec<u8>> {
        let node = self.known(number)?;
        let target = rustix::fs::readlinkat(node.place(), c"", Vec::new())?;
        Ok(target.into_bytes())
    }

    pub(super) fn find(&self, parent: u64, name: &CStr) -> io::Result<Entry> {
        check(name)?;
        let directory = self.known(parent)?;
        match self.look_up(&directory, name) {
            // Number 0: the kernel may remember for a while that there is no such name.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Entry {
                entry_timeout: self.entry_timeout,
                ..Entry::default()
            }),
            answer => answer,
        }
    }

    pub(super) fn look_again(&self, number: u64) -> io::Result<(std::sync::Arc<Node>, Stat)> {
        let node = self.known(number)?;
        let stat = node.stat()?;
        let stat = self.seen(&node, stat);
        Ok((node, stat))
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
