//! The swap cache of cervera99: a fixed size, set when it is switched on (section 3.6).
//!
//! Named `cervera99`, or `cervera99:4M` for another size. The paper uses 1 MB ("what we thought would be
//! nice parameters", section 4) on a machine of 64 MB and finds that "very large caches are no good as
//! they take too many pages from the applications". Its cleaning threshold is a matter of write-out.
//!
//! Difference: memories are larger today, so that without a parameter the cache has the *share* it had
//! there, and never less than the paper's megabyte.

use crate::notation::bytes;
use crate::{Advice, CacheView, List, Sizing};

/// The size the paper uses.
const SIZE_BYTES: u64 = 1 << 20;
/// The memory it had was so many times that size.
const MEMORY_PER_SIZE: u64 = 64;

/// Grows up to its size and stays there.
#[derive(Debug, Default)]
pub struct Cervera99 {
    /// None: the paper's.
    size_bytes: Option<u64>,
}

impl Cervera99 {
    /// Reads what follows `cervera99:`.
    ///
    /// # Errors
    /// A message that shows how to write it.
    pub fn from_text(text: &str) -> Result<Cervera99, String> {
        let size = bytes(text).filter(|&size| size > 0);
        let message = || format!("cervera99:{text}: write the cache size as in cervera99:4M");
        Ok(Cervera99 {
            size_bytes: Some(size.ok_or_else(message)?),
        })
    }

    fn bound(&self, budget_bytes: u64) -> u64 {
        let paper = SIZE_BYTES.max(budget_bytes / MEMORY_PER_SIZE);
        self.size_bytes.unwrap_or(paper).min(budget_bytes)
    }
}

impl Sizing for Cervera99 {
    fn name(&self) -> &'static str {
        "cervera99"
    }

    fn may_grow(&mut self, view: &CacheView) -> bool {
        view.cache_bytes < self.bound(view.budget_bytes)
    }

    fn hit(&mut self, _list: List, _view: &CacheView) -> Advice {
        Advice::Keep
    }

    fn bound_bytes(&self, view: &CacheView) -> u64 {
        self.bound(view.budget_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_cache_has_the_size_of_the_paper_on_its_machine_and_on_smaller_ones() {
        let policy = Cervera99::default();
        assert_eq!(policy.bound(64 * MIB), MIB);
        assert_eq!(policy.bound(20 * MIB), MIB);
    }

    #[test]
    fn the_cache_has_the_share_of_the_paper_on_larger_machines() {
        assert_eq!(Cervera99::default().bound(2048 * MIB), 32 * MIB);
    }

    #[test]
    fn the_size_can_be_chosen_but_never_exceeds_the_budget() {
        let policy = Cervera99::from_text("4M").unwrap();
        assert_eq!(policy.bound(2048 * MIB), 4 * MIB);
        assert_eq!(policy.bound(MIB), MIB);
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "0", "10%", "much"] {
            let error = Cervera99::from_text(text).unwrap_err();
            assert!(error.contains("cervera99:4M"), "{text}: {error}");
        }
    }
}
