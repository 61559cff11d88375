//! The lines as they are read. What can change its form without meaning for us is left raw and read leniently.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::text::{Text, json_line};

/// Any line: its type decides what else is read.
#[derive(Deserialize)]
#[serde(bound(deserialize = "M: Deserialize<'de>"))]
pub(crate) struct Line<'a, M = Message<'a>> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) subtype: Option<Text<'a>>,
    #[serde(default)]
    pub(crate) message: Option<M>,
}

/// `system`/`init`.
#[derive(Default, Deserialize)]
pub(crate) struct Init<'a> {
    #[serde(borrow, default)]
    pub(crate) session_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) model: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) tools: Option<Vec<Text<'a>>>,
}

/// The message of an `assistant` or `user` line, with its parts.
#[derive(Deserialize)]
#[serde(bound(deserialize = "C: Deserialize<'de>"))]
pub(crate) struct Message<'a, C = Vec<Block<'a>>> {
    #[serde(borrow, default)]
    pub(crate) model: Option<Text<'a>>,
    #[serde(default)]
    pub(crate) content: Option<C>,
}

/// A part of a message.
#[derive(Deserialize)]
pub(crate) struct Block<'a> {
    #[serde(rename = "type", borrow, default)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) text: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) thinking: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) id: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) name: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) tool_use_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) content: Option<&'a RawValue>,
    #[serde(default)]
    pub(crate) is_error: Option<bool>,
}

/// `result`. Every field is raw: a changed form of one must not lose the end of the turn.
#[derive(Default, Deserialize)]
pub(crate) struct ResultLine<'a> {
    #[serde(borrow, default)]
    pub(crate) subtype: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) is_error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) stop_reason: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) terminal_reason: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) api_error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) api_error_status: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) permission_denials: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) errors: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) total_cost_usd: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) usage: Option<&'a RawValue>,
    #[serde(rename = "modelUsage", borrow, default)]
    pub(crate) model_usage: Option<&'a RawValue>,
}

/// Tokens of a whole turn. `input_tokens` leaves cached ones out.
#[derive(Default, Deserialize)]
pub(crate) struct TurnUsage {
    #[serde(default)]
    pub(crate) input_tokens: Option<u64>,
    #[serde(default)]
    pub(crate) output_tokens: Option<u64>,
    #[serde(default)]
    pub(crate) cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    pub(crate) cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    pub(crate) reasoning_tokens: Option<u64>,
    #[serde(default)]
    pub(crate) output_tokens_details: Option<OutputDetails>,
}

/// What the generated tokens of a turn were.
#[derive(Default, Deserialize)]
pub(crate) struct OutputDetails {
    #[serde(default)]
    pub(crate) thinking_tokens: Option<u64>,
}

/// Tokens by model.
pub(crate) type ModelUsages = BTreeMap<String, ModelUsage>;

/// Tokens of one model.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the agent's names")]
pub(crate) struct ModelUsage {
    #[serde(default)]
    pub(crate) input_tokens: Option<u64>,
    #[serde(default)]
    pub(crate) output_tokens: Option<u64>,
    #[serde(default)]
    pub(crate) cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    pub(crate) cache_creation_input_tokens: Option<u64>,
}

/// Reads a line: in one pass where it has the usual form, else piece by piece, as leniently as it can be.
pub(crate) fn line(bytes: &[u8]) -> Option<Line<'_>> {
    if let Some(line) = json_line(bytes) {
        return Some(line);
    }
    let Line { kind, subtype, message } = json_line::<Line<'_, &RawValue>>(bytes)?;
    let message = message.and_then(parse::<Message<'_, &RawValue>>);
    let message = message.map(|m| Message { model: m.model, content: Some(blocks(m.content)) });
    Some(Line { kind, subtype, message })
}

/// Reads a raw value as `T`, or gives nothing.
pub(crate) fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// The parts of a message; a bare string is one text.
pub(crate) fn blocks(content: Option<&RawValue>) -> Vec<Block<'_>> {
    let Some(raw) = content else { return Vec::new() };
    if let Some(blocks) = parse::<Vec<Block<'_>>>(raw) {
        return blocks;
    }
    if let Some(text) = parse::<Text<'_>>(raw) {
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
