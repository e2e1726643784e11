//! Several sources side by side, as different processes of one.

use crate::{ProcessNo, Reference, RegionKind, RegionNo, Source};
use pleat_types::PageNo;

/// Each part keeps its processes and its regions; they are numbered one part after the other.
pub(crate) struct Mix {
    parts: Vec<Part>,
    /// Part and its own number of each process.
    processes: Vec<(usize, ProcessNo)>,
    regions: Vec<RegionKind>,
}

struct Part {
    source: Box<dyn Source + Send>,
    first_region: u32,
}

impl Mix {
    pub(crate) fn new(sources: Vec<Box<dyn Source + Send>>) -> Mix {
        let mut mix = Mix {
            parts: Vec::new(),
            processes: Vec::new(),
            regions: Vec::new(),
        };
        for (part, source) in sources.into_iter().enumerate() {
            let processes = 0..source.processes();
            mix.processes
                .extend(processes.map(|process| (part, ProcessNo(process))));
            let first_region = mix.regions.len() as u32;
            mix.regions.extend_from_slice(source.regions());
            mix.parts.push(Part {
                source,
                first_region,
            });
        }
        mix
    }

    /// The part that a region belongs to.
    fn part_of(&self, region: RegionNo) -> &Part {
        let after = self
            .parts
            .partition_point(|part| part.first_region <= region.0);
        &self.parts[after - 1]
    }
}

impl Source for Mix {
    fn processes(&self) -> u32 {
        self.processes.len() as u32
    }

    fn regions(&self) -> &[RegionKind] {
        &self.regions
    }

    fn next(&mut self, process: ProcessNo) -> Option<Reference> {
        let (part, process) = *self.processes.get(process.0 as usize)?;
        let part = &mut self.parts[part];
        let mut reference = part.source.next(process)?;
        reference.region.0 += part.first_region;
        Some(reference)
    }

    fn compressed_bytes(&self, region: RegionNo, page: PageNo) -> u16 {
        let part = self.part_of(region);
        let region = RegionNo(region.0 - part.first_region);
        part.source.compressed_bytes(region, page)
    }
}
