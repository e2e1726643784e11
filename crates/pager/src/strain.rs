//! What the kernel's page cache tells about the kernel's own limit.
//!
//! A page that the kernel has dropped by itself, before it was its turn, was dropped because a limit of
//! the kernel's is nearer than the budget: something takes memory that we do not see. Dropped pages are
//! worth nothing, taken ones much, so the budget is taken to be smaller for a while.

use pleat_types::PAGE_SIZE;
use std::time::Instant;

/// A page lost makes the budget this part of a page smaller...
const LOST_PART: f64 = 8.0;
/// ... which fades by half in about a minute.
const FADE_S: f64 = 80.0;

/// Memory that the kernel takes for something that we do not see, as far as can be told.
#[derive(Debug)]
pub struct Strain {
    lost_pages: u64,
    bytes: f64,
    at: Instant,
}

impl Default for Strain {
    fn default() -> Strain {
        Strain {
            lost_pages: 0,
            bytes: 0.0,
            at: Instant::now(),
        }
    }
}

impl Strain {
    /// So many pages were lost so far: how many bytes are to be left to the kernel, but no more than `most`.
    pub fn note(&mut self, lost_pages: u64, most: u64) -> u64 {
        let lost = lost_pages.saturating_sub(self.lost_pages);
        self.lost_pages = lost_pages;
        let faded = (-self.at.elapsed().as_secs_f64() / FADE_S).exp();
        self.at = Instant::now();
        let grown = self.bytes * faded + lost as f64 * PAGE_SIZE as f64 / LOST_PART;
        self.bytes = grown.min(most as f64);
        self.bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_pages_count_once_and_never_more_than_allowed() {
        let mut strain = Strain::default();
        assert_eq!(strain.note(0, 1 << 30), 0);
        let eighth = 80 * PAGE_SIZE as u64 / 8;
        let noted = strain.note(80, 1 << 30);
        assert!((eighth - 8..=eighth).contains(&noted), "{noted}");
        assert!(strain.note(80, 1 << 30) <= noted);
        assert_eq!(strain.note(1 << 40, 4096), 4096);
    }
}
