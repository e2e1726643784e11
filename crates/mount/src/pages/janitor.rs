//! Dropping from the host's page cache what was written through it: the mount holds it already.
//!
//! Pages that are not on disk yet cannot be dropped. Their writing is begun, and they are dropped a few
//! seconds later.
#![forbid(unsafe_code)]

use crate::sys;
use crate::tree::Source;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Looks at a file after its last write.
const LOOKS: u32 = 4;

/// The files written to lately, by the address of their source.
#[derive(Default)]
pub(super) struct Janitor {
    written: Mutex<HashMap<usize, (Weak<Source>, u32)>>,
}

impl Janitor {
    /// The file was written to.
    pub(super) fn wrote(&self, source: &Arc<Source>) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Arc::as_ptr(source) as usize;
        written.insert(key, (Arc::downgrade(source), LOOKS));
    }

    /// Drops what can be; to be called once a second.
    pub(super) fn tidy(&self) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let mut files = Vec::new();
        written.retain(|_, (source, looks)| {
            *looks -= 1;
            files.extend(source.upgrade());
            *looks > 0
        });
        drop(written);
        for source in files {
            // Where it does not work, the pages go when the host wants them.
            let _ = sys::begin_to_write(source.file());
            let _ = sys::drop_cached(source.file(), 0, 0);
        }
    }
}
