//! What is kept of the events: counters and bounded lists.

use std::collections::BTreeMap;

use super::{
    Denial, ModelEvidence, ModelIdentity, PermissionRecord, Rank, Terminal, TerminalKind, note_code,
    output_cause, wire::LastFailure,
};
use crate::{
    event::{
        Event, EventKind, NetworkVerdict, PermissionDecision, Source, ToolStatus, TurnOutcome, Usage,
        network_code,
    },
    plan::LaunchPlan,
    status::{Boundary, Cause, Status},
    text,
};

/// Lists in receipts hold this many entries; counters go on.
const LIST_LIMIT: usize = 100;
/// An answer longer than this is cut in memory; the transcript keeps it whole.
const ANSWER_LIMIT_BYTES: usize = 16 * 1024 * 1024;

/// Everything kept between `observe` and `finish`.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    pub(super) main_class: String,
    pub(super) served_as: Vec<String>,
    pub(super) identity: ModelIdentity,
    /// Text since the last tool call: the answer if the result does not repeat it.
    pub(super) text: String,
    pub(super) result_text: Option<String>,
    pub(super) valid_lines: u64,
    pub(super) noise_lines: u64,
    pub(super) first_noise: Option<String>,
    pub(super) unterminated: bool,
    pub(super) stopped_by_us: bool,
    pub(super) notes: Vec<String>,
    pub(super) session: Option<String>,
    pub(super) usage: Option<Usage>,
    pub(super) wire_usage: Option<Usage>,
    pub(super) cost_usd: Option<f64>,
    pub(super) permissions: Vec<PermissionRecord>,
    pub(super) denials: Vec<Denial>,
    pub(super) denial_count: u64,
    pub(super) tool_calls: u64,
    pub(super) model_requests: u64,
    pub(super) network_refusals: BTreeMap<String, u64>,
    pub(super) failure: Option<LastFailure>,
    /// How the last answered main-turn request ended.
    pub(super) last_turn: Option<TurnResponse>,
    pub(super) agent_words: Option<String>,
    tools: BTreeMap<String, String>,
    last_permission: Option<String>,
}

/// The end of a main-turn response.
#[derive(Clone, Debug)]
pub(super) struct TurnResponse {
    pub(super) cut: bool,
    pub(super) finish_reason: Option<String>,
    pub(super) request: u64,
}

impl Fold {
    pub(super) fn new(plan: &LaunchPlan) -> Self {
        Self {
            main_class: plan.wire.classes.first().map(|c| c.name.clone()).unwrap_or_default(),
            served_as: plan.model.served_as.clone(),
            identity: ModelIdentity {
                asked: plan.model.asked.clone(),
                source: plan.model.source.clone(),
                requested_seen: Vec::new(),
                served: Vec::new(),
                evidence: ModelEvidence::None,
                per_turn: BTreeMap::new(),
            },
            text: String::new(),
            result_text: None,
            valid_lines: 0,
            noise_lines: 0,
            first_noise: None,
            unterminated: false,
            stopped_by_us: false,
            notes: Vec::new(),
            session: None,
            usage: None,
            wire_usage: None,
            cost_usd: None,
            permissions: Vec::new(),
            denials: Vec::new(),
            denial_count: 0,
            tool_calls: 0,
            model_requests: 0,
            network_refusals: BTreeMap::new(),
            failure: None,
            last_turn: None,
            agent_words: None,
            tools: BTreeMap::new(),
            last_permission: None,
        }
    }

    fn remember(list: &mut Vec<String>, value: &str) {
        if list.len() < LIST_LIMIT && !list.iter().any(|v| v == value) {
            list.push(value.to_owned());
        }
    }

