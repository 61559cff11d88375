//! From the fold to the ending.

use super::{
    AgentExit, CostSource, Ending, ModelEvidence, STDERR_EVIDENCE, Terminal, TerminalKind,
    fold::{Fold, Tunnel},
    output_cause,
    terminal::{permission_cancelled, served_unproven},
    wire::{self, Failure, stated_in_words},
};
use crate::{
    changes::Changes,
    order::{Expectation, ServedModelDemand},
    status::{Boundary, Cause, FailurePhase, Status},
};

/// What was decided: a status with its cause, or a proper result.
enum Verdict {
    Complete,
    Failed(Status, Box<Cause>, FailurePhase),
}

pub(super) fn ending(
    fold: Fold,
    settled: Option<Terminal>,
    exit: Option<AgentExit>,
    changes: &Changes,
) -> Ending {
    let answer = answer(&fold);
    let text = answer.text;
    let verdict = match settled.map(|t| t.kind) {
        Some(TerminalKind::Result) => result_checks(&fold, text, changes),
        Some(TerminalKind::Settled(status, cause)) => {
            Verdict::Failed(status, cause, FailurePhase::Invocation)
        }
        Some(TerminalKind::AgentError { text, http_status }) => agent_error(&fold, &text, http_status),
        Some(TerminalKind::AgentCancelled) => agent_cancelled(&fold),
        Some(TerminalKind::RetryStorm) => retry_storm(&fold),
        None => without_result(&fold, exit, text),
    };
    let mut notes = fold.notes.clone();
    let complete = matches!(verdict, Verdict::Complete);
    match exit.filter(|_| complete && !fold.stopped_by_us) {
        Some(AgentExit { signal: Some(signal), .. }) => {
            notes.push(format!(
                "the agent was killed by signal {signal} after a proper result; the answer is kept"
            ));
        }
        Some(AgentExit { code: Some(code), .. }) if code != 0 => {
            notes.push(format!("the agent exited with {code} after a proper result; the answer is kept"));
        }
        _ => {}
    }
    if complete && fold.model_requests == 0 {
        notes.push(
            "no model request was seen on the wire: the answer rests on the agent's words alone".to_owned(),
        );
    }
    if complete && let Some(line) = &fold.first_noise {
        notes.push(format!("{} line(s) on stdout are not of the agent's format: {line}", fold.noise_lines));
    }
    if let Some(note) = effort_note(&fold) {
        notes.push(note);
    }
    if answer.cut {
        notes.push("the answer was too long to be kept whole here; the transcript has all of it".to_owned());
    }
    if !changes.complete {
        notes.push("the workspace was too large to be walked whole; changes are incomplete".to_owned());
    }
    let text = match &verdict {
        Verdict::Failed(Status::LimitReached, ..) => {
            text.or(Some(fold.said_before.as_str()).filter(|said| !said.is_empty()))
        }
        _ => text,
    };
    let (status, cause, phase) = match verdict {
        Verdict::Complete => (Status::Complete, None, None),
        Verdict::Failed(status, cause, phase) => (status, Some(*cause), Some(phase)),
    };
    let priced = fold.spent.cost.dollars();
    let (cost_usd, cost_source) = match (fold.cost_usd, fold.priced && fold.spent.unstated.is_none()) {
        (Some(cost), _) => (Some(cost), Some(CostSource::Agent)),
        (None, true) => (Some(priced), Some(CostSource::Prices)),
        (None, false) => (None, None),
    };
    Ending {
        status,
        cause,
        phase,
        partial: text.is_some() && (status != Status::Complete || answer.cut),
        answer: text.map(str::to_owned),
        notes,
        session: fold.session,
        usage: fold.usage.or(fold.wire_usage),
        cost_usd,
        cost_source,
        model: fold.identity,
        permissions: fold.permissions,
        denials: fold.denials,
        denial_count: fold.denial_count,
        tool_calls: fold.tool_calls,
        model_requests: fold.model_requests,
        requests: fold.requests,
        spent: fold.spent,
        network_refusals: fold.network_refusals,
    }
}

/// The answer as far as it was kept.
#[derive(Clone, Copy)]
struct Answer<'f> {
    text: Option<&'f str>,
    cut: bool,
}

/// What the agent repeats in its result, or what it wrote since its last tool call.
fn answer(fold: &Fold) -> Answer<'_> {
    let written = |text: &str| !text.trim().is_empty();
    match fold.result_text.as_deref().filter(|t| written(t)) {
        Some(text) => Answer { text: Some(text), cut: false },
        None => Answer { text: Some(fold.text.as_str()).filter(|t| written(t)), cut: fold.text_cut },
    }
}

fn failed(status: Status, cause: Cause) -> Verdict {
    Verdict::Failed(status, Box::new(cause), FailurePhase::Invocation)
}

fn wire_verdict(failure: &Failure) -> Verdict {
    let (status, cause) = failure.verdict();
    failed(status, cause)
}

