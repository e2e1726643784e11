//! A moment as people and machines read it.

/// Milliseconds since 1970 as `2026-11-28 14:03:20 UTC`, with the same for machines.
pub fn time_tag(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let (date, time) = (
        format!("{year:04}-{month:02}-{day:02}"),
        format!("{hour:02}:{minute:02}:{second:02}"),
    );
    format!("<time datetime=\"{date}T{time}Z\">{date} {time} UTC</time>")
}

/// The date of a day since 1970: years are counted from March on, so that the leap day is the last, in spans of 400 years.
fn date(day: u64) -> (u64, u64, u64) {
    const SPAN_DAYS: u64 = 146_097;
    const TO_1970: u64 = 719_468;
    let day = day.saturating_add(TO_1970);
    let (span, day) = (day / SPAN_DAYS, day % SPAN_DAYS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = match month < 10 {
        true => (month + 3, 0),
        false => (month - 9, 1),
    };
    (span * 400 + year + later, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_800, "2000-03-01 00:00:00"),
            (1_764_400_000, "2025-11-29 07:06:40"),
            (4_107_542_399, "2100-02-28 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            let tag = time_tag(seconds * 1000);
            assert!(tag.contains(&format!(">{text} UTC<")), "{tag}");
        }
        assert!(time_tag(u64::MAX).contains("UTC"));
    }
}
