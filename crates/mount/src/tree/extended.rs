//! Extended attributes. By way of /proc, as a descriptor with `O_PATH` is not enough for them; the link there
//! leads to the object itself, be it a symbolic link.
#![forbid(unsafe_code)]

use super::source::path_of;
use super::Tree;
use fuse_backend_rs::api::filesystem::{GetxattrReply, ListxattrReply};
use rustix::fs::{getxattr, getxattr_query, listxattr, listxattr_query, removexattr};
use rustix::fs::{setxattr, XattrFlags};
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;

impl Tree {
    pub(super) fn set_extended(
        &self,
        number: u64,
        name: &CStr,
        value: &[u8],
        flags: u32,
    ) -> io::Result<()> {
        let node = self.known(number)?;
        let _ours = node.changing();
        let flags = XattrFlags::from_bits_retain(flags);
        let place = node.place()?;
        Ok(setxattr(path_of(place.as_fd()), name, value, flags)?)
    }

    /// A size of 0 asks for the size.
    pub(super) fn get_extended(
        &self,
        number: u64,
        name: &CStr,
        size: u32,
    ) -> io::Result<GetxattrReply> {
        let node = self.known(number)?;
        let place = node.place()?;
        let path = path_of(place.as_fd());
        if size == 0 {
            return Ok(GetxattrReply::Count(getxattr_query(path, name)? as u32));
        }
        let mut value = vec![0; size as usize];
        let len = getxattr(path, name, &mut value[..])?;
        value.truncate(len);
        Ok(GetxattrReply::Value(value))
    }

    /// A size of 0 asks for the size.
    pub(super) fn list_extended(&self, number: u64, size: u32) -> io::Result<ListxattrReply> {
        let node = self.known(number)?;
        let place = node.place()?;
        let path = path_of(place.as_fd());
        if size == 0 {
            return Ok(ListxattrReply::Count(listxattr_query(path)? as u32));
        }
        let mut names = vec![0; size as usize];
        let len = listxattr(path, &mut names[..])?;
        names.truncate(len);
        Ok(ListxattrReply::Names(names))
    }

    pub(super) fn remove_extended(&self, number: u64, name: &CStr) -> io::Result<()> {
        let node = self.known(number)?;
        let _ours = node.changing();
        let place = node.place()?;
        Ok(removexattr(path_of(place.as_fd()), name)?)
    }
}