    /// Takes an event; gives the terminal fact in it, if it is one.
    pub(super) fn take(&mut self, event: &Event) -> Option<Terminal> {
        if event.source == Source::Agent && !matches!(event.event, EventKind::Note { .. }) {
            self.valid_lines += 1;
        }
        match &event.event {
            EventKind::AgentStarted { .. } => {
                self.identity.evidence = ModelEvidence::PinnedArgv;
                None
            }
            EventKind::TurnStarted { session, .. } => {
                if session.is_some() {
                    self.session.clone_from(session);
                }
                None
            }
            EventKind::ModelRequest { class, model, .. } => {
                self.model_requests += 1;
                if let Some(m) = model.as_ref().filter(|_| *class == self.main_class) {
                    Self::remember(&mut self.identity.requested_seen, m);
                }
                None
            }
            EventKind::ModelResponse { .. } => self.response(&event.event),
            EventKind::Message { text, .. } => {
                if self.text.len() + text.len() <= ANSWER_LIMIT_BYTES {
                    self.text.push_str(text);
                }
                None
            }
            EventKind::ToolCall { id, tool, .. } => {
                self.tool_calls += 1;
                self.text.clear();
                if self.tools.len() < LIST_LIMIT {
                    self.tools.insert(id.clone(), tool.clone());
                }
                None
            }
            EventKind::ToolUpdate { id, status, output } => {
                let tool = self.tools.remove(id);
                if *status == ToolStatus::Denied {
                    self.denial_count += 1;
                    if self.denials.len() < LIST_LIMIT {
                        self.denials.push(Denial {
                            tool: tool.unwrap_or_else(|| "unknown".to_owned()),
                            evidence: text::head(output, 400),
                        });
                    }
                }
                None
            }
            EventKind::PermissionAsked { tool } => {
                self.last_permission = Some(tool.clone());
                None
            }
            EventKind::PermissionDecided { tool, decision, by } => {
                let record = PermissionRecord { tool: tool.clone(), decision: *decision, by: by.clone() };
                // The stream and the session log may both tell the same decision.
                if self.permissions.len() < LIST_LIMIT && self.permissions.last() != Some(&record) {
                    self.permissions.push(record);
                }
                (*decision == PermissionDecision::Cancelled).then(|| permission_cancelled(tool))
            }
            EventKind::ModelSeen { model, .. } => {
                if self.identity.evidence != ModelEvidence::Wire {
                    self.identity.evidence = ModelEvidence::AgentReport;
                    Self::remember(&mut self.identity.served, model);
                }
                None
            }
            EventKind::Usage { usage, cost_usd, .. } => {
                if !usage.is_zero() {
                    self.usage = Some(usage.clone());
                }
                if cost_usd.is_some() {
                    self.cost_usd = *cost_usd;
                }
                None
            }
            EventKind::NetworkDecision { target, verdict, code, detail } => {
                self.network(target, *verdict, code, detail)
            }
            EventKind::LimitReached { limit, value, measured } => Some(limit_reached(limit, value, measured)),
            EventKind::Note { code, text } => self.note(event.source, code, text),
            EventKind::TurnEnded { outcome } => Some(self.turn_ended(outcome)),
            EventKind::RunStarted { .. }
            | EventKind::PlanMade { .. }
            | EventKind::FenceProven { .. }
            | EventKind::GenerationStarted { .. }
            | EventKind::PromptQueued { .. }
            | EventKind::Thought { .. }
            | EventKind::QuestionAsked { .. }
            | EventKind::QuestionAnswered { .. }
            | EventKind::SessionResumed { .. }
            | EventKind::AgentExited { .. }
            | EventKind::TreeEnded { .. } => None,
        }
    }

    fn response(&mut self, kind: &EventKind) -> Option<Terminal> {
        let EventKind::ModelResponse {
            request, class, status, finish_reason, served_model, usage, cut, ..
        } = kind
        else {
            return None;
        };
        self.failure = LastFailure::of(kind).or(self.failure.take().filter(|_| *class != self.main_class));
        if let Some(u) = usage {
            self.wire_usage.get_or_insert_with(Usage::default).add(u);
        }
        if *class != self.main_class || *status != Some(200) {
            return None;
        }
        self.last_turn =
            Some(TurnResponse { cut: *cut, finish_reason: finish_reason.clone(), request: *request });
        let served = served_model.as_ref()?;
        if self.identity.evidence != ModelEvidence::Wire {
            self.identity.evidence = ModelEvidence::Wire;
            self.identity.served.clear();
        }
        Self::remember(&mut self.identity.served, served);
        if self.identity.per_turn.len() < LIST_LIMIT || self.identity.per_turn.contains_key(served) {
            *self.identity.per_turn.entry(served.clone()).or_default() += 1;
        }
        (!self.served_as.contains(served)).then(|| Terminal {
            rank: Rank::Mismatch,
            kind: TerminalKind::Settled(
                Status::ModelMismatch,
                Box::new(
                    Cause::new(
                        "served-model-mismatch",
                        Boundary::Model,
                        format!("response {request}"),
                        format!("`{}` was asked and `{served}` answered", self.identity.asked),
                    )
                    .with_evidence(format!("accepted names: {}", self.served_as.join(", ")))
                    .with_remedy("ask for the model that the endpoint serves, or use another endpoint"),
                ),
            ),
        })
    }

