//! The three-way trade of douglis93 (section 4.2): memory is taken from whoever has the oldest page.
//!
//! "Allocation of each of the three types of memory (file system cache blocks, uncompressed VM pages, and
//! compressed pages) requires a comparison of the ages of the oldest pages for all three types. The system
//! biases the ages to favor compressed pages over uncompressed pages and both of these over file cache
//! blocks."
//!
//! Named `douglis93`, or `douglis93:6%:200%`: what the age of a compressed page and that of a file page
//! count, in hundredths of the age of an uncompressed anonymous page. Compressed pages are always less
//! recently used than the others, so that without a bias in their favour the cache "degenerates into a
//! buffer for compressing and decompressing pages between memory and the backing store".
//!
//! Differences: the paper states no numbers ("the optimal penalty for the compression cache is
//! application-dependent"). Its thrasher fits into 6 MB up to 15 MB at 4:1 (figure 3), which needs a cache
//! that reaches some fifteen times as far back as the rest: ours does.

use crate::notation::percent;
use crate::{Advice, CacheView, Giver, List, Sizing};

/// A compressed page may lie unused sixteen times as long as an uncompressed one.
const COMPRESSED_PERCENT: u64 = 6;
/// A file page counts twice its age: a large file does not flush programs out of memory.
const FILE_PERCENT: u64 = 200;
/// The largest bias either way is a factor of a hundred.
const PERCENT_MAX: u64 = 10_000;

/// Compares biased ages.
#[derive(Debug)]
pub struct Douglis93 {
    compressed_percent: u64,
    file_percent: u64,
}

impl Default for Douglis93 {
    fn default() -> Douglis93 {
        Douglis93 {
            compressed_percent: COMPRESSED_PERCENT,
            file_percent: FILE_PERCENT,
        }
    }
}

impl Douglis93 {
    /// Reads what follows `douglis93:`.
    ///
    /// # Errors
    /// A message that shows how to write it.
    pub fn from_text(text: &str) -> Result<Douglis93, String> {
        let bias = |text| percent(text, 1..=PERCENT_MAX);
        let biases = text.split_once(':').and_then(|(compressed, file)| {
            Some(Douglis93 {
                compressed_percent: bias(compressed)?,
                file_percent: bias(file)?,
            })
        });
        biases.ok_or_else(|| {
            format!(
                "douglis93:{text}: write what the ages of compressed pages and of file pages count, \
                 as in douglis93:{COMPRESSED_PERCENT}%:{FILE_PERCENT}%"
            )
        })
    }

    /// Whether the oldest compressed page is the oldest of all, biases applied.
    fn compressed_is_oldest(&self, view: &CacheView) -> bool {
        let biased =
            |age: Option<u64>, percent| age.map(|age| u128::from(age) * u128::from(percent));
        let compressed = biased(view.ages.compressed, self.compressed_percent);
        let anonymous = biased(view.ages.anonymous, 100);
        let file = biased(view.ages.file, self.file_percent);
        compressed > anonymous.max(file)
    }
}

impl Sizing for Douglis93 {
    fn name(&self) -> &'static str {
        "douglis93"
    }

    fn may_grow(&mut self, view: &CacheView) -> bool {
        view.cache_bytes < view.budget_bytes && !self.compressed_is_oldest(view)
    }

    fn hit(&mut self, _list: List, _view: &CacheView) -> Advice {
        Advice::Keep
    }

    fn giver(&mut self, view: &CacheView) -> Giver {
        if self.compressed_is_oldest(view) {
            Giver::Compressed
        } else {
            Giver::Uncompressed
        }
    }

    fn file_age_percent(&self) -> u64 {
        self.file_percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ages;

    fn view(anonymous: Option<u64>, file: Option<u64>, compressed: Option<u64>) -> CacheView {
        CacheView {
            budget_bytes: 1000,
            ages: Ages {
                anonymous,
                file,
                compressed,
            },
            ..CacheView::default()
        }
    }

    fn giver(anonymous: u64, file: u64, compressed: u64) -> Giver {
        Douglis93::default().giver(&view(Some(anonymous), Some(file), Some(compressed)))
    }

    #[test]
    fn compressed_pages_are_favoured_over_uncompressed_ones() {
        assert_eq!(giver(6, 0, 100), Giver::Uncompressed);
        assert_eq!(giver(5, 0, 100), Giver::Compressed);
    }

    #[test]
    fn both_are_favoured_over_file_pages() {
        assert_eq!(giver(0, 3, 100), Giver::Uncompressed);
        assert_eq!(giver(0, 2, 100), Giver::Compressed);
        assert_eq!(Douglis93::default().file_age_percent(), 200);
    }

    #[test]
    fn the_cache_grows_unless_its_oldest_page_is_the_oldest_of_all() {
        let mut policy = Douglis93::default();
        assert!(policy.may_grow(&view(Some(6), None, Some(100))));
        assert!(!policy.may_grow(&view(Some(5), None, Some(100))));
        assert!(policy.may_grow(&view(None, None, None)));
    }

    #[test]
    fn who_has_no_page_cannot_give() {
        let mut policy = Douglis93::default();
        assert_eq!(policy.giver(&view(None, None, Some(0))), Giver::Compressed);
        assert_eq!(
            policy.giver(&view(Some(0), None, None)),
            Giver::Uncompressed
        );
    }

    #[test]
    fn the_bias_can_be_chosen() {
        let mut policy = Douglis93::from_text("100%:100%").unwrap();
        assert_eq!(
            policy.giver(&view(Some(99), Some(99), Some(100))),
            Giver::Compressed
        );
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "50%", "50:200", "0%:100%", "50%:200%:1%", "50%:10001%"] {
            let error = Douglis93::from_text(text).unwrap_err();
            assert!(error.contains("douglis93:6%:200%"), "{text}: {error}");
        }
    }
}
