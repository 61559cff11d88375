//! Facts that end nothing: denials, permissions, usage, notes.

use super::script::{GOOD, Run, assert_ends, code, run};
use crate::{
    changes::Changes,
    event::{EventKind, PermissionDecision, ToolStatus, TurnOutcome, Usage, network_code},
    judge::Denial,
    status::Status,
};

fn asks_permission(run: Run, tool: &str) -> Run {
    run.agent(EventKind::PermissionAsked { tool: tool.to_owned() })
}

#[test]
fn a_denial_that_the_turn_survives_is_counted_once() {
    let ending = run()
        .wire(&GOOD)
        .calls("c1", "shell")
        .updates("c1", ToolStatus::Running)
        .updates("c1", ToolStatus::Denied)
        // The session log tells the same call again.
        .calls("c1", "shell")
        .updates("c1", ToolStatus::Denied)
        .calls("c2", "read")
        .updates("c2", ToolStatus::Completed)
        .says("I could not.")
        .ends(TurnOutcome::Success { answer: None })
        .finish(code(0));
    assert_ends("denied", &ending, Status::Complete, "");
    assert_eq!((ending.tool_calls, ending.denial_count), (2, 1));
    assert_eq!(ending.denials, [Denial { tool: "shell".to_owned(), evidence: "Denied".to_owned() }]);
}

#[test]
fn a_call_that_the_log_repeats_late_does_not_wipe_the_answer() {
    let ending = run()
        .wire(&GOOD)
        .calls("c1", "read")
        .updates("c1", ToolStatus::Completed)
        .says("It is blue.")
        .calls("c1", "read")
        .ends(TurnOutcome::Success { answer: None })
        .finish(code(0));
    assert_eq!((ending.answer.as_deref(), ending.tool_calls), (Some("It is blue."), 1));
}

#[test]
fn every_denial_is_counted_though_the_list_ends() {
    let mut run = run().wire(&GOOD);
    for n in 0..250 {
        let id = n.to_string();
        run = run.calls(&id, "shell").updates(&id, ToolStatus::Denied);
    }
    let ending = run.succeeds("done").finish(code(0));
    assert_eq!((ending.denials.len(), ending.denial_count, ending.tool_calls), (100, 250, 250));
    assert_eq!(ending.denials[99].tool, "shell");
}

#[test]
fn a_permission_told_by_stream_and_log_stands_once() {
    let ending = asks_permission(run(), "edit")
        .decides("edit", PermissionDecision::Allowed)
        .decides("edit", PermissionDecision::Allowed)
        .decides("shell", PermissionDecision::Denied)
        .wire(&GOOD)
        .succeeds("done")
        .finish(code(0));
    assert_ends("decided", &ending, Status::Complete, "");
    let seen: Vec<_> = ending.permissions.iter().map(|p| (p.tool.as_str(), p.decision)).collect();
    assert_eq!(seen, [("edit", PermissionDecision::Allowed), ("shell", PermissionDecision::Denied)]);
}

#[test]
fn a_cancelled_permission_keeps_all_that_was_known() {
    let usage = Usage { input_tokens: Some(10), output_tokens: Some(2), ..Usage::default() };
    let started = EventKind::TurnStarted { session: Some("s-1".to_owned()), tools: Vec::new() };
    let ending = asks_permission(run().agent(started).wire(&GOOD).calls("c1", "edit"), "edit")
        .agent(EventKind::Usage { usage: usage.clone(), cost_usd: None, models: [].into() })
        .says("The file was edited.")
        .ends(TurnOutcome::Cancelled { permission: None })
        .finish(code(0));
    assert_ends("cancelled", &ending, Status::PermissionCancelled, "permission-cancelled");
    let cause = ending.cause.unwrap();
    assert_eq!(cause.step, "permission for edit");
    assert!(cause.evidence.contains(&"tool: edit".to_owned()));
    assert_eq!((ending.session.as_deref(), ending.usage), (Some("s-1"), Some(usage)));
    assert_eq!(ending.model.served, ["m-1"]);
    assert_eq!((ending.answer.as_deref(), ending.partial), (Some("The file was edited."), true));
}

#[test]
fn a_permission_that_was_decided_is_not_blamed_for_a_later_cancel() {
    for decision in [PermissionDecision::Allowed, PermissionDecision::Denied] {
        let ending = asks_permission(run().wire(&GOOD), "edit")
            .decides("edit", decision)
            .ends(TurnOutcome::Cancelled { permission: None })
            .finish(code(0));
        assert_ends("decided before", &ending, Status::ProviderError, "agent-cancelled");
    }
}

#[test]
fn unknown_usage_is_not_zero_and_zero_overwrites_nothing() {
    let usage = |n| EventKind::Usage {
        usage: Usage { input_tokens: n, output_tokens: n, ..Usage::default() },
        cost_usd: None,
        models: [].into(),
    };
    assert_eq!(run().finish(code(0)).usage, None);
    assert_eq!(run().agent(usage(Some(0))).finish(code(0)).usage, None);
    let kept = run().agent(usage(Some(7))).agent(usage(None)).agent(usage(Some(0))).finish(code(0));
    assert_eq!(kept.usage.unwrap().input_tokens, Some(7));
}

#[test]
fn network_refusals_are_counted_by_code() {
    let ending = run()
        .network(network_code::NAME)
        .network(network_code::NAME)
        .network(network_code::NOT_A_MODEL_CALL)
        .wire(&GOOD)
        .succeeds("done")
        .finish(code(0));
    assert_ends("network", &ending, Status::Complete, "");
    let seen: Vec<_> = ending.network_refusals.iter().map(|(c, n)| (c.as_str(), *n)).collect();
    assert_eq!(seen, [("name", 2), ("not-a-model-call", 1)]);
}

#[test]
fn changes_that_could_not_be_measured_whole_are_noted() {
    let judge = crate::judge::Judge::new(&crate::plan::tests::sample_plan());
    let ending = judge.finish(code(0), &Changes::default());
    assert_eq!(ending.notes, ["the workspace was too large to be walked whole; changes are incomplete"]);
}
