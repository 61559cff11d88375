use super::*;

/// One of each kind, with the name it has in the format.
fn every_kind() -> Vec<(&'static str, EventKind)> {
    let text = || "text".to_owned();
    vec![
        ("run-started", EventKind::RunStarted { run: text(), version: text() }),
        ("plan-made", EventKind::PlanMade { rung: Rung::Nsl, sha256: text() }),
        (
            "fence-proven",
            EventKind::FenceProven {
                rung: Rung::Ns,
                canaries: 12,
                guarantees: vec![Guarantee::Network],
                elapsed_us: 1,
            },
        ),
        ("generation-started", EventKind::GenerationStarted { generation: 1 }),
        ("agent-started", EventKind::AgentStarted { argv: vec![text()] }),
        ("prompt-queued", EventKind::PromptQueued { bytes: 1, sha256: text() }),
        ("turn-started", EventKind::TurnStarted { session: Some(text()), tools: vec![text()] }),
        (
            "model-request",
            EventKind::ModelRequest {
                request: 1,
                class: text(),
                model: Some(text()),
                tools: vec![text()],
                bytes: 1,
                effort: None,
            },
        ),
        (
            "model-response",
            EventKind::ModelResponse {
                request: 1,
                class: text(),
                status: Some(200),
                failure: None,
                finish_reason: Some(text()),
                served_model: Some(text()),
                usage: Some(Usage { input_tokens: Some(1), ..Usage::default() }),
                cut: false,
                content_type: None,
                retry_after_s: None,
                error: None,
                stated: None,
                elapsed_ms: 1,
            },
        ),
        ("message", EventKind::Message { text: text(), cut_bytes: 0 }),
        ("thought", EventKind::Thought { text: text(), cut_bytes: 0 }),
        ("tool-call", EventKind::ToolCall { id: text(), tool: text(), input: text() }),
        ("tool-update", EventKind::ToolUpdate { id: text(), status: ToolStatus::Denied, output: text() }),
        ("permission-asked", EventKind::PermissionAsked { tool: text() }),
        (
            "permission-decided",
            EventKind::PermissionDecided {
                tool: text(),
                decision: PermissionDecision::Cancelled,
                by: text(),
            },
        ),
        ("question-asked", EventKind::QuestionAsked { text: text() }),
        ("question-answered", EventKind::QuestionAnswered { text: text() }),
        ("model-seen", EventKind::ModelSeen { model: text(), place: text() }),
        ("usage", EventKind::Usage { usage: Usage::default(), cost_usd: Some(0.5), models: BTreeMap::new() }),
        (
            "network-decision",
            EventKind::NetworkDecision {
                target: text(),
                verdict: NetworkVerdict::AnsweredHere,
                code: text(),
                detail: text(),
            },
        ),
        ("limit-reached", EventKind::LimitReached { limit: text(), value: text(), measured: text() }),
        ("note", EventKind::Note { code: text(), text: text() }),
        ("turn-ended", EventKind::TurnEnded { outcome: TurnOutcome::MaxTurns }),
        ("session-resumed", EventKind::SessionResumed { session: text() }),
        ("agent-exited", EventKind::AgentExited { code: Some(0), signal: None, left_behind: 1 }),
        ("tree-ended", EventKind::TreeEnded { gone: true, killed: 0, elapsed_us: 1 }),
    ]
}

#[test]
fn every_kind_has_its_name_and_reads_back() {
    let mut lines = String::new();
    for (seq, (name, kind)) in (0..).zip(every_kind()) {
        let event = Event {
            v: EVENT_VERSION,
            seq,
            time: "2026-01-02T03:04:05.678Z".to_owned(),
            elapsed_ms: 7,
            source: Source::Stockade,
            event: kind,
        };
        let line = serde_json::to_string(&event).unwrap();
        let read: Event = serde_json::from_str(&line).unwrap();
        assert_eq!(read, event);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["event"]["kind"], name);
        assert!(!line.contains('\n'), "one event, one line");
        lines += &line;
        lines.push('\n');
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn usage_adds_what_is_known_and_keeps_the_rest_unknown() {
    let mut sum = Usage::default();
    sum.add(&Usage { input_tokens: Some(1), ..Usage::default() });
    sum.add(&Usage { input_tokens: Some(2), output_tokens: Some(3), ..Usage::default() });
    sum.add(&Usage::default());
    assert_eq!(sum, Usage { input_tokens: Some(3), output_tokens: Some(3), ..Usage::default() });
    sum.add(&Usage { input_tokens: Some(u64::MAX), ..Usage::default() });
    assert_eq!(sum.input_tokens, Some(u64::MAX), "no overflow");
    assert!(Usage { cached_input_tokens: Some(5), ..Usage::default() }.is_zero());
    assert!(!sum.is_zero());
}

#[test]
fn unknown_usage_is_left_out_of_the_format() {
    assert_eq!(serde_json::to_string(&Usage::default()).unwrap(), "{}");
}
