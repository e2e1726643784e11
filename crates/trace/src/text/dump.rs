//! Trace to text.

use crate::format::Sizes;
use crate::{Access, ProcessNo, RegionKind, Source};
use std::io::{self, Write};

/// Writes a line for each reference from where the processes are: first all of process 0, then those
/// of the next. Anonymous region 3 is called `-3`, a file `file3`. A size stands in the first line of
/// each page, and wherever it changes, so that [`super::import`] gives the same trace.
pub fn dump(source: &mut dyn Source, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "# process region page access think_ns size")?;
    let mut sizes = Sizes::default();
    for process in (0..source.processes()).map(ProcessNo) {
        while let Some(reference) = source.next(process) {
            let (region, page) = (reference.region, reference.page);
            let kind = source.regions().get(region.0 as usize);
            let name = match kind {
                Some(RegionKind::File) => "file",
                Some(RegionKind::Anonymous) | None => "-",
            };
            let access = match reference.access {
                Access::Read => 'r',
                Access::Write => 'w',
            };
            write!(
                out,
                "{} {name}{} {} {access} {}",
                process.0, region.0, page.0, reference.think_ns
            )?;
            let bytes = source.compressed_bytes(region, page);
            match sizes.set(region, page, bytes) == Some(bytes) {
                true => writeln!(out)?,
                false => writeln!(out, " size={bytes}")?,
            }
        }
    }
    Ok(())
}
