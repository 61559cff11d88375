//! The one stream of facts about a run. Every fact names its source; kinds are a closed list.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{guarantee::Guarantee, survey::Rung};

/// One line may be this long everywhere: agent streams, session logs, events. Longer ones stay whole in the
/// transcript and are marked as cut in the event.
pub const LINE_LIMIT_BYTES: usize = 8 * 1024 * 1024;

/// The version of the event format.
pub const EVENT_VERSION: u32 = 1;

/// Who saw the fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Processes, exits, limits.
    Kernel,
    /// What went over the wire.
    Gateway,
    /// Stockade's own steps.
    Stockade,
    /// The agent's own words, which any of its tools can forge.
    Agent,
}

/// One recorded fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The version of the format: 1.
    pub v: u32,
    /// Counts up from 0 without gaps.
    pub seq: u64,
    /// Wall clock, RFC 3339 with milliseconds, UTC.
    pub time: String,
    /// Milliseconds since the run started, by the monotonic clock.
    pub elapsed_ms: u64,
    /// Who saw it.
    pub source: Source,
    /// What was seen.
    pub event: EventKind,
}

/// Tokens and cost as reported for one request or one run. Absent numbers are unknown, not zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens sent, those from a cache included.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub input_tokens: Option<u64>,
    /// Tokens read from a cache.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cached_input_tokens: Option<u64>,
    /// Tokens written to a cache.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cache_creation_input_tokens: Option<u64>,
    /// Tokens generated, reasoning included.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output_tokens: Option<u64>,
    /// Tokens spent on reasoning.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reasoning_tokens: Option<u64>,
    /// All tokens.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub total_tokens: Option<u64>,
}

impl Usage {
    /// Adds the numbers of another request; an unknown number leaves the sum as it is.
    pub fn add(&mut self, other: &Self) {
        fn sum(to: &mut Option<u64>, more: Option<u64>) {
            if let Some(m) = more {
                *to = Some(to.unwrap_or(0).saturating_add(m));
            }
        }
        sum(&mut self.input_tokens, other.input_tokens);
        sum(&mut self.cached_input_tokens, other.cached_input_tokens);
        sum(&mut self.cache_creation_input_tokens, other.cache_creation_input_tokens);
        sum(&mut self.output_tokens, other.output_tokens);
        sum(&mut self.reasoning_tokens, other.reasoning_tokens);
        sum(&mut self.total_tokens, other.total_tokens);
    }

    /// Whether no number is known, or every known one is zero.
    pub fn is_zero(&self) -> bool {
        [self.input_tokens, self.output_tokens, self.total_tokens].iter().all(|n| n.unwrap_or(0) == 0)
    }
}

/// What an answer states of its error, beside the text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatedError {
    /// Its type: `overloaded_error`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Its code: `context_length_exceeded`.
    pub code: Option<String>,
    /// When what is used up comes back, in seconds since 1970.
    pub resets_at_s: Option<u64>,
}

/// How a tool call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ToolStatus {
    /// It runs.
    Running,
    /// It ended well.
    Completed,
    /// It ended with an error that the model was told.
    Failed,
    /// It was refused by a rule or a prompt and the model was told.
    Denied,
    /// It was cancelled.
    Cancelled,
}

/// What was decided about a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PermissionDecision {
    /// The action may go on.
    Allowed,
    /// The action is refused, the turn goes on.
    Denied,
    /// The agent cancelled its own turn.
    Cancelled,
}

/// What a network decision said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkVerdict {
    /// Let through.
    Allowed,
    /// Answered inside, nothing left the host.
    AnsweredHere,
    /// Refused.
    Refused,
}

