//! Every fault of a model, played once to each real agent: told by its name, with its exit code, within ten seconds.
//!
//! One row a fault. What an agent makes differently is said beside its name. Needs root, to become another user.

#![expect(clippy::unwrap_used, reason = "a test: a panic is how it fails")]

use std::time::Duration;

use serde_json::{Value, json};
use stockade_tests::{Caller, Ended, ScriptedModel, World, outside};

/// No fault may take longer until its name is known.
const AT_MOST: Duration = Duration::from_secs(10);

/// Agents that need seconds of computing to start, whatever they are asked: under load no limit holds for that.
const SLOW_STARTERS: [&str; 1] = ["opencode"];

/// What a model does, and how a run of it ends.
struct Fault {
    what: &'static str,
    step: Value,
    flags: &'static [&'static str],
    exit: i32,
    status: &'static str,
    /// The code of the cause.
    code: &'static str,
}

fn fault(what: &'static str, step: Value, exit: i32, status: &'static str, code: &'static str) -> Fault {
    Fault { what, step, flags: &[], exit, status, code }
}

fn http(status: u16) -> Value {
    json!({ "http": { "status": status } })
}

/// Every fault, as it ends for an agent that behaves as the wire says.
fn faults() -> Vec<Fault> {
    let incomplete = "incomplete-output";
    vec![
        fault("400", http(400), 70, "provider-error", "http-error"),
        fault("401", http(401), 77, "unauthenticated", "key-refused"),
        fault("403", http(403), 77, "unauthenticated", "key-forbidden"),
        fault("404", http(404), 69, "unavailable-model", "model-not-found"),
        fault("429", http(429), 75, "provider-busy", "rate-limited"),
        fault(
            "429 for an hour",
            json!({ "http": { "status": 429, "headers": { "retry-after": "3600" } } }),
            75,
            "provider-busy",
            "rate-limited",
        ),
        fault("500", http(500), 70, "provider-error", "http-error"),
        fault("529", http(529), 75, "provider-busy", "overloaded"),
        fault("closed", json!({ "end": "close" }), 69, "provider-unreachable", "protocol"),
        fault("cut", json!({ "text": "Half", "end": "cut" }), 65, incomplete, "stream-cut"),
        fault("aborted", json!({ "text": "Half", "end": "abort" }), 65, incomplete, "stream-cut"),
        fault("malformed", json!({ "text": "Half", "end": "malformed" }), 65, incomplete, "stream-cut"),
        Fault {
            flags: &["--idle-timeout", "1500ms"],
            ..fault("hang", json!({ "text": "Half", "end": "hang" }), 124, "stalled", "limit-idle")
        },
        Fault {
            flags: &["--timeout", "3000ms"],
            ..fault(
                "slow bytes",
                json!({ "text": ["a", "b", "c", "d", "e", "f", "g", "h"], "gapMs": 1000 }),
                124,
                "timed-out",
                "limit-wall",
            )
        },
        fault(
            "another model",
            json!({ "text": "Hi", "model": "cheaper-1" }),
            76,
            "model-mismatch",
            "served-model-mismatch",
        ),
        fault(
            "content filter",
            json!({ "text": "No", "finish": "content_filter" }),
            70,
            "refused-by-model",
            "content-filter",
        ),
        fault("token limit", json!({ "text": "Half", "finish": "length" }), 65, incomplete, "max-tokens"),
        fault("quota", json!({ "fault": "quota" }), 75, "usage-exhausted", "quota"),
        fault(
            "context overflow",
            json!({ "fault": "context-overflow" }),
            70,
            "provider-error",
            "context-overflow",
        ),
    ]
}

/// Plays every fault to a provider in read-only, as one caller after the other.
fn play(provider: &str) {
    for (fault, caller) in faults().iter().zip(Caller::both().into_iter().cycle()) {
        play_one(provider, "read-only", fault, &caller);
    }
}

/// Plays three of them in isolated-write.
fn play_samples(provider: &str) {
    let samples = ["401", "cut", "hang"];
    let faults = faults().into_iter().filter(|fault| samples.contains(&fault.what));
    for (fault, caller) in faults.zip(Caller::both().into_iter().cycle()) {
        play_one(provider, "isolated-write", &fault, &caller);
    }
}

fn play_one(provider: &str, mode: &str, fault: &Fault, caller: &Caller) {
    let world = World::with_providers(caller);
    let scenario = json!({ "version": 1, "name": "fault", "steps": [], "otherwise": fault.step });
    let model = ScriptedModel::scenario(&world, &scenario, &[]);
    let ended = run(&world, provider, mode, &model.url).args(fault.flags).end();
    assert_ended(&world, provider, fault, &ended);
}

fn run<'w>(world: &'w World, provider: &str, mode: &str, endpoint: &str) -> stockade_tests::run::Call<'w> {
    world.run(
        "r",
        &["--provider", provider, "--mode", mode, "--provider-sandbox", "replace", "--endpoint", endpoint],
    )
}

#[track_caller]
fn assert_ended(world: &World, provider: &str, fault: &Fault, ended: &Ended) {
    let receipt = world.receipt("r");
    let what = format!("{provider}, {} as {}: {receipt:#}", fault.what, world.caller.name);
    assert_eq!((ended.code(), &receipt["status"]), (fault.exit, &json!(fault.status)), "{what}");
    assert_eq!(receipt["cause"]["code"], fault.code, "{what}");
    let took = took(provider, &receipt, ended);
    assert!(took < AT_MOST, "{what}: told after {took:?}");
    // An answer that is only a part is kept and marked; where there is none there is no file.
    assert_eq!(receipt["partial"].as_bool().unwrap(), world.answer("r").is_some(), "{what}");
    assert_eq!(receipt["changes"], json!({ "commits": [], "files": [], "complete": true }), "{what}");
    outside::wait_for_no_process_fenced_for(world, Duration::from_secs(2));
}

/// How long a fault took until its name was known. What an agent computes before it asks anybody is not the fault's.
fn took(provider: &str, receipt: &Value, ended: &Ended) -> Duration {
    if !SLOW_STARTERS.contains(&provider) {
        return ended.elapsed;
    }
    let events = World::events(receipt);
    let at = |event: &Value| event["elapsedMs"].as_u64().unwrap();
    let asked = events.iter().find(|e| e["event"]["kind"] == "model-request").map_or(0, at);
    Duration::from_millis(at(events.last().unwrap()) - asked)
}

/// An endpoint where nobody listens, as each caller.
fn play_refused(provider: &str) {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let ended = run(&world, provider, "read-only", &format!("http://127.0.0.1:{port}/v1")).end();
        let refused = fault("refused", Value::Null, 69, "provider-unreachable", "unreachable");
        assert_ended(&world, provider, &refused, &ended);
    }
}

#[test]
fn codex_ends_every_fault_by_its_name() {
    play("codex");
    play_refused("codex");
}

#[test]
fn codex_ends_three_of_them_in_isolated_write() {
    play_samples("codex");
}

#[test]
fn claude_ends_every_fault_by_its_name() {
    play("claude");
    play_refused("claude");
}

#[test]
fn claude_ends_three_of_them_in_isolated_write() {
    play_samples("claude");
}

#[test]
fn opencode_ends_every_fault_by_its_name() {
    play("opencode");
    play_refused("opencode");
}

#[test]
fn opencode_ends_three_of_them_in_isolated_write() {
    play_samples("opencode");
}
