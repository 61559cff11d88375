//! The end of a step: why it ended, and what was spent so far.

use std::collections::BTreeMap;

use serde::Deserialize;
use stockade_core::event::{EventKind, TurnOutcome, Usage};

/// The end of the turn in a step's reason; `None`: the agent goes on, or the answer broke off.
pub(super) fn outcome(reason: &str) -> Option<TurnOutcome> {
    match reason {
        "stop" => Some(TurnOutcome::Success { answer: None }),
        "length" => Some(TurnOutcome::Truncated),
        "content-filter" => {
            Some(TurnOutcome::Refusal { text: "the answer ended by the content filter".to_owned() })
        }
        _ => None,
    }
}

/// Tokens of one step. `input` leaves cached ones out, `output` those of reasoning.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Tokens {
    input: u64,
    output: u64,
    reasoning: u64,
    cache: Cache,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cache {
    read: u64,
    write: u64,
}

/// The sums over all steps.
#[derive(Debug, Default)]
pub(super) struct Spent {
    usage: Usage,
    cost_usd: Option<f64>,
}

impl Spent {
    /// Adds a step and tells the sums.
    pub(super) fn add(&mut self, tokens: &Tokens, cost: Option<f64>) -> EventKind {
        let input = tokens.input.saturating_add(tokens.cache.read).saturating_add(tokens.cache.write);
        let output = tokens.output.saturating_add(tokens.reasoning);
        self.usage.add(&Usage {
            input_tokens: Some(input),
            cached_input_tokens: Some(tokens.cache.read),
            cache_creation_input_tokens: Some(tokens.cache.write),
            output_tokens: Some(output),
            reasoning_tokens: Some(tokens.reasoning),
            total_tokens: Some(input.saturating_add(output)),
        });
        // Without prices the agent states a cost of zero.
        if let Some(cost) = cost.filter(|c| *c > 0.0) {
            self.cost_usd = Some(self.cost_usd.unwrap_or(0.0) + cost);
        }
        EventKind::Usage { usage: self.usage.clone(), cost_usd: self.cost_usd, models: BTreeMap::new() }
    }
}
