//! Judging: a fold over the events of a run to its ending. Pure, and bounded in memory.
//!
//! The first terminal fact in time wins. Two facts that the dispatcher handled in one batch are a tie, which
//! [`Rank`] decides. A proper result that came first stays a result, whatever followed.

mod fold;
mod outcome;
mod recent;
mod requests;
mod terminal;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::requests::RequestRecord;

use self::fold::Fold;
use crate::{
    budget::Spent,
    changes::Changes,
    event::{Event, Usage},
    plan::LaunchPlan,
    status::{Boundary, Cause, FailurePhase, Status},
};

/// Note codes of the runner that end a run or change how it is judged.
pub mod note_code {
    /// A signal or a parent asked the run to stop.
    pub const CANCEL_REQUESTED: &str = "cancel-requested";
    /// A line on the agent's stdout that is none of its dialect.
    pub const STDOUT_NOISE: &str = "stdout-noise";
    /// The agent's stdout ended in the middle of a line.
    pub const STDOUT_UNTERMINATED: &str = "stdout-unterminated";
    /// The end of the agent's stderr, told once when it has ended: where most agents put the reason for a failure.
    pub const STDERR_TAIL: &str = "stderr-tail";
    /// The agent did not exit after its proper result and was stopped.
    pub const DID_NOT_EXIT: &str = "did-not-exit";
    /// Stockade asked the agent to stop, so a signal death is its own doing.
    pub const STOPPED: &str = "agent-stopped";
}

/// How a line of evidence begins that the agent itself printed on standard error.
pub const STDERR_EVIDENCE: &str = "stderr: ";

/// How terminal facts rank in a tie, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Cancelled,
    TimedOut,
    OutOfMemory,
    LimitReached,
    Stalled,
    Permission,
    Mismatch,
    Typed,
    Result,
}

/// A terminal fact.
#[derive(Clone, Debug)]
struct Terminal {
    rank: Rank,
    kind: TerminalKind,
}

#[derive(Clone, Debug)]
enum TerminalKind {
    /// A proper terminal event of the agent: result checks follow at the end.
    Result,
    /// The status is settled.
    Settled(Status, Box<Cause>),
    /// The agent reported an error: the wire may know better what it was.
    AgentError { text: String, http_status: Option<u16> },
    /// The gateway ended a retry storm: the wire knows what failed.
    RetryStorm,
    /// The agent cancelled its turn without saying why: its own log may tell later.
    AgentCancelled,
}

/// How the agent's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentExit {
    /// Exit code.
    pub code: Option<i32>,
    /// Signal.
    pub signal: Option<i32>,
}

/// A permission that was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermissionRecord {
    /// The tool.
    pub tool: String,
    /// What was decided.
    pub decision: crate::event::PermissionDecision,
    /// Who decided.
    pub by: String,
}

/// A tool call that was refused while the turn went on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Denial {
    /// The tool.
    pub tool: String,
    /// What the model was told, bounded.
    pub evidence: String,
}

/// What is known about the model of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelIdentity {
    /// The model asked for.
    pub asked: String,
    /// `order` or `profile-default`.
    pub source: String,
    /// Models that requests named on the wire, in order of appearance.
    pub requested_seen: Vec<String>,
    /// Efforts that requests named on the wire, in order of appearance: an agent may send another than it was told.
    #[serde(default)]
    pub efforts_seen: Vec<String>,
    /// Models that answers named on the wire (or, without a wire, that the agent reported).
    pub served: Vec<String>,
    /// What that rests on.
    pub evidence: ModelEvidence,
    /// Answered main-turn requests, by served model.
    pub per_turn: BTreeMap<String, u64>,
}

/// What the model's identity rests on, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ModelEvidence {
    /// The answers on the wire.
    Wire,
    /// The agent's words.
    AgentReport,
    /// Only the argv that asked for it.
    PinnedArgv,
    /// No agent was started.
    None,
}

/// Who says what a run cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CostSource {
    /// The agent, by the list prices that it knows.
    Agent,
    /// The tokens on the wire, by the prices of the profile or the configuration.
    Prices,
}

/// How a run ended, with everything folded from its events.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    /// The status.
    pub status: Status,
    /// Why; `None` only for `complete`.
    pub cause: Option<Cause>,
    /// Where it failed; `None` only for `complete`.
    pub phase: Option<FailurePhase>,
    /// The answer.
    pub answer: Option<String>,
    /// Whether the answer is only a part.
    pub partial: bool,
    /// Things worth telling that decided nothing.
    pub notes: Vec<String>,
    /// The agent's session id.
    pub session: Option<String>,
    /// Tokens.
    pub usage: Option<Usage>,
    /// Cost in US dollars; `None`: unknown.
    pub cost_usd: Option<f64>,
    /// Who says so.
    pub cost_source: Option<CostSource>,
    /// The model.
    pub model: ModelIdentity,
    /// Permissions decided.
    pub permissions: Vec<PermissionRecord>,
    /// Denials the turn survived.
    pub denials: Vec<Denial>,
    /// All denials, those beyond the list included.
    pub denial_count: u64,
    /// Tool calls announced.
    pub tool_calls: u64,
    /// Model requests on the wire, side requests left out.
    pub model_requests: u64,
    /// The last of them, at most 100.
    pub requests: Vec<RequestRecord>,
    /// What they came to.
    pub spent: Spent,
    /// Network decisions that refused or answered something here, by code.
    pub network_refusals: BTreeMap<String, u64>,
}

/// The fold.
#[derive(Clone, Debug)]
pub struct Judge {
    fold: Fold,
    settled: Option<Terminal>,
    /// The strongest fact since the last call of `settle`.
    batch: Option<Terminal>,
}

impl Judge {
    /// Starts a fold for a plan.
    pub fn new(plan: &LaunchPlan) -> Self {
        Self { fold: Fold::new(plan), settled: None, batch: None }
    }

    /// Takes the next event.
    pub fn observe(&mut self, event: &Event) {
        if let Some(terminal) = self.fold.take(event)
            && self.batch.as_ref().is_none_or(|best| terminal.rank < best.rank)
        {
            self.batch = Some(terminal);
        }
    }

    /// Ends a batch: facts observed since the last call are a tie.
    ///
    /// What comes after a proper result takes nothing away from it, but is told as a note.
    pub fn settle(&mut self) {
        let Some(best) = self.batch.take() else { return };
        match (&self.settled, best.kind) {
            (None, kind) => self.settled = Some(Terminal { rank: best.rank, kind }),
            (Some(Terminal { kind: TerminalKind::Result, .. }), TerminalKind::Settled(status, cause)) => {
                self.fold.after_result(status, &cause);
            }
            (Some(_), _) => {}
        }
    }

    /// Whether the run is decided and the agent may be stopped.
    ///
    /// A proper result decides too: what is left is the agent's exit, for which it has its linger time.
    pub fn is_decided(&self) -> bool {
        self.settled.is_some()
    }

    /// Whether what decided the run is a proper result.
    pub fn has_result(&self) -> bool {
        matches!(&self.settled, Some(t) if matches!(t.kind, TerminalKind::Result))
    }

    /// Ends the fold.
    ///
    /// `exit` is `None` when the agent never started.
    pub fn finish(mut self, exit: Option<AgentExit>, changes: &Changes) -> Ending {
        self.settle();
        outcome::ending(self.fold, self.settled, exit, changes)
    }
}

/// A cause on the boundary `output`.
fn output_cause(code: &str, step: &str, message: impl Into<String>) -> Cause {
    Cause::new(code, Boundary::Output, step, message)
}
