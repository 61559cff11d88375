//! The `result` line: how the turn ended and what it took.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::value::RawValue;
use stockade_core::{
    event::{EventKind, TurnOutcome, Usage},
    text,
};

use super::wire::{ModelUsage, ModelUsages, ResultLine, TurnUsage, parse};
use crate::bounds::{LIST_LIMIT, TEXT_LIMIT_BYTES, name};

/// Tokens and cost, unless nothing was counted: a stream that was cut reports zeros.
pub(super) fn usage(result: &ResultLine<'_>) -> Option<EventKind> {
    let turn: TurnUsage = result.usage.and_then(parse).unwrap_or_default();
    let mut usage = sum(
        turn.input_tokens,
        turn.cache_read_input_tokens,
        turn.cache_creation_input_tokens,
        turn.output_tokens,
    );
    usage.reasoning_tokens = turn.reasoning_tokens;
    let models: BTreeMap<String, Usage> = by_model(result)
        .into_iter()
        .map(|(model, u)| {
            let usage = sum(
                u.input_tokens,
                u.cache_read_input_tokens,
                u.cache_creation_input_tokens,
                u.output_tokens,
            );
            (model, usage)
        })
        .collect();
    // Without prices the agent states a cost of zero.
    let cost_usd = result.total_cost_usd.and_then(parse::<f64>).filter(|cost| *cost > 0.0);
    if usage.is_zero() && cost_usd.is_none() && models.values().all(Usage::is_zero) {
        return None;
    }
    Some(EventKind::Usage { usage, cost_usd, models })
}

/// The models that the answers named.
pub(super) fn models(result: &ResultLine<'_>) -> Vec<String> {
    by_model(result).into_keys().collect()
}

fn by_model(result: &ResultLine<'_>) -> BTreeMap<String, ModelUsage> {
    let all: ModelUsages = result.model_usage.and_then(parse).unwrap_or_default();
    all.into_iter().take(LIST_LIMIT).map(|(model, usage)| (name(&model), usage)).collect()
}

/// `input` leaves cached tokens out, as the agent counts.
fn sum(input: Option<u64>, cached: Option<u64>, creation: Option<u64>, output: Option<u64>) -> Usage {
    let add = |parts: &[Option<u64>]| parts.iter().flatten().copied().reduce(u64::saturating_add);
    Usage {
        input_tokens: add(&[input, cached, creation]),
        cached_input_tokens: cached,
        cache_creation_input_tokens: creation,
        output_tokens: output,
        reasoning_tokens: None,
        total_tokens: add(&[input, cached, creation, output]),
    }
}

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
        ("success", _) if !is_error => TurnOutcome::Success {
            answer: result.result.and_then(parse::<Cow<'_, str>>).map(Cow::into_owned),
        },
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
        Some(raw) => match parse::<Vec<Cow<'_, str>>>(raw) {
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

    #[test]
    fn zeros_are_no_usage_and_a_stated_cost_is_one() {
        let usage_of = |line: &str| usage(&serde_json::from_str(line).unwrap());
        assert_eq!(
            usage_of(
                r#"{"usage":{"input_tokens":0,"output_tokens":0},"modelUsage":{},"total_cost_usd":0.0}"#
            ),
            None
        );
        assert_eq!(usage_of(r#"{"usage":"many"}"#), None);
        let Some(EventKind::Usage { usage, cost_usd, models }) = usage_of(
            r#"{"usage":{"input_tokens":60,"output_tokens":7,"cache_read_input_tokens":40,"reasoning_tokens":3},
                "modelUsage":{"m":{"inputTokens":60,"outputTokens":7,"cacheReadInputTokens":40}},"total_cost_usd":0.5}"#,
        ) else {
            panic!("no usage");
        };
        assert_eq!(
            (usage.input_tokens, usage.cached_input_tokens, usage.total_tokens),
            (Some(100), Some(40), Some(107))
        );
        assert_eq!((usage.reasoning_tokens, cost_usd), (Some(3), Some(0.5)));
        assert_eq!(models["m"].total_tokens, Some(107));
    }
}
