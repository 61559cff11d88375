//! Terminal facts: what ends a run when it is seen.

use super::{
    Rank, Terminal, TerminalKind,
    fold::{Fold, LIST_LIMIT, NAME_LIMIT_BYTES},
    note_code, output_cause,
};
use crate::{
    event::{NetworkVerdict, Source, TurnOutcome, network_code},
    status::{Boundary, Cause, Status},
    text,
};

/// How many lines of the agent's stderr stand as evidence beside a failure: the reason is last, after any warnings.
const STDERR_LINES: usize = 6;

impl Fold {
    pub(super) fn network(
        &mut self,
        target: &str,
        verdict: NetworkVerdict,
        code: &str,
        detail: &str,
    ) -> Option<Terminal> {
        let name = text::head(code, NAME_LIMIT_BYTES);
        if verdict != NetworkVerdict::Allowed
            && (self.network_refusals.len() < LIST_LIMIT || self.network_refusals.contains_key(&name))
        {
            *self.network_refusals.entry(name).or_default() += 1;
        }
        let settled = |rank, status, cause| Some(settled(rank, status, cause));
        match code {
            network_code::EGRESS if verdict == NetworkVerdict::Allowed => {
                if let Some(tunnel) = self.tunnel.as_mut().filter(|tunnel| tunnel.to == target) {
                    tunnel.used = true;
                }
                None
            }
            network_code::TOOLSET_MISMATCH => settled(
                Rank::Typed,
                Status::PolicyRefused,
                Cause::new(
                    code,
                    Boundary::Model,
                    target,
                    "the agent offered the model other tools than the plan names; nothing was forwarded",
                )
                .with_evidence(detail)
                .with_remedy("check the profile's tool names against this version of the agent"),
            ),
            network_code::MODEL_MISMATCH => settled(
                Rank::Mismatch,
                Status::ModelMismatch,
                Cause::new(
                    code,
                    Boundary::Model,
                    target,
                    "the agent asked for another model than the one ordered; nothing was forwarded",
                )
                .with_evidence(detail),
            ),
            // Without a main turn that failed or was cut it is another class that failed, and the turn may well go on.
            network_code::RETRY_STORM => (self.turn_failure.is_some()
                || self.last_turn.as_ref().is_some_and(|turn| turn.cut))
            .then_some(Terminal { rank: Rank::Typed, kind: TerminalKind::RetryStorm }),
            _ => None,
        }
    }

    pub(super) fn note(&mut self, source: Source, code: &str, note: &str) -> Option<Terminal> {
        match code {
            note_code::CANCEL_REQUESTED if source == Source::Stockade => {
                let cause = Cause::new("cancelled", Boundary::Order, "signal", note);
                return Some(settled(Rank::Cancelled, Status::Cancelled, cause));
            }
            note_code::STOPPED if source == Source::Stockade => self.stopped_by_us = true,
            note_code::STDOUT_NOISE => {
                self.noise_lines += 1;
                self.first_noise.get_or_insert_with(|| text::head(note, 400));
            }
            note_code::STDOUT_UNTERMINATED => self.unterminated = true,
            note_code::STDERR_TAIL => self.stderr_tail = last_lines(note),
            _ => {
                if source != Source::Agent {
                    Self::remember(&mut self.notes, note);
                }
            }
        }
        None
    }

