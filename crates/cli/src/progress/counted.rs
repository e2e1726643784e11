//! What a long command reads, counted on its way: references of traces, bytes of texts.

use super::Progress;
use pleat_trace::{PageNo, ProcessNo, Reference, RegionKind, RegionNo, Source};
use std::io::{BufRead, Read};

/// References are counted by so many.
const REFERENCES: u64 = 1 << 14;

/// References that are counted as they are taken.
pub struct Counted<'a> {
    source: Box<dyn Source + 'a>,
    progress: &'a Progress,
    uncounted: u64,
}

impl<'a> Counted<'a> {
    /// Counts those of `source`.
    pub fn of(source: Box<dyn Source + 'a>, progress: &'a Progress) -> Counted<'a> {
        Counted {
            source,
            progress,
            uncounted: 0,
        }
    }
}

impl Source for Counted<'_> {
    fn processes(&self) -> u32 {
        self.source.processes()
    }

    fn regions(&self) -> &[RegionKind] {
        self.source.regions()
    }

    fn next(&mut self, process: ProcessNo) -> Option<Reference> {
        self.uncounted += 1;
        if self.uncounted == REFERENCES {
            self.progress.step(self.uncounted);
            self.uncounted = 0;
        }
        self.source.next(process)
    }

    fn compressed_bytes(&self, region: RegionNo, page: PageNo) -> u16 {
        self.source.compressed_bytes(region, page)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.progress.step(self.uncounted);
    }
}

/// Input whose bytes are counted as they are taken.
pub struct CountedInput<'a, R> {
    /// Where they come from.
    pub input: R,
    /// Where they are counted.
    pub progress: &'a Progress,
}

impl<R: Read> Read for CountedInput<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let read = self.input.read(bytes)?;
        self.progress.step(read as u64);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for CountedInput<'_, R> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.progress.step(bytes as u64);
        self.input.consume(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pleat_trace::generator;
    use std::io::BufReader;

    #[test]
    fn every_byte_of_an_input_is_counted_once() {
        let progress = Progress::of("reading", Some(12));
        let input = CountedInput {
            input: BufReader::with_capacity(4, &b"one\ntwo\nsix\n"[..]),
            progress: &progress,
        };
        assert_eq!(input.lines().count(), 3);
        assert_eq!(progress.done(), 12);
    }

    #[test]
    fn every_reference_is_counted() {
        let spec = "thrasher:pages=20000,passes=2+zipf:pages=50";
        let count = |source: &mut dyn Source| {
            let processes = 0..source.processes();
            let all = processes.map(ProcessNo);
            all.map(|process| std::iter::from_fn(|| source.next(process)).count() as u64)
                .sum::<u64>()
        };
        let mut plain = generator(spec).unwrap();
        let references = count(&mut *plain);
        assert!(
            references > REFERENCES,
            "enough to be counted by many: {references}"
        );
        let progress = Progress::of("counting", None);
        let mut counted = Counted::of(generator(spec).unwrap(), &progress);
        let processes = u64::from(counted.processes());
        assert_eq!(count(&mut counted), references);
        drop(counted);
        // The end of each process is looked at, too.
        assert_eq!(progress.done(), references + processes);
    }
}
