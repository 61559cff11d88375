use stockade_core::{
    event::{Event, EventKind, PermissionDecision},
    judge::ModelEvidence,
    status::{Boundary, Cause},
};

use super::*;
use crate::checks::examples::{TOOLS, conversation, events, played, receipt, wire};

fn with_event(kind: EventKind) -> Played {
    let mut played = played(&[]);
    let last = played.events.last().cloned().unwrap();
    played.events.insert(2, Event { event: kind, ..last });
    played
}

#[test]
fn a_start_needs_a_proven_fence_and_a_started_agent() {
    let (verdict, elapsed) = starts(&played(&[]));
    let evidence = "fence on rung ns built and proven by 7 canaries in 9 ms; agent started";
    assert_eq!((verdict, elapsed), (Ok(evidence.to_owned()), Duration::from_millis(25)));

    for missing in [0, 1] {
        let mut played = played(&[]);
        played.events.remove(missing);
        assert!(starts(&played).0.is_err());
    }
    let mut played = played(&[]);
    played.receipt.process_started = false;
    assert!(starts(&played).0.is_err());
}

#[test]
fn the_served_model_must_be_the_asked_one_by_the_wire() {
    let good = wire(conversation(&[]));
    let evidence = "asked grok-4.6, requested grok-4.6, served grok-4.6 in 1 turns, by wire";
    assert_eq!(served_model(&receipt(), &good), Ok(evidence.to_owned()));

    let spoilt = |spoil: fn(&mut stockade_core::judge::ModelIdentity)| {
        let mut receipt = receipt();
        spoil(receipt.model_identity.as_mut().unwrap());
        served_model(&receipt, &good)
    };
    assert!(spoilt(|identity| identity.evidence = ModelEvidence::AgentReport).is_err());
    assert!(spoilt(|identity| identity.served.push("grok-4.5".to_owned())).is_err());
    assert!(spoilt(|identity| identity.served.clear()).is_err());
    let mut other = conversation(&[]);
    other[0].model = Some("grok-4.5".to_owned());
    assert!(served_model(&receipt(), &wire(other)).is_err());
    assert!(served_model(&receipt(), &wire(Vec::new())).is_err());
    let mut unknown = receipt();
    unknown.model_identity = None;
    assert!(served_model(&unknown, &good).is_err());
}

#[test]
fn the_tool_list_is_compared_as_a_set_in_every_request() {
    let good = conversation(&["a".to_owned()]);
    let planned = [TOOLS[1], TOOLS[0]].map(str::to_owned);
    let evidence = "read_file, run_terminal_command on the wire, as planned";
    assert_eq!(tool_list(&[&planned], &wire(good.clone())), Ok(evidence.to_owned()));

    let mut more = good.clone();
    more[1].tools.push("search_replace".to_owned());
    let evidence = "planned read_file, run_terminal_command; on the wire read_file, run_terminal_command, search_replace";
    assert_eq!(tool_list(&[&planned], &wire(more)), Err(evidence.to_owned()));
    let mut fewer = good.clone();
    fewer[0].tools.pop();
    assert!(tool_list(&[&planned], &wire(fewer)).is_err());
    assert!(tool_list(&[&planned], &wire(Vec::new())).is_err());
    assert!(tool_list(&[], &wire(good.clone())).is_err());
    let another = ["exec".to_owned()];
    assert!(tool_list(&[&another, &planned], &wire(good.clone())).is_ok(), "they depend on the model");
    let mut both = good;
    both[1].tools = another.to_vec();
    assert!(tool_list(&[&another, &planned], &wire(both)).is_err(), "but not on the request");
}

#[test]
fn any_prompt_and_any_ending_but_a_result_fails() {
    assert!(no_prompt(&played(&[])).is_ok());
    let tool = || "search_replace".to_owned();
    let decided = |decision| EventKind::PermissionDecided { tool: tool(), decision, by: "agent".to_owned() };
    assert!(no_prompt(&with_event(EventKind::PermissionAsked { tool: tool() })).is_err());
    assert!(no_prompt(&with_event(decided(PermissionDecision::Cancelled))).is_err());
    assert!(no_prompt(&with_event(decided(PermissionDecision::Denied))).is_ok());
    let mut answered = with_event(EventKind::PermissionAsked { tool: tool() });
    let last = answered.events.last().cloned().unwrap();
    answered.events.insert(3, Event { event: decided(PermissionDecision::Allowed), ..last });
    assert!(no_prompt(&answered).is_ok());

    let mut silent = played(&[]);
    silent.events = events()[..2].to_vec();
    assert!(no_prompt(&silent).is_err());
    let mut failed = played(&[]);
    failed.receipt.status = Status::IncompleteOutput;
    assert!(no_prompt(&failed).is_err());
}

#[test]
fn a_given_scenario_has_to_complete() {
    assert!(scenario(&played(&[])).is_ok());
    let mut failed = played(&[]);
    failed.receipt.status = Status::ProviderError;
    failed.receipt.cause = Some(
        Cause::new("http-500", Boundary::Model, "response 2", "the endpoint failed").with_remedy("wait"),
    );
    let evidence = "provider-error: the endpoint failed at response 2; remedy: wait";
    assert_eq!(scenario(&failed), Err(evidence.to_owned()));
    let mut other = played(&[]);
    other.receipt.model_verified = false;
    assert!(scenario(&other).is_err());
}