/// A proper terminal event is a success only if the wire agrees and there is an answer.
fn result_checks(fold: &Fold, answer: Option<&str>, changes: &Changes) -> Verdict {
    let postprocess =
        |status, cause: Cause| Verdict::Failed(status, Box::new(cause), FailurePhase::Postprocess);
    if let Some(cause) = &fold.wire_mismatch {
        return postprocess(Status::ModelMismatch, cause.clone());
    }
    if let Some(tool) = &fold.permission_cancelled {
        return postprocess(Status::PermissionCancelled, permission_cancelled(tool));
    }
    if let Some(f) = &fold.turn_failure {
        return wire_verdict(f);
    }
    if let Some(cause) = stream_cut(fold) {
        return postprocess(Status::IncompleteOutput, cause);
    }
    if let Some((status, cause)) = unfinished(fold) {
        return postprocess(status, cause);
    }
    if fold.served_model == ServedModelDemand::Required && fold.identity.evidence != ModelEvidence::Wire {
        return postprocess(Status::ModelMismatch, served_unproven("wire".to_owned()));
    }
    if let Some((model, place)) = &fold.reported_mismatch
        && fold.identity.evidence != ModelEvidence::Wire
    {
        return postprocess(
            Status::ModelMismatch,
            fold.served_mismatch(format!("agent's report ({place})"), model),
        );
    }
    // A real agent cannot have an answer that nobody was asked for. What a caller's own executable does is its affair.
    if fold.is_pinned
        && fold.failure().is_none()
        && let Some(cause) = nobody_asked(fold)
    {
        return postprocess(Status::NoResult, cause);
    }
    if fold.expect == Expectation::Changes {
        return expected_changes(changes)
            .map_or(Verdict::Complete, |cause| postprocess(Status::NoResult, cause));
    }
    if answer.is_none() {
        return match fold.failure() {
            Some(f) => wire_verdict(f),
            None => postprocess(
                Status::NoResult,
                output_cause("empty-answer", "answer", "the agent reported success without an answer"),
            ),
        };
    }
    Verdict::Complete
}

/// Why no model can have been asked; `None`: one was, or may have been where nothing but a tunnel is seen.
fn nobody_asked(fold: &Fold) -> Option<Cause> {
    let message = match &fold.tunnel {
        None if fold.identity.requested_seen.is_empty() => {
            "the agent reported success, but no request for a turn was seen on the wire".to_owned()
        }
        Some(Tunnel { to, used: false }) => {
            format!("the agent reported success, but nothing went through a tunnel to `{to}`")
        }
        None | Some(_) => return None,
    };
    Some(output_cause("no-model-request", "wire", message))
}

/// What the finish reason of the last main turn says, where it is none of an answer that is whole.
fn unfinished(fold: &Fold) -> Option<(Status, Cause)> {
    let turn = fold.last_turn.as_ref()?;
    let step = format!("response {}", turn.request);
    match turn.finish_reason.as_deref()? {
        "length" | "max_tokens" | "max_output_tokens" => Some((
            Status::IncompleteOutput,
            output_cause("max-tokens", &step, "the answer was cut by the model's token limit"),
        )),
        "model_context_window_exceeded" => Some((
            Status::IncompleteOutput,
            output_cause(wire::CONTEXT_OVERFLOW, &step, "the answer was cut where the model's context ended"),
        )),
        "content_filter" | "refusal" => Some((
            Status::RefusedByModel,
            Cause::new("content-filter", Boundary::Model, step, "the model refused to answer"),
        )),
        _ => None,
    }
}

/// Why expected changes are not there; `None`: they are.
fn expected_changes(changes: &Changes) -> Option<Cause> {
    if !changes.commits.is_empty() || !changes.files.is_empty() {
        return None;
    }
    let (code, message) = if changes.complete {
        ("no-changes", "changes were expected, and nothing changed in the workspace")
    } else {
        ("changes-unknown", "changes were expected, and the workspace could not be walked whole to find any")
    };
    Some(Cause::new(code, Boundary::Workspace, "changes", message))
}

/// An effort that did not go out as it was ordered.
fn effort_note(fold: &Fold) -> Option<String> {
    let ordered = fold.effort.as_ref()?;
    let seen = &fold.identity.efforts_seen;
    match seen.iter().find(|sent| *sent != ordered) {
        Some(sent) => Some(format!("the effort `{ordered}` was ordered and `{sent}` was sent on the wire")),
        None if seen.is_empty() && !fold.identity.requested_seen.is_empty() => {
            Some(format!("the effort `{ordered}` was ordered and none was sent on the wire"))
        }
        None => None,
    }
}

