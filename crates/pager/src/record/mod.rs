//! `--record`: the page references of a job, written as a trace while it runs.
//!
//! A pager sees faults, and no use of a page that is in memory. So while recording only a small set of
//! pages stays in memory (`Engine::limit_resident`), one page is filled per fault, and the faults are
//! the trace: a reduced one, as by Kaplan, Smaragdakis and Wilson (*Trace Reduction for Virtual Memory
//! Simulations*, SIGMETRICS 1999). `docs/traces.md` tells what it is good for.
//!
//! Address spaces are the trace's processes, each with one region, whose pages are numbered as in the
//! program. Called by the threads of spaces and by folding threads; nothing here waits for the disk
//! longer than [`blocks`] lets it, and what goes wrong ends the recording, never the job.

mod blocks;

use crate::shared::lock;
use blocks::Blocks;
use pleat_trace::{Access, ProcessNo, Reference, RegionKind, RegionNo, WriteError, Writer};
use pleat_types::{PageNo, PageRange, SpaceId};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::Instant;

/// What a page counts as that stayed in memory until the end, so that nobody compressed it: half.
const UNKNOWN_BYTES: u16 = 2048;

/// Records until its file takes no more.
pub struct Recorder {
    tape: Mutex<Option<Tape>>,
    /// Why it ended too early.
    error: Mutex<Option<String>>,
    /// The error is still to be told.
    is_news: AtomicBool,
    references: AtomicU64,
    start: Instant,
}

struct Tape {
    writer: Writer<Blocks>,
    spaces: HashMap<SpaceId, Place>,
}

/// An address space in the trace.
struct Place {
    began_ns: u64,
    /// Many only start another program: a process of the trace is one that touches something.
    name: Option<(ProcessNo, RegionNo)>,
}

impl Recorder {
    /// Begins a trace in an empty file.
    pub fn start(file: File) -> io::Result<Recorder> {
        let writer = Writer::new(Blocks::start(file)?).map_err(io::Error::other)?;
        Ok(Recorder {
            tape: Mutex::new(Some(Tape {
                writer,
                spaces: HashMap::new(),
            })),
            error: Mutex::new(None),
            is_news: AtomicBool::new(false),
            references: AtomicU64::new(0),
            start: Instant::now(),
        })
    }

    /// An address space begins.
    pub fn begin(&self, space: SpaceId) {
        let place = Place {
            began_ns: self.start.elapsed().as_nanos() as u64,
            name: None,
        };
        if let Some(tape) = lock(&self.tape).as_mut() {
            tape.spaces.insert(space, place);
        }
    }

    /// A page was touched, after so much computing. Budget: 100 ns.
    pub fn touched(&self, space: SpaceId, page: PageNo, access: Access, think_ns: u64) {
        self.put_for(space, |writer, process, region| {
            self.references.fetch_add(1, Ordering::Relaxed);
            let reference = Reference {
                think_ns,
                region,
                page,
                access,
            };
            writer.reference(process, reference)
        });
    }

    /// Pages were there when they were first looked for: written just now, in the order of their
    /// addresses, for all that is known.
    pub fn found(&self, space: SpaceId, range: PageRange) {
        for page in range.pages() {
            self.touched(space, page, Access::Write, 0);
        }
    }

    /// A page was compressed to so many bytes.
    pub fn folded(&self, space: SpaceId, page: PageNo, bytes: u16) {
        self.put_for(space, |writer, process, region| {
            writer.size(process, region, page, bytes)
        });
    }

    /// An address space is gone.
    pub fn end(&self, space: SpaceId) {
        self.put(
            |tape| match tape.spaces.remove(&space).and_then(|place| place.name) {
                Some((process, _)) => tape.writer.ended(process),
                None => Ok(()),
            },
        );
    }

    /// Why recording has ended too early; told once.
    pub fn news(&self) -> Option<String> {
        match self.is_news.swap(false, Ordering::AcqRel) {
            true => lock(&self.error).clone(),
            false => None,
        }
    }

    /// Completes the trace, waiting for the disk; says how many references it has, or why it is not
    /// complete.
    pub fn finish(&self) -> Result<u64, String> {
        if let Some(tape) = lock(&self.tape).take() {
            let finished = tape.writer.finish().map_err(|error| error.to_string());
            finished.and_then(|blocks| blocks.finish().map_err(|error| error.to_string()))?;
        }
        match lock(&self.error).clone() {
            Some(error) => Err(error),
            None => Ok(self.references.load(Ordering::Relaxed)),
        }
    }

