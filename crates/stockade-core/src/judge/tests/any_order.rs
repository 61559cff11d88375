//! Any events in any order: no panic, bounded memory, and an ending that keeps the rules.

use proptest::{collection::vec, option, prelude::*};

use super::script::assert_ends;
use crate::{
    changes::Changes,
    event::{
        EVENT_VERSION, Event, EventKind, NetworkVerdict, PermissionDecision, Source, ToolStatus, TurnOutcome,
        Usage, failure_code, network_code,
    },
    judge::{AgentExit, Judge, note_code},
    plan::tests::sample_plan,
    status::Status,
};

fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    proptest::sample::select(words).prop_map(str::to_owned)
}

fn source() -> impl Strategy<Value = Source> {
    proptest::sample::select(&[Source::Kernel, Source::Gateway, Source::Stockade, Source::Agent][..])
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "\\PC{0,30}", Just("é".repeat(5_000))]
}

fn model() -> impl Strategy<Value = String> {
    prop_oneof![4 => one_of(&["m-1", "m-1-build"]), 1 => text()]
}

fn outcome() -> impl Strategy<Value = TurnOutcome> {
    prop_oneof![
        option::of(text()).prop_map(|answer| TurnOutcome::Success { answer }),
        text().prop_map(|text| TurnOutcome::Refusal { text }),
        option::of(text()).prop_map(|permission| TurnOutcome::Cancelled { permission }),
        Just(TurnOutcome::MaxTurns),
        Just(TurnOutcome::Truncated),
        (text(), option::of(any::<u16>()))
            .prop_map(|(text, http_status)| TurnOutcome::Error { text, http_status }),
    ]
}

fn response() -> impl Strategy<Value = EventKind> {
    let class = one_of(&["turn", "title", "other"]);
    let status = option::of(proptest::sample::select(&[0u16, 200, 204, 401, 404, 429, 500, 503, 999][..]));
    let failure =
        option::of(one_of(&[failure_code::UNREACHABLE, failure_code::ABANDONED, failure_code::PROTOCOL]));
    let finish = option::of(one_of(&["stop", "length", "content_filter"]));
    let content_type = option::of(one_of(&["text/html", "application/json"]));
    (0u64..20, class, status, failure, finish, option::of(model()), any::<bool>(), content_type).prop_map(
        |(request, class, status, failure, finish_reason, served_model, cut, content_type)| {
            EventKind::ModelResponse {
                request,
                class,
                status,
                failure,
                finish_reason,
                served_model,
                usage: Some(Usage { input_tokens: Some(u64::MAX), ..Usage::default() }),
                cut,
                content_type,
                retry_after_s: None,
                error: None,
                stated: None,
                elapsed_ms: 0,
            }
        },
    )
}

fn network() -> impl Strategy<Value = EventKind> {
    let code = one_of(&[
        network_code::TOOLSET_MISMATCH,
        network_code::MODEL_MISMATCH,
        network_code::RETRY_STORM,
        network_code::NAME,
        "unheard-of",
    ]);
    (text(), code, text()).prop_map(|(target, code, detail)| EventKind::NetworkDecision {
        target,
        verdict: NetworkVerdict::Refused,
        code,
        detail,
    })
}

fn note() -> impl Strategy<Value = EventKind> {
    let code = one_of(&[
        note_code::CANCEL_REQUESTED,
        note_code::STDOUT_NOISE,
        note_code::STDOUT_UNTERMINATED,
        note_code::STDERR_TAIL,
        note_code::DID_NOT_EXIT,
        note_code::STOPPED,
        "anything",
    ]);
    (code, text()).prop_map(|(code, text)| EventKind::Note { code, text })
}

fn tool_status() -> impl Strategy<Value = ToolStatus> {
    use ToolStatus::{Cancelled, Completed, Denied, Failed, Running};
    proptest::sample::select(&[Running, Completed, Failed, Denied, Cancelled][..])
}

fn decision() -> impl Strategy<Value = PermissionDecision> {
    use PermissionDecision::{Allowed, Cancelled, Denied};
    proptest::sample::select(&[Allowed, Denied, Cancelled][..])
}

fn kind() -> impl Strategy<Value = EventKind> {
    prop_oneof![
        Just(EventKind::AgentStarted { argv: Vec::new() }),
        option::of(text()).prop_map(|session| EventKind::TurnStarted { session, tools: Vec::new() }),
        (0u64..20, one_of(&["turn", "title"]), option::of(model())).prop_map(|(request, class, model)| {
            EventKind::ModelRequest { request, class, model, tools: Vec::new(), bytes: 1, effort: None }
        }),
        response(),
        (text(), 0u64..2).prop_map(|(text, cut_bytes)| EventKind::Message { text, cut_bytes }),
        (text(), text()).prop_map(|(id, tool)| EventKind::ToolCall { id, tool, input: String::new() }),
        (text(), tool_status(), text()).prop_map(|(id, status, output)| EventKind::ToolUpdate {
            id,
            status,
            output
        }),
        text().prop_map(|tool| EventKind::PermissionAsked { tool }),
        (text(), decision()).prop_map(|(tool, decision)| EventKind::PermissionDecided {
            tool,
            decision,
            by: String::new()
        }),
        (model(), text()).prop_map(|(model, place)| EventKind::ModelSeen { model, place }),
        (any::<u64>(), option::of(any::<f64>())).prop_map(|(n, cost_usd)| EventKind::Usage {
            usage: Usage { total_tokens: Some(n), ..Usage::default() },
            cost_usd,
            models: [("m-1".to_owned(), Usage::default())].into(),
        }),
        network(),
        (one_of(&["wall", "idle", "output", "memory", "x"]), text(), text())
            .prop_map(|(limit, value, measured)| EventKind::LimitReached { limit, value, measured }),
        note(),
        outcome().prop_map(|outcome| EventKind::TurnEnded { outcome }),
        Just(EventKind::TreeEnded { gone: true, killed: 0, elapsed_us: 0 }),
    ]
}

