//! A page to its stored form and back: the choice between one repeated word, compressed bytes and
//! the page as it is.
//!
//! The engine has one [`Folder`] per thread. It allocates nothing per page.

use pleat_types::{CodecId, Page, PAGE_SIZE};

use std::sync::Arc;

use crate::registry::CodecSet;
use crate::{Choice, CodecError, Folded, PageKind};

/// A page is kept compressed when at most this many bytes are left: 3/4 of it (douglis93's 4:3
/// threshold). A codec's output buffer is this long, so a few bytes less may count as too much
/// when the codec cannot foresee that its last bytes fit.
pub const KEEP_BYTES_MAX: usize = PAGE_SIZE / 4 * 3;

const WORD_BYTES: usize = size_of::<u64>();

/// Folds and unfolds pages as a [`Choice`] says; one value per thread.
pub struct Folder {
    choice: Arc<Choice>,
    codecs: CodecSet,
}

impl Folder {
    /// A folder that compresses as `choice` says, and undoes what any codec did.
    pub fn new(choice: &Arc<Choice>) -> Self {
        Folder {
            choice: choice.clone(),
            codecs: CodecSet::default(),
        }
    }

    /// Turns `page` into what the store shall keep; [`Folded::Bytes`] are at the start of `out`.
    ///
    /// A page that another process changes meanwhile gives bytes that unfold to garbage or to
    /// [`CodecError::Damaged`], never worse: no index is computed from a value read twice. Callers
    /// that share memory fold a page only once nobody else can write to it.
    pub fn fold(&mut self, page: &Page, kind: PageKind, out: &mut [u8; PAGE_SIZE]) -> Folded {
        if let Some(word) = repeated_word(page) {
            return Folded::Same(word);
        }
        self.choice.show(page);
        let first = self.choice.codec_for(page, kind);
        let made = self.compress(first, page, out).or_else(|| {
            let second = self.choice.codec_after(first)?;
            self.compress(second, page, out)
        });
        made.unwrap_or_else(|| self.keep(page, out))
    }

    /// Compresses with this codec; `None` when too much is left.
    fn compress(&mut self, id: CodecId, page: &Page, out: &mut [u8; PAGE_SIZE]) -> Option<Folded> {
        if id == CodecId::RAW {
            return None;
        }
        let codec = self
            .codecs
            .get(id, &self.choice)
            .expect("a choice names codecs that exist");
        let len = codec.compress(page, &mut out[..KEEP_BYTES_MAX])?;
        Some(Folded::Bytes { codec: id, len })
    }

    /// Keeps a page as it is, of which it is known that it does not compress.
    pub fn keep(&self, page: &Page, out: &mut [u8; PAGE_SIZE]) -> Folded {
        out.copy_from_slice(page);
        Folded::Bytes {
            codec: CodecId::RAW,
            len: PAGE_SIZE,
        }
    }

    /// Folds a page again that was folded into `bytes` with `codec`: with zstd, slower and tighter.
    /// What it became is at the start of `out`; it may be longer than before.
    ///
    /// # Errors
    /// As [`Folder::unfold`].
    pub fn refold(
        &mut self,
        codec: CodecId,
        bytes: &[u8],
        out: &mut [u8; PAGE_SIZE],
    ) -> Result<Folded, CodecError> {
        let mut page = [0; PAGE_SIZE];
        self.unfold(codec, bytes, &mut page)?;
        let made = self.compress(self.choice.codec_when_cold(), &page, out);
        Ok(made.unwrap_or_else(|| self.keep(&page, out)))
    }

    /// Turns `bytes`, the whole of what `codec` made, back into `page`.
    ///
    /// # Errors
    /// [`CodecError::Damaged`] when `bytes` are not what that codec wrote,
    /// [`CodecError::UnknownCodec`] when there is no such codec; `page` then holds any bytes.
    pub fn unfold(
        &mut self,
        codec: CodecId,
        bytes: &[u8],
        page: &mut Page,
    ) -> Result<(), CodecError> {
        if codec != CodecId::RAW {
            let codec = self
                .codecs
                .get(codec, &self.choice)
                .ok_or(CodecError::UnknownCodec(codec.0))?;
            return codec.decompress(bytes, page);
        }
        *page = *<&Page>::try_from(bytes).map_err(|_| CodecError::Damaged { codec: "raw" })?;
        Ok(())
    }

