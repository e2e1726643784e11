//! Which pages are in memory, for the quickest of answers.

use std::collections::HashMap;

use pleat_trace::RegionNo;
use pleat_types::PageNo;

const WORD_BITS: u64 = 64;
const CHUNK_WORDS: usize = 64;
const CHUNK_PAGES: u64 = WORD_BITS * CHUNK_WORDS as u64;

/// A bit for each page near one that was ever touched.
pub struct Residents {
    regions: Vec<HashMap<u64, Box<[u64; CHUNK_WORDS]>>>,
}

impl Residents {
    pub fn new(regions: usize) -> Residents {
        Residents {
            regions: vec![HashMap::new(); regions],
        }
    }

    #[inline]
    pub fn contains(&self, region: RegionNo, page: PageNo) -> bool {
        let chunk = self.regions[region.0 as usize].get(&(page.0 / CHUNK_PAGES));
        let (word, bit) = place(page);
        chunk.is_some_and(|chunk| chunk[word] & bit != 0)
    }

    pub fn insert(&mut self, region: RegionNo, page: PageNo) {
        let (word, bit) = place(page);
        let chunks = &mut self.regions[region.0 as usize];
        chunks
            .entry(page.0 / CHUNK_PAGES)
            .or_insert_with(|| Box::new([0; CHUNK_WORDS]))[word] |= bit;
    }

    pub fn remove(&mut self, region: RegionNo, page: PageNo) {
        let (word, bit) = place(page);
        if let Some(chunk) = self.regions[region.0 as usize].get_mut(&(page.0 / CHUNK_PAGES)) {
            chunk[word] &= !bit;
        }
    }

    pub fn end(&mut self, region: RegionNo) {
        self.regions[region.0 as usize].clear();
    }
}

fn place(page: PageNo) -> (usize, u64) {
    let bit = page.0 % CHUNK_PAGES;
    ((bit / WORD_BITS) as usize, 1 << (bit % WORD_BITS))
}