    pub(super) fn turn_ended(&mut self, outcome: &TurnOutcome) -> Terminal {
        match outcome {
            TurnOutcome::Success { answer } => {
                // The first result is the answer; another one is an afterthought.
                if self.result_request.is_none() {
                    self.result_text.clone_from(answer);
                    self.result_request = Some(self.last_request);
                }
                Terminal { rank: Rank::Result, kind: TerminalKind::Result }
            }
            TurnOutcome::Refusal { text } => settled(
                Rank::Typed,
                Status::RefusedByModel,
                Cause::new("content-filter", Boundary::Model, "answer", "the model refused to answer")
                    .with_evidence(text.clone()),
            ),
            TurnOutcome::Cancelled { permission } => {
                let named = permission.as_ref().map(|tool| text::head(tool, NAME_LIMIT_BYTES));
                match named.or_else(|| self.open_permission.take()) {
                    Some(tool) => {
                        let cause = permission_cancelled(&tool);
                        self.permission_cancelled.get_or_insert(tool);
                        settled(Rank::Permission, Status::PermissionCancelled, cause)
                    }
                    None => Terminal { rank: Rank::Typed, kind: TerminalKind::AgentCancelled },
                }
            }
            TurnOutcome::MaxTurns => settled(
                Rank::LimitReached,
                Status::LimitReached,
                Cause::new("max-turns", Boundary::Limit, "turns", "the agent reached its limit of turns"),
            ),
            TurnOutcome::Truncated => settled(
                Rank::Typed,
                Status::IncompleteOutput,
                output_cause("max-tokens", "answer", "the answer was cut by the model's token limit"),
            ),
            TurnOutcome::Error { text, http_status } => Terminal {
                rank: Rank::Typed,
                kind: TerminalKind::AgentError { text: text::head(text, 2_000), http_status: *http_status },
            },
        }
    }
}

/// The last lines of a text that hold anything, in their order.
fn last_lines(text: &str) -> Vec<String> {
    let written = text.lines().rev().filter(|line| !line.trim().is_empty()).take(STDERR_LINES);
    let mut lines: Vec<String> = written.map(|line| text::head(line, NAME_LIMIT_BYTES)).collect();
    lines.reverse();
    lines
}

pub(super) fn settled(rank: Rank, status: Status, cause: Cause) -> Terminal {
    Terminal { rank, kind: TerminalKind::Settled(status, Box::new(cause)) }
}

/// The cause for a turn that ended at a permission prompt.
pub(super) fn permission_cancelled(tool: &str) -> Cause {
    Cause::new(
        "permission-cancelled",
        Boundary::ProviderPermission,
        format!("permission for {tool}"),
        format!("the agent cancelled its turn at a permission prompt for `{tool}` that nobody could answer"),
    )
    .with_evidence(format!("tool: {tool}"))
    .with_remedy("use Stockade's own profile of this provider: its permission strategy never prompts")
}

/// The cause for an answer that does not name its model, where that has to be proven.
pub(super) fn served_unproven(step: String) -> Cause {
    Cause::new(
        "served-model-unproven",
        Boundary::Model,
        step,
        "nothing on the wire says which model answered, and `--require-served-model` wants it proven",
    )
    .with_remedy("use an endpoint that names the model in its answers, or leave out `--require-served-model`")
}

pub(super) fn limit_reached(limit: &str, value: &str, measured: &str) -> Terminal {
    let (rank, status, what) = match limit {
        "wall" => (Rank::TimedOut, Status::TimedOut, "the deadline passed"),
        "idle" => (Rank::Stalled, Status::Stalled, "nothing moved for the whole idle limit"),
        "memory" => (Rank::OutOfMemory, Status::OutOfMemory, "the memory limit was passed"),
        "processes" => (Rank::LimitReached, Status::LimitReached, "there were more processes than allowed"),
        "growth" => (
            Rank::LimitReached,
            Status::LimitReached,
            "the folders that the agent can write grew by more than allowed",
        ),
        "output" => (Rank::LimitReached, Status::LimitReached, "the agent wrote more than is kept"),
        "turns" => (Rank::LimitReached, Status::LimitReached, "the agent asked for more turns than allowed"),
        "tokens" => (Rank::LimitReached, Status::LimitReached, "the tokens that the run may use are used up"),
        "cost" => (Rank::LimitReached, Status::LimitReached, "the money that the run may cost is spent"),
        _ => (Rank::LimitReached, Status::LimitReached, "a limit was reached"),
    };
    let flag = match limit {
        "wall" => "--timeout".to_owned(),
        "idle" => "--idle-timeout".to_owned(),
        _ => format!("--max-{limit}"),
    };
    let cause = Cause::new(format!("limit-{limit}"), Boundary::Limit, limit, format!("{what} ({value})"))
        .with_evidence(format!("measured: {measured}"))
        .with_remedy(format!("raise it with `{flag}` if the work needs it"));
    settled(rank, status, cause)
}
