//! Switches the compression of clean pages off where it does not pay, and on again (castro03, section
//! 2.3.4).
//!
//! "Once the compressed cache detects that many more compressed pages are released than reclaimed, it
//! disables compression of new evicted clean pages. [...] the compressed cache keeps track of which were
//! the last clean pages freed without being stored in the compressed cache. [...] When the system notices
//! that many pages read from disk have recently been evicted from memory without being compressed, we
//! re-enable the clean page compression."
//!
//! The paper's numbers "were decided experimentally" and not printed; ours are the constants below.
//!
//! Difference: the record is a table in which a page freed later may take the place of another, so that
//! of the last N pages freed about two thirds are found and some that are older. It has no links and
//! never moves anything.

/// Clean pages that left the cache, one way or the other, between two judgements.
const LEAVES: u64 = 4096;
/// "Many more released than reclaimed": so many times.
const RELEASED_PER_RECLAIMED: u64 = 16;
/// Pages read from the backing store between two judgements while it is off.
const READS: u64 = 1024;
/// "Many pages read from disk": one in so many of them.
const READS_PER_MATCH: u64 = 4;
/// Pages remembered unless said otherwise: 256 MiB of pages in 512 KiB.
const PAGES: usize = 1 << 16;
/// More would be 128 MiB of memory.
const PAGES_MAX: u64 = 1 << 24;

/// Counts until the next judgement, and the record while it is off.
#[derive(Debug)]
pub(crate) struct CleanSwitch {
    pages: usize,
    released: u64,
    reclaimed: u64,
    switches: u64,
    /// `None`: clean pages are compressed.
    off: Option<Record>,
}

/// The clean pages freed last, and how many reads matched them.
#[derive(Debug)]
struct Record {
    /// Each page at the place its number hashes to, scrambled; 0: nothing.
    table: Vec<u64>,
    reads: u64,
    matches: u64,
}

impl Default for CleanSwitch {
    fn default() -> CleanSwitch {
        CleanSwitch::with_record(PAGES)
    }
}

impl CleanSwitch {
    /// Remembers so many pages. `None`: too few or too many.
    pub(crate) fn new(pages: u64) -> Option<CleanSwitch> {
        let allowed = (1..=PAGES_MAX).contains(&pages);
        allowed.then(|| CleanSwitch::with_record(pages as usize))
    }

    fn with_record(pages: usize) -> CleanSwitch {
        CleanSwitch {
            pages,
            released: 0,
            reclaimed: 0,
            switches: 0,
            off: None,
        }
    }

    /// Whether a clean page is compressed; if not, it is remembered.
    pub(crate) fn admits(&mut self, id: u64) -> bool {
        match &mut self.off {
            Some(record) => {
                record.remember(id);
                false
            }
            None => true,
        }
    }

    /// A clean page left the cache unused.
    pub(crate) fn released(&mut self) {
        self.released += 1;
        self.judge();
    }

    /// A clean page of the cache was wanted.
    pub(crate) fn reclaimed(&mut self) {
        self.reclaimed += 1;
        self.judge();
    }

    fn judge(&mut self) {
        if self.off.is_some() || self.released + self.reclaimed < LEAVES {
            return;
        }
        if self.released > self.reclaimed * RELEASED_PER_RECLAIMED {
            self.off = Some(Record::new(self.pages));
            self.switches += 1;
        }
        (self.released, self.reclaimed) = (0, 0);
    }

    /// A page was read from the backing store.
    pub(crate) fn read(&mut self, id: u64) {
        let Some(record) = &mut self.off else {
            return;
        };
        if record.says_many_come_back(id) {
            self.off = None;
            // What left meanwhile was from before.
            (self.released, self.reclaimed) = (0, 0);
        }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.off.is_some()
    }

    /// Times it was switched off.
    pub(crate) fn switches(&self) -> u64 {
        self.switches
    }

    pub(crate) fn metadata_bytes(&self) -> u64 {
        let table = self
            .off
            .as_ref()
            .map_or(0, |record| record.table.capacity());
        (table * size_of::<u64>()) as u64
    }
}

