//! Sizes as people write them: `340M`, `1.5GiB`, `512k`, `50%`, and back again for messages.
//!
//! Units count in 1024s, with or without the `i` and the `B`. The arithmetic is exact: `1.5G` is a
//! whole number of bytes, and no size passes through a float.

/// Bytes for people: up to four digits and a unit that [`parse_size`] reads back, such as `206M` or `1.5G`.
pub use pleat_plot::human_bytes as human;

/// What `--memory` accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// A share of what the machine offers.
    Share(Decimal),
}

/// A decimal number, `digits / 10^places`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    digits: u64,
    places: u32,
}

/// Why a text is no size. The message names the text and shows how to write one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not of the form number and unit.
    #[error(
        "'{0}' is not a size: write 340M, 2G, 1.5GiB, 512k or plain bytes (units count in 1024s)"
    )]
    NotASize(String),
    /// Neither a size nor a percentage.
    #[error("'{0}' is not a size: write 340M, 2G, 1.5GiB, 512k, plain bytes (units count in 1024s) or a percentage such as 50%")]
    NotAnAmount(String),
    /// Zero, or so little that it rounds to zero bytes.
    #[error("'{0}' is no memory at all: give a size above zero, such as 340M")]
    Zero(String),
    /// More than 64 bits of bytes.
    #[error("'{0}' is more than any machine has: give a smaller size, such as 2G")]
    TooLarge(String),
    /// Over 100 %.
    #[error("'{0}' is more than everything: give a percentage up to 100%")]
    OverAll(String),
}

impl Decimal {
    fn parse(text: &str) -> Option<Decimal> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits_only = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        let bare_point = text.contains('.') && fraction.is_empty();
        if whole.is_empty() || bare_point || !digits_only(whole) || !digits_only(fraction) {
            return None;
        }
        let places = u32::try_from(fraction.len())
            .ok()
            .filter(|&places| places <= 9)?;
        let digits = format!("{whole}{fraction}").parse().ok()?;
        Some(Decimal { digits, places })
    }

    /// `self * unit`, rounded down; `None` beyond 64 bits.
    fn times(self, unit: u64) -> Option<u64> {
        let product = u128::from(self.digits) * u128::from(unit);
        u64::try_from(product / 10u128.pow(self.places)).ok()
    }

    /// This many hundredths of `base_bytes`, rounded down.
    pub fn percent_of(self, base_bytes: u64) -> u64 {
        // `parse_amount` admits at most 100, so the product stays within 64 bits after the division.
        let product = u128::from(self.digits) * u128::from(base_bytes);
        (product / 10u128.pow(self.places) / 100) as u64
    }
}

/// Reads a size such as `340M` in bytes.
///
/// # Errors
/// Anything that is not a positive size below 2^64 bytes.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let text = text.trim();
    let number_len = text
        .bytes()
        .take_while(|b| b.is_ascii_digit() || *b == b'.')
        .count();
    let (number, unit) = text.split_at(number_len);
    let not_a_size = || SizeError::NotASize(text.to_owned());
    let unit_bytes = unit_bytes(unit.trim_start()).ok_or_else(not_a_size)?;
    if number.bytes().filter(u8::is_ascii_digit).count() > 18 {
        return Err(SizeError::TooLarge(text.to_owned()));
    }
    let number = Decimal::parse(number).ok_or_else(not_a_size)?;
    match number.times(unit_bytes) {
        Some(0) => Err(SizeError::Zero(text.to_owned())),
        Some(bytes) => Ok(bytes),
        None => Err(SizeError::TooLarge(text.to_owned())),
    }
}

/// Reads a size or a percentage.
///
/// # Errors
/// As [`parse_size`], and percentages that are zero or above 100.
pub fn parse_amount(text: &str) -> Result<Amount, SizeError> {
    let Some(number) = text.trim().strip_suffix('%') else {
        return parse_size(text)
            .map(Amount::Bytes)
            .map_err(|error| match error {
                SizeError::NotASize(text) => SizeError::NotAnAmount(text),
                other => other,
            });
    };
    let share =
        Decimal::parse(number.trim_end()).ok_or_else(|| SizeError::NotAnAmount(text.to_owned()))?;
    if share.digits == 0 {
        return Err(SizeError::Zero(text.to_owned()));
    }
    if u128::from(share.digits) > 100 * 10u128.pow(share.places) {
        return Err(SizeError::OverAll(text.to_owned()));
    }
    Ok(Amount::Share(share))
}

fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let shift = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    Some(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_count_in_1024s_however_they_are_written() {
        for text in ["340M", "340m", "340MB", "340MiB", "340 MiB"] {
            assert_eq!(parse_size(text), Ok(340 << 20), "{text}");
        }
        assert_eq!(parse_size("512k"), Ok(512 << 10));
        assert_eq!(parse_size("2G"), Ok(2 << 30));
        assert_eq!(parse_size("1T"), Ok(1 << 40));
        assert_eq!(parse_size("123456"), Ok(123_456));
    }

    #[test]
    fn fractions_are_exact() {
        assert_eq!(parse_size("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse_size("0.001K"), Ok(1));
    }

    #[test]
    fn nonsense_is_refused_and_named() {
        for text in [
            "", "M", "12Q", "-5M", "1.2.3M", "1.M", ".5G", "1e9", "50%", "M5", "∞",
        ] {
            let error = parse_size(text).unwrap_err();
            assert!(matches!(error, SizeError::NotASize(_)), "{text}: {error}");
            assert!(error.to_string().contains("340M"), "{error}");
        }
    }

    #[test]
    fn zero_and_the_absurd_are_told_apart_from_nonsense() {
        assert!(matches!(parse_size("0"), Err(SizeError::Zero(_))));
        assert!(matches!(parse_size("0.1"), Err(SizeError::Zero(_))));
        assert!(matches!(
            parse_size("99999999T"),
            Err(SizeError::TooLarge(_))
        ));
        assert!(matches!(
            parse_size("9999999999999999999999"),
            Err(SizeError::TooLarge(_))
        ));
    }

    #[test]
    fn a_percentage_is_of_the_base() {
        let of_a_thousand = |text| match parse_amount(text) {
            Ok(Amount::Share(share)) => share.percent_of(1000),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(of_a_thousand("50%"), 500);
        assert_eq!(of_a_thousand("12.5%"), 125);
        assert_eq!(of_a_thousand("100%"), 1000);
        assert_eq!(parse_amount("2G"), Ok(Amount::Bytes(2 << 30)));
    }

    #[test]
    fn impossible_percentages_are_refused() {
        assert!(matches!(parse_amount("0%"), Err(SizeError::Zero(_))));
        assert!(matches!(parse_amount("101%"), Err(SizeError::OverAll(_))));
        assert!(matches!(parse_amount("%"), Err(SizeError::NotAnAmount(_))));
        assert!(matches!(
            parse_amount("half"),
            Err(SizeError::NotAnAmount(_))
        ));
    }

    #[test]
    fn human_sizes_read_back_to_nearly_the_same() {
        assert_eq!(human(0), "0");
        assert_eq!(human(340 << 20), "340M");
        assert_eq!(human(3 << 29), "1.5G");
        assert_eq!(human(2 << 30), "2G");
        for bytes in [
            999,
            1000,
            1023,
            1024,
            4096,
            1 << 20,
            (1 << 30) - 1,
            u64::MAX >> 20,
        ] {
            let back = parse_size(&human(bytes)).unwrap();
            let off = back.abs_diff(bytes) as f64 / bytes as f64;
            assert!(off < 0.051, "{bytes} became {} ({off})", human(bytes));
        }
    }
}
