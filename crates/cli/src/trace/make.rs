//! `pleat trace generate` and `import`: new trace files. A file that could not be completed is
//! removed; readers would refuse it.

use crate::args::{GenerateArgs, ImportArgs};
use crate::exit::Stop;
use crate::progress::{Counted, CountedInput, Progress};
use pleat_trace::text::{import as import_text, import_lackey, ImportError, Lackey};
use pleat_trace::{copy, generator, WriteError};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter};
use std::path::Path;

const PAGE_BYTES: f64 = 4096.0;

/// Computes a trace.
pub fn generate(raw: &GenerateArgs) -> Result<(), Stop> {
    let source = generator(&raw.spec).map_err(|error| Stop::mistake(error.to_string()))?;
    let out = create(&raw.file)?;
    let progress = Progress::of("writing references", None);
    let written = copy(&mut Counted::of(source, &progress), out).map(drop);
    drop(progress);
    cleaned(
        &raw.file,
        written.map_err(|error| failed(&raw.file, &error)),
    )
}

/// Reads a text and writes it as a trace.
pub fn import(raw: &ImportArgs) -> Result<(), Stop> {
    let settings = settings(raw)?;
    let (input, bytes) = open(&raw.text)?;
    let progress = Progress::of("reading", bytes);
    let input = CountedInput {
        input,
        progress: &progress,
    };
    let out = create(&raw.file)?;
    let written = match raw.lackey {
        true => import_lackey(input, settings, out),
        false => import_text(input, settings.bytes, out),
    };
    let text = raw.text.display();
    let done = written.map(drop).map_err(|error| match error {
        ImportError::Write(error) => failed(&raw.file, &error),
        error => Stop::mistake(format!("{text}: {error}")),
    });
    drop(progress);
    cleaned(&raw.file, done)
}

fn settings(raw: &ImportArgs) -> Result<Lackey, Stop> {
    if !(0.0..=1.0).contains(&raw.ratio) {
        return Err(Stop::mistake(format!(
            "--ratio {} is no share of a page: give a number from 0 to 1",
            raw.ratio
        )));
    }
    if !(0.0..=1e6).contains(&raw.instruction_ns) {
        return Err(Stop::mistake(format!(
            "--instruction-ns {} is no time of an instruction: give a number from 0 to 1000000",
            raw.instruction_ns
        )));
    }
    Ok(Lackey {
        instruction_ps: (raw.instruction_ns * 1000.0).round() as u64,
        bytes: (raw.ratio * PAGE_BYTES).round() as u16,
    })
}

/// A text, and how long it is where that is known.
fn open(path: &Path) -> Result<(Box<dyn BufRead>, Option<u64>), Stop> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    match File::open(path) {
        Ok(file) => {
            let status = file.metadata().ok().filter(|status| status.is_file());
            let bytes = status.map(|status| status.len());
            Ok((Box::new(BufReader::new(file)), bytes))
        }
        Err(error) => Err(Stop::mistake(format!(
            "cannot read {}: {error}: give a text file, or - for standard input",
            path.display()
        ))),
    }
}

fn create(path: &Path) -> Result<BufWriter<File>, Stop> {
    match File::create(path) {
        Ok(file) => Ok(BufWriter::with_capacity(1 << 18, file)),
        Err(error) => Err(Stop::mistake(format!(
            "cannot write {}: {error}: choose another file",
            path.display()
        ))),
    }
}

fn failed(path: &Path, error: &WriteError) -> Stop {
    Stop::failure(format!("cannot write {}: {error}", path.display()))
}

/// Removes the file after a failure, unless it is a device or a pipe.
fn cleaned(path: &Path, done: Result<(), Stop>) -> Result<(), Stop> {
    let is_file = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file());
    if done.is_err() && is_file {
        // The message about the failure says all that matters.
        let _ = fs::remove_file(path);
    }
    done
}
