//! The table of endings: what the agent says and how its process ends.

use super::script::{CUT, GOOD, Run, assert_ends, code, run, run_unpinned, run_with, signal};
use crate::{
    event::{EventKind, NetworkVerdict, PermissionDecision, TurnOutcome, network_code},
    judge::{AgentExit, ModelEvidence, note_code},
    network::Destination,
    status::{FailurePhase, Status},
};

/// One run and how it ends.
type Row = (&'static str, Run, Option<AgentExit>, Status, &'static str);

fn check(rows: impl IntoIterator<Item = Row>) {
    for (name, run, exit, status, cause) in rows {
        assert_ends(name, &run.finish(exit), status, cause);
    }
}

/// A run whose model answered well.
fn answered() -> Run {
    run().wire(&GOOD)
}

#[test]
fn every_outcome_that_an_agent_states() {
    let outcomes = [
        (TurnOutcome::Success { answer: Some("done".to_owned()) }, Status::Complete, ""),
        (TurnOutcome::Success { answer: None }, Status::NoResult, "empty-answer"),
        (TurnOutcome::Success { answer: Some(" \n".to_owned()) }, Status::NoResult, "empty-answer"),
        (TurnOutcome::Refusal { text: "no".to_owned() }, Status::RefusedByModel, "content-filter"),
        (
            TurnOutcome::Cancelled { permission: Some("edit".to_owned()) },
            Status::PermissionCancelled,
            "permission-cancelled",
        ),
        (TurnOutcome::Cancelled { permission: None }, Status::ProviderError, "agent-cancelled"),
        (TurnOutcome::MaxTurns, Status::LimitReached, "max-turns"),
        (TurnOutcome::Truncated, Status::IncompleteOutput, "max-tokens"),
        (
            TurnOutcome::Error { text: "?".to_owned(), http_status: None },
            Status::ProviderError,
            "unclassified",
        ),
    ];
    for (outcome, status, cause) in outcomes {
        // Whatever the exit code: it proves nothing.
        for exit in [code(0), code(1)] {
            let name = format!("{outcome:?} {exit:?}");
            assert_ends(&name, &answered().ends(outcome.clone()).finish(exit), status, cause);
        }
    }
}

#[test]
fn an_agents_words_about_the_service_count_where_the_wire_is_silent() {
    for (text, status, cause) in [
        ("You have exceeded your monthly quota", Status::UsageExhausted, "quota"),
        ("insufficient_quota: pay first", Status::UsageExhausted, "quota"),
        ("Server busy, this is not your limit", Status::ProviderBusy, "busy"),
        ("overloaded_error: try later", Status::ProviderBusy, "busy"),
        ("flux capacitor misaligned (E4711)", Status::ProviderError, "unclassified"),
        ("write: Disk quota exceeded", Status::ProviderError, "unclassified"),
    ] {
        let ending = run().errs(text, None).finish(code(1));
        assert_ends(text, &ending, status, cause);
        assert_eq!(ending.cause.unwrap().evidence, [text]);
        let answered = answered().errs(text, None).finish(code(1));
        assert_ends("the wire saw an answer", &answered, Status::ProviderError, "unclassified");
    }
}

#[test]
fn an_agent_that_ends_without_a_word_about_it() {
    check(vec![
        ("nothing at all, exit 0", run(), code(0), Status::NoResult, "nothing-done"),
        ("no exit known", run(), None, Status::NoResult, "nothing-done"),
        (
            "a start and zero tokens, exit 0",
            run().agent(EventKind::TurnStarted { session: Some("s".to_owned()), tools: Vec::new() }),
            code(0),
            Status::NoResult,
            "nothing-done",
        ),
        (
            "a message and no end, exit 0",
            answered().says("half"),
            code(0),
            Status::IncompleteOutput,
            "no-terminal-event",
        ),
        (
            "output that stops in mid-line, exit 0",
            run().note(note_code::STDOUT_UNTERMINATED, "65536 bytes"),
            code(0),
            Status::IncompleteOutput,
            "output-cut",
        ),
        (
            "nothing but noise, exit 0",
            run().note(note_code::STDOUT_NOISE, "Segmentation fault"),
            code(0),
            Status::MalformedOutput,
            "no-dialect",
        ),
        ("a cut stream, exit 0", run().wire(&CUT), code(0), Status::IncompleteOutput, "stream-cut"),
        ("exit 1", run(), code(1), Status::ChildFailed, "exit-code"),
        (
            "exit 1 with noise",
            run().note(note_code::STDOUT_NOISE, "trace"),
            code(1),
            Status::ChildFailed,
            "exit-code",
        ),
        ("exit 255 after a message", answered().says("half"), code(255), Status::ChildFailed, "exit-code"),
        ("signal 9", run(), signal(9), Status::Killed, "killed"),
        ("signal 11 after a message", answered().says("half"), signal(11), Status::Killed, "killed"),
        (
            "signal 9 with a limit as evidence",
            run().limit("memory").settle(),
            signal(9),
            Status::OutOfMemory,
            "limit-memory",
        ),
        (
            "a signal of Stockade's own",
            run().note(note_code::STOPPED, "stopped"),
            signal(15),
            Status::NoResult,
            "nothing-done",
        ),
    ]);
}

