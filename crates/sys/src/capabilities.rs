//! Capabilities of files, as the kernel keeps them: the extended attribute `security.capability`.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const ATTRIBUTE: &CStr = c"security.capability";
/// `VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE`.
const HEADER: u32 = 0x0200_0000 | 1;
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_SYS_PTRACE: u32 = 19;

/// Gives a program what `pleat-helper` needs: CAP_DAC_OVERRIDE, to open the device, and CAP_SYS_PTRACE.
///
/// # Errors
/// Not root, or a file system without capabilities.
pub fn give_to_helper(path: &Path) -> io::Result<()> {
    let permitted = 1 << CAP_DAC_OVERRIDE | 1 << CAP_SYS_PTRACE;
    // Permitted and inheritable, the low words, then the high ones; little-endian on disk.
    let words = [HEADER, permitted, 0, 0, 0].map(u32::to_le);
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both names end with a zero, and the value has the size that is given.
    checked(unsafe {
        let size = size_of_val(&words);
        libc::setxattr(
            path.as_ptr(),
            ATTRIBUTE.as_ptr(),
            words.as_ptr().cast(),
            size,
            0,
        )
    })
}

/// Takes all capabilities off a program; it is no error if it has none.
///
/// # Errors
/// Not root.
pub fn take(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both names end with a zero.
    match checked(unsafe { libc::removexattr(path.as_ptr(), ATTRIBUTE.as_ptr()) }) {
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(()),
        result => result,
    }
}

fn checked(result: i32) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
