//! Where compressed pages live in memory.
//!
//! A layout knows sizes and handles, not page identities, and accounts for every byte it holds.
//!
//! | name | from | items are |
//! |---|---|---|
//! | `bins` | pleat | slots of 128 sizes, each size a stack with few holes |
//! | `cells1`, `cells2`, `cells4` | castro03 | where they fit best in cells of 1, 2 or 4 frames |
//! | `blocks` | cpc08 | split into at most five power-of-two blocks |
//! | `buffers` | cervera99 | appended to frames that go to disk as they are |
//! | `ring` | douglis93 | one behind the other in a circle of frames |
//!
//! ```
//! use pleat_store::{layout_by_name, Growth};
//! let mut store = layout_by_name("bins", 64 << 20).expect("a known layout");
//! let handle = store.insert(b"compressed page", Growth::Allowed).expect("growth is allowed");
//! let mut read = Vec::new();
//! store.read_into(handle, &mut read);
//! assert_eq!(read, b"compressed page");
//! store.remove(handle);
//! assert_eq!(store.usage().frames_bytes, 0);
//! ```
#![deny(unsafe_code)]

mod arena;
mod bins;
mod blocks;
mod buffers;
mod cells;
mod chain;
mod frame_set;
mod layout;
#[cfg(test)]
mod model;
mod placed;
mod recent;
mod ring;
mod size_index;
mod slab;

pub use arena::Release;
pub use bins::Bins;
pub use blocks::Blocks;
pub use buffers::Buffers;
pub use cells::{Cells, PagesPerCell};
pub use layout::{FrameStates, Full, Growth, Handle, Layout, Usage};
pub use ring::Ring;

/// The names [`layout_by_name`] knows, the default first.
pub fn layout_names() -> &'static [&'static str] {
    &[
        "bins", "cells1", "cells2", "cells4", "blocks", "buffers", "ring",
    ]
}

/// An empty layout, ready for `max_bytes` bytes of items and more.
///
/// `None` when [`layout_names`] does not list `name`, or when the system refuses the address
/// space, a little over twice `max_bytes` (`ulimit -v`, or strict overcommit).
pub fn layout_by_name(name: &str, max_bytes: u64) -> Option<Box<dyn Layout>> {
    let cells =
        |pages| -> Option<Box<dyn Layout>> { Some(Box::new(Cells::new(pages, max_bytes).ok()?)) };
    match name {
        "bins" => Some(Box::new(Bins::new(max_bytes).ok()?)),
        "cells1" => cells(PagesPerCell::One),
        "cells2" => cells(PagesPerCell::Two),
        "cells4" => cells(PagesPerCell::Four),
        "blocks" => Some(Box::new(Blocks::new(max_bytes).ok()?)),
        "buffers" => Some(Box::new(Buffers::new(max_bytes).ok()?)),
        "ring" => Some(Box::new(Ring::new(max_bytes).ok()?)),
        _ => None,
    }
}
