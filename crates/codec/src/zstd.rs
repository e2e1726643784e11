//! Zstandard through its C library, with or without a dictionary of the job: the densest codec, several
//! times slower than lz4.
//!
//! A page is one frame of as few bytes as the library can write: without magic number, length, checksum
//! and dictionary id, for the store knows the codec and the length. Frames without magic number are
//! marked experimental in the library's interface, which can change only with the version that is built
//! in; no frame outlives the process that wrote it.
//!
//! The library allocates a context's working memory with its first page and keeps it.

use pleat_types::{CodecId, Page, PAGE_SIZE};
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat, SafeResult};

use crate::dictionary::Dictionary;
use crate::{Codec, CodecError};

/// The levels there are, less 0, which the library takes for 3. More than 19 only widens the window.
pub(crate) const LEVELS: std::ops::RangeInclusive<i32> = -5..=19;
/// What `zstd` alone means: the others cost more time than they save bytes of a page.
pub(crate) const LEVEL_DEFAULT: i32 = 1;

/// Why setting parameters cannot fail.
const VALID: &str = "the built-in library knows these parameters";

/// Zstandard at one level.
pub struct Zstd {
    encoder: CCtx<'static>,
    decoder: DCtx<'static>,
}

impl Zstd {
    /// Name on the command line.
    pub const NAME: &'static str = "zstd";
    /// Identity stored with pages.
    pub const ID: CodecId = CodecId(2);

    /// Allocates the contexts; `level` is brought into -5 to 19.
    pub fn new(level: i32) -> Self {
        Zstd {
            encoder: encoder(level),
            decoder: decoder(),
        }
    }
}

/// Zstandard at one level, with a dictionary of the job.
pub struct ZstdWithDictionary<'a> {
    encoder: CCtx<'a>,
    decoder: DCtx<'static>,
    dictionary: &'a Dictionary,
}

impl<'a> ZstdWithDictionary<'a> {
    /// Name in messages; on the command line it is `zstd+dict`.
    pub const NAME: &'static str = "zstd+dict";
    /// Identity stored with pages.
    pub const ID: CodecId = CodecId(3);

    /// Allocates the contexts; the level is that of the dictionary.
    pub(crate) fn new(dictionary: &'a Dictionary) -> Self {
        let mut encoder = encoder(LEVEL_DEFAULT);
        encoder.ref_cdict(dictionary.to_encode()).expect(VALID);
        ZstdWithDictionary {
            encoder,
            decoder: decoder(),
            dictionary,
        }
    }
}

fn encoder<'a>(level: i32) -> CCtx<'a> {
    let mut encoder = CCtx::create();
    let level = level.clamp(*LEVELS.start(), *LEVELS.end());
    for parameter in [
        CParameter::CompressionLevel(level),
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
        CParameter::DictIdFlag(false),
    ] {
        encoder.set_parameter(parameter).expect(VALID);
    }
    encoder
}

fn decoder() -> DCtx<'static> {
    let mut decoder = DCtx::create();
    let format = DParameter::Format(FrameFormat::Magicless);
    decoder.set_parameter(format).expect(VALID);
    decoder
}

/// `Ok` when a whole page was written.
fn whole_page(written: SafeResult, codec: &'static str) -> Result<(), CodecError> {
    match written {
        Ok(PAGE_SIZE) => Ok(()),
        _ => Err(CodecError::Damaged { codec }),
    }
}

impl Codec for Zstd {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn id(&self) -> CodecId {
        Self::ID
    }

    /// Cost: 10 to 25 us at level 1, 1.3 ms at level 19 (`pleat bench codec`).
    fn compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
        self.encoder.compress2(out, page).ok()
    }

    /// Cost: 4 to 10 us (`pleat bench codec`).
    fn decompress(&mut self, data: &[u8], page: &mut Page) -> Result<(), CodecError> {
        whole_page(self.decoder.decompress(&mut page[..], data), Self::NAME)
    }
}

impl Codec for ZstdWithDictionary<'_> {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn id(&self) -> CodecId {
        Self::ID
    }

    /// Cost: somewhat less than without dictionary.
    fn compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize> {
        self.encoder.compress2(out, page).ok()
    }

    /// Cost: somewhat less than without dictionary.
    fn decompress(&mut self, data: &[u8], page: &mut Page) -> Result<(), CodecError> {
        let dictionary = self.dictionary.to_decode();
        let written = self
            .decoder
            .decompress_using_ddict(&mut page[..], data, dictionary);
        whole_page(written, Self::NAME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, compressed, decompressed};

    fn make() -> Box<dyn Codec> {
        Box::new(Zstd::new(LEVEL_DEFAULT))
    }

    #[test]
    fn keeps_to_what_every_codec_must() {
        testing::check(&make);
    }

    #[test]
    fn the_highest_and_the_lowest_level_keep_to_it_too() {
        testing::check(&|| Box::new(Zstd::new(*LEVELS.start())));
        testing::check(&|| Box::new(Zstd::new(*LEVELS.end())));
    }

    #[test]
    fn with_a_dictionary_it_keeps_to_it_too() {
        let samples: Vec<Page> = (0..64).map(testing::text_page).collect();
        let dictionary = Dictionary::train(samples.as_flattened(), 3).expect("good samples");
        let dictionary: &Dictionary = Box::leak(Box::new(dictionary));
        testing::check(&|| Box::new(ZstdWithDictionary::new(dictionary)));
    }

    /// RFC 8878: descriptor 0, window of 4 KiB (0x10), and one last block of type RLE and 4096 bytes.
    #[test]
    fn a_frame_has_two_bytes_of_header() {
        let block = u32::to_le_bytes(4096 << 3 | 1 << 1 | 1);
        let frame = [0, 0x10, block[0], block[1], block[2], 0xAB];
        assert!(decompressed(&make, &frame) == Some([0xAB; PAGE_SIZE]));
        assert_eq!(compressed(&make, &testing::text_page(1))[..2], frame[..2]);
    }
}
