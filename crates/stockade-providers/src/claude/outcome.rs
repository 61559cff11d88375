//! The `result` line: how the turn ended.
//!
//! `subtype` is `success` for errors of the API too, so `is_error`, `terminal_reason` and the stop reason decide.

use std::borrow::Cow;

use serde_json::value::RawValue;
use stockade_core::{event::TurnOutcome, text};

use crate::{
    bounds::TEXT_LIMIT_BYTES,
    messages::wire::{ResultLine, parse},
    text::Text,
};

/// How the turn ended. `refused`: the tool whose refusal was the last thing in it.
pub(super) fn outcome(result: &ResultLine<'_>, refused: Option<String>) -> TurnOutcome {
    let [subtype, stop_reason, reason, api_error] =
        [result.subtype, result.stop_reason, result.terminal_reason, result.api_error].map(string);
    let is_error = result.is_error.is_some_and(|raw| raw.get() == "true");
    match (&*reason, &*subtype) {
        _ if stop_reason == "refusal" => TurnOutcome::Refusal { text: said(result) },
        _ if api_error == "max_output_tokens" || stop_reason == "max_tokens" => TurnOutcome::Truncated,
        ("max_turns", _) | (_, "error_max_turns") => TurnOutcome::MaxTurns,
        ("aborted_tools", _) => TurnOutcome::Cancelled { permission: refused },
        ("aborted_streaming", _) => TurnOutcome::Cancelled { permission: None },
        ("completed" | "", "success") if !is_error => {
            TurnOutcome::Success { answer: result.result.and_then(parse::<Text<'_>>).map(Text::into_owned) }
        }
        _ => {
            let said = said(result);
            let text = if said.is_empty() { format!("{subtype} {reason}").trim().to_owned() } else { said };
            let http_status = result.api_error_status.and_then(parse::<u16>);
            TurnOutcome::Error { text, http_status: http_status.filter(|s| (100..=599).contains(s)) }
        }
    }
}

fn string(raw: Option<&RawValue>) -> Cow<'_, str> {
    raw.and_then(parse).unwrap_or_default()
}

/// The agent's own words, in the form they have where that is unknown.
fn said(result: &ResultLine<'_>) -> String {
    let text = string(result.result);
    let said = match result.errors {
        _ if !text.is_empty() => text.into_owned(),
        None => String::new(),
        Some(raw) => match parse::<Vec<Text<'_>>>(raw) {
            Some(list) => list.join("\n"),
            None => raw.get().to_owned(),
        },
    };
    text::head(&said, TEXT_LIMIT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> TurnOutcome {
        outcome(&serde_json::from_str(line).unwrap(), None)
    }

    fn error(text: &str, http_status: Option<u16>) -> TurnOutcome {
        TurnOutcome::Error { text: text.to_owned(), http_status }
    }

    #[test]
    fn a_success_that_is_an_error_is_an_error() {
        let line = r#"{"subtype":"success","is_error":true,"terminal_reason":"api_error","api_error_status":529,"result":"busy"}"#;
        assert_eq!(read(line), error("busy", Some(529)));
        assert_eq!(
            read(
                r#"{"subtype":"success","is_error":true,"terminal_reason":"prompt_too_long","result":"too long","api_error_status":null}"#
            ),
            error("too long", None)
        );
    }

    #[test]
    fn only_a_completed_turn_is_a_success() {
        let success = |answer: Option<&str>| TurnOutcome::Success { answer: answer.map(str::to_owned) };
        assert_eq!(
            read(r#"{"subtype":"success","terminal_reason":"completed","is_error":false,"result":"x"}"#),
            success(Some("x"))
        );
        assert_eq!(read(r#"{"subtype":"success","result":null}"#), success(None));
        for reason in ["tool_deferred", "stop_hook_prevented", "background_requested", "a_new_one"] {
            let line = format!(r#"{{"subtype":"success","terminal_reason":"{reason}","result":"x"}}"#);
            assert_eq!(read(&line), error("x", None), "{reason}");
        }
    }

    #[test]
    fn a_changed_form_never_loses_the_end_of_the_turn() {
        assert_eq!(read("{}"), error("", None));
        assert_eq!(read(r#"{"subtype":3,"errors":{"a":1},"is_error":"yes"}"#), error(r#"{"a":1}"#, None));
        assert_eq!(read(r#"{"subtype":"error_during_execution"}"#), error("error_during_execution", None));
        assert_eq!(read(r#"{"subtype":"x","errors":["a","b"],"api_error_status":7}"#), error("a\nb", None));
    }
}