    fn put_for(
        &self,
        space: SpaceId,
        put: impl FnOnce(&mut Writer<Blocks>, ProcessNo, RegionNo) -> Result<(), WriteError>,
    ) {
        self.put(|tape| {
            let Some(place) = tape.spaces.get_mut(&space) else {
                return Ok(());
            };
            let (process, region) = place.named(&mut tape.writer)?;
            put(&mut tape.writer, process, region)
        });
    }

    /// Writes something, or gives up for good.
    fn put(&self, put: impl FnOnce(&mut Tape) -> Result<(), WriteError>) {
        let mut tape = lock(&self.tape);
        let Some(open) = tape.as_mut() else { return };
        if let Err(error) = put(open) {
            *tape = None;
            *lock(&self.error) = Some(error.to_string());
            self.is_news.store(true, Ordering::Release);
        }
    }
}

impl Place {
    fn named(&mut self, writer: &mut Writer<Blocks>) -> Result<(ProcessNo, RegionNo), WriteError> {
        if let Some(name) = self.name {
            return Ok(name);
        }
        let process = writer.process(self.began_ns)?;
        let region = writer.region(RegionKind::Anonymous, UNKNOWN_BYTES)?;
        self.name = Some((process, region));
        Ok((process, region))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pleat_trace::{Reader, Source};
    use std::io::{Read, Seek};

    fn references(source: &mut impl Source, process: u32) -> Vec<u64> {
        std::iter::from_fn(|| source.next(ProcessNo(process)))
            .map(|reference| reference.page.0)
            .collect()
    }

    #[test]
    fn every_space_is_a_process_with_pages_of_its_own() {
        let path = std::env::temp_dir().join(format!("pleat-record-{}", std::process::id()));
        let mut file = {
            let mut options = File::options();
            options.read(true).write(true).create_new(true);
            options.open(&path).unwrap()
        };
        let _ = std::fs::remove_file(&path);
        let recorder = Recorder::start(file.try_clone().unwrap()).unwrap();
        let (parent, child, silent) = (SpaceId(0), SpaceId(7), SpaceId(1));
        recorder.begin(silent);
        recorder.begin(parent);
        recorder.found(parent, PageRange::new(PageNo(10), 3));
        recorder.begin(child);
        recorder.touched(child, PageNo(11), Access::Read, 500);
        recorder.folded(child, PageNo(11), 1234);
        recorder.end(child);
        recorder.folded(child, PageNo(11), 99);
        recorder.touched(parent, PageNo(5), Access::Write, 0);
        recorder.touched(SpaceId(9), PageNo(5), Access::Write, 0);
        recorder.end(silent);
        assert_eq!(recorder.finish(), Ok(5));
        assert_eq!(recorder.news(), None);
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let mut trace = Reader::new(bytes).unwrap();
        assert_eq!((trace.processes(), trace.regions().len()), (2, 2));
        assert_eq!(references(&mut trace, 0), [10, 11, 12, 5]);
        assert_eq!(references(&mut trace, 1), [11]);
        assert_eq!(trace.compressed_bytes(RegionNo(1), PageNo(11)), 1234);
        assert_eq!(
            trace.compressed_bytes(RegionNo(0), PageNo(11)),
            UNKNOWN_BYTES
        );
    }

    #[test]
    fn a_full_disk_ends_the_recording_and_says_so_once() {
        // Its writes fail with ENOSPC.
        let full = File::options().write(true).open("/dev/full").unwrap();
        let recorder = Recorder::start(full).unwrap();
        recorder.begin(SpaceId(0));
        let limit = Instant::now();
        let news = loop {
            assert!(limit.elapsed().as_secs() < 60, "nobody noticed");
            // Far apart, so that it takes many bytes.
            (0..10_000).for_each(|at| {
                recorder.touched(SpaceId(0), PageNo(at * 7919 % 100_003), Access::Read, at);
            });
            if let Some(news) = recorder.news() {
                break news;
            }
        };
        assert!(news.contains("No space left"), "{news}");
        assert_eq!(recorder.news(), None);
        assert_eq!(recorder.finish(), Err(news));
    }
}
