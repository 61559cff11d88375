//! OpenAI chat completions, as in the API reference of OpenAI and xAI ("Create chat completion").

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{Asked, Form, UsageEvent};
use crate::log::RequestClass;
use crate::scenario::{Completion, ToolCall, Usage};

/// The only tool of the call by which Grok Build makes up a title for the session.
const TITLE_TOOL: &str = "session_title";
/// How Grok Build marks what it adds as `user` itself. Not a prompt: the step count would start again.
const REMINDER_MARK: &str = "<system-reminder>";
/// Stands for the time of creation. Fixed, so that a rehearsal looks the same every time.
const CREATED: u64 = 1_700_000_000;

/// Whether this is the path of a chat completion.
pub(crate) fn is_path(path: &str) -> bool {
    path.ends_with("/chat/completions")
}

/// Understands a request. Anything missing is taken as absent: the agent is under test, not its spelling.
pub(crate) fn read(body: &Value) -> Asked {
    let tools = tool_names(body);
    let class = match tools.as_slice() {
        [] => RequestClass::Toolless,
        [only] if only == TITLE_TOOL => RequestClass::Title,
        _ => RequestClass::Main,
    };
    let form = if body.get("stream").and_then(Value::as_bool) == Some(true) {
        let wanted = body.pointer("/stream_options/include_usage").and_then(Value::as_bool) == Some(true);
        Form::Stream { usage: if wanted { UsageEvent::Wanted } else { UsageEvent::Unwanted } }
    } else {
        Form::Whole
    };
    let model = body.get("model").and_then(Value::as_str).map(str::to_owned);
    Asked { class, model, tools, form, answered: answers_since_prompt(body) }
}

fn tool_names(body: &Value) -> Vec<String> {
    let tools = body.get("tools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    tools
        .iter()
        .map(|tool| tool.pointer("/function/name").and_then(Value::as_str).unwrap_or_default().to_owned())
        .collect()
}

fn answers_since_prompt(body: &Value) -> usize {
    let messages = body.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let since = messages.iter().rev().take_while(|message| !is_prompt(message));
    since.filter(|message| role(message) == Some("assistant")).count()
}

fn is_prompt(message: &Value) -> bool {
    role(message) == Some("user") && !first_text(message).trim_start().starts_with(REMINDER_MARK)
}

fn role(message: &Value) -> Option<&str> {
    message.get("role").and_then(Value::as_str)
}

fn first_text(message: &Value) -> &str {
    match message.get("content") {
        Some(Value::String(text)) => text,
        Some(parts) => parts.pointer("/0/text").and_then(Value::as_str).unwrap_or_default(),
        None => "",
    }
}

/// Puts one answer into bytes.
#[derive(Debug)]
pub(crate) struct Encoder {
    id: String,
    model: String,
    /// Goes into the ids of tool calls, which must differ within a conversation and agree between retries.
    step: usize,
}

impl Encoder {
    /// The encoder for the `sequence`th request, which is answered under the name of `model`.
    pub(crate) fn new(sequence: u64, model: String, step: usize) -> Self {
        Self { id: format!("chatcmpl-scripted-{sequence}"), model, step }
    }

    /// The event that opens a stream.
    pub(crate) fn open(&self) -> Bytes {
        self.delta(&json!({"role": "assistant", "content": ""}), None)
    }

    pub(crate) fn think(&self, piece: &str) -> Bytes {
        self.delta(&json!({"reasoning_content": piece}), None)
    }

    pub(crate) fn text(&self, piece: &str) -> Bytes {
        self.delta(&json!({"content": piece}), None)
    }

    pub(crate) fn tool(&self, index: usize, call: &ToolCall) -> Bytes {
        let mut entry = self.tool_entry(index, call);
        entry.insert("index".to_owned(), json!(index));
        self.delta(&json!({"tool_calls": [entry]}), None)
    }

    /// The events that end a stream properly.
    pub(crate) fn finish(&self, completion: &Completion, usage: UsageEvent) -> Bytes {
        let mut bytes = Vec::from(self.delta(&json!({}), Some(finish_reason(completion))));
        if usage == UsageEvent::Wanted {
            bytes.extend_from_slice(&self.chunk(&json!([]), Some(&completion.usage)));
        }
        bytes.extend_from_slice(b"data: [DONE]\n\n");
        bytes.into()
    }

    /// An event whose data is not JSON.
    pub(crate) fn malformed() -> Bytes {
        Bytes::from_static(b"data: {choices: nonsense\n\n")
    }

    /// The answer as one object.
    pub(crate) fn whole(&self, completion: &Completion) -> Bytes {
        let content = completion.text.concat();
        let mut message = Map::new();
        message.insert("role".to_owned(), json!("assistant"));
        message.insert(
            "content".to_owned(),
            if content.is_empty() { Value::Null } else { Value::String(content) },
        );
        if !completion.think.is_empty() {
            message.insert("reasoning_content".to_owned(), json!(completion.think.concat()));
        }
        if !completion.tools.is_empty() {
            let calls = completion.tools.iter().enumerate().map(|(index, call)| self.tool_entry(index, call));
            message.insert("tool_calls".to_owned(), calls.map(Value::Object).collect());
        }
        let object = json!({
            "id": self.id, "object": "chat.completion", "created": CREATED, "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(completion)}],
            "usage": usage_object(&completion.usage),
        });
        object.to_string().into()
    }

    fn tool_entry(&self, index: usize, call: &ToolCall) -> Map<String, Value> {
        let arguments = match &call.arguments {
            Value::String(raw) => raw.clone(),
            other => other.to_string(),
        };
        let mut entry = Map::new();
        entry.insert("id".to_owned(), json!(format!("call_{}_{index}", self.step)));
        entry.insert("type".to_owned(), json!("function"));
        entry.insert("function".to_owned(), json!({"name": call.name, "arguments": arguments}));
        entry
    }

    fn delta(&self, delta: &Value, finish: Option<&str>) -> Bytes {
        self.chunk(&json!([{"index": 0, "delta": delta, "finish_reason": finish}]), None)
    }

    fn chunk(&self, choices: &Value, usage: Option<&Usage>) -> Bytes {
        let mut chunk = json!({
            "id": self.id, "object": "chat.completion.chunk", "created": CREATED, "model": self.model,
            "choices": choices,
        });
        if let (Some(usage), Some(chunk)) = (usage, chunk.as_object_mut()) {
            chunk.insert("usage".to_owned(), usage_object(usage));
        }
        format!("data: {chunk}\n\n").into()
    }
}

/// The body of an error, in the words of the API.
pub(crate) fn error_body(status: u16, message: &str) -> String {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({"error": {"message": message, "type": kind, "code": format!("scripted_{status}")}}).to_string()
}

/// What the title call is answered with.
pub(crate) fn title() -> Completion {
    let arguments = json!({TITLE_TOOL: "Scripted session"});
    Completion { tools: vec![ToolCall { name: TITLE_TOOL.to_owned(), arguments }], ..Completion::default() }
}

fn finish_reason(completion: &Completion) -> &str {
    let natural = if completion.tools.is_empty() { "stop" } else { "tool_calls" };
    completion.finish.as_deref().unwrap_or(natural)
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

#[cfg(test)]
mod tests;
