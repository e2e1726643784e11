//! Pages leave memory sealed: encrypted with a tag, or plain with a checksum, and known again on return.
//!
//! The engine closes a page just before it joins a write, and opens it right after a read. A disk that
//! flips a bit, answers with an older version, exchanges two blocks or tears a write is found out here,
//! and never becomes wrong bytes in the program's memory.
//!
//! ```text
//!   room   | page, len bytes           | tag | ...       the tag fits behind the page
//!   room   | page, len bytes                 |           it does not: kept in memory, by offset
//! ```
//!
//! [`Seal`] is the whole interface, but for `fingerprint`, which tells whether a page is what it was. `cipher` and `checksum` compute tags, `tags` keeps those that find
//! no room, `locked` keeps the key from the swap device, core dumps and forked children.
//! `examples/seal_speed.rs` measures it.

mod checksum;
mod cipher;
mod error;
mod fingerprint;
mod locked;
mod page;
mod tags;
#[cfg(test)]
mod tests;

pub use checksum::checksum;
pub use error::{Damaged, SealError};
pub use fingerprint::{Fingerprint, Fingerprints};
pub use page::{Identity, Protection, Seal};
