//! Takes away what is left in a process of an agent that has ended: the copy of the library, and the area behind it.

use super::{answer, choose, find_syscall, memory, Image, InjectError, TraceError, Tracee};
use pleat_wire::injected::{Injected, AREA_LEN};
use std::mem::size_of;
use std::time::{Duration, Instant};

/// An agent's thread that was told to end is waited for so long at a time.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// What an agent was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remains {
    /// The process.
    pub pid: i32,
    /// The agent's thread, as it is numbered here.
    pub thread: i32,
    /// The copy of the library; its first address.
    pub image: u64,
    /// The agent's area behind that; its first address.
    pub area: u64,
}

/// Unmaps them, by a thread of the process that is stopped for that moment. To be called on a thread that ends soon afterwards.
///
/// # Errors
/// It is not there any more, or no thread could be made to; then it stays, unused. Where that is busy it may be tried again, on another
/// thread.
pub fn clear_up(remains: &Remains, image: &Image) -> Result<(), InjectError> {
    let Remains { pid, thread, .. } = *remains;
    let start = Instant::now();
    let task = format!("/proc/{pid}/task/{thread}");
    while std::path::Path::new(&task).exists() {
        if start.elapsed() > GONE_WITHIN {
            return Err(TraceError::Busy.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let place = find_syscall(pid)?;
    let tracee = Tracee::stop(choose(pid).ok_or(TraceError::Busy)?)?;
    // The process may have executed another program before it stood still, and may have anything there.
    let is_there = is_there(remains, image);
    let len = remains.area + AREA_LEN as u64 - remains.image;
    let arguments = [remains.image, len, 0, 0, 0, 0];
    let unmapped = match is_there {
        true => {
            let unmapped = tracee.call(place, libc::SYS_munmap, arguments)?;
            answer("unmap memory", unmapped).map(|_| ())
        }
        false => Err(TraceError::Gone.into()),
    };
    tracee.release()?;
    unmapped
}

/// Whether a copy of the library lies there, which was told so.
fn is_there(remains: &Remains, image: &Image) -> bool {
    let mut given = [0; size_of::<Injected>()];
    let Some(own) = remains.image.checked_add(image.span()) else {
        return false;
    };
    let is_read = memory::read(remains.pid, image.given_at(remains.image), &mut given).is_ok();
    let given = crate::read_plain::<Injected>(&given);
    let told = given.map(|given| (given.image, given.area));
    is_read && own == remains.area && told == Some(([remains.image, own], own))
}
