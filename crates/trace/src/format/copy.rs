//! Any source into a file: a generated trace, or a slice of a recorded one.

use super::{Sizes, WriteError, Writer};
use crate::{ProcessNo, Source};
use std::io::Write;

/// References of one process that are written before another's turn comes.
const TURN: usize = 1024;

/// Writes all references of `source`, from where its processes are, and what the touched pages
/// compress to. Returns the output.
pub fn copy<W: Write>(source: &mut dyn Source, out: W) -> Result<W, WriteError> {
    let mut writer = Writer::new(out)?;
    for kind in source.regions() {
        writer.region(*kind, 0)?;
    }
    let mut running = Vec::new();
    for _ in 0..source.processes() {
        running.push(writer.process(0)?);
    }
    let mut sizes = Sizes::default();
    while !running.is_empty() {
        let mut still = Vec::new();
        for process in running {
            match turn(source, process, &mut sizes, &mut writer)? {
                true => still.push(process),
                false => writer.ended(process)?,
            }
        }
        running = still;
    }
    writer.finish()
}

/// Writes some references of a process; whether there may be more.
fn turn<W: Write>(
    source: &mut dyn Source,
    process: ProcessNo,
    sizes: &mut Sizes,
    writer: &mut Writer<W>,
) -> Result<bool, WriteError> {
    for _ in 0..TURN {
        let Some(reference) = source.next(process) else {
            return Ok(false);
        };
        let (region, page) = (reference.region, reference.page);
        let bytes = source.compressed_bytes(region, page);
        if sizes.set(region, page, bytes) != Some(bytes) {
            writer.size(process, region, page, bytes)?;
        }
        writer.reference(process, reference)?;
    }
    Ok(true)
}
