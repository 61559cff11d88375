//! Cutting text to a bound, on character boundaries, and writing times.

/// The first `limit` bytes of `text` at most, cut at a character and marked with how much was left out.
pub fn head(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = floor(text, limit);
    format!("{} [… {} bytes cut]", text.get(..end).unwrap_or_default(), text.len() - end)
}

/// The largest character boundary at or below `index`.
pub fn floor(text: &str, index: usize) -> usize {
    (0..=index.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0)
}

/// A time for people: seconds since 1970 as RFC 3339 in UTC.
pub fn utc_time(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years are counted from March, so that a leap day is the last of its year (the usual civil-from-days algorithm).
    let from_era = days.saturating_add(719_468);
    let (era, day_of_era) = (from_era / 146_097, from_era % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_893_456_000, "2030-01-01T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc_time(seconds), text);
        }
        utc_time(u64::MAX);
    }

    #[test]
    fn cuts_at_a_character_and_says_so() {
        assert_eq!(head("abc", 3), "abc");
        assert_eq!(head("aé", 2), "a [… 2 bytes cut]");
    }
}
