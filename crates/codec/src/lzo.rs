//! LZO1X, as in liblzo2 (Oberhumer 1996) and castro03: streams of either decode with the other. The
//! format is that of `Documentation/staging/lzo.rst` in Linux; the encoder is a greedy one like
//! LZO1X-1, which uses the instructions for far and near matches of three bytes and more.
//!
//! The working memory (16 KiB) is allocated once per value.

use pleat_types::{CodecId, Page, PAGE_SIZE};

use crate::lz::{copy_back, load32, match_end, Sink, Source};
use crate::{Codec, CodecError};

const HASH_BITS: u32 = 13;
/// The bytes hashed, and so the shortest match found.
const SEED_BYTES: usize = 4;
/// No match begins after this; the bytes behind it are literals or the end of a match.
const LAST_START: usize = PAGE_SIZE - 8;
/// Without a match, one more byte is skipped for each so many since the last one.
const SKIP_SHIFT: u32 = 5;

/// Longest match and distance of the two-byte instruction.
const NEAR_LEN_MAX: usize = 8;
const NEAR_BACK_MAX: usize = 2048;
/// The instruction for distances up to 16384, and the longest match that fits into its first byte.
const FAR: u8 = 0x20;
const FAR_LEN_MAX: usize = 33;
/// Literals that the first byte of the stream can announce, plus this.
const FIRST_LITERALS: usize = 17;
const FIRST_LITERALS_MAX: usize = 238;
/// Longest run of literals that fits into its instruction's first byte.
const LITERALS_MAX: usize = 18;
/// The instruction for distances over 16384; with distance 16384 exactly it ends the stream.
const END: [u8; 3] = [0x11, 0, 0];

/// LZO with its hash table: where in the page four bytes were seen last.
pub struct Lzo {
    seen: Box<[u16; 1 << HASH_BITS]>,
}

impl Lzo {
    /// Name on the command line.
    pub const NAME: &'static str = "lzo";
    /// Identity stored with pages.
    pub const ID: CodecId = CodecId(4);

    /// Allocates the working memory.
    pub fn new() -> Self {
        Lzo {
            seen: Box::new([0; 1 << HASH_BITS]),
        }
    }

    fn encode(&mut self, page: &Page, sink: &mut Sink) -> Option<()> {
        // 0 stands for the first byte of the page, a place like any other.
        self.seen.fill(0);
        let (mut at, mut done) = (1, 0);
        while at <= LAST_START {
            let word = load32(page, at);
            let slot = (word.wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS)) as usize;
            let from = usize::from(self.seen[slot]);
            self.seen[slot] = at as u16;
            if load32(page, from) != word {
                at += 1 + ((at - done) >> SKIP_SHIFT);
                continue;
            }
            let back = at - from;
            put_literals(sink, page, done, at)?;
            done = match_end(page, at + SEED_BYTES, back, PAGE_SIZE);
            put_match(sink, back, done - at)?;
            at = done;
        }
        put_literals(sink, page, done, PAGE_SIZE)?;
        sink.put(END)
    }
}

/// Writes the instruction that copies `page[from..to]`, and these bytes.
#[inline(always)]
fn put_literals(sink: &mut Sink, page: &Page, from: usize, to: usize) -> Option<()> {
    let count = to - from;
    if sink.len() == 0 && count <= FIRST_LITERALS_MAX {
        sink.put([(FIRST_LITERALS + count) as u8])?;
    } else if count <= 3 {
        // Up to three are announced by two bits of the match before, in its last byte but one.
        sink.add_bits(2, count as u8);
    } else if count <= LITERALS_MAX {
        sink.put([(count - 3) as u8])?;
    } else {
        sink.put([0])?;
        put_length(sink, count - LITERALS_MAX)?;
    }
    sink.put_from(page, from, to)
}

/// Writes the instruction that repeats `len` bytes from `back` before.
#[inline(always)]
fn put_match(sink: &mut Sink, back: usize, len: usize) -> Option<()> {
    let distance = back - 1;
    if len <= NEAR_LEN_MAX && back <= NEAR_BACK_MAX {
        let first = (len - 1) << 5 | (distance & 7) << 2;
        return sink.put([first as u8, (distance >> 3) as u8]);
    }
    if len <= FAR_LEN_MAX {
        sink.put([FAR | (len - 2) as u8])?;
    } else {
        sink.put([FAR])?;
        put_length(sink, len - FAR_LEN_MAX)?;
    }
    sink.put(((distance << 2) as u16).to_le_bytes())
}

