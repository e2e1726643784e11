//! WKdm (Wilson, Kaplan and Smaragdakis, "The Case for Compressed Caching in Virtual Memory Systems",
//! USENIX 1999), the fast codec of castro03: 32-bit words against a dictionary of the 16 last seen, one
//! for each value of a hash of their upper 22 bits.
//!
//! ```text
//! | tags     | words not in the dictionary | slots            | low bits              |
//! | 64 words | one word each               | 8 of 4 bits each | 3 of 10 bits per word |
//! ```
//!
//! A tag of two bits for each word of the page says: zero, same upper bits (slot and low bits follow),
//! not in the dictionary (the word follows), same word (the slot follows). The tags tell how long the
//! other areas are, so that the four words of header of the authors' program are not needed.
//!
//! The working memory (7 KiB) is allocated once per value.

use pleat_types::{CodecId, Page, PAGE_SIZE};

use crate::{Codec, CodecError};

const WORD_BYTES: usize = size_of::<u32>();
const WORDS: usize = PAGE_SIZE / WORD_BYTES;
/// Words for which one word of tags stands.
const BLOCK: usize = 16;
const TAGS_BYTES: usize = WORDS / BLOCK * WORD_BYTES;
const LOW_BITS: u32 = 10;
const LOW_MASK: u32 = (1 << LOW_BITS) - 1;
const SLOTS_PER_WORD: usize = 8;
const LOWS_PER_WORD: usize = 3;
/// `WORDS` rounded up to whole words of low bits.
const LOWS: usize = WORDS.next_multiple_of(LOWS_PER_WORD);

const ZERO: u8 = 0;
const PARTIAL: u8 = 1;
const MISS: u8 = 2;
const EXACT: u8 = 3;

/// What the dictionary holds at first; not 0, which has a tag of its own.
const NEVER_SEEN: u32 = 1;

/// WKdm with room for what follows the tags. Indices into these are less than `WORDS`, for they count
/// some of the words of a page; they are masked, so that no check is needed.
pub struct Wkdm {
    misses: Box<[u32; WORDS]>,
    slots: Box<[u8; WORDS]>,
    lows: Box<[u16; LOWS]>,
}

/// How many entries each area has.
#[derive(Default, Clone, Copy)]
struct Counts {
    misses: usize,
    slots: usize,
    lows: usize,
}

impl Counts {
    /// What `tags` announce.
    fn of(tags: &[u8]) -> Counts {
        const LOWER: u32 = 0x5555_5555;
        tags.chunks_exact(WORD_BYTES)
            .fold(Counts::default(), |mut counts, bytes| {
                let (lower, upper) = (word(bytes) & LOWER, word(bytes) >> 1 & LOWER);
                counts.misses += (upper & !lower).count_ones() as usize;
                counts.slots += lower.count_ones() as usize;
                counts.lows += (lower & !upper).count_ones() as usize;
                counts
            })
    }

    /// Bytes of the three areas.
    fn bytes(self) -> [usize; 3] {
        [
            self.misses,
            self.slots.div_ceil(SLOTS_PER_WORD),
            self.lows.div_ceil(LOWS_PER_WORD),
        ]
        .map(|words| words * WORD_BYTES)
    }
}

/// The words last seen, by [`slot_of`].
struct Dictionary([u32; 16]);

/// Where the dictionary keeps `word`.
#[inline(always)]
fn slot_of(word: u32) -> usize {
    usize::from(SLOTS[(word >> LOW_BITS) as usize % SLOTS.len()])
}

/// The hash, by the lowest 8 of the upper 22 bits. As the authors made theirs: 0 alone has
/// slot 0, the others have the other slots, shuffled 17 times.
static SLOTS: [u8; 256] = {
    let mut slots = [0; 256];
    let mut random = 1u32;
    let mut at = 1;
    while at < slots.len() {
        slots[at] = ((at - 1) % 15 + 1) as u8;
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let within = (at - 1) % 15;
        let other = at - (random >> 16) as usize % (within + 1);
        let slot = slots[at];
        slots[at] = slots[other];
        slots[other] = slot;
        at += 1;
    }
    slots
};

#[inline(always)]
fn word(bytes: &[u8]) -> u32 {
    let mut word = [0; WORD_BYTES];
    word.copy_from_slice(bytes);
    u32::from_le_bytes(word)
}

impl Wkdm {
    /// Name on the command line.
    pub const NAME: &'static str = "wkdm";
    /// Identity stored with pages.
    pub const ID: CodecId = CodecId(6);

    /// Allocates the working memory.
    pub fn new() -> Self {
        Wkdm {
            misses: Box::new([0; WORDS]),
            slots: Box::new([0; WORDS]),
            lows: Box::new([0; LOWS]),
        }
    }

