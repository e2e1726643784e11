//! LZRW1 (Williams, "An Extremely Fast Ziv-Lempel Data Compression Algorithm", DCC 1991), what
//! douglis93 compressed pages with. The output is that of the paper's program less its first four
//! bytes, which say whether a block is compressed at all: the caller keeps that.
//!
//! Groups of 16 items follow a word of 16 bits, the lowest for the first: 0 for a literal byte, 1 for
//! two bytes that stand for 3 to 16 bytes from up to 4095 before. Every place is looked up by the
//! hash of three bytes in a table of 4096 entries, as in the paper; with entries of four bytes these
//! are douglis93's 16 KiB. It is allocated once per value.

use pleat_types::{CodecId, Page, PAGE_SIZE};

use crate::lz::{copy_back, load32, match_end, Sink, Source};
use crate::{Codec, CodecError};

const HASH_ENTRIES: usize = 4096;
const HASH_FACTOR: u32 = 40543;
const GROUP_ITEMS: u32 = 16;
const MATCH_MAX: usize = 16;
/// No match begins after this, as in the paper's program.
const LAST_START: usize = PAGE_SIZE - MATCH_MAX;

/// LZRW1 with its hash table: where three bytes were seen last.
pub struct Lzrw1 {
    /// Places of this page are entries from `base` on; whatever is less is of a page before. So the
    /// table need not be cleared for each page, and no page depends on another.
    seen: Box<[u32; HASH_ENTRIES]>,
    base: u32,
}

impl Lzrw1 {
    /// Name on the command line.
    pub const NAME: &'static str = "lzrw1";
    /// Identity stored with pages.
    pub const ID: CodecId = CodecId(5);

    /// Allocates the working memory.
    pub fn new() -> Self {
        Lzrw1 {
            seen: Box::new([0; HASH_ENTRIES]),
            base: 0,
        }
    }

    /// Makes every entry of the table one of a page before.
    fn forget(&mut self) {
        let next = self.base.checked_add(PAGE_SIZE as u32);
        self.base = next
            .filter(|&base| base <= u32::MAX - PAGE_SIZE as u32)
            .unwrap_or_else(|| {
                self.seen.fill(0);
                PAGE_SIZE as u32
            });
    }

    /// Where the three bytes from `at` were seen last on this page.
    #[inline(always)]
    fn look_up(&mut self, page: &Page, at: usize) -> Option<usize> {
        let slot = hash(load32(page, at));
        let entry = self.seen[slot];
        self.seen[slot] = self.base + at as u32;
        let from = entry.wrapping_sub(self.base) as usize;
        (from < at).then_some(from)
    }

    fn encode(&mut self, page: &Page, sink: &mut Sink) -> Option<()> {
        self.forget();
        let mut group = Group::begin(sink)?;
        let mut at = 0;
        while at <= LAST_START {
            at = self.item(page, at, &mut group, sink)?;
        }
        while at < PAGE_SIZE {
            sink.put([page[at]])?;
            group.count(0, sink)?;
            at += 1;
        }
        group.end(sink);
        Some(())
    }

    /// Writes the item for the bytes from `at`; where the next begins.
    #[inline(always)]
    fn item(
        &mut self,
        page: &Page,
        at: usize,
        group: &mut Group,
        sink: &mut Sink,
    ) -> Option<usize> {
        if let Some(from) = self.look_up(page, at) {
            let back = at - from;
            if (load32(page, at) ^ load32(page, from)) & 0x00FF_FFFF == 0 {
                let end = match_end(page, at, back, at + MATCH_MAX);
                let first = (back >> 4 & 0xF0) | (end - at - 1);
                sink.put([first as u8, back as u8])?;
                group.count(1, sink)?;
                return Some(end);
            }
        }
        sink.put([page[at]])?;
        group.count(0, sink)?;
        Some(at + 1)
    }
}

/// The paper's hash, of the three lowest bytes of `word`.
#[inline(always)]
fn hash(word: u32) -> usize {
    let [a, b, c, _] = word.to_le_bytes().map(u32::from);
    let mixed = (a << 8) ^ (b << 4) ^ c;
    (HASH_FACTOR.wrapping_mul(mixed) >> 4) as usize % HASH_ENTRIES
}

/// A group being written: the kinds of its items so far, the last in the highest bit.
struct Group {
    at: usize,
    kinds: u32,
    items: u32,
}

impl Group {
    #[inline(always)]
    fn begin(sink: &mut Sink) -> Option<Group> {
        let at = sink.len();
        sink.put([0; 2])?;
        Some(Group {
            at,
            kinds: 0,
            items: 0,
        })
    }

    /// Notes the kind of the item just written.
    #[inline(always)]
    fn count(&mut self, kind: u32, sink: &mut Sink) -> Option<()> {
        self.kinds |= kind << self.items;
        self.items += 1;
        if self.items == GROUP_ITEMS {
            sink.patch(self.at, (self.kinds as u16).to_le_bytes());
            *self = Group::begin(sink)?;
        }
        Some(())
    }

