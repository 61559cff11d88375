//! OpenAI Responses, as in the API reference of OpenAI ("Create a model response", "Streaming events").

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{CREATED, CallForm, Naming, Offered, Stream, Words, arguments, list, named_event, runs, text_at};
use crate::scenario::{Completion, Finish, ToolCall, Usage};

pub(super) fn tools(body: &Value) -> Vec<Offered> {
    let input = list(body, "input").iter();
    // Tools may stand in the conversation, too.
    let added = input.filter(|item| text_at(item, "type") == Some("additional_tools"));
    let added = added.flat_map(|item| list(item, "tools"));
    list(body, "tools").iter().chain(added).flat_map(offered).collect()
}

/// The tools behind one entry: a group holds several, a tool of the endpoint itself has a type only.
fn offered(tool: &Value) -> Vec<Offered> {
    let kind = text_at(tool, "type").unwrap_or_default();
    let name = text_at(tool, "name").unwrap_or(kind);
    let one = |call| vec![Offered { name: name.to_owned(), call }];
    match kind {
        "custom" => one(CallForm::Custom),
        "local_shell" => one(CallForm::LocalShell),
        "namespace" => {
            let group = name.to_owned();
            let grouped = |inner: &Value| {
                let call = match text_at(inner, "type") {
                    Some("custom") => CallForm::GroupedCustom(group.clone()),
                    _ => CallForm::Grouped(group.clone()),
                };
                Some(Offered { name: format!("{group}/{}", text_at(inner, "name")?), call })
            };
            list(tool, "tools").iter().filter_map(grouped).collect()
        }
        _ => one(CallForm::Function),
    }
}

pub(super) fn answers_since_prompt(body: &Value) -> usize {
    let since = list(body, "input").iter().rev().take_while(|item| !is_prompt(item));
    runs(since.map(is_answer))
}

fn is_prompt(item: &Value) -> bool {
    text_at(item, "role") == Some("user")
}

/// Whether an item came from the model. What tools gave back stands between two answers.
fn is_answer(item: &Value) -> bool {
    let kind = text_at(item, "type").unwrap_or_default();
    text_at(item, "role") == Some("assistant")
        || matches!(kind, "reasoning" | "function_call" | "custom_tool_call" | "local_shell_call")
}

pub(super) fn stream(naming: &Naming, completion: &Completion) -> Stream {
    let mut events = Events::default();
    let started = response(naming, "in_progress", &[]);
    let open = [
        events.next("response.created", json!({"response": started})),
        events.next("response.in_progress", json!({"response": started})),
    ];
    let mut pieces = Vec::new();
    let mut close = Vec::new();
    for (kind, texts) in [(Part::Reasoning, &completion.think), (Part::Text, &completion.text)] {
        for (index, piece) in texts.iter().enumerate() {
            let mut bytes = Vec::new();
            if index == 0 {
                bytes.append(&mut close);
                bytes.extend_from_slice(&events.open_part(naming, kind));
            }
            bytes.extend_from_slice(&events.delta(naming, kind, piece));
            pieces.push(Bytes::from(bytes));
        }
        if !texts.is_empty() {
            close.extend_from_slice(&events.close_part(naming, kind, &texts.concat()));
        }
    }
    let mut calls = Vec::new();
    for (index, call) in completion.tools.iter().enumerate() {
        let mut bytes = std::mem::take(&mut close);
        bytes.extend_from_slice(&events.item(&call_item(naming, index, call)));
        calls.push(Bytes::from(bytes));
    }
    let name = match completion.finish() {
        Finish::Stop | Finish::ToolCalls => "response.completed",
        Finish::Length | Finish::ContentFilter | Finish::Other(_) => "response.incomplete",
    };
    close.extend_from_slice(&events.next(name, json!({"response": whole(naming, completion)})));
    Stream { open: open.concat().into(), pieces, calls, finish: close.into() }
}

pub(super) fn whole(naming: &Naming, completion: &Completion) -> Value {
    let mut output = Vec::new();
    for (kind, texts) in [(Part::Reasoning, &completion.think), (Part::Text, &completion.text)] {
        if !texts.is_empty() {
            output.push(kind.item(naming, "completed", Some(&texts.concat())));
        }
    }
    let calls = completion.tools.iter().enumerate().map(|(index, call)| call_item(naming, index, call));
    output.extend(calls);
    let reason = match completion.finish() {
        Finish::Stop | Finish::ToolCalls => None,
        Finish::Length => Some("max_output_tokens"),
        Finish::ContentFilter => Some("content_filter"),
        Finish::Other(word) => Some(word),
    };
    let mut object = response(naming, reason.map_or("completed", |_| "incomplete"), &output);
    if let Some(reason) = reason {
        object.insert("incomplete_details".to_owned(), json!({"reason": reason}));
    }
    object.insert("usage".to_owned(), usage_object(&completion.usage));
    Value::Object(object)
}

/// The event that states an error.
pub(super) fn failed(naming: &Naming, words: &Words) -> Bytes {
    let mut object = response(naming, "failed", &[]);
    object.insert("error".to_owned(), json!({"code": words.code, "message": words.message}));
    named_event(&json!({"type": "response.failed", "response": object}))
}

fn response(naming: &Naming, status: &str, output: &[Value]) -> Map<String, Value> {
    let object = json!({
        "id": format!("resp_scripted_{}", naming.sequence), "object": "response", "created_at": CREATED,
        "status": status, "error": null, "incomplete_details": null, "model": naming.model,
        "output": output, "parallel_tool_calls": true, "usage": null,
    });
    match object {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

fn usage_object(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input.saturating_add(usage.output),
    })
}