/// Writes `excess > 0`, what is left of a length that does not fit into its instruction.
fn put_length(sink: &mut Sink, mut excess: usize) -> Option<()> {
    while excess > 255 {
        sink.put([0])?;
        excess -= 255;
    }
    sink.put([excess as u8])
}

/// A length of which the instruction holds `bits`; when they are 0, what exceeds `full` follows.
#[inline(always)]
fn take_length(source: &mut Source, bits: usize, full: usize) -> Option<usize> {
    if bits != 0 {
        return Some(bits);
    }
    let mut length = full;
    loop {
        // Bounded by the page: there is nothing longer to announce.
        match source.take()? {
            [0] if length <= PAGE_SIZE => length += 255,
            [0] => return None,
            [last] => return Some(length + usize::from(last)),
        }
    }
}

/// Fills `page` as `data` says; `None` unless it is filled exactly and `data` read to its end.
fn decode(data: &[u8], page: &mut Page) -> Option<()> {
    let mut source = Source::new(data);
    let mut filled = 0;
    // Literals copied by the last instruction, of which only 0, 1 to 3, and more make a difference.
    let mut literals = 0;
    let first = usize::from(source.peek()?);
    if first > FIRST_LITERALS {
        let [_] = source.take()?;
        literals = first - FIRST_LITERALS;
        filled = source.copy(page, filled, literals)?;
    }
    loop {
        let [first] = source.take()?;
        let bits = usize::from(first);
        let (back, len);
        if first >= 0x40 {
            let [high] = source.take()?;
            len = (bits >> 5) + 1;
            back = (usize::from(high) << 3) + (bits >> 2 & 7) + 1;
            literals = bits & 3;
        } else if first >= 0x10 {
            let length_bits = if first >= FAR { 0x1F } else { 7 };
            len = take_length(&mut source, bits & length_bits, length_bits)? + 2;
            let distance = usize::from(u16::from_le_bytes(source.take()?));
            literals = distance & 3;
            back = (distance >> 2) + 1;
            if first < FAR {
                // Distances over 16384 begin before the page; 16384 is the end.
                let is_end = first & 8 == 0 && distance >> 2 == 0;
                return (is_end && filled == PAGE_SIZE && source.is_at_end()).then_some(());
            }
        } else if literals == 0 {
            literals = take_length(&mut source, bits, 15)? + 3;
            filled = source.copy(page, filled, literals)?;
            continue;
        } else {
            // Not written by our encoder.
            let [high] = source.take()?;
            let near = (usize::from(high) << 2) + (bits >> 2) + 1;
            (back, len) = if literals <= 3 {
                (near, 2)
            } else {
                (near + NEAR_BACK_MAX, 3)
            };
            literals = bits & 3;
        }
        filled = copy_back(page, filled, back, len)?;
        filled = source.copy(page, filled, literals)?;
    }
}

impl Default for Lzo {
    fn default() -> Self {
        Lzo::new()
    }
}

impl Codec for Lzo {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn id(&self) -> CodecId {
        Self::ID
    }

