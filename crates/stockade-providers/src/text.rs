//! Text as it stands in a line, and a line as a whole.

use std::{
    borrow::{Borrow, Cow},
    ops::Deref,
};

use serde::Deserialize;

/// A text that is copied only where it has an escape in it. A `Cow` in an `Option` or a list always is: serde borrows it only
/// where it is a field by itself.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Text<'a> {
    pub(crate) fn into_cow(self) -> Cow<'a, str> {
        self.0
    }

    pub(crate) fn into_owned(self) -> String {
        self.0.into_owned()
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        self
    }
}

/// Reads a line of JSON as `T`, or gives nothing. Its bytes are checked for UTF-8 at once, which is quicker than text by text;
/// where some that nobody reads are none, it is read all the same.
pub(crate) fn json_line<'l, T: Deserialize<'l>>(line: &'l [u8]) -> Option<T> {
    match std::str::from_utf8(line) {
        Ok(text) => serde_json::from_str(text).ok(),
        Err(_) => serde_json::from_slice(line).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_copied_only_where_it_has_to_be() {
        let texts: Vec<Option<Text<'_>>> = serde_json::from_str(r#"["plain", "two\nlines", null]"#).unwrap();
        let borrowed: Vec<_> =
            texts.iter().flatten().map(|text| matches!(text.0, Cow::Borrowed(_))).collect();
        assert_eq!(borrowed, [true, false]);
    }

    #[test]
    fn bytes_that_nobody_reads_hide_no_line() {
        #[derive(Deserialize)]
        struct Line {
            kind: u8,
        }
        let kind = |line: &[u8]| json_line::<Line>(line).map(|line| line.kind);
        assert_eq!(kind(br#"{"kind": 1, "other": "x"}"#), Some(1));
        assert_eq!(kind(b"{\"kind\": 1, \"other\": \"\xff\"}"), Some(1));
        assert_eq!(kind(b"{\"kind\": \"\xff\"}"), None);
    }
}
