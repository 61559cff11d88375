//! Wire formats: how a request is understood and how an answer is put into bytes. One module per API; what a step
//! means does not depend on it.

mod chat;
mod fault;
mod messages;
mod responses;

use bytes::Bytes;
use serde_json::Value;

pub(crate) use fault::Words;

use crate::log::RequestClass;
use crate::scenario::{Completion, Fault, Finish, ToolCall};

/// Stands for the time of creation. Fixed, so that a rehearsal looks the same every time.
const CREATED: u64 = 1_700_000_000;

/// The APIs by which an agent may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    /// OpenAI chat completions.
    Chat,
    /// Anthropic Messages.
    Messages,
    /// OpenAI Responses.
    Responses,
}

/// What a request asks for, whatever the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) class: RequestClass,
    pub(crate) model: Option<String>,
    /// The tools offered, in their order.
    pub(crate) tools: Vec<Offered>,
    pub(crate) form: Form,
    /// How often the model has already answered since the last prompt.
    pub(crate) answered: usize,
}

/// A tool that a request offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offered {
    pub(crate) name: String,
    pub(crate) call: CallForm,
}

/// How a tool wants to be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallForm {
    /// By a function call, with a JSON object.
    Function,
    /// By a function call that names the group of tools it belongs to.
    Grouped(String),
    /// By a custom call, with a text.
    Custom,
    /// By a custom call that names the group of tools it belongs to.
    GroupedCustom(String),
    /// By a call of the local shell, with a command.
    LocalShell,
}

/// How the answer shall come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As events, with a last one for usage or without.
    Stream {
        /// Whether usage was asked for.
        usage: UsageEvent,
    },
    /// As one object.
    Whole,
}

/// Whether a stream tells usage. Only chat completions leave the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsageEvent {
    Wanted,
    Unwanted,
}

/// What names an answer and its parts.
#[derive(Debug, Clone)]
pub(crate) struct Naming {
    /// The number of the request.
    pub(crate) sequence: u64,
    /// The served model.
    pub(crate) model: String,
    /// Goes into the ids of tool calls, which must differ within a conversation and agree between retries.
    pub(crate) step: usize,
    /// The tools offered, which say how each wants to be called.
    pub(crate) tools: Vec<Offered>,
}

/// A streamed answer in the order in which it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    /// What opens it.
    pub(crate) open: Bytes,
    /// The pieces of reasoning and text. The last leaves its text open.
    pub(crate) pieces: Vec<Bytes>,
    /// The tool calls.
    pub(crate) calls: Vec<Bytes>,
    /// What ends it properly.
    pub(crate) finish: Bytes,
}

impl Api {
    /// The API whose calls go to this path.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let apis = [
            ("/chat/completions", Self::Chat),
            ("/messages", Self::Messages),
            ("/responses", Self::Responses),
        ];
        apis.into_iter().find(|(end, _)| path.ends_with(end)).map(|(_, api)| api)
    }

    /// Understands a request. Anything missing is taken as absent: the agent is under test, not its spelling.
    pub(crate) fn read(self, body: &Value) -> Asked {
        let tools = match self {
            Self::Chat => chat::tools(body),
            Self::Messages => messages::tools(body),
            Self::Responses => responses::tools(body),
        };
        let class = match tools.as_slice() {
            [] => RequestClass::Toolless,
            [only] if only.name == chat::TITLE_TOOL => RequestClass::Title,
            _ => RequestClass::Main,
        };
        let form = if body.get("stream").and_then(Value::as_bool) == Some(true) {
            Form::Stream {
                usage: match self {
                    Self::Chat => chat::usage_event(body),
                    Self::Messages | Self::Responses => UsageEvent::Wanted,
                },
            }
        } else {
            Form::Whole
        };
        let model = body.get("model").and_then(Value::as_str).map(str::to_owned);
        let answered = match self {
            Self::Chat => chat::answers_since_prompt(body),
            Self::Messages => messages::answers_since_prompt(body),
            Self::Responses => responses::answers_since_prompt(body),
        };
        Asked { class, model, tools, form, answered }
    }

    /// The answer as events.
    pub(crate) fn stream(self, naming: &Naming, completion: &Completion, usage: UsageEvent) -> Stream {
        match self {
            Self::Chat => chat::stream(naming, completion, usage),
            Self::Messages => messages::stream(naming, completion),
            Self::Responses => responses::stream(naming, completion),
        }
    }

    /// The answer as one object.
    pub(crate) fn whole(self, naming: &Naming, completion: &Completion) -> Value {
        match self {
            Self::Chat => chat::whole(naming, completion),
            Self::Messages => messages::whole(naming, completion),
            Self::Responses => responses::whole(naming, completion),
        }
    }

    /// An event whose data is not JSON.
    pub(crate) fn malformed(self) -> Bytes {
        Bytes::from_static(match self {
            Self::Chat => b"data: {choices: nonsense\n\n",
            Self::Messages => b"event: content_block_delta\ndata: {delta: nonsense\n\n",
            Self::Responses => b"event: response.output_text.delta\ndata: {delta: nonsense\n\n",
        })
    }

    /// The body of an error answer.
    pub(crate) fn error(self, words: &Words) -> Value {
        match self {
            Self::Chat | Self::Responses => fault::openai_body(words),
            Self::Messages => fault::anthropic_body(words),
        }
    }

    /// An error stated in the middle of a stream.
    pub(crate) fn stated(self, naming: &Naming, fault: Fault) -> Bytes {
        let words = Words::of(self, fault);
        match self {
            Self::Chat => chat::event(&fault::openai_body(&words)),
            Self::Messages => messages::event(&fault::anthropic_body(&words)),
            Self::Responses => responses::failed(naming, &words),
        }
    }
}

impl Naming {
    /// How a tool wants to be called: as it was offered.
    fn form_of(&self, call: &ToolCall) -> CallForm {
        let offered = self.tools.iter().find(|tool| tool.name == call.name);
        offered.map_or(CallForm::Function, |tool| tool.call.clone())
    }
}

/// The arguments of a call as text.
fn arguments(call: &ToolCall) -> String {
    match &call.arguments {
        Value::String(raw) => raw.clone(),
        other => other.to_string(),
    }
}

/// What the title call is answered with.
pub(crate) fn title() -> Completion {
    chat::title()
}

/// An event with a name, as Messages and Responses have them: the name is the type of its data.
fn named_event(data: &Value) -> Bytes {
    let name = data.get("type").and_then(Value::as_str).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// Counts the runs of answers at the end of a conversation: neighbours belong to one answer.
fn runs(since_prompt: impl Iterator<Item = bool>) -> usize {
    let mut before = false;
    let mut count = 0;
    for is_answer in since_prompt {
        count += usize::from(is_answer && !before);
        before = is_answer;
    }
    count
}

/// How Grok Build and Claude Code mark what they add as `user` themselves. Not a prompt: the step count would start
/// again.
const REMINDER_MARK: &str = "<system-reminder>";

fn is_reminder(text: &str) -> bool {
    text.trim_start().starts_with(REMINDER_MARK)
}

/// The members of an array, none where there is no array.
fn list<'a>(body: &'a Value, key: &str) -> &'a [Value] {
    body.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text_at<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// The word by which an API states a finish.
fn finish_word<'a>(finish: Finish<'a>, words: [&'static str; 4]) -> &'a str {
    let [stop, tools, length, filter] = words;
    match finish {
        Finish::Stop => stop,
        Finish::ToolCalls => tools,
        Finish::Length => length,
        Finish::ContentFilter => filter,
        Finish::Other(word) => word,
    }
}

#[cfg(test)]
mod tests;
