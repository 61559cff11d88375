//! OpenAI chat completions, as in the API reference of OpenAI and xAI ("Create chat completion").

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{
    CREATED, CallForm, Naming, Offered, Stream, UsageEvent, arguments, finish_word, is_reminder, list,
    text_at,
};
use crate::scenario::{Completion, ToolCall, Usage};

/// The only tool of the call by which Grok Build makes up a title for the session.
pub(super) const TITLE_TOOL: &str = "session_title";

pub(super) fn tools(body: &Value) -> Vec<Offered> {
    let name =
        |tool: &Value| tool.pointer("/function/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    list(body, "tools").iter().map(|tool| Offered { name: name(tool), call: CallForm::Function }).collect()
}

pub(super) fn usage_event(body: &Value) -> UsageEvent {
    let wanted = body.pointer("/stream_options/include_usage").and_then(Value::as_bool) == Some(true);
    if wanted { UsageEvent::Wanted } else { UsageEvent::Unwanted }
}

pub(super) fn answers_since_prompt(body: &Value) -> usize {
    let since = list(body, "messages").iter().rev().take_while(|message| !is_prompt(message));
    since.filter(|message| text_at(message, "role") == Some("assistant")).count()
}

fn is_prompt(message: &Value) -> bool {
    text_at(message, "role") == Some("user") && !is_reminder(first_text(message))
}

fn first_text(message: &Value) -> &str {
    match message.get("content") {
        Some(Value::String(text)) => text,
        Some(parts) => parts.pointer("/0/text").and_then(Value::as_str).unwrap_or_default(),
        None => "",
    }
}

pub(super) fn stream(naming: &Naming, completion: &Completion, usage: UsageEvent) -> Stream {
    let chunks = Chunks { naming };
    let think = completion.think.iter().map(|piece| chunks.delta(&json!({"reasoning_content": piece}), None));
    let text = completion.text.iter().map(|piece| chunks.delta(&json!({"content": piece}), None));
    let call = |(index, call)| {
        let mut entry = call_entry(naming, index, call);
        entry.insert("index".to_owned(), json!(index));
        chunks.delta(&json!({"tool_calls": [entry]}), None)
    };
    let mut finish = Vec::from(chunks.delta(&json!({}), Some(finish_reason(completion))));
    if usage == UsageEvent::Wanted {
        finish.extend_from_slice(&chunks.chunk(&json!([]), Some(&completion.usage)));
    }
    finish.extend_from_slice(b"data: [DONE]\n\n");
    Stream {
        open: chunks.delta(&json!({"role": "assistant", "content": ""}), None),
        pieces: think.chain(text).collect(),
        calls: completion.tools.iter().enumerate().map(call).collect(),
        finish: finish.into(),
    }
}

pub(super) fn whole(naming: &Naming, completion: &Completion) -> Value {
    let content = completion.text.concat();
    let mut message = Map::new();
    message.insert("role".to_owned(), json!("assistant"));
    message
        .insert("content".to_owned(), if content.is_empty() { Value::Null } else { Value::String(content) });
    if !completion.think.is_empty() {
        message.insert("reasoning_content".to_owned(), json!(completion.think.concat()));
    }
    if !completion.tools.is_empty() {
        let calls = completion.tools.iter().enumerate().map(|(index, call)| call_entry(naming, index, call));
        message.insert("tool_calls".to_owned(), calls.map(Value::Object).collect());
    }
    json!({
        "id": id(naming), "object": "chat.completion", "created": CREATED, "model": naming.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(completion)}],
        "usage": usage_object(&completion.usage),
    })
}

/// An event, which has no name in this API.
pub(super) fn event(data: &Value) -> Bytes {
    format!("data: {data}\n\n").into()
}

pub(super) fn title() -> Completion {
    let arguments = json!({TITLE_TOOL: "Scripted session"});
    Completion { tools: vec![ToolCall { name: TITLE_TOOL.to_owned(), arguments }], ..Completion::default() }
}

struct Chunks<'a> {
    naming: &'a Naming,
}

impl Chunks<'_> {
    fn delta(&self, delta: &Value, finish: Option<&str>) -> Bytes {
        self.chunk(&json!([{"index": 0, "delta": delta, "finish_reason": finish}]), None)
    }

    fn chunk(&self, choices: &Value, usage: Option<&Usage>) -> Bytes {
        let mut chunk = json!({
            "id": id(self.naming), "object": "chat.completion.chunk", "created": CREATED,
            "model": self.naming.model, "choices": choices,
        });
        if let (Some(usage), Some(chunk)) = (usage, chunk.as_object_mut()) {
            chunk.insert("usage".to_owned(), usage_object(usage));
        }
        event(&chunk)
    }
}

fn id(naming: &Naming) -> String {
    format!("chatcmpl-scripted-{}", naming.sequence)
}

fn call_entry(naming: &Naming, index: usize, call: &ToolCall) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("id".to_owned(), json!(format!("call_{}_{index}", naming.step)));
    entry.insert("type".to_owned(), json!("function"));
    entry.insert("function".to_owned(), json!({"name": call.name, "arguments": arguments(call)}));
    entry
}

fn finish_reason(completion: &Completion) -> &str {
    finish_word(completion.finish(), ["stop", "tool_calls", "length", "content_filter"])
}

fn usage_object(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input.saturating_add(usage.output),
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}
