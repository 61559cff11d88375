//! From the fold to the ending.

use super::{AgentExit, Ending, Terminal, TerminalKind, fold::Fold, output_cause};
use crate::{
    changes::Changes,
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
    let verdict = match settled.map(|t| t.kind) {
        Some(TerminalKind::Result) => result_checks(&fold, answer.as_deref()),
        Some(TerminalKind::Settled(status, cause)) => {
            Verdict::Failed(status, cause, FailurePhase::Invocation)
        }
        Some(TerminalKind::AgentError { text, http_status }) => agent_error(&fold, &text, http_status),
        Some(TerminalKind::RetryStorm) => match &fold.failure {
            Some(f) => wire_verdict(f),
            None => failed(
                Status::ProviderError,
                Cause::new(
                    "retry-storm",
                    Boundary::Model,
                    "retries",
                    "the agent went on retrying a failing request",
                ),
            ),
        },
        None => without_result(&fold, exit, answer.as_deref()),
    };
    let mut notes = fold.notes.clone();
    if let (Verdict::Complete, Some(AgentExit { code: Some(code), .. })) = (&verdict, exit)
        && code != 0
        && !fold.stopped_by_us
    {
        notes.push(format!("the agent exited with {code} after a proper result; the answer is kept"));
    }
    if matches!(verdict, Verdict::Complete) && fold.model_requests == 0 {
        notes.push(
            "no model request was seen on the wire: the answer rests on the agent's words alone".to_owned(),
        );
    }
    if !changes.complete {
        notes.push("the workspace was too large to be walked whole; changes are incomplete".to_owned());
    }
    let (status, cause, phase) = match verdict {
        Verdict::Complete => (Status::Complete, None, None),
        Verdict::Failed(status, cause, phase) => (status, Some(*cause), Some(phase)),
    };
    Ending {
        status,
        cause,
        phase,
        partial: answer.is_some() && status != Status::Complete,
        answer,
        notes,
        session: fold.session,
        usage: fold.usage.or(fold.wire_usage),
        cost_usd: fold.cost_usd,
        model: fold.identity,
        permissions: fold.permissions,
        denials: fold.denials,
        denial_count: fold.denial_count,
        tool_calls: fold.tool_calls,
        model_requests: fold.model_requests,
        network_refusals: fold.network_refusals,
    }
}

fn answer(fold: &Fold) -> Option<String> {
    let text = fold.result_text.as_deref().filter(|t| !t.trim().is_empty()).unwrap_or(&fold.text);
    (!text.trim().is_empty()).then(|| text.to_owned())
}

fn failed(status: Status, cause: Cause) -> Verdict {
    Verdict::Failed(status, Box::new(cause), FailurePhase::Invocation)
}

fn wire_verdict(failure: &super::wire::LastFailure) -> Verdict {
    let (status, cause) = failure.verdict();
    failed(status, cause)
}

/// A proper terminal event is a success only if the wire agrees and there is an answer.
fn result_checks(fold: &Fold, answer: Option<&str>) -> Verdict {
    let postprocess =
        |status, cause: Cause| Verdict::Failed(status, Box::new(cause), FailurePhase::Postprocess);
    if let Some(turn) = &fold.last_turn {
        let step = format!("response {}", turn.request);
        if turn.cut {
            return postprocess(
                Status::IncompleteOutput,
                output_cause(
                    "stream-cut",
                    &step,
                    "the model's answer was cut off on the wire, though the agent reports success",
                )
                .with_remedy("run it again; if it happens often, look at the endpoint and proxies between"),
            );
        }
        match turn.finish_reason.as_deref() {
            Some("length" | "max_tokens") => {
                return postprocess(
                    Status::IncompleteOutput,
                    output_cause("max-tokens", &step, "the answer was cut by the model's token limit"),
                );
            }
            Some("content_filter" | "refusal") => {
                return postprocess(
                    Status::RefusedByModel,
                    Cause::new("content-filter", Boundary::Model, step, "the model refused to answer"),
                );
            }
            _ => {}
        }
    }
    if fold.last_turn.is_none()
        && let Some(f) = &fold.failure
    {
        return wire_verdict(f);
    }
    if answer.is_none() {
        return postprocess(
            Status::NoResult,
            output_cause("empty-answer", "answer", "the agent reported success without an answer"),
        );
    }
    Verdict::Complete
}

/// The agent stated an error: the wire says what it was, where it saw one.
fn agent_error(fold: &Fold, text: &str, http_status: Option<u16>) -> Verdict {
    if let Some(f) = &fold.failure {
        let (status, cause) = f.verdict();
        return failed(status, cause.with_evidence(text));
    }
    let cause =
        Cause::new("unclassified", Boundary::Model, "agent", "the agent stated an error").with_evidence(text);
    match http_status {
        Some(401) => failed(Status::Unauthenticated, cause),
        Some(429) => failed(Status::ProviderBusy, cause),
        _ => failed(Status::ProviderError, cause),
    }
}

/// The agent ended without a terminal event.
fn without_result(fold: &Fold, exit: Option<AgentExit>, answer: Option<&str>) -> Verdict {
    if let Some(AgentExit { signal: Some(signal), .. }) = exit
        && !fold.stopped_by_us
    {
        return failed(
            Status::Killed,
            Cause::new(
                "killed",
                Boundary::Host,
                format!("signal {signal}"),
                format!("the agent was killed by signal {signal}, which Stockade did not send"),
            ),
        );
    }
    if let Some(f) = &fold.failure {
        return wire_verdict(f);
    }
    let noise = |cause: Cause| match &fold.first_noise {
        Some(line) => cause.with_evidence(format!("stdout: {line}")),
        None => cause,
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
        output_cause("nothing-done", "stdout", "the agent exited without an answer and without an error"),
    )
}