    /// Fills `tags` and the three areas with what stands for `page`; `None` when there are more misses
    /// than fit into `room` bytes.
    fn model(&mut self, page: &Page, tags: &mut [u8], room: usize) -> Option<Counts> {
        let mut dictionary = Dictionary([NEVER_SEEN; 16]);
        let mut counts = Counts::default();
        let (misses, slots, lows) = (&mut *self.misses, &mut *self.slots, &mut *self.lows);
        let blocks = page.chunks_exact(BLOCK * WORD_BYTES);
        for (block, packed) in blocks.zip(tags.chunks_exact_mut(WORD_BYTES)) {
            let mut tags = [0; BLOCK];
            for (bytes, tag) in block.chunks_exact(WORD_BYTES).zip(&mut tags) {
                let word = word(bytes);
                if word == 0 {
                    continue;
                }
                let slot = slot_of(word);
                let differs = word ^ dictionary.0[slot];
                dictionary.0[slot] = word;
                if differs >> LOW_BITS != 0 {
                    misses[counts.misses % WORDS] = word;
                    counts.misses += 1;
                    *tag = MISS;
                    continue;
                }
                // Which of the two is too hard to foresee for a branch.
                slots[counts.slots % WORDS] = slot as u8;
                counts.slots += 1;
                lows[counts.lows % WORDS] = (word & LOW_MASK) as u16;
                counts.lows += usize::from(differs != 0);
                *tag = if differs == 0 { EXACT } else { PARTIAL };
            }
            let tags = tags
                .chunks_exact(4)
                .rev()
                .fold(0, |packed, tags| packed << 2 | word(tags));
            packed.copy_from_slice(&tags.to_le_bytes());
            if counts.misses * WORD_BYTES > room {
                return None;
            }
        }
        Some(counts)
    }

    /// Writes the three areas to `out`, which is as long as they are.
    fn pack(&mut self, counts: Counts, out: &mut [u8]) {
        let [misses, slots, _] = counts.bytes();
        let (to_misses, out) = out.split_at_mut(misses);
        let (to_slots, to_lows) = out.split_at_mut(slots);
        for (to, word) in to_misses
            .chunks_exact_mut(WORD_BYTES)
            .zip(self.misses.iter())
        {
            to.copy_from_slice(&word.to_le_bytes());
        }
        // What is behind the last entry is packed with it: it must not depend on pages before.
        let end = (counts.slots + SLOTS_PER_WORD).min(WORDS);
        self.slots[counts.slots..end].fill(0);
        let end = (counts.lows + LOWS_PER_WORD).min(LOWS);
        self.lows[counts.lows..end].fill(0);
        let slots = self.slots.chunks_exact(SLOTS_PER_WORD);
        for (to, slots) in to_slots.chunks_exact_mut(WORD_BYTES).zip(slots) {
            let packed = word(&slots[..4]) | word(&slots[4..]) << 4;
            to.copy_from_slice(&packed.to_le_bytes());
        }
        let lows = self.lows.chunks_exact(LOWS_PER_WORD);
        for (to, lows) in to_lows.chunks_exact_mut(WORD_BYTES).zip(lows) {
            let [a, b, c] = [lows[0], lows[1], lows[2]].map(u32::from);
            let packed = a | b << LOW_BITS | c << (2 * LOW_BITS);
            to.copy_from_slice(&packed.to_le_bytes());
        }
    }

    /// Reads the three areas from `data`, which is as long as they are.
    fn unpack(&mut self, counts: Counts, data: &[u8]) {
        let [misses, slots, _] = counts.bytes();
        let (from_misses, data) = data.split_at(misses);
        let (from_slots, from_lows) = data.split_at(slots);
        for (to, from) in self
            .misses
            .iter_mut()
            .zip(from_misses.chunks_exact(WORD_BYTES))
        {
            *to = word(from);
        }
        let slots = self.slots.chunks_exact_mut(SLOTS_PER_WORD);
        for (to, from) in slots.zip(from_slots.chunks_exact(WORD_BYTES)) {
            const NIBBLES: u32 = 0x0F0F_0F0F;
            to[..4].copy_from_slice(&(word(from) & NIBBLES).to_le_bytes());
            to[4..].copy_from_slice(&(word(from) >> 4 & NIBBLES).to_le_bytes());
        }
        let lows = self.lows.chunks_exact_mut(LOWS_PER_WORD);
        for (to, from) in lows.zip(from_lows.chunks_exact(WORD_BYTES)) {
            let packed = word(from);
            to[0] = (packed & LOW_MASK) as u16;
            to[1] = (packed >> LOW_BITS & LOW_MASK) as u16;
            to[2] = (packed >> (2 * LOW_BITS) & LOW_MASK) as u16;
        }
    }

