//! What the tests of generators ask of a specification.

use crate::{generator, Access, ProcessNo, Reference};

/// All references of the first process.
pub(crate) fn references(spec: &str) -> Vec<Reference> {
    references_of(spec, 0)
}

/// All references of a process.
pub(crate) fn references_of(spec: &str, process: u32) -> Vec<Reference> {
    let mut source = generator(spec).unwrap_or_else(|error| panic!("{error}"));
    std::iter::from_fn(|| source.next(ProcessNo(process))).collect()
}

/// The pages that the first process touches, in order.
pub(crate) fn pages(spec: &str) -> Vec<u64> {
    references(spec).iter().map(|r| r.page.0).collect()
}

/// How many references of the first process write.
pub(crate) fn writes(spec: &str) -> usize {
    let references = references(spec);
    references
        .iter()
        .filter(|r| r.access == Access::Write)
        .count()
}
