//! A compressed cache of fixed size: the yardstick adaptive policies are measured against.
//!
//! Named `static:60%` (a share of the budget) or `static:512M` (a size). Never shrinks. With `static:0`
//! or `static:0%` there is no compressed cache: pages only pass through on their way out.

use crate::notation::{bytes, percent, share};
use crate::{Advice, CacheView, List, Sizing};

/// The bound on the compressed cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Percent(u64),
    Bytes(u64),
}

/// Grows up to its limit and stays there.
#[derive(Debug)]
pub struct Static {
    limit: Limit,
}

impl Static {
    /// Reads what follows `static:`.
    ///
    /// # Errors
    /// A message that shows how to write it.
    pub fn from_text(text: &str) -> Result<Static, String> {
        let limit = match text.ends_with('%') {
            true => percent(text, 0..=100).map(Limit::Percent),
            false => bytes(text).map(Limit::Bytes),
        };
        limit.map(|limit| Static { limit }).ok_or_else(|| {
            format!(
                "static:{text}: write a share of the budget, 0% to 100%, or a size as in static:512M"
            )
        })
    }

    fn limit_bytes(&self, budget_bytes: u64) -> u64 {
        match self.limit {
            Limit::Percent(percent) => share(budget_bytes, percent),
            Limit::Bytes(bytes) => bytes,
        }
    }
}

impl Sizing for Static {
    fn name(&self) -> &'static str {
        "static"
    }

    fn may_grow(&mut self, view: &CacheView) -> bool {
        view.cache_bytes < self.limit_bytes(view.budget_bytes)
    }

    fn hit(&mut self, _list: List, _view: &CacheView) -> Advice {
        Advice::Keep
    }

    fn bound_bytes(&self, view: &CacheView) -> u64 {
        self.limit_bytes(view.budget_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_grow(text: &str, cache_bytes: u64) -> bool {
        let view = CacheView {
            budget_bytes: 1000,
            cache_bytes,
            ..CacheView::default()
        };
        Static::from_text(text).unwrap().may_grow(&view)
    }

    #[test]
    fn a_share_of_the_budget_bounds_growth() {
        assert!(may_grow("60%", 599));
        assert!(!may_grow("60%", 600));
    }

    #[test]
    fn a_size_bounds_growth() {
        assert!(may_grow("4K", 4095));
        assert!(!may_grow("4K", 4096));
        assert!(!may_grow("7", 7));
        assert!(may_grow("2g", (2 << 30) - 1));
    }

    #[test]
    fn nothing_is_kept_by_a_cache_of_no_size() {
        for text in ["0", "0%", "0M"] {
            assert!(!may_grow(text, 0), "{text}");
        }
    }

    #[test]
    fn hits_never_shrink_it() {
        let mut policy = Static::from_text("1%").unwrap();
        for list in [List::Expense; 9] {
            assert_eq!(policy.hit(list, &CacheView::default()), Advice::Keep);
        }
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "%", "101%", "-1", "+4", "K", "12Q"] {
            let error = Static::from_text(text).unwrap_err();
            assert!(error.contains("static:512M"), "{text}: {error}");
        }
    }
}
