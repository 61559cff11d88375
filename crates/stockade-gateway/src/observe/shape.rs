//! The three wire formats, read for what they share: model, usage, finish reason, stated errors.
//!
//! Chat completions put them at the top of every chunk; Responses put them into `response`; Messages put the model into
//! `message` and the end into `delta`.

use serde_json::Value;
use stockade_core::{event::Usage, text};

use super::{ERROR_HEAD_BYTES, Seen};

/// The longest name of a model or a finish reason that is kept, in bytes.
const NAME_LIMIT_BYTES: usize = 200;

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Found {
    model: Option<String>,
    finish: Option<String>,
    usage: Option<Usage>,
    error: Option<String>,
    done: bool,
}

impl Found {
    /// Whether the stream said that it is over.
    pub(super) fn finished(&self) -> bool {
        self.done || self.finish.is_some() || self.error.is_some()
    }

    pub(super) fn into_seen(self) -> Seen {
        Seen {
            finished: self.finished(),
            served_model: self.model,
            finish_reason: self.finish,
            usage: self.usage,
            error: self.error,
        }
    }

    /// Reads the data of one event.
    pub(super) fn read_event(&mut self, data: &[u8]) {
        if data.trim_ascii() == b"[DONE]" {
            self.done = true;
        } else if let Ok(value) = serde_json::from_slice::<Value>(data) {
            self.read(&value);
        }
    }

    /// Reads an answer in one piece; returns whether it is a JSON object.
    pub(super) fn read_whole(&mut self, body: &[u8]) -> bool {
        match serde_json::from_slice::<Value>(body) {
            Ok(value) if value.is_object() => {
                self.read(&value);
                true
            }
            _ => false,
        }
    }

    fn read(&mut self, value: &Value) {
        let kind = text_at(value, "type");
        if kind == Some("error") || value.get("error").is_some_and(|e| !e.is_null()) {
            self.error = Some(text::head(&value.to_string(), ERROR_HEAD_BYTES));
        }
        let inner = ["response", "message"].iter().find_map(|k| value.get(k).filter(|v| v.is_object()));
        for part in [Some(value), inner].into_iter().flatten() {
            if let Some(model) = text_at(part, "model").filter(|m| !m.is_empty()) {
                self.model = Some(text::head(model, NAME_LIMIT_BYTES));
            }
            if let Some(usage) = part.get("usage").filter(|u| u.is_object()) {
                merge(self.usage.get_or_insert_default(), usage);
            }
            self.finish_with(text_at(part, "stop_reason"));
            if text_at(part, "object") == Some("response") {
                self.read_response_status(part);
            }
        }
        for choice in value.get("choices").and_then(Value::as_array).into_iter().flatten() {
            self.finish_with(text_at(choice, "finish_reason"));
        }
        self.finish_with(value.get("delta").and_then(|d| text_at(d, "stop_reason")));
        self.done |= kind == Some("message_stop");
    }

    /// The status of a response object: only an ended one is a finish.
    fn read_response_status(&mut self, response: &Value) {
        let Some(status @ ("completed" | "incomplete" | "failed" | "cancelled")) =
            text_at(response, "status")
        else {
            return;
        };
        let reason = response.get("incomplete_details").and_then(|d| text_at(d, "reason"));
        self.finish_with(reason.or(Some(status)));
    }

    fn finish_with(&mut self, reason: Option<&str>) {
        if let Some(reason) = reason {
            self.finish = Some(text::head(reason, NAME_LIMIT_BYTES));
        }
    }
}

fn text_at<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// Takes over the numbers that a usage object states; later objects of a stream replace earlier ones.
fn merge(usage: &mut Usage, object: &Value) {
    let number = |key: &str| object.get(key).and_then(Value::as_u64);
    let detail = |group: &str, key: &str| object.get(group).and_then(|g| g.get(key)).and_then(Value::as_u64);
    let reasoning = detail("completion_tokens_details", "reasoning_tokens")
        .or_else(|| detail("output_tokens_details", "reasoning_tokens"));
    let total = number("total_tokens");

    let (read, created) = (number("cache_read_input_tokens"), number("cache_creation_input_tokens"));
    let input = number("prompt_tokens").or_else(|| {
        // Messages count cached tokens apart; the other formats have no such keys.
        number("input_tokens")
            .map(|n| n.saturating_add(read.unwrap_or(0)).saturating_add(created.unwrap_or(0)))
    });
    let generated = number("completion_tokens").or_else(|| number("output_tokens"));
    // Some endpoints leave reasoning out of the generated tokens; their total shows it.
    let output = match (input, generated, reasoning, total) {
        (Some(i), Some(g), Some(r), Some(t)) if r > 0 && i.saturating_add(g).saturating_add(r) == t => {
            Some(g.saturating_add(r))
        }
        _ => generated,
    };
    let cached = detail("prompt_tokens_details", "cached_tokens")
        .or_else(|| detail("input_tokens_details", "cached_tokens"))
        .or(read);

    for (to, from) in [
        (&mut usage.input_tokens, input),
        (&mut usage.cached_input_tokens, cached),
        (&mut usage.cache_creation_input_tokens, created),
        (&mut usage.output_tokens, output),
        (&mut usage.reasoning_tokens, reasoning),
        (&mut usage.total_tokens, total),
    ] {
        *to = from.or(*to);
    }
}
