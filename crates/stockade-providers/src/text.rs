//! Text as it stands in a line.

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
}