    fn network(
        &mut self,
        target: &str,
        verdict: NetworkVerdict,
        code: &str,
        detail: &str,
    ) -> Option<Terminal> {
        if verdict != NetworkVerdict::Allowed {
            *self.network_refusals.entry(code.to_owned()).or_default() += 1;
        }
        let settled = |rank, status, cause| {
            Some(Terminal { rank, kind: TerminalKind::Settled(status, Box::new(cause)) })
        };
        match code {
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
            network_code::RETRY_STORM => Some(Terminal { rank: Rank::Typed, kind: TerminalKind::RetryStorm }),
            _ => None,
        }
    }

    fn note(&mut self, source: Source, code: &str, note: &str) -> Option<Terminal> {
        match code {
            note_code::CANCEL_REQUESTED if source == Source::Stockade => {
                return Some(Terminal {
                    rank: Rank::Cancelled,
                    kind: TerminalKind::Settled(
                        Status::Cancelled,
                        Box::new(Cause::new("cancelled", Boundary::Order, "signal", note)),
                    ),
                });
            }
            note_code::STOPPED if source == Source::Stockade => self.stopped_by_us = true,
            note_code::STDOUT_NOISE => {
                self.noise_lines += 1;
                self.first_noise.get_or_insert_with(|| text::head(note, 400));
            }
            note_code::STDOUT_UNTERMINATED => self.unterminated = true,
            _ => {
                if source != Source::Agent {
                    Self::remember(&mut self.notes, note);
                }
            }
        }
        None
    }

    fn turn_ended(&mut self, outcome: &TurnOutcome) -> Terminal {
        let settled =
            |rank, status, cause| Terminal { rank, kind: TerminalKind::Settled(status, Box::new(cause)) };
        match outcome {
            TurnOutcome::Success { answer } => {
                self.result_text.clone_from(answer);
                Terminal { rank: Rank::Result, kind: TerminalKind::Result }
            }
            TurnOutcome::Refusal { text } => settled(
                Rank::Typed,
                Status::RefusedByModel,
                Cause::new("content-filter", Boundary::Model, "answer", "the model refused to answer")
                    .with_evidence(text.clone()),
            ),
            TurnOutcome::Cancelled { permission } => {
                match permission.clone().or_else(|| self.last_permission.clone()) {
                    Some(tool) => permission_cancelled(&tool),
                    None => settled(
                        Rank::Typed,
                        Status::ProviderError,
                        Cause::new(
                            "agent-cancelled",
                            Boundary::Output,
                            "turn",
                            "the agent cancelled its turn",
                        ),
                    ),
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
            TurnOutcome::Error { text, http_status } => {
                self.agent_words = Some(text::head(text, 2_000));
                Terminal {
                    rank: Rank::Typed,
                    kind: TerminalKind::AgentError { text: text.clone(), http_status: *http_status },
                }
            }
        }
    }
}

fn permission_cancelled(tool: &str) -> Terminal {
    Terminal {
        rank: Rank::Permission,
        kind: TerminalKind::Settled(
            Status::PermissionCancelled,
            Box::new(
                Cause::new(
                    "permission-cancelled",
                    Boundary::ProviderPermission,
                    format!("permission for {tool}"),
                    format!("the agent cancelled its turn at a permission prompt for `{tool}` that nobody could answer"),
                )
                .with_evidence(format!("tool: {tool}"))
                .with_remedy("use Stockade's own profile of this provider: its permission strategy never prompts"),
            ),
        ),
    }
}

fn limit_reached(limit: &str, value: &str, measured: &str) -> Terminal {
    let (rank, status, what) = match limit {
        "wall" => (Rank::TimedOut, Status::TimedOut, "the deadline passed"),
        "idle" => (Rank::Stalled, Status::Stalled, "nothing moved for the whole idle limit"),
        "memory" => (Rank::OutOfMemory, Status::OutOfMemory, "the memory limit was passed"),
        _ => (Rank::LimitReached, Status::LimitReached, "a limit was reached"),
    };
    Terminal {
        rank,
        kind: TerminalKind::Settled(
            status,
            Box::new(
                Cause::new(format!("limit-{limit}"), Boundary::Limit, limit, format!("{what} ({value})"))
                    .with_evidence(format!("measured: {measured}"))
                    .with_remedy(format!("raise the limit `{limit}` if the work needs it")),
            ),
        ),
    }
}
