//! What all generators share: each process is a [`Walk`] over pages, and [`Generated`] makes a
//! [`Source`] of them.

use crate::contents::Contents;
use crate::{Access, Common, ProcessNo, Reference, RegionKind, RegionNo, Source, SpecError};
use pleat_types::PageNo;

/// Where one process goes next. Computed when asked for: a walk keeps no list of what is to come.
pub(crate) trait Walk {
    /// The next page it touches; `None` at its end, and for ever after.
    fn step(&mut self) -> Option<Step>;
}

/// A page touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) region: RegionNo,
    pub(crate) page: u64,
    pub(crate) access: Access,
}

impl Step {
    #[inline]
    pub(crate) fn read(region: RegionNo, page: u64) -> Step {
        Step {
            region,
            page,
            access: Access::Read,
        }
    }

    #[inline]
    pub(crate) fn write(region: RegionNo, page: u64) -> Step {
        Step {
            region,
            page,
            access: Access::Write,
        }
    }
}

/// A source whose processes are walks.
pub(crate) struct Generated<W> {
    walks: Vec<W>,
    regions: Vec<RegionKind>,
    contents: Contents,
    think_ns: u64,
}

impl<W: Walk + Send + 'static> Generated<W> {
    /// Boxed at once, for that is how callers keep sources of different kinds.
    pub(crate) fn source(
        walks: Vec<W>,
        regions: &[RegionKind],
        common: &Common,
    ) -> Result<Box<dyn Source + Send>, SpecError> {
        Ok(Box::new(Generated {
            walks,
            regions: regions.to_vec(),
            contents: common.contents()?,
            think_ns: common.think_ns,
        }))
    }
}

impl<W: Walk> Source for Generated<W> {
    fn processes(&self) -> u32 {
        self.walks.len() as u32
    }

    fn regions(&self) -> &[RegionKind] {
        &self.regions
    }

    /// Budget: 33 ns a reference for walks that only count.
    #[inline]
    fn next(&mut self, process: ProcessNo) -> Option<Reference> {
        let step = self.walks.get_mut(process.0 as usize)?.step()?;
        Some(Reference {
            think_ns: self.think_ns,
            region: step.region,
            page: PageNo(step.page),
            access: step.access,
        })
    }

    fn compressed_bytes(&self, region: RegionNo, page: PageNo) -> u16 {
        self.contents.bytes(region, page)
    }
}
