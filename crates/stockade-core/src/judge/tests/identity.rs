//! Which model it was, and what that rests on.

use std::collections::BTreeMap;

use super::script::{Answer, GOOD, Run, assert_ends, code, http, run, run_with_effort};
use crate::{
    event::{EventKind, Usage},
    judge::{Ending, ModelEvidence},
    status::Status,
};

fn seen(run: Run, model: &str, place: &str) -> Run {
    run.agent(EventKind::ModelSeen { model: model.to_owned(), place: place.to_owned() })
}

fn served(model: &'static str) -> Answer {
    Answer { served_model: Some(model), ..GOOD }
}

fn evidence(ending: &Ending) -> (ModelEvidence, Vec<&str>) {
    (ending.model.evidence, ending.model.served.iter().map(String::as_str).collect())
}

#[test]
fn another_model_in_a_later_answer_ends_the_run_at_that_answer() {
    let run = run().wire(&GOOD).wire(&GOOD).wire(&served("m-dear"));
    assert!(run.is_decided());
    let ending = run.finish(code(0));
    assert_ends("swapped", &ending, Status::ModelMismatch, "served-model-mismatch");
    let cause = ending.cause.as_ref().unwrap();
    assert_eq!(
        (cause.step.as_str(), cause.message.as_str()),
        ("response 3", "`m-1` was asked and `m-dear` answered")
    );
    assert_eq!(evidence(&ending), (ModelEvidence::Wire, vec!["m-1", "m-dear"]));
    assert_eq!(ending.model.per_turn, BTreeMap::from([("m-1".to_owned(), 2), ("m-dear".to_owned(), 1)]));
}

#[test]
fn a_result_by_another_model_is_none_even_if_the_wire_is_read_late() {
    let ending = run().asks("turn").succeeds("done").settle().answers(0, &served("m-dear")).finish(code(0));
    assert_ends("late", &ending, Status::ModelMismatch, "served-model-mismatch");
}

#[test]
fn names_that_the_profile_states_are_the_same_model_and_are_kept() {
    let ending = run().wire(&served("m-1-build")).succeeds("done").finish(code(0));
    assert_ends("suffix", &ending, Status::Complete, "");
    assert_eq!(
        (ending.model.asked.as_str(), evidence(&ending)),
        ("m-1", (ModelEvidence::Wire, vec!["m-1-build"]))
    );
    assert_eq!(ending.model.requested_seen, ["m-1"]);
}

#[test]
fn the_model_of_a_title_or_of_an_error_is_no_evidence() {
    let title = Answer { class: "title", ..served("m-small") };
    let error = Answer { served_model: Some("proxy"), ..http(500, "boom") };
    let ending = run().wire(&title).wire(&error).wire(&GOOD).succeeds("done").finish(code(0));
    assert_ends("side models", &ending, Status::Complete, "");
    assert_eq!(evidence(&ending), (ModelEvidence::Wire, vec!["m-1"]));
}

#[test]
fn the_wire_outweighs_the_agents_words() {
    let ending =
        seen(seen(run(), "m-9", "init").wire(&GOOD), "m-8", "message").succeeds("done").finish(code(0));
    assert_ends("wire", &ending, Status::Complete, "");
    assert_eq!(evidence(&ending), (ModelEvidence::Wire, vec!["m-1"]));
}

#[test]
fn where_the_wire_is_silent_the_agents_words_count() {
    let silent = Answer { served_model: None, ..GOOD };
    let good = seen(run().wire(&silent), "m-1", "init").succeeds("done").finish(code(0));
    assert_ends("reported", &good, Status::Complete, "");
    assert_eq!(evidence(&good), (ModelEvidence::AgentReport, vec!["m-1"]));

    let bad =
        seen(seen(run().wire(&silent), "m-1", "init"), "m-dear", "message").succeeds("done").finish(code(0));
    assert_ends("reported another", &bad, Status::ModelMismatch, "served-model-mismatch");
    assert_eq!(bad.cause.unwrap().step, "agent's report (message)");
}

#[test]
fn a_second_model_in_the_usage_block_is_a_mismatch_too() {
    let models = ["m-1", "m-dear"].map(|m| (m.to_owned(), Usage::default())).into();
    let usage = EventKind::Usage { usage: Usage::default(), cost_usd: Some(0.5), models };
    let ending = run().agent(usage).succeeds("done").finish(code(0));
    assert_ends("usage block", &ending, Status::ModelMismatch, "served-model-mismatch");
    assert_eq!(ending.cause.unwrap().step, "agent's report (usage)");
    assert_eq!(ending.cost_usd, Some(0.5));
}

#[test]
fn nothing_reported_is_never_evidence() {
    let ending = run().succeeds("done").finish(code(0));
    assert_eq!(evidence(&ending), (ModelEvidence::PinnedArgv, Vec::new()));
}

#[test]
fn the_effort_on_the_wire_is_kept_and_told_where_it_is_not_the_one_ordered() {
    let ending = run_with_effort("xhigh")
        .asks_with("title", Some("low"))
        .asks_with("turn", Some("high"))
        .answers(0, &GOOD)
        .succeeds("done")
        .finish(code(0));
    assert_ends("other effort", &ending, Status::Complete, "");
    assert_eq!(ending.model.efforts_seen, ["high"]);
    let note = "the effort `xhigh` was ordered and `high` was sent on the wire";
    assert!(ending.notes.iter().any(|n| n == note), "{:?}", ending.notes);
    let same = run_with_effort("high").asks_with("turn", Some("high")).answers(0, &GOOD).succeeds("done");
    assert_eq!(same.finish(code(0)).notes, [""; 0]);
}
