//! The compressed page cache of cpc08 (section 3.2): compressed pages stay in the LRU.
//!
//! Named `cpc08`, or `cpc08:95%` for another share. A newly compressed page "is inserted on the head of
//! the LRU list so it can be reclaimed if it is not used in a period of time by the normal reclamation
//! code": its age counts from being stored, and whichever of the two kinds has the older oldest page
//! gives memory. The share bounds the cache: "from 75% to 95% of the physical RAM", 75 % in the
//! measurements (section 4.2).
//!
//! Difference: when no frame is free to decompress into, the paper drops the compressed page and reads
//! it again; that is left to whoever owns the frames.

use crate::notation::{percent, share};
use crate::{Advice, AgeFrom, CacheView, Giver, List, Sizing};

/// Share of memory the paper measured with, per cent.
const SHARE_PERCENT: u64 = 75;

/// One LRU over both kinds of pages.
#[derive(Debug)]
pub struct Cpc08 {
    percent: u64,
}

impl Default for Cpc08 {
    fn default() -> Cpc08 {
        Cpc08 {
            percent: SHARE_PERCENT,
        }
    }
}

impl Cpc08 {
    /// Reads what follows `cpc08:`.
    ///
    /// # Errors
    /// A message that shows how to write it.
    pub fn from_text(text: &str) -> Result<Cpc08, String> {
        let message = || format!("cpc08:{text}: write a share of the budget as in cpc08:75%");
        Ok(Cpc08 {
            percent: percent(text, 1..=100).ok_or_else(message)?,
        })
    }
}

impl Sizing for Cpc08 {
    fn name(&self) -> &'static str {
        "cpc08"
    }

    fn may_grow(&mut self, view: &CacheView) -> bool {
        view.cache_bytes < share(view.budget_bytes, self.percent)
    }

    fn hit(&mut self, _list: List, _view: &CacheView) -> Advice {
        Advice::Keep
    }

    fn giver(&mut self, view: &CacheView) -> Giver {
        let uncompressed = view.ages.anonymous.max(view.ages.file);
        if view.ages.compressed > uncompressed {
            Giver::Compressed
        } else {
            Giver::Uncompressed
        }
    }

    fn compressed_age(&self) -> AgeFrom {
        AgeFrom::Stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ages;

    fn giver(anonymous: Option<u64>, file: Option<u64>, compressed: Option<u64>) -> Giver {
        let ages = Ages {
            anonymous,
            file,
            compressed,
        };
        Cpc08::default().giver(&CacheView {
            ages,
            ..CacheView::default()
        })
    }

    #[test]
    fn the_kind_with_the_oldest_page_gives() {
        assert_eq!(giver(Some(5), Some(9), Some(7)), Giver::Uncompressed);
        assert_eq!(giver(Some(5), Some(9), Some(10)), Giver::Compressed);
        assert_eq!(giver(Some(5), None, Some(5)), Giver::Uncompressed);
    }

    #[test]
    fn who_has_no_page_cannot_give() {
        assert_eq!(giver(Some(0), None, None), Giver::Uncompressed);
        assert_eq!(giver(None, None, Some(0)), Giver::Compressed);
        assert_eq!(giver(None, None, None), Giver::Uncompressed);
    }

    #[test]
    fn the_cache_grows_to_its_share() {
        let mut view = CacheView {
            budget_bytes: 1000,
            cache_bytes: 749,
            ..CacheView::default()
        };
        assert!(Cpc08::default().may_grow(&view));
        assert!(!Cpc08::from_text("50%").unwrap().may_grow(&view));
        view.cache_bytes = 750;
        assert!(!Cpc08::default().may_grow(&view));
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "0%", "75", "101%", "64M"] {
            let error = Cpc08::from_text(text).unwrap_err();
            assert!(error.contains("cpc08:75%"), "{text}: {error}");
        }
    }
}
