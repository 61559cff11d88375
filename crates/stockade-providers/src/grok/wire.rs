//! The lines as they are read. What can change its form without meaning for us is left raw and read leniently.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Deserialize;
use serde_json::value::RawValue;

/// Any line: its type decides what else is read.
#[derive(Deserialize)]
pub(super) struct Line<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) message: Option<&'a RawValue>,
}

/// `system`/`init`.
#[derive(Deserialize)]
pub(super) struct Init<'a> {
    #[serde(borrow, default)]
    pub(super) subtype: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) session_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) tools: Option<Vec<Cow<'a, str>>>,
}

/// The message of an `assistant` or `user` line.
#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, default)]
    pub(super) model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) content: Option<&'a RawValue>,
}

/// A part of a message.
#[derive(Deserialize)]
pub(super) struct Block<'a> {
    #[serde(rename = "type", borrow, default)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) thinking: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) tool_use_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) is_error: Option<bool>,
}

/// `result`. Every field is raw: a changed form of one must not lose the end of the turn.
#[derive(Default, Deserialize)]
pub(super) struct ResultLine<'a> {
    #[serde(borrow, default)]
    pub(super) subtype: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) is_error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) stop_reason: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) errors: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) total_cost_usd: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(rename = "modelUsage", borrow, default)]
    pub(super) model_usage: Option<&'a RawValue>,
}

/// Tokens of a whole turn. `input_tokens` leaves cached ones out.
#[derive(Default, Deserialize)]
#[expect(clippy::struct_field_names, reason = "the agent's names")]
pub(super) struct TurnUsage {
    #[serde(default)]
    pub(super) input_tokens: Option<u64>,
    #[serde(default)]
    pub(super) output_tokens: Option<u64>,
    #[serde(default)]
    pub(super) cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    pub(super) cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    pub(super) reasoning_tokens: Option<u64>,
}

/// Tokens by model.
pub(super) type ModelUsages = BTreeMap<String, ModelUsage>;

/// Tokens of one model.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the agent's names")]
pub(super) struct ModelUsage {
    #[serde(default)]
    pub(super) input_tokens: Option<u64>,
    #[serde(default)]
    pub(super) output_tokens: Option<u64>,
    #[serde(default)]
    pub(super) cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    pub(super) cache_creation_input_tokens: Option<u64>,
}

/// Reads a raw value as `T`, or gives nothing.
pub(super) fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// Reads a line as `T`, or gives nothing.
pub(super) fn parse_bytes<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}

/// The parts of a message; a bare string is one text.
pub(super) fn blocks(content: Option<&RawValue>) -> Vec<Block<'_>> {
    let Some(raw) = content else { return Vec::new() };
    if let Some(blocks) = parse::<Vec<Block<'_>>>(raw) {
        return blocks;
    }
    if let Some(text) = parse::<Cow<'_, str>>(raw) {
        return vec![Block {
            kind: Cow::Borrowed("text"),
            text: Some(text),
            thinking: None,
            id: None,
            name: None,
            input: None,
            tool_use_id: None,
            content: None,
            is_error: None,
        }];
    }
    // One part in an unknown form must not hide the others.
    let parts = parse::<Vec<&RawValue>>(raw).unwrap_or_default();
    parts.into_iter().filter_map(parse).collect()
}
