//! A named set of pages, read from a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pleat_types::{Page, PAGE_SIZE};

/// Pages that belong together, such as a sample of one program's memory.
#[derive(Debug, Clone)]
pub struct Pool {
    /// What it is called in tables.
    pub name: String,
    /// The pages, in the order in which they are measured.
    pub pages: Vec<Page>,
}

/// Why a file gives no pages.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// It does not open, or reading fails.
    #[error("cannot read {}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Its length is no multiple of a page's, or 0.
    #[error("{} has {bytes} bytes, which is no whole number of pages of 4096", file.display())]
    NotPages {
        /// The file.
        file: PathBuf,
        /// Its length.
        bytes: u64,
    },
}

impl Pool {
    /// At most `pages_max` pages of a file of raw pages, evenly spread over it; named after the file
    /// without its extension.
    ///
    /// # Errors
    /// The file does not open or cannot be read, or its length is no multiple of a page's, or 0.
    pub fn read(file: &Path, pages_max: usize) -> Result<Pool, PoolError> {
        let unreadable = |error| PoolError::Unreadable {
            file: file.into(),
            error,
        };
        let opened = File::open(file).map_err(unreadable)?;
        let bytes = opened.metadata().map_err(unreadable)?.len();
        if bytes == 0 || !bytes.is_multiple_of(PAGE_SIZE as u64) {
            return Err(PoolError::NotPages {
                file: file.into(),
                bytes,
            });
        }
        let all = bytes / PAGE_SIZE as u64;
        let wanted = all.min(pages_max as u64);
        let read = |number: u64| {
            let mut page = [0; PAGE_SIZE];
            let at = (u128::from(number) * u128::from(all) / u128::from(wanted)) as u64;
            opened.read_exact_at(&mut page, at * PAGE_SIZE as u64)?;
            Ok(page)
        };
        let pages: io::Result<Vec<Page>> = (0..wanted).map(read).collect();
        Ok(Pool {
            name: file
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into(),
            pages: pages.map_err(unreadable)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in the temporary directory, removed when dropped.
    struct Temporary(PathBuf);

    impl Temporary {
        fn new(name: &str, bytes: &[u8]) -> Self {
            let name = format!("pleat-pool-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, bytes).expect("a temporary file");
            Temporary(path)
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_long_file_gives_pages_from_all_over_it() {
        let bytes: Vec<u8> = (0..100u8).flat_map(|n| [n; PAGE_SIZE]).collect();
        let file = Temporary::new("long.pages", &bytes);
        let firsts = |pages_max| {
            let pool = Pool::read(&file.0, pages_max).expect("whole pages");
            assert!(pool.name.ends_with("long"), "{}", pool.name);
            pool.pages.iter().map(|page| page[0]).collect::<Vec<_>>()
        };
        assert_eq!(firsts(4), [0, 25, 50, 75]);
        assert_eq!(firsts(1000), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_no_whole_number_of_pages_is_refused() {
        for bytes in [&[][..], &[1; PAGE_SIZE - 1], &[1; PAGE_SIZE + 1]] {
            let file = Temporary::new(&format!("odd{}", bytes.len()), bytes);
            let error = Pool::read(&file.0, 10).expect_err("no pages");
            assert!(matches!(error, PoolError::NotPages { .. }), "{error}");
        }
        let error = Pool::read(Path::new("/nonexistent.pages"), 10).expect_err("no file");
        assert!(error.to_string().contains("/nonexistent.pages"), "{error}");
    }
}
