//! A file system (FUSE) that shows a directory of another one, complete, and leaves to a [`Content`]
//! how the contents of its files are read, kept and written.
//!
//! ```text
//! kernel -> session (worker threads) -> READ, WRITE ----------> Content -> Node::reading, writing
//!                                    -> everything else -> Tree    ^
//!                                                          watch --+  (changes from outside)
//! ```
//!
//! [`Mount::start`] mounts and returns when the mount answers:
//!
//! ```no_run
//! use pleat_mount::{Direct, Mount, MountOptions};
//! use std::sync::Arc;
//!
//! let options = MountOptions::new("/srv/data", "/mnt/data");
//! let mount = Mount::start(options, Arc::new(Direct))?;
//! mount.wait();
//! # Ok::<(), pleat_mount::MountError>(())
//! ```
//!
//! Names, attributes and data are those of the source directory at any time; the kernel may keep names and
//! attributes for as long as the options say, and data until the watcher sees a change.

mod beside;
mod content;
mod direct;
mod error;
mod face;
mod mount;
mod notify;
mod pages;
mod session;
mod sys;
mod tree;
mod watch;
mod wire;

pub use beside::{Beside, BesideReport};
pub use content::{Content, Ticket};
pub use direct::Direct;
pub use error::MountError;
pub use face::{run, Face, Job, JobError, Report};
pub use mount::{clear_umask, Mount, MountOptions};
pub use notify::Notifier;
pub use pages::Reading;
pub use sys::in_session_of_its_own;
pub use tree::{Node, OwnChange, Source, Stamp, Tree};
