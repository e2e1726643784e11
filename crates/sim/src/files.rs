//! Pages of files: read in runs, written back in runs.

use pleat_types::{PageNo, PageRange, SpaceId, PAGE_SIZE};

use crate::disk::{Direction, Place};
use crate::memory::{Memory, Turn};

const PAGE: u64 = PAGE_SIZE as u64;
/// Changed pages that follow one that is written are written along with it, so many at most: kernels
/// write files in large pieces, whatever made them write.
const WRITTEN_ALONG_MAX: u64 = 256;

/// A run of pages being read, or read and not yet put in place.
pub(crate) struct FileRead {
    space: SpaceId,
    range: PageRange,
    done: u64,
}

/// A run of pages on its way to its file.
pub(crate) struct WriteBack {
    space: SpaceId,
    range: PageRange,
    /// When it is there.
    pub(crate) done: u64,
}

impl Memory {
    /// Reads a run in one request; answers when it is there. A page that another process reads
    /// already is not read again.
    pub(crate) fn read_file(&mut self, turn: &mut Turn, space: SpaceId, run: PageRange) -> u64 {
        if let Some(read) = self.read_of(space, run.start) {
            return self.reading[read].done;
        }
        let mut end = run.start.plus(1);
        while end < run.end && self.read_of(space, end).is_none() {
            end = end.plus(1);
        }
        let range = PageRange {
            start: run.start,
            end,
        };
        turn.submit(self.costs.submit_ns);
        let bytes = range.len() * PAGE;
        let place = Place::File(self.region(space).0, range.start.address());
        let done = self.disk.submit(turn.now, Direction::Read, place, bytes);
        self.meter.read(done - turn.now, range.len());
        self.tell_costs();
        self.reading.push(FileRead { space, range, done });
        done
    }

    fn read_of(&self, space: SpaceId, page: PageNo) -> Option<usize> {
        let holds = |read: &FileRead| read.space == space && read.range.contains(page);
        self.reading.iter().position(holds)
    }

    /// How many pages from this one on have been read. The read is over when its first page is asked
    /// for: that is the process that began it. `None`: the page was put in place and left since.
    pub(crate) fn file_pages_read(&mut self, space: SpaceId, page: PageNo) -> Option<u64> {
        let at = self.read_of(space, page)?;
        let range = self.reading[at].range;
        if range.start == page {
            self.reading.swap_remove(at);
        }
        Some(range.end.0 - page.0)
    }

    /// How many more pages may be on their way to their files.
    pub(crate) fn write_back_room(&self) -> usize {
        let under_way: u64 = self.writing_back.iter().map(|back| back.range.len()).sum();
        let most = self.costs.written_back_max;
        most.saturating_sub(under_way as usize + self.written_back.len())
    }

    /// Writes changed pages to their files, neighbours together, also those that stay in memory.
    pub(crate) fn write_back(&mut self, turn: &mut Turn, mut pages: Vec<(SpaceId, PageNo)>) {
        pages.sort_unstable();
        for run in pages.chunk_by(|a, b| a.0 == b.0 && b.1 == a.1.plus(1)) {
            let (space, first) = run[0];
            turn.submit(self.costs.submit_ns);
            let leaving = PageRange::new(first, run.len() as u64);
            let mut written = leaving;
            while written.len() < WRITTEN_ALONG_MAX && self.engine.written_along(space, written.end)
            {
                written.end = written.end.plus(1);
            }
            if let Some(contents) = &mut self.contents {
                let pages = written.pages();
                pages.for_each(|page| contents.write_back((space, page)));
            }
            let place = Place::File(self.region(space).0, first.address());
            let bytes = written.len() * PAGE;
            let done = self.disk.submit(turn.now, Direction::Write, place, bytes);
            self.writing_back.push_back(WriteBack {
                space,
                range: leaving,
                done,
            });
        }
    }

    /// When a page that is leaving will have got to its file.
    pub(crate) fn back_at(&self, page: (SpaceId, PageNo)) -> u64 {
        let holds = |back: &&WriteBack| back.space == page.0 && back.range.contains(page.1);
        let back = self.writing_back.iter().find(holds);
        back.expect("nothing else leaves for longer than a moment")
            .done
    }

    /// Tells the engine what is in its file now. What becomes of the pages costs CPU time and so waits
    /// for somebody's turn.
    pub(crate) fn note_written_back(&mut self, now: u64) {
        while self
            .writing_back
            .front()
            .is_some_and(|back| back.done <= now)
        {
            let back = self.writing_back.pop_front().expect("the first one");
            for page in back.range.pages() {
                self.engine.cleaned(back.space, page);
                self.written_back.push((back.space, page));
            }
            self.has_news = true;
        }
    }

    /// Pages that were written back go now.
    pub(crate) fn release_written_back(&mut self, turn: &mut Turn) {
        // As many at a time as there are slots, should all be folded.
        while !self.written_back.is_empty() && !self.free_slots.is_empty() {
            let count = self.written_back.len().min(self.free_slots.len());
            let mut pages: Vec<_> = self.written_back.drain(..count).collect();
            self.let_go(turn, &mut pages);
        }
    }
}