/// A call in the form in which its tool was offered: an agent takes a custom tool's call in no other.
fn call_item(naming: &Naming, index: usize, call: &ToolCall) -> Value {
    let step = naming.step;
    let call_id = format!("call_{step}_{index}");
    let function = |name: &str| {
        json!({
            "type": "function_call", "id": format!("fc_{step}_{index}"), "call_id": call_id,
            "name": name, "arguments": arguments(call), "status": "completed",
        })
    };
    let custom = |name: &str| {
        json!({
            "type": "custom_tool_call", "id": format!("ctc_{step}_{index}"), "call_id": call_id,
            "name": name, "input": arguments(call), "status": "completed",
        })
    };
    match naming.form_of(call) {
        CallForm::Function => function(&call.name),
        CallForm::Grouped(group) => grouped(function(bare(&call.name, &group)), &group),
        CallForm::Custom => custom(&call.name),
        CallForm::GroupedCustom(group) => grouped(custom(bare(&call.name, &group)), &group),
        CallForm::LocalShell => json!({
            "type": "local_shell_call", "id": format!("lsc_{step}_{index}"), "call_id": call_id,
            "action": call.arguments, "status": "completed",
        }),
    }
}

/// The name of a tool within its group.
fn bare<'n>(name: &'n str, group: &str) -> &'n str {
    name.strip_prefix(group).and_then(|rest| rest.strip_prefix('/')).unwrap_or(name)
}

/// A call that names the group of its tool.
fn grouped(mut item: Value, group: &str) -> Value {
    if let Some(members) = item.as_object_mut() {
        members.insert("namespace".to_owned(), json!(group));
    }
    item
}

/// The two kinds of items that come in pieces.
#[derive(Clone, Copy)]
enum Part {
    Reasoning,
    Text,
}

impl Part {
    fn id(self, naming: &Naming) -> String {
        let kind = match self {
            Self::Reasoning => "rs",
            Self::Text => "msg",
        };
        format!("{kind}_scripted_{}", naming.sequence)
    }

    /// The part of an item that holds the text.
    fn content(self, text: &str) -> Value {
        match self {
            Self::Reasoning => json!({"type": "summary_text", "text": text}),
            Self::Text => json!({"type": "output_text", "text": text, "annotations": []}),
        }
    }

    fn item(self, naming: &Naming, status: &str, text: Option<&str>) -> Value {
        let content: Vec<Value> = text.into_iter().map(|text| self.content(text)).collect();
        match self {
            Self::Reasoning => json!({"type": "reasoning", "id": self.id(naming), "summary": content}),
            Self::Text => json!({
                "type": "message", "id": self.id(naming), "role": "assistant", "status": status,
                "content": content,
            }),
        }
    }

    /// The names of its events: part begun, delta, text done, part done.
    fn events(self) -> [&'static str; 4] {
        match self {
            Self::Reasoning => [
                "response.reasoning_summary_part.added",
                "response.reasoning_summary_text.delta",
                "response.reasoning_summary_text.done",
                "response.reasoning_summary_part.done",
            ],
            Self::Text => [
                "response.content_part.added",
                "response.output_text.delta",
                "response.output_text.done",
                "response.content_part.done",
            ],
        }
    }

    fn index_key(self) -> &'static str {
        match self {
            Self::Reasoning => "summary_index",
            Self::Text => "content_index",
        }
    }
}

/// Numbers the events and the items of a stream.
#[derive(Default)]
struct Events {
    number: u64,
    output_index: usize,
}

impl Events {
    fn next(&mut self, name: &str, mut data: Value) -> Bytes {
        if let Some(members) = data.as_object_mut() {
            members.insert("type".to_owned(), json!(name));
            members.insert("sequence_number".to_owned(), json!(self.number));
        }
        self.number += 1;
        named_event(&data)
    }

    fn open_part(&mut self, naming: &Naming, part: Part) -> Bytes {
        let item = part.item(naming, "in_progress", None);
        let index = self.output_index;
        let added = self.next("response.output_item.added", json!({"output_index": index, "item": item}));
        let [begun, ..] = part.events();
        let content = self.part_event(naming, part, begun, "part", part.content(""));
        [added, content].concat().into()
    }

    fn delta(&mut self, naming: &Naming, part: Part, piece: &str) -> Bytes {
        let [_, delta, ..] = part.events();
        self.part_event(naming, part, delta, "delta", json!(piece))
    }

    fn close_part(&mut self, naming: &Naming, part: Part, text: &str) -> Bytes {
        let [.., text_done, part_done] = part.events();
        let text_done = self.part_event(naming, part, text_done, "text", json!(text));
        let part_done = self.part_event(naming, part, part_done, "part", part.content(text));
        let item = part.item(naming, "completed", Some(text));
        let done = self.done(&item);
        [text_done, part_done, done].concat().into()
    }

    /// An item that comes in one piece.
    fn item(&mut self, item: &Value) -> Bytes {
        let index = self.output_index;
        let added = self.next("response.output_item.added", json!({"output_index": index, "item": item}));
        [added, self.done(item)].concat().into()
    }

    fn done(&mut self, item: &Value) -> Bytes {
        let index = self.output_index;
        self.output_index += 1;
        self.next("response.output_item.done", json!({"output_index": index, "item": item}))
    }

    fn part_event(&mut self, naming: &Naming, part: Part, name: &str, key: &str, value: Value) -> Bytes {
        let mut data = json!({"item_id": part.id(naming), "output_index": self.output_index});
        if let Some(members) = data.as_object_mut() {
            members.insert(part.index_key().to_owned(), json!(0));
            members.insert(key.to_owned(), value);
        }
        self.next(name, data)
    }
}
