//! Shares and sizes as they are written in the names of policies: `60%`, `512M`.
//!
//! Every policy with a parameter reads it here, so that all are written alike.

use std::ops::RangeInclusive;

/// A percentage within `allowed`, its sign still on it.
pub(crate) fn percent(text: &str, allowed: RangeInclusive<u64>) -> Option<u64> {
    let number = whole(text.strip_suffix('%')?)?;
    allowed.contains(&number).then_some(number)
}

/// A number of bytes with an optional binary suffix: K, M, G or T.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().last()? {
        (at, 'K' | 'k') => (&text[..at], 10),
        (at, 'M' | 'm') => (&text[..at], 20),
        (at, 'G' | 'g') => (&text[..at], 30),
        (at, 'T' | 't') => (&text[..at], 40),
        _ => (text, 0),
    };
    whole(digits)?.checked_mul(1 << shift)
}

/// Digits only: no sign, no spaces.
pub(crate) fn whole(text: &str) -> Option<u64> {
    let digits = text.starts_with(|first: char| first.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// So many per cent of `bytes`. Divides first: exact enough for a bound, and nothing overflows.
pub(crate) fn share(bytes: u64, percent: u64) -> u64 {
    bytes / 100 * percent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_suffixes() {
        assert_eq!(bytes("7"), Some(7));
        assert_eq!(bytes("4K"), Some(4096));
        assert_eq!(bytes("2g"), Some(2 << 30));
        assert_eq!(bytes("1T"), Some(1 << 40));
    }

    #[test]
    fn nonsense_is_no_size() {
        for text in [
            "",
            "K",
            "-1",
            "+4",
            "12Q",
            "1.5G",
            "9999999999999T",
            "\u{e9}",
        ] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn shares_keep_within_what_is_allowed() {
        assert_eq!(percent("0%", 0..=100), Some(0));
        assert_eq!(percent("100%", 0..=100), Some(100));
        for text in ["", "%", "60", "101%", "+6%", "-6%", "6 %"] {
            assert_eq!(percent(text, 0..=100), None, "{text}");
        }
        assert_eq!(percent("7%", 8..=100), None);
    }
}
