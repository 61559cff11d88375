//! The tokens and the cost that a `result` line tells of.

use std::collections::BTreeMap;

use stockade_core::event::{EventKind, Usage};

use super::{
    model_seen,
    wire::{ModelUsage, ModelUsages, ResultLine, TurnUsage, parse},
};
use crate::bounds::{LIST_LIMIT, name};

/// Tells of the tokens, and of the models that they were counted for.
pub(crate) fn tell(result: &ResultLine<'_>, out: &mut Vec<EventKind>) {
    out.extend(usage(result));
    out.extend(by_model(result).keys().map(|model| model_seen(model, "result")));
}

/// Tokens and cost, unless nothing was counted: a stream that was cut reports zeros.
fn usage(result: &ResultLine<'_>) -> Option<EventKind> {
    let turn: TurnUsage = result.usage.and_then(parse).unwrap_or_default();
    let mut usage = sum(
        turn.input_tokens,
        turn.cache_read_input_tokens,
        turn.cache_creation_input_tokens,
        turn.output_tokens,
    );
    let thinking = turn.output_tokens_details.and_then(|d| d.thinking_tokens);
    usage.reasoning_tokens = turn.reasoning_tokens.or(thinking);
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

fn by_model(result: &ResultLine<'_>) -> BTreeMap<String, ModelUsage> {
    let all: ModelUsages = result.model_usage.and_then(parse).unwrap_or_default();
    let named = all.into_iter().filter(|(model, _)| !model.is_empty());
    named.take(LIST_LIMIT).map(|(model, usage)| (name(&model), usage)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

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
