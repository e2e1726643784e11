//! What the pages of the model test are made of: a content is a number, 0 a page of zeros.

use pleat_codec::Folded;
use pleat_types::CodecId;

const CODEC: CodecId = CodecId(9);
/// What pages that stayed cold are compressed with.
pub(super) const TIGHT: CodecId = CodecId(10);

/// How a content folds: some are one word, some do not compress, lengths vary.
pub(super) fn fold(content: u64) -> (Folded, Vec<u8>) {
    if content.is_multiple_of(5) {
        return (Folded::Same(content), Vec::new());
    }
    let (codec, len) = match content % 7 {
        0 => (CodecId::RAW, 4096),
        _ => (CODEC, 8 + (content * 577 % 1000) as usize),
    };
    let bytes = content
        .to_le_bytes()
        .into_iter()
        .cycle()
        .take(len)
        .collect();
    (Folded::Bytes { codec, len }, bytes)
}

/// A content compressed again.
pub(super) fn tight(content: u64, is_longer: bool) -> Vec<u8> {
    let (_, folded) = fold(content);
    let len = if is_longer {
        4096
    } else {
        8 + folded.len() / 3
    };
    content
        .to_le_bytes()
        .into_iter()
        .cycle()
        .take(len)
        .collect()
}

pub(super) fn unfold(codec: CodecId, bytes: &[u8]) -> u64 {
    let content = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    if codec == TIGHT {
        assert_eq!(bytes, tight(content, false), "damaged, or not kept");
        return content;
    }
    let (folded, expected) = fold(content);
    assert_eq!(
        folded,
        Folded::Bytes {
            codec,
            len: bytes.len()
        },
        "not what was folded"
    );
    assert_eq!(bytes, expected, "damaged");
    content
}