    /// Cost: 3 to 7 us, 0.6 us when nothing repeats (`pleat bench codec`).
    fn compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
        let mut sink = Sink::new(out);
        self.encode(page, &mut sink)?;
        Some(sink.len())
    }

    /// Cost: 1.5 to 3.4 us (`pleat bench codec`).
    fn decompress(&mut self, data: &[u8], page: &mut Page) -> Result<(), CodecError> {
        decode(data, page).ok_or(CodecError::Damaged { codec: Self::NAME })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, compressed, decompressed};

    fn make() -> Box<dyn Codec> {
        Box::new(Lzo::new())
    }

    /// 0x12 is one literal, 0x20 a match longer than 33, whose length less 33 follows.
    #[test]
    fn zeros_are_one_literal_and_one_long_match() {
        let mut stream = vec![0x12, 0, 0x20];
        stream.extend([0; 15]);
        stream.extend([0xED, 0, 0, 0x11, 0, 0]);
        assert_eq!(1 + 33 + 15 * 255 + 0xED, PAGE_SIZE);
        assert_eq!(compressed(&make, &[0; PAGE_SIZE]), stream);
        assert_eq!(decompressed(&make, &stream), Some([0; PAGE_SIZE]));
    }

    /// Also those that our encoder never writes. liblzo2 decodes these streams to the same page.
    #[test]
    fn every_instruction_is_understood() {
        #[rustfmt::skip]
        let stream = [
            0x15, b'a', b'b', b'c', b'd', // four literals to begin with
            0x4D, 0, b'e', // 3 bytes from 4 before, and a literal
            0x00, 0x01, // after one literal: 2 bytes from 5 before
            0x01, b'w', b'x', b'y', b'z', // after none: four literals
            0x20, 0, 0, 0, 0, 0, 0, 0, 0, 13, 0x34, 0, // 33 + 8 * 255 + 13 bytes from 14 before
            0x01, b'1', b'2', b'3', b'4',
            0x04, 0x02, // after four: 3 bytes from 2049 + 9 before
            0x20, 0, 0, 0, 0, 0, 0, 0, 171, 0, 0, // 33 + 7 * 255 + 171 bytes from 1 before
            0x11, 0, 0,
        ];
        let begin = b"abcdabcedawxyz";
        let mut page: Vec<u8> = (0..2100).map(|at| begin[at % begin.len()]).collect();
        page.extend(b"1234");
        page.extend_from_within(2104 - 2058..2104 - 2058 + 3);
        page.resize(PAGE_SIZE, page[2106]);
        assert_eq!(decompressed(&make, &stream), page.try_into().ok());
    }

    #[test]
    fn a_stream_of_liblzo2_is_understood() {
        #[rustfmt::skip]
        let stream = [
            0x00, 0x02, 0x00, 0x07, 0x0E, 0x15, 0x1C, 0x23, 0x2A, 0x31, 0x38, 0x3F, 0x46, 0x4D, 0x54,
            0x5B, 0x62, 0x69, 0x70, 0x77, 0x7E, 0x85, 0x20, 0x00, 0xCC, 0x4D, 0x00, 0x01, 0x20, 0x00,
            0xD3, 0xCC, 0x07, 0x2A, 0x9D, 0x0F, 0x02, 0x20, 0x00, 0xDB, 0xEC, 0x0F, 0x7D, 0x40, 0x03,
            0x20, 0x00, 0xCF, 0xBC, 0x17, 0x6C, 0x3E, 0x2A, 0x8D, 0x1F, 0x04, 0x20, 0x00, 0xD7, 0xDC,
            0x1F, 0xFC, 0x40, 0x02, 0x05, 0x07, 0x0E, 0x15, 0x1C, 0x20, 0x00, 0xDB, 0x0D, 0x18, 0x06,
            0x20, 0x00, 0xDF, 0xFD, 0x27, 0x07, 0x20, 0x00, 0xCC, 0xEC, 0x0F, 0x00, 0x01, 0x77, 0x7E,
            0x85, 0x00, 0x07, 0x0E, 0x15, 0x1C, 0x23, 0x2A, 0x31, 0x38, 0x3F, 0x46, 0x4D, 0x54, 0x5B,
            0x62, 0x69, 0x11, 0x00, 0x00,
        ];
        let page: Page = std::array::from_fn(|at| match at % 512 {
            0 => (at / 512) as u8,
            _ => (at % 20 * 7) as u8,
        });
        assert_eq!(decompressed(&make, &stream), Some(page));
    }

    #[test]
    fn matches_from_before_the_page_and_a_second_end_are_damage() {
        let mut stream = vec![0x12, 0, 0x20];
        stream.extend([0; 15]);
        stream.extend([0xED, 0, 0, 0x11, 0, 0]);
        let with = |at: usize, byte| {
            let mut stream = stream.clone();
            stream[at] = byte;
            decompressed(&make, &stream)
        };
        let end = stream.len() - 3;
        assert!(with(end - 2, 4).is_none(), "2 before, with one byte there");
        assert!(with(end, 0x19).is_none(), "32768 before");
        assert!(with(end + 1, 4).is_none(), "16385 before");
        stream.extend([0x11, 0, 0]);
        assert!(decompressed(&make, &stream).is_none());
    }

    #[test]
    fn keeps_to_what_every_codec_must() {
        testing::check(&make);
    }
}
