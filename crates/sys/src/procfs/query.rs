//! One mapping of a process, asked for by an address (ioctl PROCMAP_QUERY, since Linux 6.11).

use super::Pid;
use std::fs::File;
use std::os::fd::AsRawFd;

/// `struct procmap_query` of <linux/fs.h>. Names and build IDs are not asked for.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    mapping_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_sizes: [u32; 2],
    names: [u64; 2],
}

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::Ioctl = 0xc068_6611_u32 as libc::Ioctl;

/// Where the mapping begins and ends that an address is in. `None`: there is none, or the kernel cannot be asked.
#[must_use]
pub fn mapping_at(pid: Pid, address: u64) -> Option<(u64, u64)> {
    let maps = File::open(format!("/proc/{pid}/maps")).ok()?;
    let mut query = Query {
        size: size_of::<Query>() as u64,
        address,
        ..Query::default()
    };
    // SAFETY: the kernel reads and writes the structure, of which it is told the size, and no names.
    let result = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
    (result == 0).then_some((query.start, query.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_as_it_is_listed() {
        let pid = std::process::id() as Pid;
        let listed = crate::procfs::maps(pid).unwrap();
        let code = a_mapping_is_as_it_is_listed as fn() as usize as u64;
        let is_around = |one: &&crate::procfs::Mapping| one.start <= code && code < one.end;
        let listed = listed.iter().find(is_around).unwrap();
        match mapping_at(pid, code) {
            Some(bounds) => assert_eq!(bounds, (listed.start, listed.end)),
            None => pleat_testing::skip("the kernel cannot be asked for one mapping (Linux 6.11)"),
        }
        assert_eq!(mapping_at(pid, 1 << 60), None);
    }
}
