//! The first terminal fact wins; facts of one batch are a tie, decided by rank.

use super::script::{CUT, GOOD, Run, assert_ends, code, http, run, signal};
use crate::{
    event::{PermissionDecision, TurnOutcome, network_code},
    judge::note_code,
    status::Status,
};

type Step = fn(Run) -> Run;

/// Terminal facts, strongest first: name, step, status, cause code.
const FACTS: [(&str, Step, Status, &str); 9] = [
    ("cancel", Run::cancel, Status::Cancelled, "cancelled"),
    ("deadline", |r| r.limit("wall"), Status::TimedOut, "limit-wall"),
    ("memory", |r| r.limit("memory"), Status::OutOfMemory, "limit-memory"),
    ("output", |r| r.limit("output"), Status::LimitReached, "limit-output"),
    ("idle", |r| r.limit("idle"), Status::Stalled, "limit-idle"),
    (
        "permission",
        |r| r.decides("edit", PermissionDecision::Cancelled),
        Status::PermissionCancelled,
        "permission-cancelled",
    ),
    ("model", |r| r.network(network_code::MODEL_MISMATCH), Status::ModelMismatch, "model-mismatch"),
    ("error", |r| r.errs("bad", None), Status::ProviderError, "unclassified"),
    ("result", |r| r.succeeds("done"), Status::Complete, ""),
];

fn start() -> Run {
    run().wire(&GOOD)
}

#[test]
fn in_a_tie_the_stronger_fact_wins_in_either_order() {
    for (i, (strong_name, strong, status, cause)) in FACTS.iter().enumerate() {
        for (weak_name, weak, ..) in &FACTS[i + 1..] {
            // A permission that was cancelled or a model that was swapped disproves a result that is told with it.
            let name = format!("{strong_name} with {weak_name}");
            assert_ends(&name, &weak(strong(start())).settle().finish(code(0)), *status, cause);
            assert_ends(&name, &strong(weak(start())).settle().finish(code(0)), *status, cause);
        }
    }
}

#[test]
fn the_first_fact_in_time_wins_whatever_its_rank() {
    for (first_name, first, status, cause) in FACTS.iter().take(FACTS.len() - 1) {
        for (second_name, second, ..) in &FACTS {
            let ending = second(first(start()).settle()).settle().finish(code(0));
            assert_ends(&format!("{first_name} then {second_name}"), &ending, *status, cause);
        }
    }
}

#[test]
fn a_proper_result_stands_with_a_note_whatever_follows() {
    for (name, later, status, _) in
        FACTS.iter().filter(|(name, ..)| !["permission", "result", "error"].contains(name))
    {
        let ending = later(start().succeeds("done").settle()).settle().finish(signal(15));
        assert_ends(&format!("result then {name}"), &ending, Status::Complete, "");
        assert_eq!(ending.answer.as_deref(), Some("done"));
        assert!(
            ending.notes.iter().any(|n| n.starts_with(&format!("`{}` came after", status.id()))),
            "{name}: {:?}",
            ending.notes
        );
    }
}

#[test]
fn a_result_that_the_agents_own_log_disproves_is_none() {
    // The log is read a moment after the stream; the permission was cancelled before the result was written.
    let ending = start()
        .succeeds("I edited the file.")
        .settle()
        .decides("edit", PermissionDecision::Cancelled)
        .settle()
        .finish(code(0));
    assert_ends("log after stream", &ending, Status::PermissionCancelled, "permission-cancelled");
    assert!(ending.partial);
}

#[test]
fn a_kill_or_an_exit_code_after_the_result_is_a_note() {
    let done = || start().succeeds("done").settle();
    let notes = |run: Run, exit| {
        let ending = run.finish(exit);
        assert_ends("after the result", &ending, Status::Complete, "");
        ending.notes
    };
    assert_eq!(notes(done(), code(0)), [""; 0]);
    assert_eq!(notes(done(), None), [""; 0]);
    assert_eq!(
        notes(done(), signal(9)),
        ["the agent was killed by signal 9 after a proper result; the answer is kept"]
    );
    assert_eq!(notes(done(), code(3)), ["the agent exited with 3 after a proper result; the answer is kept"]);
    let lingering = done()
        .note(note_code::DID_NOT_EXIT, "did not exit within 3 s after its result, stopped")
        .note(note_code::STOPPED, "stopped");
    assert_eq!(notes(lingering, signal(15)), ["did not exit within 3 s after its result, stopped"]);
}

#[test]
fn the_first_of_two_results_is_the_answer() {
    for between in [|r: Run| r, Run::settle] {
        let ending = between(start().succeeds("first")).succeeds("second").settle().finish(code(0));
        assert_eq!(ending.answer.as_deref(), Some("first"));
    }
}

#[test]
fn a_decision_is_visible_before_the_end_so_that_the_agent_can_be_stopped() {
    let mut undecided = start();
    assert!(!undecided.is_decided());
    undecided = undecided.says("x").calls("1", "read").note("warm-up", "slow").settle();
    assert!(!undecided.is_decided() && !undecided.has_result());
    for (name, fact, ..) in FACTS {
        let decided = fact(start()).settle();
        assert!(decided.is_decided(), "{name}");
        assert_eq!(decided.has_result(), name == "result", "{name}");
    }
    assert!(!start().cancel().is_decided(), "a batch is decided when it ends");
}

#[test]
fn only_stockade_itself_can_ask_for_a_stop() {
    use crate::event::EventKind;
    for code_of_note in [note_code::CANCEL_REQUESTED, note_code::STOPPED] {
        let forged = EventKind::Note { code: code_of_note.to_owned(), text: "stop".to_owned() };
        let ending = start().agent(forged).settle().finish(signal(9));
        assert_ends("a forged note", &ending, Status::Killed, "killed");
    }
}

#[test]
fn what_an_agent_asks_after_its_result_says_nothing_about_it() {
    let done = || start().succeeds("done").settle();
    for (name, run) in [
        ("a failed request", done().wire(&http(500, "boom"))),
        ("a cut answer", done().wire(&CUT)),
        (
            "a result told before the end of its own answer",
            run().asks("turn").succeeds("done").answers(0, &GOOD),
        ),
    ] {
        assert_ends(name, &run.settle().finish(code(0)), Status::Complete, "");
    }
    // But the answer that the result rests on still counts when it is told late.
    let late = run().asks("turn").succeeds("done").settle().answers(0, &CUT).finish(code(0));
    assert_ends("a late cut", &late, Status::IncompleteOutput, "stream-cut");
}

#[test]
fn the_agents_log_may_name_the_permission_after_its_stream_told_the_end() {
    let cancelled = || TurnOutcome::Cancelled { permission: None };
    let late = start().ends(cancelled()).settle().decides("edit", PermissionDecision::Cancelled).settle();
    assert_ends("log late", &late.finish(code(0)), Status::PermissionCancelled, "permission-cancelled");
    let early = start().decides("edit", PermissionDecision::Cancelled).settle().ends(cancelled()).settle();
    assert_ends("log early", &early.finish(code(0)), Status::PermissionCancelled, "permission-cancelled");
    let unexplained = start().ends(cancelled()).settle();
    assert_ends("no log", &unexplained.finish(code(0)), Status::ProviderError, "agent-cancelled");
}
