//! What is kept of the events: counters and bounded lists.

use std::collections::BTreeMap;

use super::{
    Denial, ModelEvidence, ModelIdentity, PermissionRecord, Rank, Terminal,
    recent::RecentIds,
    requests::{self, RequestRecord},
    terminal::{limit_reached, permission_cancelled, served_unproven, settled},
    wire::Failure,
};
use crate::{
    budget::{Budget, CallKind, Spent},
    event::{Event, EventKind, PermissionDecision, Source, ToolStatus, Usage, failure_code},
    order::{Expectation, ServedModelDemand},
    plan::LaunchPlan,
    status::{Boundary, Cause, Status},
    text,
};

/// Lists in receipts hold this many entries; counters go on.
pub(super) const LIST_LIMIT: usize = 100;
/// An answer longer than this is cut in memory; the transcript keeps it whole.
const ANSWER_LIMIT_BYTES: usize = 16 * 1024 * 1024;
/// Names, ids and notes longer than this are cut.
pub(super) const NAME_LIMIT_BYTES: usize = 400;

/// A name, an id or a word, cut where it is too long.
pub(super) fn clipped(text: &str) -> String {
    text::head(text, NAME_LIMIT_BYTES)
}

/// Everything kept between `observe` and `finish`.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    pub(super) main_class: String,
    /// Whether the executable is one that somebody vouches for.
    pub(super) is_pinned: bool,
    /// Where the agent reaches its model by itself, out of sight, and whether it did.
    pub(super) tunnel: Option<Tunnel>,
    pub(super) served_as: Vec<String>,
    /// The effort that was ordered.
    pub(super) effort: Option<String>,
    pub(super) identity: ModelIdentity,
    /// Text since the last tool call: the answer if the result does not repeat it.
    pub(super) text: String,
    pub(super) result_text: Option<String>,
    /// What was said before the last tool call: all there is of an answer where a limit ends the work.
    pub(super) said_before: String,
    /// Whether a part of the text was left out.
    pub(super) text_cut: bool,
    pub(super) valid_lines: u64,
    pub(super) noise_lines: u64,
    pub(super) first_noise: Option<String>,
    pub(super) unterminated: bool,
    /// The last lines of the agent's stderr.
    pub(super) stderr_tail: Vec<String>,
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
    pub(super) requests: Vec<RequestRecord>,
    budget: Budget,
    /// Whether the price of the model is known.
    pub(super) priced: bool,
    pub(super) spent: Spent,
    /// Whether an answer has to name its model.
    pub(super) served_model: ServedModelDemand,
    pub(super) expect: Expectation,
    /// Main turns in a row that failed or were cut.
    pub(super) failed_in_a_row: u64,
    pub(super) network_refusals: BTreeMap<String, u64>,
    /// The failure of the main turn, until a main turn is answered.
    pub(super) turn_failure: Option<Failure>,
    /// The failure of another class, until one of that class is answered.
    pub(super) side_failure: Option<Failure>,
    /// How the last answered main-turn request ended.
    pub(super) last_turn: Option<TurnResponse>,
    /// The first main turn that an unaccepted model answered.
    pub(super) wire_mismatch: Option<Cause>,
    /// The first unaccepted model in the agent's own words, and where.
    pub(super) reported_mismatch: Option<(String, String)>,
    /// The tool whose permission was cancelled first.
    pub(super) permission_cancelled: Option<String>,
    /// Open tool calls: id to name.
    tools: BTreeMap<String, String>,
    calls: RecentIds,
    denied: RecentIds,
    /// The permission that was asked for and not decided yet.
    pub(super) open_permission: Option<String>,
    pub(super) last_request: u64,
    /// The last request before the proper result: later ones say nothing about it.
    pub(super) result_request: Option<u64>,
}

