//! The swap file of a running job as somebody else sees it who may: it has no name, but the
//! descriptors of a process can be opened by root and by its own user.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::running::Running;
use crate::sys;

/// A swap file, opened a second time from outside.
pub struct SwapFile {
    file: File,
}

/// What is read or written at once.
const PIECE: u64 = 1 << 20;

impl Running {
    /// The swap file that the job has in `dir`, once it has one.
    pub fn swap_file_in(&self, dir: &Path) -> Option<SwapFile> {
        let path = deleted_file(self.pid(), dir)?;
        let file = OpenOptions::new().read(true).write(true).open(path);
        Some(SwapFile { file: file.ok()? })
    }
}

/// The descriptor of a file without a name in `dir`.
fn deleted_file(pid: i32, dir: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let descriptors = entries.filter_map(|entry| Some(entry.ok()?.path()));
    descriptors
        .filter_map(|path| Some((fs::read_link(&path).ok()?, path)))
        .find(|(target, _)| {
            target.starts_with(dir) && target.to_string_lossy().ends_with(" (deleted)")
        })
        .map(|(_, path)| path)
}

impl SwapFile {
    /// Its parts that are no holes, in pieces of at most a mebibyte, up to `bytes_max` together.
    pub fn pieces(&self, bytes_max: u64) -> Vec<Range<u64>> {
        let (mut pieces, mut at, mut left) = (Vec::new(), 0, bytes_max);
        while let Some(data) = sys::next_data(&self.file, at).expect("holes can be told from data")
        {
            at = data.end.min(data.start + PIECE.min(left));
            if at == data.start {
                break;
            }
            left -= at - data.start;
            pieces.push(data.start..at);
        }
        pieces
    }

    /// The bytes of a range, those it has.
    pub fn read(&self, range: &Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            let at = range.start + filled as u64;
            match self
                .file
                .read_at(&mut bytes[filled..], at)
                .expect("the file can be read")
            {
                0 => break,
                count => filled += count,
            }
        }
        bytes.truncate(filled);
        bytes
    }

    /// Writes over what is there, and sees to it that it is on the disk.
    ///
    /// pleat writes past the page cache meanwhile. Where both meet, the kernel may find that it cannot drop
    /// what was written here, and reports that as EIO ("Page cache invalidation failure on direct I/O"): no
    /// failure of this test's.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let written = self.file.write_all_at(bytes, offset);
        let synced = written.and_then(|()| self.file.sync_data());
        match synced {
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {}
            other => other.expect("the file can be written"),
        }
    }

    /// Cuts it off.
    pub fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    /// How often `needle` is in it, and how many bytes were searched.
    pub fn search(&self, needle: &[u8]) -> (usize, u64) {
        let pieces = self.pieces(u64::MAX);
        let found = pieces
            .iter()
            .map(|piece| count(&self.read(piece), needle))
            .sum();
        (
            found,
            pieces.iter().map(|piece| piece.end - piece.start).sum(),
        )
    }
}

fn count(bytes: &[u8], needle: &[u8]) -> usize {
    let first = needle[0];
    let starts = (0..bytes.len()).filter(|&at| bytes[at] == first);
    starts.filter(|&at| bytes[at..].starts_with(needle)).count()
}
