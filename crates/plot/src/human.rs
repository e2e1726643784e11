//! Figures as people read them: few digits and a unit.

/// Bytes in up to four digits and a unit that counts in 1024s, as `--memory` reads it back: `206M` or `1.5G`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["", "K", "M", "G", "T"];
    let mut unit = 0;
    let mut tenths = u128::from(bytes) * 10;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths = (tenths + 512) / 1024;
        unit += 1;
    }
    let (whole, tenth) = (tenths / 10, tenths % 10);
    if whole >= 100 || tenth == 0 {
        format!("{}{}", (tenths + 5) / 10, UNITS[unit])
    } else {
        format!("{whole}.{tenth}{}", UNITS[unit])
    }
}

/// A number of things in about three digits: `0.0012`, `0.25`, `12.5`, `130k`, `2.4M`.
pub fn human_count(value: f64) -> String {
    const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];
    let (mut shown, mut unit) = (value, 0);
    while shown.abs() >= 999.5 && unit + 1 < UNITS.len() {
        shown /= 1e3;
        unit += 1;
    }
    let digits = match shown.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.095 || size == 0.0 => 2,
        // Two digits of what is little.
        size => (1 - size.log10().floor() as i32).clamp(2, 5) as usize,
    };
    let text = format!("{shown:.digits$}");
    let text = match digits {
        0 => text.as_str(),
        _ => text.trim_end_matches('0').trim_end_matches('.'),
    };
    match text {
        // What there is a little of is not nothing.
        "0" | "-0" if value != 0.0 => format!("{value:.0e}"),
        "-0" => "0".into(),
        text => format!("{text}{}", UNITS[unit]),
    }
}

/// A length of time, its two largest units at most: `350 ns`, `1.25 ms`, `8.2 s`, `3 min 20 s`, `2 d 4 h`.
pub fn human_time(seconds: f64) -> String {
    const SMALL: [(f64, &str); 3] = [(1e-9, "ns"), (1e-6, "us"), (1e-3, "ms")];
    if seconds == 0.0 {
        return "0 s".into();
    }
    // What would be rounded to 1000 of a unit is 1 of the next.
    let small = SMALL.iter().find(|(unit, _)| seconds.abs() < 999.5 * unit);
    match small {
        Some((unit, name)) => format!("{} {name}", human_count(seconds / unit)),
        None if seconds.abs() < 59.95 => format!("{} s", human_count(seconds)),
        None => long_time(seconds.abs().round() as u64),
    }
}

fn long_time(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let at = UNITS.iter().position(|(length, _)| seconds >= *length);
    let at = at.unwrap_or(0).min(UNITS.len() - 2);
    let ((length, unit), (part, part_unit)) = (UNITS[at], UNITS[at + 1]);
    // Rounded to the second of the two units: 59 min 59.9 s are 1 h.
    let parts = (seconds + part / 2) / part;
    let (first, second) = (parts * part / length, parts * part % length / part);
    match second {
        0 => format!("{first} {unit}"),
        _ => format!("{first} {unit} {second} {part_unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_few_digits_and_a_unit() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (5320, "5.2K"),
            (340 << 20, "340M"),
            (3 << 29, "1.5G"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
    }

    #[test]
    fn counts_have_about_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.25, "0.25"),
            (0.001, "0.001"),
            (0.0123, "0.012"),
            (0.000_001, "1e-6"),
            (1.0, "1"),
            (10.0, "10"),
            (12.54, "12.5"),
            (100.0, "100"),
            (999.4, "999"),
            (999.9, "1k"),
            (129_700.0, "130k"),
            (2_400_000.0, "2.4M"),
            (-3.5, "-3.5"),
        ] {
            assert_eq!(human_count(value), text, "{value}");
        }
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        for (seconds, text) in [
            (0.0, "0 s"),
            (350e-9, "350 ns"),
            (999.9e-9, "1 us"),
            (1.25e-3, "1.25 ms"),
            (0.9999, "1 s"),
            (8.2, "8.2 s"),
            (59.99, "1 min"),
            (200.0, "3 min 20 s"),
            (3_600.0, "1 h"),
            (3_599.6, "1 h"),
            (7_199.0, "2 h"),
            (86_399.0, "24 h"),
            (187_200.0, "2 d 4 h"),
        ] {
            assert_eq!(human_time(seconds), text, "{seconds}");
        }
    }
}
