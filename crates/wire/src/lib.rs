//! What agent and supervisor say to each other, and to the kernel about userfaultfd.
//!
//! Both sides build against these layouts: the agent without the standard library, inside somebody
//! else's process; the supervisor with every byte treated as untrusted. Messages travel over a
//! sequenced-packet socket, so one message is one packet. Nothing here allocates.
#![no_std]
#![forbid(unsafe_code)]

pub mod control;
pub mod elf;
pub mod helper;
pub mod injected;
pub mod message;
pub mod uffd;

/// Raised whenever a layout in this crate changes; agent and supervisor must agree.
pub const VERSION: u32 = 18;

/// Environment variable that carries the abstract socket's name to every process of a job.
pub const SOCKET_VARIABLE: &str = "PLEAT_SOCKET";

/// Environment variable with the devices (`st_dev`, decimal, joined by commas) of what the supervisor
/// itself serves files from. Mappings of those stay the kernel's.
pub const DEVICES_VARIABLE: &str = "PLEAT_DEVICES";

/// So many of them at most.
pub const DEVICES_MAX: usize = 16;

/// Environment variable with numbers, joined by commas: of bytes, from which on new mappings of memory are to be asked about by
/// processes that are not managed yet ([`message::MAP_MEMORY`]), without which none are; the supervisor's process id; 1 where
/// processes have their agent from the start because none can be started in them later, else 0; how many filters of system
/// calls (seccomp) the supervisor has; and 1 where it takes conversations that agents offer ([`injected::Offer`]), else 0.
pub const ASK_FROM_VARIABLE: &str = "PLEAT_ASK_FROM";

/// Environment variable that says that the variables above, and the agent in LD_PRELOAD, were added to an environment
/// that had nothing of them. The agent takes them out again.
pub const ADDED_VARIABLE: &str = "PLEAT_ADDED";

/// Bytes in a page.
pub const PAGE: usize = 4096;