    /// Fills `page` from the tags and the three areas.
    fn rebuild(&self, tags: &[u8], page: &mut Page) {
        let mut dictionary = Dictionary([NEVER_SEEN; 16]);
        let mut counts = Counts::default();
        let (misses, slots, lows) = (&*self.misses, &*self.slots, &*self.lows);
        let blocks = page.chunks_exact_mut(BLOCK * WORD_BYTES);
        for (block, packed) in blocks.zip(tags.chunks_exact(WORD_BYTES)) {
            let packed = word(packed);
            if packed == 0 {
                block.fill(0);
                continue;
            }
            let mut tags = [0; BLOCK];
            for (i, tags) in tags.chunks_exact_mut(4).enumerate() {
                tags.copy_from_slice(&(packed >> (2 * i) & 0x0303_0303).to_le_bytes());
            }
            for (bytes, tag) in block.chunks_exact_mut(WORD_BYTES).zip(tags) {
                // Not a match: branches are foreseen better than a jump by a table.
                let word = if tag == ZERO {
                    0
                } else if tag == MISS {
                    let word = misses[counts.misses % WORDS];
                    counts.misses += 1;
                    dictionary.0[slot_of(word)] = word;
                    word
                } else if tag == EXACT {
                    let slot = usize::from(slots[counts.slots % WORDS] & 0xF);
                    counts.slots += 1;
                    dictionary.0[slot]
                } else {
                    let slot = usize::from(slots[counts.slots % WORDS] & 0xF);
                    counts.slots += 1;
                    let low = u32::from(lows[counts.lows % WORDS]);
                    counts.lows += 1;
                    let word = dictionary.0[slot] & !LOW_MASK | low;
                    dictionary.0[slot] = word;
                    word
                };
                bytes.copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

impl Default for Wkdm {
    fn default() -> Self {
        Wkdm::new()
    }
}

impl Codec for Wkdm {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn id(&self) -> CodecId {
        Self::ID
    }

    /// Cost: 1 to 4 us (`pleat bench codec`).
    fn compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
        let (tags, areas) = out.split_at_mut_checked(TAGS_BYTES)?;
        let counts = self.model(page, tags, areas.len())?;
        let len = counts.bytes().iter().sum();
        self.pack(counts, areas.get_mut(..len)?);
        Some(TAGS_BYTES + len)
    }

    /// Cost: 1 to 4 us (`pleat bench codec`).
    fn decompress(&mut self, data: &[u8], page: &mut Page) -> Result<(), CodecError> {
        let damaged = CodecError::Damaged { codec: Self::NAME };
        let Some((tags, areas)) = data.split_at_checked(TAGS_BYTES) else {
            return Err(damaged);
        };
        let counts = Counts::of(tags);
        if areas.len() != counts.bytes().iter().sum() {
            return Err(damaged);
        }
        self.unpack(counts, areas);
        self.rebuild(tags, page);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, compressed, decompressed};

    fn make() -> Box<dyn Codec> {
        Box::new(Wkdm::new())
    }

    fn page_of(words: &[u32]) -> Page {
        let mut page = [0; PAGE_SIZE];
        for (bytes, word) in page.chunks_exact_mut(WORD_BYTES).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        page
    }

    #[test]
    fn zeros_are_tags_alone() {
        assert_eq!(compressed(&make, &[0; PAGE_SIZE]), [0; TAGS_BYTES]);
        assert!(decompressed(&make, &[0; TAGS_BYTES]) == Some([0; PAGE_SIZE]));
    }

    #[test]
    fn a_word_is_in_the_dictionary_whole_or_by_its_upper_bits() {
        let page = page_of(&[0x1234_5678, 0x1234_5678, 0x1234_5601, 0, 0x1234_5601]);
        // Words 0 and 4 share the first byte of the tags.
        let mut data = vec![MISS | EXACT << 2, EXACT, PARTIAL, ZERO];
        data.resize(TAGS_BYTES, 0);
        data.extend([0x78, 0x56, 0x34, 0x12]);
        let slot = slot_of(0x1234_5678) as u8;
        data.extend([slot, slot, slot, 0]);
        data.extend([0x01, 0x02, 0, 0]);
        assert_eq!(compressed(&make, &page), data);
        assert!(decompressed(&make, &data) == Some(page));
    }

    #[test]
    fn slots_and_low_bits_are_packed_as_in_the_picture() {
        let page = page_of(&std::array::from_fn::<_, 10, _>(|i| 0x1234_5400 + i as u32));
        // One miss, then nine partial matches.
        let mut data = vec![0x16, 0x15, 0x05, 0x05];
        data[0] |= PARTIAL << 4;
        data[1] |= PARTIAL << 4;
        data.resize(TAGS_BYTES, 0);
        data.extend([0x00, 0x54, 0x34, 0x12]);
        let slot = slot_of(0x1234_5400) as u8;
        data.extend([slot | slot << 4; 4]);
        data.extend([slot, 0, 0, 0]);
        for lows in [[1, 2, 3], [4, 5, 6], [7, 8, 9u32]] {
            data.extend((lows[0] | lows[1] << 10 | lows[2] << 20).to_le_bytes());
        }
        assert_eq!(compressed(&make, &page), data);
        assert!(decompressed(&make, &data) == Some(page));
    }

    #[test]
    fn every_slot_but_that_of_zero_is_equally_likely() {
        for slot in 1..16 {
            assert_eq!(SLOTS.iter().filter(|&&s| s == slot).count(), 17);
        }
        assert_eq!(SLOTS[0], 0);
    }

    #[test]
    fn keeps_to_what_every_codec_must() {
        testing::check(&make);
    }
}
