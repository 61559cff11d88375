//! Runs written down as short scripts of events.

use crate::{
    changes::Changes,
    event::{
        EVENT_VERSION, Event, EventKind, NetworkVerdict, PermissionDecision, Source, StatedError, ToolStatus,
        TurnOutcome, Usage, failure_code,
    },
    judge::{AgentExit, Ending, Judge, note_code},
    order::PinKind,
    plan::{LaunchPlan, tests::sample_plan},
    status::Status,
};

/// A run under judgement.
pub(super) struct Run {
    judge: Judge,
    seq: u64,
    request: u64,
}

/// An answer on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) class: &'static str,
    pub(super) status: Option<u16>,
    pub(super) failure: Option<&'static str>,
    pub(super) finish_reason: Option<&'static str>,
    pub(super) served_model: Option<&'static str>,
    pub(super) cut: bool,
    pub(super) content_type: &'static str,
    pub(super) retry_after_s: Option<u64>,
    pub(super) error: Option<&'static str>,
    pub(super) error_type: Option<&'static str>,
    pub(super) error_code: Option<&'static str>,
    pub(super) resets_at_s: Option<u64>,
}

impl Answer {
    fn stated(&self) -> Option<Box<StatedError>> {
        let stated = StatedError {
            kind: self.error_type.map(str::to_owned),
            code: self.error_code.map(str::to_owned),
            resets_at_s: self.resets_at_s,
        };
        (stated != StatedError::default()).then(|| Box::new(stated))
    }
}

/// The answer of a model that did what was asked.
pub(super) const GOOD: Answer = Answer {
    class: "turn",
    status: Some(200),
    failure: None,
    finish_reason: Some("stop"),
    served_model: Some("m-1"),
    cut: false,
    content_type: "text/event-stream",
    retry_after_s: None,
    error: None,
    error_type: None,
    error_code: None,
    resets_at_s: None,
};

/// An HTTP error of the endpoint.
pub(super) const fn http(status: u16, error: &'static str) -> Answer {
    Answer {
        status: Some(status),
        finish_reason: None,
        served_model: None,
        content_type: "application/json",
        error: Some(error),
        ..GOOD
    }
}

/// No answer at all.
pub(super) const fn unanswered(failure: &'static str) -> Answer {
    Answer { status: None, failure: Some(failure), error: None, ..http(0, "") }
}

/// The endpoint refuses connections.
pub(super) const UNREACHABLE: Answer = unanswered(failure_code::UNREACHABLE);

/// A stream that ends before its end.
pub(super) const CUT: Answer = Answer { cut: true, finish_reason: None, ..GOOD };

#[expect(
    clippy::unnecessary_wraps,
    reason = "as `finish` takes it: `None` stands for an agent that never started"
)]
pub(super) fn code(code: i32) -> Option<AgentExit> {
    Some(AgentExit { code: Some(code), signal: None })
}

#[expect(clippy::unnecessary_wraps, reason = "as `finish` takes it")]
pub(super) fn signal(signal: i32) -> Option<AgentExit> {
    Some(AgentExit { code: None, signal: Some(signal) })
}

/// A run of a pinned agent, started.
pub(super) fn run() -> Run {
    run_of(&sample_plan())
}

/// A run that was ordered with an effort, started.
pub(super) fn run_with_effort(effort: &str) -> Run {
    let mut plan = sample_plan();
    plan.effort = Some(effort.to_owned());
    run_of(&plan)
}

/// A run of an executable that the caller named, started.
pub(super) fn run_unpinned() -> Run {
    let mut plan = sample_plan();
    plan.executable.pin = PinKind::Unpinned;
    run_of(&plan)
}

/// A run of a plan in which something was changed.
pub(super) fn run_with(change: impl FnOnce(&mut LaunchPlan)) -> Run {
    let mut plan = sample_plan();
    change(&mut plan);
    run_of(&plan)
}

fn run_of(plan: &LaunchPlan) -> Run {
    Run { judge: Judge::new(plan), seq: 0, request: 0 }
        .kernel(EventKind::AgentStarted { argv: vec!["/provider/sample".to_owned()] })
        .settle()
}

impl Run {
    fn see(mut self, source: Source, event: EventKind) -> Self {
        self.judge.observe(&Event {
            v: EVENT_VERSION,
            seq: self.seq,
            time: "2026-01-02T03:04:05.678Z".to_owned(),
            elapsed_ms: self.seq,
            source,
            event,
        });
        self.seq += 1;
        self
    }

    pub(super) fn settle(mut self) -> Self {
        self.judge.settle();
        self
    }

    pub(super) fn agent(self, event: EventKind) -> Self {
        self.see(Source::Agent, event)
    }

    pub(super) fn gateway(self, event: EventKind) -> Self {
        self.see(Source::Gateway, event)
    }

    pub(super) fn kernel(self, event: EventKind) -> Self {
        self.see(Source::Kernel, event)
    }

    /// The agent asks the model, without an answer yet.
    pub(super) fn asks(self, class: &str) -> Self {
        self.asks_with(class, None)
    }