    /// A group without items is not there.
    fn end(self, sink: &mut Sink) {
        if self.items > 0 {
            sink.patch(self.at, (self.kinds as u16).to_le_bytes());
        } else {
            sink.take_back(2);
        }
    }
}

/// Fills `page` as `data` says; `None` unless it is filled exactly and `data` read to its end.
fn decode(data: &[u8], page: &mut Page) -> Option<()> {
    let mut source = Source::new(data);
    let mut filled = 0;
    while !source.is_at_end() {
        let mut kinds = u32::from(u16::from_le_bytes(source.take()?)) | 1 << GROUP_ITEMS;
        while kinds > 1 && !source.is_at_end() {
            if kinds & 1 == 0 {
                // Runs of literals at once.
                let run = kinds.trailing_zeros().min(source.left() as u32);
                filled = source.copy(page, filled, run as usize)?;
                kinds >>= run;
                continue;
            }
            let [first, low] = source.take()?;
            let back = usize::from(first & 0xF0) << 4 | usize::from(low);
            filled = copy_back(page, filled, back, usize::from(first & 0xF) + 1)?;
            kinds >>= 1;
        }
    }
    (filled == PAGE_SIZE).then_some(())
}

impl Default for Lzrw1 {
    fn default() -> Self {
        Lzrw1::new()
    }
}

impl Codec for Lzrw1 {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn id(&self) -> CodecId {
        Self::ID
    }

    /// Cost: 5 to 16 us (`pleat bench codec`); nothing is skipped when nothing repeats.
    fn compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
        let mut sink = Sink::new(out);
        self.encode(page, &mut sink)?;
        Some(sink.len())
    }

    /// Cost: 2.3 to 5 us (`pleat bench codec`).
    fn decompress(&mut self, data: &[u8], page: &mut Page) -> Result<(), CodecError> {
        decode(data, page).ok_or(CodecError::Damaged { codec: Self::NAME })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, compressed, decompressed};

    fn make() -> Box<dyn Codec> {
        Box::new(Lzrw1::new())
    }

    /// Groups of 16 items of which all are this match.
    fn groups(count: usize, item: [u8; 2]) -> Vec<u8> {
        [vec![0xFF, 0xFF], item.repeat(16)].concat().repeat(count)
    }

    /// The first match is with the literal, the others with the begin of the one before.
    #[test]
    fn zeros_are_one_literal_and_matches_of_sixteen() {
        let mut stream = vec![0xFE, 0xFF, 0];
        stream.extend([0x0F, 0x01]);
        stream.extend([0x0F, 0x10].repeat(14));
        stream.extend(groups(15, [0x0F, 0x10]));
        stream.extend([0; 2 + 15]);
        assert_eq!(compressed(&make, &[0; PAGE_SIZE]), stream);
        assert_eq!(decompressed(&make, &stream), Some([0; PAGE_SIZE]));
    }

    /// A match is with the last place that began an item: 3, 18, 33 and from then on 48 before.
    #[test]
    fn a_period_of_three_is_found_at_the_last_item_with_the_same_bytes() {
        let mut stream = vec![0xF8, 0xFF];
        stream.extend(b"abc\x0F\x03\x0F\x12\x0F\x21");
        stream.extend([0x0F, 0x30].repeat(10));
        stream.extend(groups(15, [0x0F, 0x30]));
        stream.extend(b"\x03\0\x0F\x30\x0F\x30abcabcabcabca");
        let page = std::array::from_fn(|at| b"abc"[at % 3]);
        assert_eq!(compressed(&make, &page), stream);
        assert_eq!(decompressed(&make, &stream), Some(page));
    }

    #[test]
    fn distances_have_twelve_bits() {
        let noise = testing::noise(1);
        let page: Page = std::array::from_fn(|at| noise[at % 0x123]);
        let stream = compressed(&make, &page);
        // 18 groups and 3 literals before the first match, which is 16 bytes from 0x123 before.
        let at = 18 * 18 + 2 + 3;
        assert_eq!(stream[at..at + 2], [0x1F, 0x23]);
        assert_eq!(decompressed(&make, &stream), Some(page));
    }

    #[test]
    fn the_table_is_cleared_when_places_run_out() {
        let page = testing::text_page(5);
        let mut codec = Lzrw1::new();
        let mut out = [0; PAGE_SIZE];
        for base in [u32::MAX - 3 * PAGE_SIZE as u32, 0xFFFF_F000, u32::MAX] {
            codec.base = base;
            for _ in 0..5 {
                let len = codec.compress(&page, &mut out).expect("compressible");
                assert_eq!(out[..len], compressed(&make, &page));
            }
        }
    }

    #[test]
    fn keeps_to_what_every_codec_must() {
        testing::check(&make);
    }
}
