//! One step, after the checks.

use std::time::Duration;

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
    /// A completion, whole or broken.
    Completion(Completion),
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
            Answer::Close | Answer::Http(_) => None,
        }
    }
}