/// The way to a model to which the agent speaks itself.
#[derive(Clone, Debug)]
pub(super) struct Tunnel {
    pub(super) to: String,
    /// Whether anything went through it.
    pub(super) used: bool,
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
            is_pinned: plan.executable.pin != crate::order::PinKind::Unpinned,
            tunnel: plan.wire.tunnel.as_ref().map(|to| Tunnel { to: to.to_string(), used: false }),
            main_class: plan.wire.classes.first().map(|c| c.name.clone()).unwrap_or_default(),
            served_as: plan.model.served_as.clone(),
            effort: plan.effort.clone(),
            identity: ModelIdentity {
                asked: plan.model.asked.clone(),
                source: plan.model.source.clone(),
                requested_seen: Vec::new(),
                efforts_seen: Vec::new(),
                served: Vec::new(),
                evidence: ModelEvidence::None,
                per_turn: BTreeMap::new(),
            },
            text: String::new(),
            result_text: None,
            said_before: String::new(),
            text_cut: false,
            valid_lines: 0,
            noise_lines: 0,
            first_noise: None,
            unterminated: false,
            stderr_tail: Vec::new(),
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
            requests: Vec::new(),
            budget: plan.budget(),
            priced: plan.model.price.is_some(),
            spent: Spent::default(),
            served_model: plan.model.served_model,
            expect: plan.expect,
            failed_in_a_row: 0,
            network_refusals: BTreeMap::new(),
            turn_failure: None,
            side_failure: None,
            last_turn: None,
            wire_mismatch: None,
            reported_mismatch: None,
            permission_cancelled: None,
            tools: BTreeMap::new(),
            calls: RecentIds::default(),
            denied: RecentIds::default(),
            open_permission: None,
            last_request: 0,
            result_request: None,
        }
    }

    pub(super) fn remember(list: &mut Vec<String>, value: &str) {
        let value = text::head(value, NAME_LIMIT_BYTES);
        if list.len() < LIST_LIMIT && !list.contains(&value) {
            list.push(value);
        }
    }

    /// Notes a terminal fact that came after the proper result.
    pub(super) fn after_result(&mut self, status: Status, cause: &Cause) {
        let note = format!("`{}` came after the proper result, which stands: {}", status.id(), cause.message);
        Self::remember(&mut self.notes, &note);
    }

    /// The failure on the wire that explains a run without a result: the main turn's, or another class's if no main
    /// turn was ever answered.
    pub(super) fn failure(&self) -> Option<&Failure> {
        self.turn_failure.as_ref().or(self.side_failure.as_ref().filter(|_| self.last_turn.is_none()))
    }

    /// Takes an event; gives the terminal fact in it, if it is one.
    pub(super) fn take(&mut self, event: &Event) -> Option<Terminal> {
        if event.source == Source::Agent && !matches!(event.event, EventKind::Note { .. }) {
            self.valid_lines += 1;
        }
        match &event.event {
            EventKind::AgentStarted { .. } => {
                if self.identity.evidence == ModelEvidence::None {
                    self.identity.evidence = ModelEvidence::PinnedArgv;
                }
                None
            }
            EventKind::TurnStarted { session, .. } => {
                if let Some(id) = session {
                    self.session = Some(text::head(id, NAME_LIMIT_BYTES));
                }
                None
            }
            EventKind::ModelRequest { request, class, model, effort, .. } => {
                self.model_requests += 1;
                requests::asked(&mut self.requests, &event.event);
                self.last_request = self.last_request.max(*request);
                if *class == self.main_class {
                    for (seen, list) in [
                        (model, &mut self.identity.requested_seen),
                        (effort, &mut self.identity.efforts_seen),
                    ] {
                        if let Some(seen) = seen {
                            Self::remember(list, seen);
                        }
                    }
                }
                None
            }
            EventKind::ModelResponse { .. } => self.response(&event.event),
            EventKind::Message { text, cut_bytes } => {
                self.message(text, *cut_bytes);
                None
            }
            EventKind::ToolCall { id, tool, .. } => {
                self.tool_call(id, tool);
                None
            }
            EventKind::ToolUpdate { id, status, output } => {
                self.tool_update(id, *status, output);
                None
            }
            EventKind::PermissionAsked { tool } => {
                self.open_permission = Some(text::head(tool, NAME_LIMIT_BYTES));
                None
            }
            EventKind::PermissionDecided { tool, decision, by } => {
                self.permission_decided(tool, *decision, by)
            }
            EventKind::ModelSeen { model, place } => {
                self.model_reported(model, place);
                None
            }
            EventKind::Usage { usage, cost_usd, models } => {
                if !usage.is_zero() {
                    self.usage = Some(usage.clone());
                }
                if cost_usd.is_some() {
                    self.cost_usd = *cost_usd;
                }
                for model in models.keys() {
                    self.model_reported(model, "usage");
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

    fn message(&mut self, text: &str, cut_bytes: u64) {
        // After a cut nothing is added, so that no answer has a hole in it.
        let fits = !self.text_cut && self.text.len() + text.len() <= ANSWER_LIMIT_BYTES;
        if fits {
            self.text.push_str(text);
        }
        self.text_cut |= !fits || cut_bytes > 0;
    }

    fn tool_call(&mut self, id: &str, tool: &str) {
        if !self.calls.is_new(id) {
            return;
        }
        self.tool_calls += 1;
        if !self.text.trim().is_empty() {
            self.said_before = std::mem::take(&mut self.text);
        }
        self.text.clear();
        self.text_cut = false;
        if self.tools.len() < LIST_LIMIT {
            self.tools.insert(text::head(id, NAME_LIMIT_BYTES), text::head(tool, NAME_LIMIT_BYTES));
        }
    }

    fn tool_update(&mut self, id: &str, status: ToolStatus, output: &str) {
        if status == ToolStatus::Running {
            return;
        }
        let announced = self.tools.remove(&text::head(id, NAME_LIMIT_BYTES));
        // A log may know a call by another id than the stream; what was refused is told just before.
        let refused = self.permissions.last().filter(|p| p.decision == PermissionDecision::Denied);
        let tool = announced.or_else(|| refused.map(|p| p.tool.clone()));
        if status == ToolStatus::Denied && self.denied.is_new(id) {
            self.denial_count += 1;
            if self.denials.len() < LIST_LIMIT {
                self.denials.push(Denial {
                    tool: tool.unwrap_or_else(|| "unknown".to_owned()),
                    evidence: text::head(output, NAME_LIMIT_BYTES),
                });
            }
        }
    }

    fn permission_decided(&mut self, tool: &str, decision: PermissionDecision, by: &str) -> Option<Terminal> {
        self.open_permission = None;
        let tool = text::head(tool, NAME_LIMIT_BYTES);
        let record = PermissionRecord { tool: tool.clone(), decision, by: text::head(by, NAME_LIMIT_BYTES) };
        // The stream and the session log may both tell the same decision.
        if self.permissions.len() < LIST_LIMIT && self.permissions.last() != Some(&record) {
            self.permissions.push(record);
        }
        (decision == PermissionDecision::Cancelled).then(|| {
            let cause = permission_cancelled(&tool);
            self.permission_cancelled.get_or_insert(tool);
            settled(Rank::Permission, Status::PermissionCancelled, cause)
        })
    }

    /// The agent's own words about the model: they count where the wire is silent.
    fn model_reported(&mut self, model: &str, place: &str) {
        if self.reported_mismatch.is_none() && !self.served_as.iter().any(|s| s == model) {
            self.reported_mismatch =
                Some((text::head(model, NAME_LIMIT_BYTES), text::head(place, NAME_LIMIT_BYTES)));
        }
        if self.identity.evidence != ModelEvidence::Wire {
            self.identity.evidence = ModelEvidence::AgentReport;
            Self::remember(&mut self.identity.served, model);
        }
    }

    fn response(&mut self, kind: &EventKind) -> Option<Terminal> {
        let EventKind::ModelResponse {
            request,
            class,
            status,
            failure,
            finish_reason,
            served_model,
            usage,
            cut,
            ..
        } = kind
        else {
            return None;
        };
        requests::answered(&mut self.requests, kind);
        if status.is_some_and(|status| (200..300).contains(&status)) {
            let kind = if *class == self.main_class { CallKind::Turn } else { CallKind::Side };
            self.spent.begin(kind);
            self.spent.answered(&self.budget, *request, usage.as_ref());
        }
        if let Some(u) = usage {
            self.wire_usage.get_or_insert_with(Usage::default).add(u);
        }
        if failure.as_deref() == Some(failure_code::ABANDONED) {
            return None;
        }
        let failure = Failure::of(kind);
        if *class != self.main_class {
            if failure.is_some() || self.side_failure.as_ref().is_some_and(|f| f.class == *class) {
                self.side_failure = failure;
            }
            return None;
        }
        // What the agent asks after its result (and what its end cuts off) says nothing about the result.
        if self.result_request.is_none_or(|last| *request <= last) {
            self.failed_in_a_row = if failure.is_some() || *cut { self.failed_in_a_row + 1 } else { 0 };
            self.turn_failure = failure;
            if *status == Some(200) {
                self.last_turn = Some(TurnResponse {
                    cut: *cut,
                    finish_reason: finish_reason.as_deref().map(|r| text::head(r, NAME_LIMIT_BYTES)),
                    request: *request,
                });
            }
        }
        if *status != Some(200) {
            return None;
        }
        let Some(served) = served_model else {
            let unproven = self.served_model == ServedModelDemand::Required && finish_reason.is_some();
            return unproven.then(|| {
                let cause = served_unproven(format!("response {request}"));
                settled(Rank::Mismatch, Status::ModelMismatch, cause)
            });
        };
        if self.identity.evidence != ModelEvidence::Wire {
            self.identity.evidence = ModelEvidence::Wire;
            self.identity.served.clear();
        }
        Self::remember(&mut self.identity.served, served);
        let name = text::head(served, NAME_LIMIT_BYTES);
        if self.identity.per_turn.len() < LIST_LIMIT || self.identity.per_turn.contains_key(&name) {
            *self.identity.per_turn.entry(name.clone()).or_default() += 1;
        }
        if self.served_as.contains(served) {
            return None;
        }
        let cause = self.served_mismatch(format!("response {request}"), &name);
        self.wire_mismatch.get_or_insert_with(|| cause.clone());
        Some(settled(Rank::Mismatch, Status::ModelMismatch, cause))
    }

    /// The cause for an answer by a model that was not asked for.
    pub(super) fn served_mismatch(&self, step: String, served: &str) -> Cause {
        Cause::new(
            "served-model-mismatch",
            Boundary::Model,
            step,
            format!("`{}` was asked and `{served}` answered", self.identity.asked),
        )
        .with_evidence(format!("accepted names: {}", self.served_as.join(", ")))
        .with_remedy("ask for the model that the endpoint serves, or use another endpoint")
    }
}
