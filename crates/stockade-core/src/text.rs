//! Cutting text to a bound, on character boundaries.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_at_a_character_and_says_so() {
        assert_eq!(head("abc", 3), "abc");
        assert_eq!(head("aé", 2), "a [… 2 bytes cut]");
    }
}
