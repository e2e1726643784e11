//! Memory for a secret: never on the swap device, in a core dump, or in a forked child; wiped at the end.
//!
//! The cipher's key lives here with all that is computed from it. This is the only unsafe code of
//! sealing. What it cannot keep away: a debugger, root, and registers that the kernel saves.

use super::error::SealError;
use std::io;
use std::mem::{needs_drop, size_of, MaybeUninit};
use std::ptr::{self, NonNull};
use std::sync::atomic::{compiler_fence, AtomicU32, Ordering};

/// Raw bytes that the value is made from.
pub const SECRET_BYTES: usize = 32;
/// Marks a page that still holds its value; what a forked child sees is all zero.
const PRESENT: u32 = 0x5EA1_5EA1;
/// More than any frame below [`Locked::make_in_place`] reaches down.
const STACK_BYTES: usize = 32 * 1024;

#[repr(C)]
struct Page<T> {
    present: AtomicU32,
    /// Only while the value is made.
    secret: [u8; SECRET_BYTES],
    value: MaybeUninit<T>,
}

/// A value in locked memory of its own.
pub struct Locked<T> {
    page: NonNull<Page<T>>,
}

// SAFETY: the page belongs to this value alone, as if it were a box.
unsafe impl<T: Send> Send for Locked<T> {}
// SAFETY: a shared `Locked<T>` gives out nothing but `&T`.
unsafe impl<T: Sync> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// Has `make` fill the secret and compute the value from it; the secret and what `make` left on
    /// the stack are wiped.
    ///
    /// # Errors
    /// When the system does not lock or hide the memory, or what `make` answers.
    pub fn new(
        make: impl FnOnce(&mut [u8; SECRET_BYTES]) -> Result<T, SealError>,
    ) -> Result<Locked<T>, SealError> {
        // A child has zeros in place of the value: there would be nothing to drop.
        const { assert!(!needs_drop::<T>() && align_of::<Page<T>>() <= 4096) };
        let locked = Locked { page: map::<T>()? };
        locked.lock_and_hide()?;
        let made = locked.make_in_place(make);
        wipe_stack();
        made.map(|()| locked)
    }

    /// The value, or `None` in a forked child.
    pub fn get(&self) -> Option<&T> {
        let page = self.page.as_ptr();
        // SAFETY: the page is mapped until drop, and zeros are an AtomicU32 too.
        if unsafe { &(*page).present }.load(Ordering::Relaxed) != PRESENT {
            return None;
        }
        // SAFETY: `new` wrote the value before the mark, and returned before anybody could ask; it is
        // never written again. The mark and the value vanish together, in a child and nowhere else.
        Some(unsafe { (*page).value.assume_init_ref() })
    }

    fn lock_and_hide(&self) -> Result<(), SealError> {
        let (start, bytes) = (self.page.as_ptr().cast(), size_of::<Page<T>>());
        // SAFETY: no content is changed; the range is part of our mapping.
        if unsafe { libc::mlock(start, bytes) } != 0 {
            return Err(SealError::Lock(io::Error::last_os_error()));
        }
        for advice in [libc::MADV_DONTDUMP, libc::MADV_WIPEONFORK] {
            // SAFETY: as above; both advices concern other processes than this one.
            if unsafe { libc::madvise(start, bytes, advice) } != 0 {
                return Err(SealError::Hide(io::Error::last_os_error()));
            }
        }
        Ok(())
    }

    /// A frame of its own, so that all copies that moves leave on the stack are below the caller's.
    #[inline(never)]
    fn make_in_place(
        &self,
        make: impl FnOnce(&mut [u8; SECRET_BYTES]) -> Result<T, SealError>,
    ) -> Result<(), SealError> {
        let page = self.page.as_ptr();
        // SAFETY: zeroed memory of the right size and alignment, and nobody else has it yet.
        let secret = unsafe { &mut (*page).secret };
        let made = make(secret);
        // SAFETY: it is ours, and an array of bytes.
        unsafe { wipe(secret.as_mut_ptr(), SECRET_BYTES) };
        let value = made?;
        // SAFETY: as above; the value has its place there and needs no drop.
        unsafe {
            (*page).value.write(value);
            (*page).present = AtomicU32::new(PRESENT);
        }
        Ok(())
    }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        let (page, bytes) = (self.page.as_ptr(), size_of::<Page<T>>());
        // SAFETY: mapped by `map` with this size, borrowed by nobody any more; T needs no drop.
        unsafe {
            wipe(page.cast(), bytes);
            libc::munmap(page.cast(), bytes);
        }
    }
}

fn map<T>() -> Result<NonNull<Page<T>>, SealError> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping where the kernel likes, which changes no memory of anybody.
    let start = unsafe { libc::mmap(ptr::null_mut(), size_of::<Page<T>>(), access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(SealError::Memory(io::Error::last_os_error()));
    }
    NonNull::new(start.cast()).ok_or(SealError::Memory(io::ErrorKind::OutOfMemory.into()))
}

/// Overwrites what the calls that have just returned left behind.
#[inline(never)]
fn wipe_stack() {
    let mut stack = [MaybeUninit::<u8>::uninit(); STACK_BYTES];
    // SAFETY: as large as the array, which lives until the end of the function.
    unsafe { wipe(stack.as_mut_ptr().cast(), STACK_BYTES) };
}

/// Zeros in a way that the compiler cannot leave out.
///
/// # Safety
/// The range must be writable, and nobody else may use it.
unsafe fn wipe(start: *mut u8, bytes: usize) {
    for at in 0..bytes {
        // SAFETY: inside the range that the caller vouches for.
        unsafe { start.add(at).write_volatile(0) };
    }
    compiler_fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests;
