//! What a caller may demand beside a proper end: a proven model, measured changes. And what a run has cost.

use super::script::{Answer, GOOD, Run, assert_ends, code, run, run_with};
use crate::{
    budget::{Price, Usd},
    changes::{ChangeKind, Changes, FileChange},
    event::{EventKind, Usage},
    judge::CostSource,
    order::{Expectation, ServedModelDemand},
    status::Status,
};

const UNNAMED: Answer = Answer { served_model: None, ..GOOD };

fn proven() -> Run {
    run_with(|plan| plan.model.served_model = ServedModelDemand::Required)
}

#[test]
fn an_answer_that_names_no_model_ends_a_run_that_wants_it_proven() {
    let unnamed = proven().wire(&GOOD).wire(&UNNAMED);
    assert!(unnamed.is_decided());
    assert_ends("unnamed", &unnamed.finish(code(0)), Status::ModelMismatch, "served-model-unproven");
    let title = proven().wire(&Answer { class: "title", ..UNNAMED }).wire(&GOOD).succeeds("done");
    assert_ends("a title", &title.finish(code(0)), Status::Complete, "");
    let reported = run().wire(&UNNAMED).succeeds("done").finish(code(0));
    assert_ends("not demanded", &reported, Status::Complete, "");
}

#[test]
fn the_agents_own_word_proves_no_model() {
    let seen = EventKind::ModelSeen { model: "m-1".to_owned(), place: "init".to_owned() };
    let ending = proven().asks("turn").agent(seen).succeeds("done").finish(code(0));
    assert_ends("reported", &ending, Status::ModelMismatch, "served-model-unproven");
}

#[test]
fn expected_changes_are_measured_and_need_no_answer() {
    let file = FileChange { path: "a".to_owned(), kind: ChangeKind::Added, sha256: None, bytes: Some(1) };
    let none = Changes { commits: Vec::new(), files: Vec::new(), complete: true };
    let written = Changes { files: vec![file], ..none.clone() };
    let committed = Changes { commits: vec!["c".to_owned()], ..none.clone() };
    let unknown = Changes { complete: false, ..none.clone() };
    for (name, changes, says, status, cause) in [
        ("files", &written, "done", Status::Complete, ""),
        ("commits", &committed, "done", Status::Complete, ""),
        ("nothing", &none, "I changed everything.", Status::NoResult, "no-changes"),
        ("not walked whole", &unknown, "done", Status::NoResult, "changes-unknown"),
    ] {
        let run = run_with(|plan| plan.expect = Expectation::Changes).wire(&GOOD).succeeds(says);
        assert_ends(name, &run.finish_with(code(0), changes), status, cause);
    }
    let silent = run_with(|plan| plan.expect = Expectation::Changes).wire(&GOOD).succeeds("");
    let ending = silent.finish_with(code(0), &written);
    assert_eq!((ending.status, ending.answer), (Status::Complete, None));
    let ending = run().wire(&GOOD).succeeds("").finish_with(code(0), &written);
    assert_ends("not expected", &ending, Status::NoResult, "empty-answer");
}

#[test]
fn what_was_said_before_a_limit_is_kept_as_a_part() {
    let working =
        || run().wire(&GOOD).says("So far: two bugs.").calls("1", "read").wire(&GOOD).calls("2", "read");
    let ending = working().limit("turns").settle().finish(code(0));
    assert_eq!((ending.answer.as_deref(), ending.partial), (Some("So far: two bugs."), true));
    let ending = working().errs("crash", None).finish(code(1));
    assert_eq!((ending.answer, ending.partial), (None, false), "an error leaves no answer");
}

#[test]
fn an_effort_that_did_not_go_out_as_ordered_is_told() {
    let notes = |sent: &[Option<&str>]| {
        let mut run = run_with(|plan| plan.effort = Some("xhigh".to_owned()));
        for (request, effort) in (1..).zip(sent) {
            run = run
                .gateway(EventKind::ModelRequest {
                    request,
                    class: "turn".to_owned(),
                    model: Some("m-1".to_owned()),
                    tools: Vec::new(),
                    bytes: 1,
                    effort: effort.map(str::to_owned),
                })
                .answers(request, &GOOD);
        }
        run.succeeds("done").finish(code(0)).notes
    };
    assert_eq!(notes(&[Some("xhigh"), Some("xhigh")]), [""; 0]);
    let other = |sent: &str| [format!("the effort `xhigh` was ordered and `{sent}` was sent on the wire")];
    assert_eq!(notes(&[Some("high")]), other("high"));
    assert_eq!(notes(&[Some("xhigh"), Some("low")]), other("low"));
    assert_eq!(notes(&[None]), ["the effort `xhigh` was ordered and none was sent on the wire"]);
}

#[test]
fn a_cost_is_the_agents_or_comes_from_prices_or_is_unknown() {
    let price = Price {
        input: Usd::of_millionths(1_000_000),
        cached_input: None,
        cache_write: None,
        output: Usd::of_millionths(2_000_000),
    };
    let priced = || run_with(|plan| plan.model.price = Some(price));
    let usage = Usage { input_tokens: Some(1_000_000), output_tokens: Some(500_000), ..Usage::default() };
    let cost = |run: Run| {
        let ending = run.succeeds("done").finish(code(0));
        (ending.cost_usd, ending.cost_source)
    };
    let stated = |run: Run| run.asks("turn").answers_with(0, &GOOD, Some(usage.clone()));
    assert_eq!(cost(stated(priced())), (Some(2.0), Some(CostSource::Prices)));
    assert_eq!(cost(stated(run())), (None, None));
    assert_eq!(cost(priced().wire(&GOOD)), (None, None), "the tokens are not known");
    let says = EventKind::Usage { usage: usage.clone(), cost_usd: Some(7.0), models: [].into() };
    assert_eq!(cost(stated(priced()).agent(says)), (Some(7.0), Some(CostSource::Agent)));
}
