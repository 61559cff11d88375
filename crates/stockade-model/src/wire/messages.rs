//! Anthropic Messages, as in the API reference of Anthropic ("Create a Message", "Streaming Messages").

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{CallForm, Naming, Offered, Stream, finish_word, is_reminder, list, named_event, runs, text_at};
use crate::scenario::{Completion, ToolCall, Usage};

/// Stands for the proof that reasoning came from the model. Nobody checks it here.
const SIGNATURE: &str = "c2NyaXB0ZWQ=";

pub(super) fn tools(body: &Value) -> Vec<Offered> {
    let name = |tool: &Value| text_at(tool, "name").unwrap_or_default().to_owned();
    list(body, "tools").iter().map(|tool| Offered { name: name(tool), call: CallForm::Function }).collect()
}

pub(super) fn answers_since_prompt(body: &Value) -> usize {
    let since = list(body, "messages").iter().rev().take_while(|message| !is_prompt(message));
    runs(since.map(|message| text_at(message, "role") == Some("assistant")))
}

/// Whether a message is what a person said: results of tools come as `user` too.
fn is_prompt(message: &Value) -> bool {
    if text_at(message, "role") != Some("user") {
        return false;
    }
    match message.get("content") {
        Some(Value::String(text)) => !is_reminder(text),
        Some(Value::Array(blocks)) => {
            let kind = |block: &Value, kind: &str| text_at(block, "type") == Some(kind);
            let says =
                |block: &Value| kind(block, "text") && !text_at(block, "text").is_some_and(is_reminder);
            !blocks.iter().any(|block| kind(block, "tool_result")) && blocks.iter().any(says)
        }
        _ => false,
    }
}

/// An event under its name.
pub(super) fn event(data: &Value) -> Bytes {
    named_event(data)
}

pub(super) fn stream(naming: &Naming, completion: &Completion) -> Stream {
    let mut blocks = Blocks::default();
    let mut message = message(naming, &Value::Array(Vec::new()), None, &completion.usage);
    if let Some(output) = message.pointer_mut("/usage/output_tokens") {
        *output = json!(1);
    }
    let open =
        [event(&json!({"type": "message_start", "message": message})), event(&json!({"type": "ping"}))];
    let mut pieces = Vec::new();
    for piece in &completion.think {
        let delta = json!({"type": "thinking_delta", "thinking": piece});
        pieces.push(blocks.piece(&json!({"type": "thinking", "thinking": "", "signature": ""}), &delta));
    }
    for piece in &completion.text {
        let delta = json!({"type": "text_delta", "text": piece});
        pieces.push(blocks.piece(&json!({"type": "text", "text": ""}), &delta));
    }
    let calls = completion.tools.iter().enumerate().map(|(index, call)| {
        let mut start = call_block(naming, index, call);
        start.insert("input".to_owned(), json!({}));
        let delta = json!({"type": "input_json_delta", "partial_json": super::arguments(call)});
        let bytes = blocks.piece(&Value::Object(start), &delta);
        [bytes, blocks.close()].concat().into()
    });
    let calls = calls.collect();
    let delta = json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason(completion), "stop_sequence": null},
        "usage": {"output_tokens": completion.usage.output},
    });
    let finish = [blocks.close(), event(&delta), event(&json!({"type": "message_stop"}))];
    Stream { open: open.concat().into(), pieces, calls, finish: finish.concat().into() }
}

pub(super) fn whole(naming: &Naming, completion: &Completion) -> Value {
    let mut content = Vec::new();
    if !completion.think.is_empty() {
        let thinking = completion.think.concat();
        content.push(json!({"type": "thinking", "thinking": thinking, "signature": SIGNATURE}));
    }
    if !completion.text.is_empty() {
        content.push(json!({"type": "text", "text": completion.text.concat()}));
    }
    let calls = completion.tools.iter().enumerate().map(|(index, call)| call_block(naming, index, call));
    content.extend(calls.map(Value::Object));
    message(naming, &Value::Array(content), Some(stop_reason(completion)), &completion.usage)
}

fn message(naming: &Naming, content: &Value, stop: Option<&str>, usage: &Usage) -> Value {
    json!({
        "id": format!("msg_scripted_{}", naming.sequence), "type": "message", "role": "assistant",
        "model": naming.model, "content": content, "stop_reason": stop, "stop_sequence": null,
        "usage": {
            // Those from the cache are counted apart.
            "input_tokens": usage.input.saturating_sub(usage.cached),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached,
            "output_tokens": usage.output,
            "output_tokens_details": {"thinking_tokens": usage.reasoning},
        },
    })
}

fn stop_reason(completion: &Completion) -> &str {
    finish_word(completion.finish(), ["end_turn", "tool_use", "max_tokens", "refusal"])
}

/// A call as it stands in an answer in one piece. Arguments that are no JSON cannot be sent that way: they become a
/// text.
fn call_block(naming: &Naming, index: usize, call: &ToolCall) -> Map<String, Value> {
    let input = match &call.arguments {
        Value::String(raw) => serde_json::from_str(raw).unwrap_or_else(|_| json!(raw)),
        other => other.clone(),
    };
    let mut block = Map::new();
    block.insert("type".to_owned(), json!("tool_use"));
    block.insert("id".to_owned(), json!(format!("toolu_{}_{index}", naming.step)));
    block.insert("name".to_owned(), json!(call.name));
    block.insert("input".to_owned(), input);
    block
}

/// The blocks of a streamed message. One is open at a time.
#[derive(Default)]
struct Blocks {
    index: usize,
    /// The type of the open block.
    open: Option<String>,
}

impl Blocks {
    /// A piece of a block; begins the block where none of its type is open. Calls are never continued.
    fn piece(&mut self, start: &Value, delta: &Value) -> Bytes {
        let kind = text_at(start, "type").unwrap_or_default();
        let mut bytes = Vec::new();
        if self.open.as_deref() != Some(kind) {
            bytes.extend_from_slice(&self.close());
            self.open = Some(kind.to_owned());
            let index = self.index;
            bytes.extend_from_slice(&event(
                &json!({"type": "content_block_start", "index": index, "content_block": start}),
            ));
        }
        bytes.extend_from_slice(&self.delta(delta));
        bytes.into()
    }

    fn delta(&self, delta: &Value) -> Bytes {
        event(&json!({"type": "content_block_delta", "index": self.index, "delta": delta}))
    }

    /// Ends the open block, if there is one.
    fn close(&mut self) -> Bytes {
        let Some(kind) = self.open.take() else { return Bytes::new() };
        let mut bytes = Vec::new();
        if kind == "thinking" {
            bytes.extend_from_slice(&self.delta(&json!({"type": "signature_delta", "signature": SIGNATURE})));
        }
        bytes.extend_from_slice(&event(&json!({"type": "content_block_stop", "index": self.index})));
        self.index += 1;
        bytes.into()
    }
}
