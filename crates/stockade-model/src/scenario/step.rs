//! One step, after the checks.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

/// What the model does for one request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    /// How long to wait before anything is answered.
    pub(crate) delay: Duration,
    /// What to answer then.
    pub(crate) answer: Answer,
}

/// The kinds of answers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// The connection is closed without any answer.
    Close,
    /// A plain HTTP answer: a fault, or a page that is no completion.
    Http(HttpAnswer),
    /// An error in the words of the API asked.
    Fault(Fault),
    /// A completion, whole or broken.
    Completion(Completion),
}

/// Errors that each API words in its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// The service has too much to do.
    Overloaded,
    /// The account asks too often.
    RateLimited,
    /// The account has used up what it may use.
    Quota,
    /// The conversation is longer than the model can read.
    ContextOverflow,
}

/// Why a completion ended, whatever the word of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish<'a> {
    /// The model had said everything.
    Stop,
    /// It called tools.
    ToolCalls,
    /// It reached the limit of tokens.
    Length,
    /// The vendor's filter stopped it.
    ContentFilter,
    /// Any other word, which is sent as it is.
    Other(&'a str),
}

/// A plain HTTP answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) content_type: Option<String>,
    /// `None` stands for the error body that belongs to the status.
    pub(crate) body: Option<String>,
}

/// A completion in the order in which it is sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Completion {
    pub(crate) think: Vec<String>,
    pub(crate) text: Vec<String>,
    /// The pause between two pieces.
    pub(crate) gap: Duration,
    /// The name to wait for after the text.
    pub(crate) hold: Option<String>,
    pub(crate) tools: Vec<ToolCall>,
    pub(crate) ending: Ending,
    /// `None` stands for the reason that belongs to the content.
    pub(crate) finish: Option<String>,
    /// `None` stands for the model asked for.
    pub(crate) model: Option<String>,
    pub(crate) usage: Usage,
    /// The pause after each byte, when sent byte by byte.
    pub(crate) byte_pause: Option<Duration>,
}

impl Completion {
    /// Why it ends: as the step says, or as its content has it.
    pub(crate) fn finish(&self) -> Finish<'_> {
        match self.finish.as_deref() {
            None if self.tools.is_empty() => Finish::Stop,
            Some("stop") => Finish::Stop,
            None | Some("tool_calls") => Finish::ToolCalls,
            Some("length") => Finish::Length,
            Some("content_filter") => Finish::ContentFilter,
            Some(other) => Finish::Other(other),
        }
    }
}

/// A call of one of the agent's tools.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolCall {
    pub(crate) name: String,
    /// A string is sent as it is, anything else as its JSON text.
    pub(crate) arguments: Value,
}

/// How a completion ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With a finish reason.
    #[default]
    Finish,
    /// The body ends properly, but without a finish reason.
    Cut,
    /// The connection is dropped in the middle of the body.
    Abort,
    /// With an event that is not JSON.
    Malformed,
    /// With an error that the answer states.
    Fault(Fault),
    /// Never.
    Hang,
}

/// What the answer is said to have cost, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) input: u64,
    /// The part of `input` that is said to come from a cache.
    pub(crate) cached: u64,
    pub(crate) output: u64,
    /// The part of `output` that is said to be reasoning.
    pub(crate) reasoning: u64,
}

/// Arbitrary, but all different, so that a mixed-up field is seen.
impl Default for Usage {
    fn default() -> Self {
        Self { input: 100, cached: 40, output: 7, reasoning: 3 }
    }
}

impl Step {
    /// A step that says one text.
    pub(crate) fn text(text: &str) -> Self {
        Self {
            delay: Duration::ZERO,
            answer: Answer::Completion(Completion { text: vec![text.to_owned()], ..Completion::default() }),
        }
    }

    /// The name this step holds at, if it does.
    pub(crate) fn hold_name(&self) -> Option<&str> {
        match &self.answer {
            Answer::Completion(completion) => completion.hold.as_deref(),
            Answer::Close | Answer::Http(_) | Answer::Fault(_) => None,
        }
    }
}