    /// The same, with an effort.
    pub(super) fn asks_with(mut self, class: &str, effort: Option<&str>) -> Self {
        self.request += 1;
        let request = self.request;
        self.gateway(EventKind::ModelRequest {
            request,
            class: class.to_owned(),
            model: Some("m-1".to_owned()),
            tools: Vec::new(),
            bytes: 10,
            effort: effort.map(str::to_owned),
        })
    }

    /// The answer to a request; 0 is the last one.
    pub(super) fn answers(self, request: u64, answer: &Answer) -> Self {
        self.answers_with(request, answer, None)
    }

    /// The same, with the tokens that it states.
    pub(super) fn answers_with(self, request: u64, answer: &Answer, usage: Option<Usage>) -> Self {
        let request = if request == 0 { self.request } else { request };
        self.gateway(EventKind::ModelResponse {
            request,
            class: answer.class.to_owned(),
            status: answer.status,
            failure: answer.failure.map(str::to_owned),
            finish_reason: answer.finish_reason.map(str::to_owned),
            served_model: answer.served_model.map(str::to_owned),
            usage,
            cut: answer.cut,
            content_type: Some(answer.content_type.to_owned()),
            retry_after_s: answer.retry_after_s,
            error: answer.error.map(str::to_owned),
            stated: answer.stated(),
            elapsed_ms: 5,
        })
        .settle()
    }

    /// A request and its answer.
    pub(super) fn wire(self, answer: &Answer) -> Self {
        self.asks(answer.class).answers(0, answer)
    }

    pub(super) fn network(self, code: &str) -> Self {
        self.gateway(EventKind::NetworkDecision {
            target: "POST /v1/chat/completions".to_owned(),
            verdict: NetworkVerdict::Refused,
            code: code.to_owned(),
            detail: "details".to_owned(),
        })
    }

    pub(super) fn says(self, text: &str) -> Self {
        self.agent(EventKind::Message { text: text.to_owned(), cut_bytes: 0 })
    }

    pub(super) fn calls(self, id: &str, tool: &str) -> Self {
        self.agent(EventKind::ToolCall { id: id.to_owned(), tool: tool.to_owned(), input: "{}".to_owned() })
    }

    pub(super) fn updates(self, id: &str, status: ToolStatus) -> Self {
        self.agent(EventKind::ToolUpdate { id: id.to_owned(), status, output: format!("{status:?}") })
    }

    pub(super) fn decides(self, tool: &str, decision: PermissionDecision) -> Self {
        self.agent(EventKind::PermissionDecided { tool: tool.to_owned(), decision, by: "agent".to_owned() })
    }

    pub(super) fn ends(self, outcome: TurnOutcome) -> Self {
        self.agent(EventKind::TurnEnded { outcome })
    }

    pub(super) fn succeeds(self, answer: &str) -> Self {
        self.ends(TurnOutcome::Success { answer: Some(answer.to_owned()) })
    }

    pub(super) fn errs(self, text: &str, http_status: Option<u16>) -> Self {
        self.ends(TurnOutcome::Error { text: text.to_owned(), http_status })
    }

    pub(super) fn note(self, code: &str, text: &str) -> Self {
        self.see(Source::Stockade, EventKind::Note { code: code.to_owned(), text: text.to_owned() })
    }

    pub(super) fn cancel(self) -> Self {
        self.note(note_code::CANCEL_REQUESTED, "SIGINT")
    }

    pub(super) fn limit(self, limit: &str) -> Self {
        self.see(
            Source::Stockade,
            EventKind::LimitReached {
                limit: limit.to_owned(),
                value: "10 s".to_owned(),
                measured: "10.1 s".to_owned(),
            },
        )
    }

    pub(super) fn is_decided(&self) -> bool {
        self.judge.is_decided()
    }

    pub(super) fn has_result(&self) -> bool {
        self.judge.has_result()
    }

    pub(super) fn finish(self, exit: Option<AgentExit>) -> Ending {
        self.finish_with(exit, &Changes { complete: true, ..Changes::default() })
    }

    pub(super) fn finish_with(self, exit: Option<AgentExit>, changes: &Changes) -> Ending {
        self.judge.finish(exit, changes)
    }
}

/// Asserts status and cause code, and what holds for every ending.
#[track_caller]
pub(super) fn assert_ends(name: &str, ending: &Ending, status: Status, code: &str) {
    let seen = ending.cause.as_ref().map_or("", |c| c.code.as_str());
    assert_eq!((ending.status, seen), (status, code), "{name}: {ending:#?}");
    let complete = status == Status::Complete;
    assert_eq!(ending.cause.is_none(), complete, "{name}: a cause for everything but complete");
    assert_eq!(ending.phase.is_none(), complete, "{name}: a phase for everything but complete");
    if complete {
        assert!(ending.answer.is_some(), "{name}: complete without an answer");
    }
    if ending.partial {
        assert!(ending.answer.is_some(), "{name}: a part of nothing");
    }
}
