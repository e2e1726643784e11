//! What is counted beside the engine's own counters.
#![forbid(unsafe_code)]

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A running total.
#[derive(Debug, Default)]
pub struct Meter(AtomicU64);

impl Meter {
    /// So much more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }
}

macro_rules! meters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The running totals of a mount.
        #[derive(Debug, Default)]
        pub struct Meters { $($(#[$doc])* pub $name: Meter,)* }

        /// A reading of them.
        #[derive(Clone, Copy, Debug, Default, Serialize)]
        pub struct Reading { $($(#[$doc])* pub $name: u64,)* }

        impl Meters {
            /// All totals now.
            pub fn read(&self) -> Reading {
                Reading { $($name: self.$name.0.load(Relaxed),)* }
            }
        }
    };
}

meters! {
    /// READ requests.
    reads,
    /// Bytes they were answered with.
    read_bytes,
    /// Bytes of them that came from the source.
    source_bytes,
    /// Reads of the source.
    source_reads,
    /// WRITE requests.
    writes,
    /// Bytes they wrote.
    written_bytes,
    /// Writes before whose answer the kernel's pages were dropped, for they might have been out of date.
    mended_writes,
    /// Pages copied from the kernel's cache.
    retrieved_pages,
    /// Pages dropped from the kernel's cache.
    invalidated_pages,
    /// Pages whose copy was worth nothing.
    void_pages,
    /// Pages that the kernel had dropped by itself before they could be copied.
    lost_pages,
    /// Files that were changed from outside.
    outside_changes,
    /// READ requests that waited for memory.
    memory_waits,
}
