//! Page codecs: a 4 KiB page in, bytes out.
//!
//! Knows nothing of memory or policy. Every decoder is safe on any input. [`Folder`] is what the
//! engine calls; a codec is one file that implements [`Codec`] and one entry in `registry.rs`;
//! a [`Choice`] is the rule by which pages get theirs.
#![deny(unsafe_code)]

mod bytes;
mod choice;
mod dictionary;
mod fold;
mod folder;
mod lz;
mod lz4;
mod lzo;
mod lzrw1;
pub mod measure;
mod registry;
#[cfg(test)]
mod testing;
mod wkdm;
mod zstd;

pub use choice::{Choice, PageKind, UnknownChoice};
pub use fold::Fold;
pub use folder::{Folder, KEEP_BYTES_MAX};
pub use lz4::Lz4;
pub use lzo::Lzo;
pub use lzrw1::Lzrw1;
pub use wkdm::Wkdm;
pub use zstd::{Zstd, ZstdWithDictionary};

use pleat_types::{CodecId, Page};

/// Why bytes did not decode to a page. The page's memory is lost: the caller must stop the job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The bytes are not what the codec wrote.
    #[error("codec {codec}: the compressed page is damaged")]
    Damaged {
        /// Name of the codec.
        codec: &'static str,
    },
    /// No codec has this id.
    #[error("a compressed page names codec id {0}, which does not exist")]
    UnknownCodec(u8),
}

/// One compression method with its working memory: one value per thread, no allocation per page.
pub trait Codec: Send {
    /// Name on the command line.
    fn name(&self) -> &'static str;
    /// Identity stored with every page it compressed; never 0.
    fn id(&self) -> CodecId;
    /// Compresses `page` into `out`. `None` when it does not fit into `out`.
    fn compress(&mut self, page: &Page, out: &mut [u8]) -> Option<usize>;
    /// Decompresses `data`, any bytes whatever, into `page`.
    ///
    /// # Errors
    /// [`CodecError::Damaged`] when `data` is not a page this codec compressed; `page` then holds
    /// any bytes.
    fn decompress(&mut self, data: &[u8], page: &mut Page) -> Result<(), CodecError>;
}

/// What a page became.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folded {
    /// One 64-bit word repeated: needs no store space.
    Same(u64),
    /// `len` bytes of the buffer, made by `codec` ([`CodecId::RAW`]: the page itself, `len` 4096).
    Bytes {
        /// Which codec made the bytes.
        codec: CodecId,
        /// How many bytes.
        len: usize,
    },
}