/// Codes of [`EventKind::NetworkDecision`] that end a run. Others are counted only.
pub mod network_code {
    /// The tool list of a request is not the planned one.
    pub const TOOLSET_MISMATCH: &str = "toolset-mismatch";
    /// A request names another model than the planned one.
    pub const MODEL_MISMATCH: &str = "model-mismatch";
    /// The agent went on asking after repeated failures.
    pub const RETRY_STORM: &str = "retry-storm";
    /// A request that is no model call was answered by the gateway.
    pub const NOT_A_MODEL_CALL: &str = "not-a-model-call";
    /// A name look-up was answered with NXDOMAIN.
    pub const NAME: &str = "name";
    /// A request was too large or malformed.
    pub const BAD_REQUEST: &str = "bad-request";
    /// A request lacked the placeholder key of the run.
    pub const PLACEHOLDER_MISSING: &str = "placeholder-missing";
    /// The egress listener let a connection or a request through.
    pub const EGRESS: &str = "egress";
    /// The host is not on the list.
    pub const EGRESS_NOT_LISTED: &str = "egress-not-listed";
    /// The host is on the list with another port.
    pub const EGRESS_PORT: &str = "egress-port";
    /// An address in place of a name, and not on the list.
    pub const EGRESS_LITERAL: &str = "egress-literal";
    /// A listed name leads to addresses that no name may lead to.
    pub const EGRESS_ADDRESS: &str = "egress-address";
    /// A listed name cannot be looked up.
    pub const EGRESS_NAME: &str = "egress-name";
    /// A listed host cannot be connected to, or broke the protocol.
    pub const EGRESS_UNREACHABLE: &str = "egress-unreachable";
    /// What came through a tunnel is no TLS, or TLS for another name.
    pub const EGRESS_TLS: &str = "egress-tls";
    /// A request that no proxy takes.
    pub const EGRESS_REQUEST: &str = "egress-request";
}

/// Codes of [`EventKind::ModelResponse::failure`]: why no HTTP answer arrived.
pub mod failure_code {
    /// The connection was refused or there is no route.
    pub const UNREACHABLE: &str = "unreachable";
    /// The name does not resolve.
    pub const NAME: &str = "name";
    /// TLS failed, a certificate that is not trusted included.
    pub const TLS: &str = "tls";
    /// The endpoint closed the connection without an answer, or broke the protocol.
    pub const PROTOCOL: &str = "protocol";
    /// The agent left, or the run ended, before the answer did: nothing is known about the endpoint.
    pub const ABANDONED: &str = "abandoned";
}

