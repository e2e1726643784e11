//! The file of `--record`: created before the program starts, and removed when there is no trace to be
//! had in it.

use crate::exit::Exit;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A file created for a trace.
pub struct RecordFile {
    path: PathBuf,
    file: File,
}

impl RecordFile {
    /// Creates it; a file that exists is not overwritten.
    ///
    /// # Errors
    /// A message with its remedy.
    pub fn create(path: &Path) -> Result<RecordFile, (String, Exit)> {
        let (path, created) = (path.to_owned(), File::create_new(path));
        let refusal = |error: std::io::Error| {
            let remedy = match error.kind() {
                ErrorKind::AlreadyExists => "choose another name or remove it",
                _ => "choose another name or directory",
            };
            format!("cannot create {}: {error}: {remedy}", path.display())
        };
        match created {
            Ok(file) => Ok(RecordFile { path, file }),
            Err(error) => Err((refusal(error), Exit::Usage)),
        }
    }

    /// The file itself, once more.
    pub fn file(&self) -> std::io::Result<File> {
        self.file.try_clone()
    }

    /// Nothing started.
    pub fn remove(self) {
        // What is told is why nothing started; an empty file is no harm.
        let _ = fs::remove_file(self.path);
    }

    /// The trace could not be completed, and readers would refuse it: says so.
    pub fn remove_after(self, error: &str) -> String {
        let path = self.path.display().to_string();
        let fate = match fs::remove_file(&self.path) {
            Ok(()) => "was removed",
            Err(_) => "is of no use",
        };
        format!("recording failed and {path} {fate}: {error}: make room or choose another file")
    }
}