#[test]
fn what_ends_a_run_from_outside() {
    check(vec![
        ("cancel", answered().cancel(), None, Status::Cancelled, "cancelled"),
        ("deadline", answered().limit("wall"), signal(9), Status::TimedOut, "limit-wall"),
        ("idle", answered().limit("idle"), signal(9), Status::Stalled, "limit-idle"),
        ("memory", answered().limit("memory"), signal(9), Status::OutOfMemory, "limit-memory"),
        ("output", answered().limit("output"), signal(9), Status::LimitReached, "limit-output"),
        ("turns", answered().limit("turns"), None, Status::LimitReached, "limit-turns"),
        ("tokens", answered().limit("tokens"), None, Status::LimitReached, "limit-tokens"),
        ("cost", answered().limit("cost"), None, Status::LimitReached, "limit-cost"),
        ("a limit of the future", answered().limit("luck"), None, Status::LimitReached, "limit-luck"),
        (
            "other tools than planned",
            answered().network(network_code::TOOLSET_MISMATCH),
            code(0),
            Status::PolicyRefused,
            "toolset-mismatch",
        ),
        (
            "another model asked",
            answered().network(network_code::MODEL_MISMATCH),
            code(0),
            Status::ModelMismatch,
            "model-mismatch",
        ),
        (
            "a permission that was cancelled",
            answered().decides("edit", PermissionDecision::Cancelled),
            code(0),
            Status::PermissionCancelled,
            "permission-cancelled",
        ),
    ]);
}

#[test]
fn harmless_words_fail_nothing() {
    // A log line with the word ERROR, then a proper success.
    let ending = answered()
        .note(note_code::STDOUT_NOISE, "2026-01-02 ERROR telemetry is off")
        .note(note_code::STDOUT_NOISE, "second")
        .succeeds("done")
        .finish(code(0));
    assert_ends("noise and a result", &ending, Status::Complete, "");
    assert_eq!(ending.answer.as_deref(), Some("done"));
    assert_eq!(
        ending.notes,
        ["2 line(s) on stdout are not of the agent's format: 2026-01-02 ERROR telemetry is off"]
    );
}

#[test]
fn an_error_never_seen_before_is_kept_in_its_own_words() {
    let ending = answered().errs("flux capacitor drained", None).finish(code(1));
    assert_ends("unknown error", &ending, Status::ProviderError, "unclassified");
    assert_eq!(ending.cause.unwrap().evidence, ["flux capacitor drained"]);
}

#[test]
fn a_result_without_text_of_its_own_is_what_was_written_last() {
    let ending = answered()
        .says("Let me look.")
        .calls("1", "read")
        .says("It is ")
        .says("blue.")
        .ends(TurnOutcome::Success { answer: None })
        .finish(code(0));
    assert_ends("messages", &ending, Status::Complete, "");
    assert_eq!(ending.answer.as_deref(), Some("It is blue."));
}

