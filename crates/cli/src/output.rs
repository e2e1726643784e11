//! Where results go: standard output, and files that the user named.

use crate::exit::Stop;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// A file that exists, empty, before there is anything to write: a wrong name shows at once.
pub struct Output {
    file: File,
    name: String,
}

/// Creates the file given for `flag`.
pub fn create(path: &Path, flag: &str) -> Result<Output, Stop> {
    let name = path.display().to_string();
    match File::create(path) {
        Ok(file) => Ok(Output { file, name }),
        Err(error) => Err(Stop::mistake(format!(
            "cannot write {name}: {error}: choose another file for {flag}"
        ))),
    }
}

impl Output {
    /// Writes all of it.
    pub fn write(mut self, text: &str) -> Result<(), Stop> {
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| Stop::failure(format!("cannot write {}: {error}", self.name)))
    }
}

/// Prints a result.
pub fn print(text: &str) -> Result<(), Stop> {
    printed(std::io::stdout().lock().write_all(text.as_bytes()))
}

/// What it means that printing went so.
pub fn printed(done: std::io::Result<()>) -> Result<(), Stop> {
    match done {
        // `pleat bench codec ... | head -3` is no error.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Stop::failure(format!("cannot write the result: {error}")))
        }
        _ => Ok(()),
    }
}
