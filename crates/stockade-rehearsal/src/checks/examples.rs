//! Values for the tests of the checks: a good run, to be spoilt one thing at a time.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stockade_core::{
    changes::Changes,
    event::{EVENT_VERSION, Event, EventKind, Source, TurnOutcome},
    guarantee::Guarantee,
    judge::{ModelEvidence, ModelIdentity},
    mode::{AccessMode, ProviderSandbox},
    order::Limits,
    receipt::{
        CredentialRecord, EnvironmentRecord, LauncherRecord, Preflight, Receipt, SCHEMA_VERSION,
        StockadeRecord, TreeRecord,
    },
    status::Status,
    survey::Rung,
};
use stockade_model::{LogLine, RequestClass, RequestSeen};

use crate::{play::Played, wire::Wire};

pub(crate) const MODEL: &str = "grok-4.6";
pub(crate) const TOOLS: [&str; 2] = ["read_file", "run_terminal_command"];

/// A request of the conversation that is answered by a step.
pub(crate) fn request(step: usize, elapsed_ms: u64, messages: &Value) -> RequestSeen {
    let body = json!({ "model": MODEL, "messages": messages });
    RequestSeen {
        sequence: step as u64 + 1,
        connection: 1,
        elapsed_ms,
        method: "POST".to_owned(),
        path: "/v1/chat/completions".to_owned(),
        headers: BTreeMap::new(),
        class: RequestClass::Main,
        model: Some(MODEL.to_owned()),
        tools: TOOLS.map(str::to_owned).to_vec(),
        step: Some(step),
        body_bytes: body.to_string().len(),
        body: Some(body),
        body_text: None,
        body_cut: false,
    }
}

/// The requests of a conversation in which the model was told these results, one after the other, 10 ms apart.
pub(crate) fn conversation(results: &[String]) -> Vec<RequestSeen> {
    let mut messages = vec![json!({"role": "user", "content": "go"})];
    let mut requests = vec![request(0, 0, &json!(messages))];
    for (step, result) in results.iter().enumerate() {
        messages.push(json!({"role": "assistant", "content": "", "tool_calls": [{"id": step}]}));
        messages.push(json!({"role": "tool", "tool_call_id": step, "content": result}));
        requests.push(request(step + 1, 10 * (step as u64 + 1), &json!(messages)));
    }
    requests
}

pub(crate) fn wire(requests: Vec<RequestSeen>) -> Wire {
    Wire::new(requests.into_iter().map(|request| LogLine::Request(Box::new(request))).collect())
}

fn event(elapsed_ms: u64, event: EventKind) -> Event {
    let time = "2026-01-01T00:00:00.000Z".to_owned();
    Event { v: EVENT_VERSION, seq: 0, time, elapsed_ms, source: Source::Kernel, event }
}

/// The events of a good run.
pub(crate) fn events() -> Vec<Event> {
    let guarantees = vec![Guarantee::Secrets];
    vec![
        event(20, EventKind::FenceProven { rung: Rung::Ns, canaries: 7, guarantees, elapsed_us: 9000 }),
        event(25, EventKind::AgentStarted { argv: Vec::new() }),
        event(400, EventKind::TurnEnded { outcome: TurnOutcome::Success { answer: None } }),
    ]
}

/// A good run that told the model these results.
pub(crate) fn played(results: &[String]) -> Played {
    Played {
        receipt: receipt(),
        plan: None,
        events: events(),
        wire: wire(conversation(results)),
        cancel: None,
        stopped: false,
    }
}

/// The receipt of a good run.
pub(crate) fn receipt() -> Receipt {
    Receipt {
        schema_version: SCHEMA_VERSION,
        status: Status::Complete,
        parent: None,
        provider: "grok".to_owned(),
        model: MODEL.to_owned(),
        effort: None,
        mode: AccessMode::ReadOnly,
        cwd: "/w".to_owned(),
        prompt_path: "-".to_owned(),
        output_path: None,
        receipt_path: None,
        execution_id: "0190".to_owned(),
        run_directory: "/s/runs/0190".to_owned(),
        started_at: "2026-01-01T00:00:00.000Z".to_owned(),
        completed_at: None,
        elapsed_ms: Some(500),
        executable: None,
        preflight: Preflight::default(),
        argv: Vec::new(),
        exit_code: Some(0),
        signal: None,
        reported_model: None,
        model_verified: true,
        model_evidence: Some("wire".to_owned()),
        session_id: None,
        usage: None,
        cost_usd: None,
        cost_source: None,
        error: None,
        failure_phase: None,
        process_started: true,
        timeout_ms: None,
        cause: None,
        survey: None,
        guarantees: Vec::new(),
        fence: None,
        profile: None,
        runtime: None,
        credential: CredentialRecord { kind: "none".to_owned(), account_mark: None },
        environment: EnvironmentRecord::default(),
        provider_sandbox: ProviderSandbox::Replace,
        permissions: Vec::new(),
        denials: Vec::new(),
        denial_count: 0,
        tool_calls: 5,
        model_requests: 6,
        requests: Vec::new(),
        model_identity: Some(ModelIdentity {
            asked: MODEL.to_owned(),
            source: "profile-default".to_owned(),
            requested_seen: vec![MODEL.to_owned()],
            efforts_seen: Vec::new(),
            served: vec![MODEL.to_owned()],
            evidence: ModelEvidence::Wire,
            per_turn: BTreeMap::new(),
        }),
        changes: Changes { commits: Vec::new(), files: Vec::new(), complete: true },
        git: None,
        partial: false,
        digests: BTreeMap::new(),
        rehearsal: Some("read-only".to_owned()),
        limits: Limits::default(),
        held_limits: Vec::new(),
        tree: TreeRecord { gone: true, ..TreeRecord::default() },
        network_decisions: BTreeMap::new(),
        notes: Vec::new(),
        launcher: LauncherRecord { boot_id: String::new(), pid: 1, start_time: 0 },
        stockade: StockadeRecord { version: "0".to_owned(), commit: None, target: String::new() },
    }
}