impl Record {
    fn new(pages: usize) -> Record {
        Record {
            table: vec![0; pages],
            reads: 0,
            matches: 0,
        }
    }

    fn remember(&mut self, id: u64) {
        let key = scrambled(id);
        let place = self.place(key);
        self.table[place] = key;
    }

    /// Counts a read; true when it is the one that shows that many come back.
    fn says_many_come_back(&mut self, id: u64) -> bool {
        let key = scrambled(id);
        let place = self.place(key);
        if key != 0 && self.table[place] == key {
            self.table[place] = 0;
            self.matches += 1;
        }
        self.reads += 1;
        let many = self.matches >= READS / READS_PER_MATCH;
        if self.reads >= READS {
            (self.reads, self.matches) = (0, 0);
        }
        many
    }

    fn place(&self, key: u64) -> usize {
        ((u128::from(key) * self.table.len() as u128) >> 64) as usize
    }
}

/// A permutation of the numbers, so that a page can be told from all others by its key alone. (One
/// page in 2^64 has the key 0 and is never found again.)
fn scrambled(id: u64) -> u64 {
    let id = (id ^ (id >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (id ^ (id >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many clean pages leave, one of `every` because it was wanted.
    fn leave(switch: &mut CleanSwitch, pages: u64, every: u64) {
        for page in 0..pages {
            match page % every {
                0 => switch.reclaimed(),
                _ => switch.released(),
            }
        }
    }

    fn switched_off(pages: u64) -> CleanSwitch {
        let mut switch = CleanSwitch::new(pages).unwrap();
        leave(&mut switch, LEAVES, 1000);
        assert!(switch.is_off());
        switch
    }

    #[test]
    fn it_stays_on_while_enough_pages_are_wanted() {
        let mut switch = CleanSwitch::default();
        leave(&mut switch, 10 * LEAVES, 10);
        assert!(!switch.is_off() && switch.admits(1) && switch.metadata_bytes() == 0);
    }

    #[test]
    fn it_goes_off_when_far_more_are_released_than_wanted() {
        let mut switch = CleanSwitch::default();
        leave(&mut switch, LEAVES - 1, 20);
        assert!(!switch.is_off(), "that is no evidence yet");
        leave(&mut switch, 1, 20);
        assert!(switch.is_off() && !switch.admits(1));
    }

    #[test]
    fn it_goes_on_again_when_what_was_freed_is_read() {
        let mut switch = switched_off(10_000);
        (0..5_000).for_each(|id| assert!(!switch.admits(id)));
        (0..1_000).for_each(|id| switch.read(id));
        assert!(!switch.is_off() && switch.admits(1) && switch.metadata_bytes() == 0);
        assert_eq!(switch.switches(), 1);
    }

    #[test]
    fn it_stays_off_when_other_pages_are_read() {
        let mut switch = switched_off(10_000);
        (0..5_000).for_each(|id| assert!(!switch.admits(id)));
        (1 << 40..(1 << 40) + 100_000).for_each(|id| switch.read(id));
        assert!(switch.is_off());
    }

    #[test]
    fn a_page_read_over_and_over_is_one_match() {
        let mut switch = switched_off(10_000);
        switch.admits(3);
        (0..100_000).for_each(|_| switch.read(3));
        assert!(switch.is_off());
    }

    #[test]
    fn only_the_last_pages_freed_are_remembered() {
        let mut switch = switched_off(1_000);
        (0..100_000).for_each(|id| assert!(!switch.admits(id)));
        (0..90_000).for_each(|id| switch.read(id));
        assert!(switch.is_off());
        assert_eq!(switch.metadata_bytes(), 8_000);
        // Two thirds of the last thousand, as the head of this file says.
        (99_000..100_000).for_each(|id| switch.read(id));
        assert!(!switch.is_off());
    }

    #[test]
    fn keys_do_not_collide() {
        let keys: std::collections::HashSet<u64> = (0..100_000).map(scrambled).collect();
        assert_eq!(keys.len(), 100_000);
    }
}