fn exit() -> impl Strategy<Value = Option<AgentExit>> {
    option::of(
        (option::of(any::<i32>()), option::of(any::<i32>()))
            .prop_map(|(code, signal)| AgentExit { code, signal }),
    )
}

fn event(seq: u64, source: Source, event: EventKind) -> Event {
    Event { v: EVENT_VERSION, seq, time: String::new(), elapsed_ms: seq, source, event }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_events_has_an_ending_by_the_rules(
        events in vec((source(), kind(), any::<bool>()), 0..80),
        exit in exit(),
        complete in any::<bool>(),
    ) {
        let mut judge = Judge::new(&sample_plan());
        for (seq, (source, kind, settle)) in (0..).zip(events) {
            let decided = judge.is_decided();
            judge.observe(&event(seq, source, kind));
            if settle {
                judge.settle();
            }
            prop_assert!(judge.is_decided() >= decided, "a decision is never taken back");
        }
        let has_result = judge.has_result();
        let decided = judge.is_decided();
        let ending = judge.finish(exit, &Changes { complete, ..Changes::default() });
        let code = ending.cause.as_ref().map_or(String::new(), |c| c.code.clone());
        assert_ends("any order", &ending, ending.status, &code);
        if ending.status == Status::Complete {
            prop_assert!(has_result || !decided, "complete without a proper result");
        }
        prop_assert!(ending.permissions.len() <= 100 && ending.denials.len() <= 100);
        prop_assert!(ending.notes.len() <= 110 && ending.notes.iter().all(|n| n.len() < 1_000));
        let cause_bytes: usize = ending.cause.iter().flat_map(|c| &c.evidence).map(String::len).sum();
        prop_assert!(cause_bytes <= 16 * 2_100);
    }
}

#[test]
fn a_flood_of_every_kind_leaves_the_judge_small() {
    let mut judge = Judge::new(&sample_plan());
    let long = "x".repeat(20_000);
    for seq in 0..1_000u64 {
        let unique = format!("{seq}-{long}");
        for kind in [
            EventKind::ToolCall { id: unique.clone(), tool: unique.clone(), input: String::new() },
            EventKind::ToolUpdate { id: unique.clone(), status: ToolStatus::Denied, output: unique.clone() },
            EventKind::ModelSeen { model: unique.clone(), place: unique.clone() },
            EventKind::PermissionDecided {
                tool: unique.clone(),
                decision: PermissionDecision::Denied,
                by: unique.clone(),
            },
            EventKind::TurnStarted { session: Some(unique.clone()), tools: Vec::new() },
            EventKind::NetworkDecision {
                target: unique.clone(),
                verdict: NetworkVerdict::Refused,
                code: unique.clone(),
                detail: unique.clone(),
            },
            EventKind::Note { code: "n".to_owned(), text: unique.clone() },
            EventKind::TurnEnded { outcome: TurnOutcome::MaxTurns },
        ] {
            judge.observe(&event(seq, Source::Stockade, kind));
        }
    }
    let size = format!("{judge:?}").len();
    assert!(size < 1_500_000, "{size} bytes after 8,000 events of 20 kB");
}

#[test]
fn a_flood_of_text_is_cut_without_a_hole() {
    let mut plan = sample_plan();
    plan.executable.pin = crate::order::PinKind::Unpinned;
    let mut judge = Judge::new(&plan);
    let megabyte = "x".repeat(1024 * 1024);
    for seq in 0..20 {
        judge.observe(&event(
            seq,
            Source::Agent,
            EventKind::Message { text: megabyte.clone(), cut_bytes: 0 },
        ));
    }
    judge.observe(&event(20, Source::Agent, EventKind::Message { text: "end".to_owned(), cut_bytes: 0 }));
    let outcome = TurnOutcome::Success { answer: None };
    judge.observe(&event(21, Source::Agent, EventKind::TurnEnded { outcome }));
    let ending = judge.finish(None, &Changes { complete: true, ..Changes::default() });
    assert_eq!((ending.status, ending.partial), (Status::Complete, true));
    assert!(ending.answer.unwrap().bytes().all(|b| b == b'x'), "what came after the cut is not glued to it");
}
