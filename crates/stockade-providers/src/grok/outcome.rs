//! The `result` line: how the turn ended.

use std::borrow::Cow;

use serde_json::value::RawValue;
use stockade_core::{event::TurnOutcome, text};

use crate::{
    bounds::TEXT_LIMIT_BYTES,
    messages::wire::{ResultLine, parse},
    text::Text,
};

/// How the turn ended.
pub(super) fn outcome(result: &ResultLine<'_>, cancelled: Option<String>) -> TurnOutcome {
    let subtype = string(result.subtype);
    let stop_reason = string(result.stop_reason);
    let is_error = result.is_error.is_some_and(|raw| raw.get() == "true");
    match (&*subtype, &*stop_reason) {
        ("error_max_turns", _) => TurnOutcome::MaxTurns,
        (_, "refusal") => TurnOutcome::Refusal { text: errors(result) },
        (_, "max_tokens") => TurnOutcome::Truncated,
        (_, "cancelled") => TurnOutcome::Cancelled { permission: cancelled },
        ("success", _) if !is_error => {
            TurnOutcome::Success { answer: result.result.and_then(parse::<Text<'_>>).map(Text::into_owned) }
        }
        _ => {
            let text = errors(result);
            let http_status = http_status(&text);
            TurnOutcome::Error { text, http_status }
        }
    }
}

fn string(raw: Option<&RawValue>) -> Cow<'_, str> {
    raw.and_then(parse).unwrap_or_default()
}

/// The agent's own words, joined; in the form they have where that is unknown.
fn errors(result: &ResultLine<'_>) -> String {
    let joined = match result.errors {
        None => string(result.result).into_owned(),
        Some(raw) => match parse::<Vec<Text<'_>>>(raw) {
            Some(list) => list.join("\n"),
            None => raw.get().to_owned(),
        },
    };
    text::head(&joined, TEXT_LIMIT_BYTES)
}

/// The HTTP status that an error text states: a field, `(status 403 Forbidden)`, or `Unauthorized (401) from`.
fn http_status(text: &str) -> Option<u16> {
    [("\"http_status\":", ""), ("(status ", ""), (" (", ") from ")].into_iter().find_map(|(before, after)| {
        text.match_indices(before).find_map(|(at, _)| {
            let rest = text.get(at + before.len()..)?.trim_start();
            let digits = rest.get(..3)?;
            let status: u16 = digits.parse().ok().filter(|s| (100..=599).contains(s))?;
            let follows = rest.get(3..)?;
            let whole = !follows.starts_with(|c: char| c.is_ascii_digit());
            (whole && follows.starts_with(after)).then_some(status)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> TurnOutcome {
        outcome(&serde_json::from_str(line).unwrap(), None)
    }

    #[test]
    fn http_statuses_are_found_in_the_words_of_the_agent() {
        for (text, status) in [
            ("Internal error: {\n \"message\": \"x\",\n \"http_status\": 403\n}", Some(403)),
            ("API error (status 500 Internal Server Error): x", Some(500)),
            ("Unauthorized (401) from http://x/v1", Some(401)),
            ("mock: mock error 429", None),
            ("a (123) b, 4034 (4034) from (status 99", None),
            ("\"http_status\": é", None),
        ] {
            assert_eq!(http_status(text), status, "{text}");
        }
    }

    #[test]
    fn a_changed_form_never_loses_the_end_of_the_turn() {
        let error = |text: &str| TurnOutcome::Error { text: text.to_owned(), http_status: None };
        assert_eq!(read("{}"), error(""));
        assert_eq!(read(r#"{"subtype":3,"errors":{"a":1},"is_error":"yes"}"#), error(r#"{"a":1}"#));
        assert_eq!(read(r#"{"subtype":"success","is_error":true,"result":"no"}"#), error("no"));
        assert_eq!(read(r#"{"subtype":"success","result":null}"#), TurnOutcome::Success { answer: None });
    }
}
