//! Placeholders in profile strings: `{name}`. Anything else in braces is an error, so that a typo cannot reach an argv.

use std::collections::BTreeMap;

/// A profile string that cannot be filled in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown placeholder `{{{name}}}`")]
pub struct UnknownPlaceholder {
    /// The name between the braces.
    pub name: String,
}

/// Fills in the placeholders of `text`. `{{` and `}}` stand for single braces.
pub fn fill(text: &str, values: &BTreeMap<&str, String>) -> Result<String, UnknownPlaceholder> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        if let Some(after) = from.strip_prefix("{{") {
            out.push('{');
            rest = after;
        } else if let Some(after) = from.strip_prefix("}}") {
            out.push('}');
            rest = after;
        } else if let Some((name, after)) = from.strip_prefix('{').and_then(|f| f.split_once('}')) {
            match values.get(name) {
                Some(value) => out.push_str(value),
                None => return Err(UnknownPlaceholder { name: name.to_owned() }),
            }
            rest = after;
        } else {
            return Err(UnknownPlaceholder { name: crate::text::head(from, 40) });
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// A text as a string of TOML, on one line.
pub fn toml_string(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Percent-encodes everything but letters, digits, `-`, `.`, `_` and `~`: how agents name a session's folder after
/// its working folder.
pub fn percent_encode(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_names_keeps_doubled_braces_and_refuses_the_rest() {
        let values = BTreeMap::from([("model", "m-1".to_owned())]);
        assert_eq!(fill("a {model} {{x}}", &values).unwrap(), "a m-1 {x}");
        assert_eq!(fill("{modle}", &values).unwrap_err().name, "modle");
        assert!(fill("{open", &values).is_err());
        assert!(fill("} {model}", &values).is_err());
    }

    #[test]
    fn a_string_of_toml_holds_any_text_on_one_line() {
        assert_eq!(toml_string(""), "\"\"");
        assert_eq!(toml_string("a\n\"b\" \\ \u{7f}\té"), r#""a\n\"b\" \\ \u007F\u0009é""#);
    }

    #[test]
    fn encodes_a_path_as_agents_do() {
        assert_eq!(percent_encode("/w/a b"), "%2Fw%2Fa%20b");
    }
}