/// What was seen. A closed list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum EventKind {
    /// The order was accepted and the run directory exists.
    RunStarted {
        /// The run id.
        run: String,
        /// Stockade's version.
        version: String,
    },
    /// The plan is made.
    PlanMade {
        /// The rung.
        rung: Rung,
        /// SHA-256 of the plan as written to the run directory.
        sha256: String,
    },
    /// The canaries passed.
    FenceProven {
        /// The rung.
        rung: Rung,
        /// How many canaries were tried.
        canaries: u32,
        /// Which guarantees they prove.
        guarantees: Vec<Guarantee>,
        /// Building and proving, in microseconds.
        elapsed_us: u64,
    },
    /// A generation (an agent process) begins.
    GenerationStarted {
        /// Counts from 1.
        generation: u32,
    },
    /// The agent's process runs.
    AgentStarted {
        /// Its argv.
        argv: Vec<String>,
    },
    /// The prompt is where the agent reads it.
    PromptQueued {
        /// Bytes.
        bytes: u64,
        /// SHA-256 of the prompt.
        sha256: String,
    },
    /// The agent says that a turn began.
    TurnStarted {
        /// Its session id.
        session: Option<String>,
        /// Its tools, as it names them.
        tools: Vec<String>,
    },
    /// A request reached the gateway.
    ModelRequest {
        /// Counts from 1 over the run.
        request: u64,
        /// The request class of the profile: `turn`, `title`.
        class: String,
        /// The model asked for.
        model: Option<String>,
        /// The names of the tools offered.
        tools: Vec<String>,
        /// Bytes of the body.
        bytes: u64,
        /// The reasoning effort as sent on the wire.
        effort: Option<String>,
    },
    /// The answer to a request ended.
    ModelResponse {
        /// The request it answers.
        request: u64,
        /// The request class.
        class: String,
        /// HTTP status; `None`: no answer arrived.
        status: Option<u16>,
        /// Why no answer arrived: one of [`failure_code`].
        failure: Option<String>,
        /// The finish reason of the last choice.
        finish_reason: Option<String>,
        /// The model that the answer names.
        served_model: Option<String>,
        /// Tokens, where stated.
        usage: Option<Usage>,
        /// The stream ended before its end.
        cut: bool,
        /// The content type, without parameters.
        content_type: Option<String>,
        /// In how many seconds it can be tried again, where a header or the error states it.
        retry_after_s: Option<u64>,
        /// The head of an error body, or of a stated error, at most 2,000 bytes.
        error: Option<String>,
        /// What it states of the error beside its text; null: nothing.
        #[serde(default)]
        stated: Option<Box<StatedError>>,
        /// Milliseconds from request to end of answer.
        elapsed_ms: u64,
    },
    /// Text of the answer.
    Message {
        /// The text, or its head where it was too long.
        text: String,
        /// Bytes left out.
        cut_bytes: u64,
    },
    /// The model's thinking, as far as the agent shows it.
    Thought {
        /// The text, or its head where it was too long.
        text: String,
        /// Bytes left out.
        cut_bytes: u64,
    },
    /// A tool call was announced.
    ToolCall {
        /// The call's id.
        id: String,
        /// The tool.
        tool: String,
        /// The input, bounded.
        input: String,
    },
    /// A tool call moved on.
    ToolUpdate {
        /// The call's id.
        id: String,
        /// How it stands.
        status: ToolStatus,
        /// The output, bounded.
        output: String,
    },
    /// The agent asked for a permission.
    PermissionAsked {
        /// The tool.
        tool: String,
    },
    /// A permission was decided.
    PermissionDecided {
        /// The tool.
        tool: String,
        /// What was decided.
        decision: PermissionDecision,
        /// Who decided: `agent`, `policy`, `caller`.
        by: String,
    },
    /// The agent asked a question.
    QuestionAsked {
        /// The question.
        text: String,
    },
    /// A question was answered.
    QuestionAnswered {
        /// The answer.
        text: String,
    },
    /// The agent names a model.
    ModelSeen {
        /// The name.
        model: String,
        /// Where: `init`, `message`, `result`.
        place: String,
    },
    /// The agent reports tokens or cost.
    Usage {
        /// Tokens.
        usage: Usage,
        /// Cost in US dollars, where stated and not zero by lack of prices.
        cost_usd: Option<f64>,
        /// Per model, where stated.
        models: BTreeMap<String, Usage>,
    },
    /// Something was asked of the network.
    NetworkDecision {
        /// What: a name, a host, a request line; bounded.
        target: String,
        /// The verdict.
        verdict: NetworkVerdict,
        /// One of [`network_code`].
        code: String,
        /// Details for people, bounded.
        detail: String,
    },
    /// A limit was reached.
    LimitReached {
        /// Which: `wall`, `idle`, `output`, `memory`.
        limit: String,
        /// The limit, with its unit.
        value: String,
        /// What was measured.
        measured: String,
    },
    /// Anything worth telling that decides nothing.
    Note {
        /// A stable word.
        code: String,
        /// The text.
        text: String,
    },
    /// A turn ended, by the agent's words.
    TurnEnded {
        /// How.
        outcome: TurnOutcome,
    },
    /// A session was resumed.
    SessionResumed {
        /// Its id.
        session: String,
    },
    /// The agent's process ended.
    AgentExited {
        /// Exit code.
        code: Option<i32>,
        /// Signal.
        signal: Option<i32>,
        /// Processes that it left and that were swept.
        left_behind: u32,
    },
    /// The process tree is gone (or could not be ended in time).
    TreeEnded {
        /// Whether nothing is left: the pidfd of PID 1 became readable.
        gone: bool,
        /// Processes killed at the end.
        killed: u32,
        /// From the order to close until the proof, in microseconds.
        elapsed_us: u64,
    },
}

/// How the agent says a turn ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum TurnOutcome {
    /// A proper result.
    Success {
        /// The final answer as the agent repeats it; `None`: the messages are the answer.
        answer: Option<String>,
    },
    /// The model refused.
    Refusal {
        /// The agent's text.
        text: String,
    },
    /// The turn was cancelled; by a permission prompt where `permission` is set.
    Cancelled {
        /// The tool whose permission was cancelled.
        permission: Option<String>,
    },
    /// The turn limit was reached.
    MaxTurns,
    /// The answer was cut by a token limit.
    Truncated,
    /// An error.
    Error {
        /// The agent's text.
        text: String,
        /// The HTTP status it states.
        http_status: Option<u16>,
    },
}

#[cfg(test)]
mod tests;