/// The cause for a last main turn whose answer was cut off on the wire.
fn stream_cut(fold: &Fold) -> Option<Cause> {
    let turn = fold.last_turn.as_ref().filter(|t| t.cut)?;
    Some(
        output_cause(
            "stream-cut",
            &format!("response {}", turn.request),
            "the model's answer was cut off on the wire, whatever the agent says",
        )
        .with_remedy("run it again; if it happens often, look at the endpoint and proxies between"),
    )
}

/// The agent cancelled its turn; its log may have told the reason later than its stream told the end.
fn agent_cancelled(fold: &Fold) -> Verdict {
    match &fold.permission_cancelled {
        Some(tool) => failed(Status::PermissionCancelled, permission_cancelled(tool)),
        None => failed(
            Status::ProviderError,
            Cause::new("agent-cancelled", Boundary::Output, "turn", "the agent cancelled its turn"),
        ),
    }
}

/// The agent stated an error: the wire says what it was, where it saw one.
fn agent_error(fold: &Fold, text: &str, http_status: Option<u16>) -> Verdict {
    if let Some(f) = fold.failure() {
        let (status, cause) = f.verdict();
        return failed(status, cause.with_evidence(text));
    }
    if let Some(cause) = stream_cut(fold) {
        return failed(Status::IncompleteOutput, cause.with_evidence(text));
    }
    if let Some((status, cause)) = unfinished(fold) {
        return failed(status, cause.with_evidence(text));
    }
    match http_status {
        Some(http) if http >= 400 => wire_verdict(&Failure::stated_by_agent(http, text)),
        _ if fold.last_turn.is_none()
            && let Some((status, cause)) = stated_in_words(text) =>
        {
            failed(status, cause)
        }
        _ => failed(
            Status::ProviderError,
            Cause::new("unclassified", Boundary::Model, "agent", "the agent stated an error")
                .with_evidence(text),
        ),
    }
}

/// The gateway ended a retry storm: what failed on the wire is the reason.
fn retry_storm(fold: &Fold) -> Verdict {
    match (fold.failure(), stream_cut(fold)) {
        (Some(f), _) => {
            let (status, cause) = f.verdict();
            failed(status, cause.with_evidence(tries(fold)))
        }
        (None, Some(cause)) => failed(Status::IncompleteOutput, cause.with_evidence(tries(fold))),
        (None, None) => failed(
            Status::ProviderError,
            Cause::new(
                "retry-storm",
                Boundary::Model,
                "retries",
                "the agent went on retrying a failing request",
            ),
        ),
    }
}

fn tries(fold: &Fold) -> String {
    format!("{} main turn(s) in a row failed; Stockade ended the retries", fold.failed_in_a_row)
}

/// The agent ended without a terminal event.
fn without_result(fold: &Fold, exit: Option<AgentExit>, answer: Option<&str>) -> Verdict {
    if let Some(AgentExit { signal: Some(signal), .. }) = exit
        && !fold.stopped_by_us
    {
        return failed(
            Status::Killed,
            with_stderr(
                fold,
                Cause::new(
                    "killed",
                    Boundary::Host,
                    format!("signal {signal}"),
                    format!("the agent was killed by signal {signal}, which Stockade did not send"),
                ),
            ),
        );
    }
    if let Some(f) = fold.failure() {
        return wire_verdict(f);
    }
    if let Some((status, cause)) = unfinished(fold) {
        return failed(status, cause);
    }
    let noise = |cause: Cause| {
        let cause = match &fold.first_noise {
            Some(line) => cause.with_evidence(format!("stdout: {line}")),
            None => cause,
        };
        with_stderr(fold, cause)
    };
    match exit.and_then(|e| e.code) {
        Some(0) | None => {}
        Some(code) => {
            return failed(
                Status::ChildFailed,
                noise(Cause::new(
                    "exit-code",
                    Boundary::Output,
                    "exit",
                    format!("the agent exited with {code}"),
                )),
            );
        }
    }
    if let Some(cause) = stream_cut(fold) {
        return failed(Status::IncompleteOutput, cause);
    }
    if fold.unterminated {
        return failed(
            Status::IncompleteOutput,
            noise(output_cause("output-cut", "stdout", "the agent's output stops in the middle of a line")),
        );
    }
    if fold.valid_lines == 0 && fold.noise_lines > 0 {
        return failed(
            Status::MalformedOutput,
            noise(output_cause("no-dialect", "stdout", "nothing on stdout is of the agent's own format")),
        );
    }
    if answer.is_some() {
        return failed(
            Status::IncompleteOutput,
            output_cause("no-terminal-event", "stdout", "the agent's output ends without a result"),
        );
    }
    failed(
        Status::NoResult,
        with_stderr(
            fold,
            output_cause("nothing-done", "stdout", "the agent exited without an answer and without an error"),
        ),
    )
}

/// The agent's own last words beside a failure that nothing else explains.
fn with_stderr(fold: &Fold, cause: Cause) -> Cause {
    fold.stderr_tail.iter().fold(cause, |cause, line| cause.with_evidence(format!("{STDERR_EVIDENCE}{line}")))
}
