//! Another process's memory, by process_vm_readv(2) and process_vm_writev(2).

use std::io;

fn part(address: *mut u8, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: address.cast(),
        iov_len: len,
    }
}

fn whole(done: isize, len: usize) -> io::Result<()> {
    match usize::try_from(done) {
        Ok(done) if done == len => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Reads what is at an address.
///
/// # Errors
/// Not all of it is mapped and readable; the process is gone, or may not be looked at.
pub fn read(pid: i32, address: u64, to: &mut [u8]) -> io::Result<()> {
    let own = part(to.as_mut_ptr(), to.len());
    let theirs = part(address as *mut u8, to.len());
    // SAFETY: the kernel writes to the slice only; the other address is looked up in the other process.
    let done = unsafe { libc::process_vm_readv(pid, &own, 1, &theirs, 1, 0) };
    whole(done, to.len())
}

/// Writes to an address.
///
/// # Errors
/// As [`read`].
pub fn write(pid: i32, address: u64, from: &[u8]) -> io::Result<()> {
    let own = part(from.as_ptr().cast_mut(), from.len());
    let theirs = part(address as *mut u8, from.len());
    // SAFETY: the kernel reads from the slice only; the other address is looked up in the other process.
    let done = unsafe { libc::process_vm_writev(pid, &own, 1, &theirs, 1, 0) };
    whole(done, from.len())
}
