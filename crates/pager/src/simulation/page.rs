//! Pages by number: what a page holds is told by its last eight bytes, and all others follow from them.

use super::Random;
use pleat_types::{Page, PAGE_SIZE};

/// The page of a number. 0 is a page of zeros; others shrink to anything between nothing and not at all.
pub fn page_of(number: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    if number == 0 {
        return page;
    }
    let mut random = Random::new(number);
    let full = match number % 8 {
        0 => PAGE_SIZE / 2,
        1 if number % 16 == 1 => PAGE_SIZE - 8,
        _ => random.below(40) as usize * 8,
    };
    for word in page[..full].chunks_exact_mut(8) {
        word.copy_from_slice(&random.next().to_ne_bytes());
    }
    page[PAGE_SIZE - 8..].copy_from_slice(&number.to_ne_bytes());
    page
}

/// The number of a page. `None`: it is no page of any number, so its bytes were lost.
pub fn number_of(page: &[u8]) -> Option<u64> {
    let last = page.last_chunk::<8>()?;
    let number = u64::from_ne_bytes(*last);
    (page_of(number)[..] == *page).then_some(number)
}