#[test]
fn an_answer_that_was_cut_is_told_as_partial() {
    let ending = answered()
        .agent(EventKind::Message { text: "head".to_owned(), cut_bytes: 5 })
        .ends(TurnOutcome::Success { answer: None })
        .finish(code(0));
    assert_ends("cut message", &ending, Status::Complete, "");
    assert!(ending.partial);
    assert_eq!(ending.notes, ["the answer was too long to be kept whole here; the transcript has all of it"]);

    let ending = answered().says("half").cancel().finish(None);
    assert_eq!(
        (ending.status, ending.partial, ending.answer.as_deref()),
        (Status::Cancelled, true, Some("half"))
    );
}

#[test]
fn phases_tell_where_a_run_failed() {
    let phase = |run: Run| run.finish(code(0)).phase;
    assert_eq!(phase(answered().succeeds("done")), None);
    assert_eq!(
        phase(answered().ends(TurnOutcome::Success { answer: None })),
        Some(FailurePhase::Postprocess)
    );
    assert_eq!(phase(run().wire(&CUT).succeeds("done")), Some(FailurePhase::Postprocess));
    assert_eq!(phase(answered().cancel()), Some(FailurePhase::Invocation));
    assert_eq!(phase(run()), Some(FailurePhase::Invocation));
}

#[test]
fn an_answer_of_a_pinned_agent_without_any_request_on_the_wire_is_none() {
    let ending = run().succeeds("done").finish(code(0));
    assert_ends("no wire", &ending, Status::NoResult, "no-model-request");
}

#[test]
fn an_answer_without_any_request_on_the_wire_says_what_it_rests_on() {
    let ending = run_unpinned().succeeds("done").finish(code(0));
    assert_ends("no wire", &ending, Status::Complete, "");
    assert_eq!(
        ending.notes,
        ["no model request was seen on the wire: the answer rests on the agent's words alone"]
    );
}

#[test]
fn where_only_a_tunnel_is_seen_it_has_to_be_one_to_the_model() {
    let routed = || {
        run_with(|plan| {
            plan.wire.tunnel = Some(Destination::parse("model.example:8443").unwrap());
            (plan.wire.classes, plan.wire.model_paths) = (Vec::new(), Vec::new());
        })
    };
    let passes = |run: Run, target: &str, code: &str, verdict| {
        run.gateway(EventKind::NetworkDecision {
            target: target.to_owned(),
            verdict,
            code: code.to_owned(),
            detail: String::new(),
        })
    };
    let good = passes(routed(), "model.example:8443", network_code::EGRESS, NetworkVerdict::Allowed);
    let ending = good.succeeds("done").finish(code(0));
    assert_ends("a tunnel", &ending, Status::Complete, "");
    assert_eq!(ending.model.evidence, ModelEvidence::PinnedArgv);

    for (name, run) in [
        ("none", routed()),
        ("elsewhere", passes(routed(), "other.example:443", network_code::EGRESS, NetworkVerdict::Allowed)),
        (
            "turned away",
            passes(routed(), "model.example:8443", network_code::EGRESS_TLS, NetworkVerdict::Refused),
        ),
    ] {
        assert_ends(name, &run.succeeds("done").finish(code(0)), Status::NoResult, "no-model-request");
    }
    // A tunnel says nothing where the calls are seen.
    let seen = passes(run(), "model.example:8443", network_code::EGRESS, NetworkVerdict::Allowed);
    assert_ends("seen", &seen.succeeds("done").finish(code(0)), Status::NoResult, "no-model-request");
}

#[test]
fn the_last_words_on_stderr_stand_beside_a_failure_that_nothing_else_explains() {
    let warnings = "warning: old\n".repeat(40);
    let told = format!("{warnings}\nerror: the sandbox cannot be applied\nRefusing to start.\n");
    let ending = run().note(note_code::STDERR_TAIL, &told).finish(code(1));
    assert_ends("exit 1", &ending, Status::ChildFailed, "exit-code");
    let cause = ending.cause.unwrap();
    assert_eq!(cause.evidence.len(), 6);
    assert_eq!(
        cause.evidence[3..],
        [
            "stderr: warning: old",
            "stderr: error: the sandbox cannot be applied",
            "stderr: Refusing to start."
        ]
    );
    // A failure that the wire explains does not need them, and a success is none.
    let ending = answered().note(note_code::STDERR_TAIL, &told).succeeds("done").finish(code(0));
    assert_ends("a success", &ending, Status::Complete, "");
    assert_eq!(ending.notes, Vec::<String>::new());
}