    /// Fills `page` with a word that [`Folded::Same`] gave.
    pub fn fill_same(&self, word: u64, page: &mut Page) {
        for chunk in page.chunks_exact_mut(WORD_BYTES) {
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
    }
}

/// The word that the page repeats, if it does. Nearly every other page differs within its first
/// cache line or between its ends, so this looks there first.
fn repeated_word(page: &Page) -> Option<u64> {
    let first: [u8; WORD_BYTES] = *page.first_chunk()?;
    if page[PAGE_SIZE - WORD_BYTES..] != first {
        return None;
    }
    let word = u64::from_ne_bytes(first);
    // A line at a time without branches inside, so that the compiler can use vectors.
    let repeats = page.chunks_exact(64).all(|line| {
        let differs = line.chunks_exact(WORD_BYTES).fold(0, |differs, bytes| {
            let mut next = [0; WORD_BYTES];
            next.copy_from_slice(bytes);
            differs | (u64::from_ne_bytes(next) ^ word)
        });
        differs == 0
    });
    repeats.then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{any_page, noise, partly_noise};
    use proptest::prelude::*;

    fn folder_of(name: &str) -> Folder {
        Folder::new(&Arc::new(Choice::parse(name).expect("listed")))
    }

    fn folder() -> Folder {
        folder_of("lz4")
    }

    fn round_trip(page: &Page) -> Folded {
        round_trip_with(&mut folder(), page)
    }

    fn round_trip_with(folder: &mut Folder, page: &Page) -> Folded {
        let (mut out, mut back) = ([0; PAGE_SIZE], [0x5A; PAGE_SIZE]);
        let folded = folder.fold(page, PageKind::Anonymous, &mut out);
        match folded {
            Folded::Same(word) => folder.fill_same(word, &mut back),
            Folded::Bytes { codec, len } => folder
                .unfold(codec, &out[..len], &mut back)
                .expect("just folded"),
        }
        assert!(back == *page, "{folded:?} came back different");
        folded
    }

    #[test]
    fn nothing_is_compressed_when_raw_was_chosen() {
        let mut folder = Folder::new(&Arc::new(Choice::parse("raw").unwrap()));
        let page: Page = std::array::from_fn(|i| (i / 64) as u8);
        let mut out = [0; PAGE_SIZE];
        let folded = folder.fold(&page, PageKind::Anonymous, &mut out);
        let (codec, len) = (CodecId::RAW, PAGE_SIZE);
        assert_eq!(folded, Folded::Bytes { codec, len });
        assert_eq!(out, page);
    }

    #[test]
    fn a_page_of_one_word_is_same_and_one_changed_bit_is_not() {
        for word in [0, u64::MAX, 0x0123_4567_89AB_CDEF] {
            let mut page = [0; PAGE_SIZE];
            folder().fill_same(word, &mut page);
            assert_eq!(round_trip(&page), Folded::Same(word));
            for at in [0, 7, 8, 63, 64, 2048, PAGE_SIZE - 9, PAGE_SIZE - 1] {
                page[at] ^= 0x10;
                assert!(
                    matches!(round_trip(&page), Folded::Bytes { .. }),
                    "byte {at}"
                );
                page[at] ^= 0x10;
            }
        }
    }

    #[test]
    fn what_is_folded_again_is_the_same_page_and_shorter() {
        for name in Choice::names() {
            let (mut folder, mut out, mut back) = (folder_of(name), [0; PAGE_SIZE], [0; PAGE_SIZE]);
            let page = crate::testing::text_page(4);
            let Folded::Bytes { codec, len } = folder.fold(&page, PageKind::Anonymous, &mut out)
            else {
                panic!("{name}: a text is not one word");
            };
            let before = out[..len].to_vec();
            let again = folder.refold(codec, &before, &mut out);
            let Ok(Folded::Bytes { codec, len }) = again else {
                panic!("{name}: {again:?}");
            };
            assert!(len <= before.len(), "{name}");
            folder.unfold(codec, &out[..len], &mut back).expect(name);
            assert!(back == page, "{name}");
        }
    }

    #[test]
    fn more_than_three_quarters_left_is_stored_raw() {
        let raw = Folded::Bytes {
            codec: CodecId::RAW,
            len: PAGE_SIZE,
        };
        assert_eq!(round_trip(&noise(3)), raw);
        assert_eq!(round_trip(&partly_noise(3, KEEP_BYTES_MAX)), raw);
        match round_trip(&partly_noise(3, KEEP_BYTES_MAX - 64)) {
            Folded::Bytes {
                codec: crate::Lz4::ID,
                len,
            } => assert!(len <= KEEP_BYTES_MAX),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn wrong_codec_or_wrong_raw_length_is_an_error() {
        let mut page = [0; PAGE_SIZE];
        let raw_damaged = Err(CodecError::Damaged { codec: "raw" });
        assert_eq!(
            folder().unfold(CodecId::RAW, &[1; 4095], &mut page),
            raw_damaged
        );
        assert_eq!(
            folder().unfold(CodecId::RAW, &[1; 4097], &mut page),
            raw_damaged
        );
        assert_eq!(
            folder().unfold(CodecId(99), &[1; 10], &mut page),
            Err(CodecError::UnknownCodec(99))
        );
    }

    proptest! {
        #[test]
        fn every_page_comes_back(page in any_page()) {
            for name in Choice::names() {
                if let Folded::Bytes { codec, len } = round_trip_with(&mut folder_of(name), &page) {
                    prop_assert!(codec == CodecId::RAW || len <= KEEP_BYTES_MAX, "{name}");
                }
            }
        }
    }
}
