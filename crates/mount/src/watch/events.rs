//! A batch of inotify's events, each thing named once.
#![forbid(unsafe_code)]

use crate::tree::Suspect;
use rustix::fs::inotify::{ReadFlags, Reader};
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

const EVENT_BYTES: usize = 16 * 1024;
/// Reads of events in a row; what is left then waits for the next round.
const READS_MAX: usize = 64;

/// Half of a rename.
pub struct Half {
    pub cookie: u32,
    pub watch: i32,
    pub name: CString,
    pub is_from: bool,
}

/// By watch.
#[derive(Default)]
pub struct Batch {
    pub names: HashMap<i32, HashMap<CString, Suspect>>,
    pub files: HashMap<i32, Suspect>,
    /// Directories that are somewhere else now.
    pub moved: HashSet<i32>,
    /// Watches that are over.
    pub ended: Vec<i32>,
    /// In order.
    pub halves: Vec<Half>,
    pub lost_some: bool,
    pub len: usize,
}

impl Batch {
    pub fn read(inotify: &OwnedFd) -> Batch {
        let mut batch = Batch::default();
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut events = Reader::new(inotify, &mut buffer);
        let mut reads = 0;
        while reads < READS_MAX {
            let Ok(event) = events.next() else {
                break;
            };
            batch.add(
                event.wd(),
                event.events(),
                event.cookie(),
                event.file_name(),
            );
            reads += usize::from(events.is_buffer_empty());
        }
        batch
    }

    fn add(&mut self, watch: i32, events: ReadFlags, cookie: u32, name: Option<&CStr>) {
        self.len += 1;
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.lost_some = true;
        } else if events.contains(ReadFlags::IGNORED) {
            self.ended.push(watch);
        } else if events.contains(ReadFlags::MOVE_SELF) {
            self.moved.insert(watch);
        } else {
            self.changed(watch, events, cookie, name);
        }
    }

    fn changed(&mut self, watch: i32, events: ReadFlags, cookie: u32, name: Option<&CStr>) {
        let suspect = if events.contains(ReadFlags::ATTRIB) {
            Suspect::Attributes
        } else {
            Suspect::Anything
        };
        let known = match name {
            Some(name) => {
                if events.intersects(ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO) {
                    self.halves.push(Half {
                        cookie,
                        watch,
                        name: name.to_owned(),
                        is_from: events.contains(ReadFlags::MOVED_FROM),
                    });
                }
                let names = self.names.entry(watch).or_default();
                if !names.contains_key(name) {
                    names.insert(name.to_owned(), suspect);
                }
                names.get_mut(name)
            }
            None => Some(self.files.entry(watch).or_insert(suspect)),
        };
        if let Some(known) = known {
            *known = (*known).max(suspect);
        }
    }
}
