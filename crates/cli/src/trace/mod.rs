//! `pleat trace`: traces made, imported, looked at. What a trace is and how its file is laid out is
//! `pleat_trace`'s; here are files and messages.

mod info;
mod make;

use crate::args::{DumpArgs, Trace};
use crate::exit::{Exit, Stop};
use crate::output::printed;
use pleat_trace::{text, ReadError, Reader};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Does what one of the subcommands of `pleat trace` says.
pub fn trace(what: Trace) -> Exit {
    Stop::exit(match what {
        Trace::Generate(raw) => make::generate(&raw),
        Trace::Import(raw) => make::import(&raw),
        Trace::Info(raw) => info::info(&raw),
        Trace::Dump(raw) => dump(&raw),
    })
}

fn dump(raw: &DumpArgs) -> Result<(), Stop> {
    let mut reader = open(&raw.file)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let done = text::dump(&mut reader, &mut out).and_then(|()| out.flush());
    // What is still buffered for a pipe that is closed has nowhere to go.
    drop(out.into_parts());
    printed(done)
}

/// A trace to look at.
fn open(path: &Path) -> Result<Reader, Stop> {
    let file = path.display();
    Reader::open(path).map_err(|error| {
        Stop::mistake(match error {
            ReadError::Io(error) => format!("cannot read {file}: {error}: give a trace"),
            ReadError::Malformed(error) => format!("{file}: {error}"),
        })
    })
}
