//! Every fault of a model, played once to each real agent: told by its name, with its exit code, within ten seconds.
//!
//! One row a fault; what only one agent makes of an answer has rows of its own. Needs root, to become another user.

#![expect(clippy::unwrap_used, reason = "a test: a panic is how it fails")]

use std::time::Duration;

use serde_json::{Value, json};
use stockade_core::mode::AccessMode;
use stockade_tests::{Agent, Caller, Ended, ScriptedModel, World, agent, outside};

/// No fault may take longer until its name is known.
const AT_MOST: Duration = Duration::from_secs(10);

/// Of an agent that computes for seconds before it asks anybody, under load for as long as you like: without that time.
const SLOW_STARTERS: [Agent; 1] = [Agent::Opencode];

/// What a model does, and how a run of it ends.
struct Fault {
    what: &'static str,
    step: Value,
    flags: &'static [&'static str],
    exit: i32,
    status: &'static str,
    /// Code and boundary of the cause.
    cause: (&'static str, &'static str),
    /// Words of the message or the evidence that let a person understand it.
    says: &'static str,
}

fn fault(
    what: &'static str,
    step: Value,
    (exit, status): (i32, &'static str),
    cause: (&'static str, &'static str),
    says: &'static str,
) -> Fault {
    Fault { what, step, flags: &[], exit, status, cause, says }
}

fn http(status: u16) -> Value {
    json!({ "http": { "status": status } })
}

fn rate_limited_for_an_hour() -> Value {
    json!({ "http": { "status": 429, "headers": { "retry-after": "3600" } } })
}

const INCOMPLETE: (i32, &str) = (65, "incomplete-output");
const ERROR: (i32, &str) = (70, "provider-error");
const BUSY: (i32, &str) = (75, "provider-busy");
const CUT: (&str, &str) = ("stream-cut", "output");

/// Every fault, as it ends for every agent.
fn faults() -> Vec<Fault> {
    let half = |end: &str| json!({ "text": "Half", "end": end });
    let denied = (77, "unauthenticated");
    let limited = ("rate-limited", "model");
    vec![
        fault("400", http(400), ERROR, ("http-error", "model"), "HTTP 400"),
        fault("401", http(401), denied, ("key-refused", "credential"), "HTTP 401"),
        fault("403", http(403), denied, ("key-forbidden", "credential"), "HTTP 403"),
        fault("404", http(404), (69, "unavailable-model"), ("model-not-found", "model"), "HTTP 404"),
        fault("429", http(429), BUSY, limited, "HTTP 429"),
        fault("429 for an hour", rate_limited_for_an_hour(), BUSY, limited, "try again in 3600 s"),
        fault("500", http(500), ERROR, ("http-error", "model"), "HTTP 500"),
        fault("529", http(529), BUSY, ("overloaded", "model"), "HTTP 529"),
        fault(
            "closed",
            json!({ "end": "close" }),
            (69, "provider-unreachable"),
            ("protocol", "model"),
            "did not answer",
        ),
        fault("cut", half("cut"), INCOMPLETE, CUT, "cut off on the wire"),
        fault("aborted", half("abort"), INCOMPLETE, CUT, "cut off on the wire"),
        fault("malformed", half("malformed"), INCOMPLETE, CUT, "cut off on the wire"),
        Fault {
            flags: &["--idle-timeout", "1500ms"],
            ..fault("hang", half("hang"), (124, "stalled"), ("limit-idle", "limit"), "measured: last was ")
        },
        Fault {
            flags: &["--timeout", "3000ms"],
            ..fault(
                "slow bytes",
                json!({ "text": ["a", "b", "c", "d", "e", "f", "g", "h"], "gapMs": 1000 }),
                (124, "timed-out"),
                ("limit-wall", "limit"),
                "the deadline passed (3000 ms)",
            )
        },
        fault(
            "another model",
            json!({ "text": "Hi", "model": "cheaper-1" }),
            (76, "model-mismatch"),
            ("served-model-mismatch", "model"),
            "was asked and `cheaper-1` answered",
        ),
        fault(
            "content filter",
            json!({ "text": "No", "finish": "content_filter" }),
            (70, "refused-by-model"),
            ("content-filter", "model"),
            "refused",
        ),
        fault(
            "token limit",
            json!({ "text": "Half", "finish": "length" }),
            INCOMPLETE,
            ("max-tokens", "output"),
            "token limit",
        ),
        fault("quota", json!({ "fault": "quota" }), (75, "usage-exhausted"), ("quota", "model"), "quota"),
        fault(
            "context overflow",
            json!({ "fault": "context-overflow" }),
            ERROR,
            ("context-overflow", "model"),
            "",
        ),
    ]
}

/// What the words of an endpoint add, and what Grok makes of answers without any content: once is enough.
fn more_faults() -> Vec<Fault> {
    let quota = r#"{"error":{"message":"You exceeded your monthly quota","type":"insufficient_quota"}}"#;
    let page = json!({ "http": { "status": 200, "contentType": "text/html", "body": "<html>Please sign in</html>" } });
    vec![
        fault("503", http(503), BUSY, ("overloaded", "model"), "HTTP 503"),
        fault(
            "429 for a quota",
            json!({ "http": { "status": 429, "body": quota } }),
            (75, "usage-exhausted"),
            ("quota", "model"),
            "You exceeded your monthly quota",
        ),
        fault(
            "429 with a date",
            json!({ "http": { "status": 429, "headers": { "retry-after": "Fri, 31 Dec 2027 23:59:59 GMT" } } }),
            BUSY,
            ("rate-limited", "model"),
            "it comes back at 2027-12-31T23:59:59Z",
        ),
        fault(
            "429 with seconds in the error",
            json!({ "http": { "status": 429, "body": r#"{"error":{"type":"usage_limit_reached","resets_in_seconds":3600}}"# } }),
            (75, "usage-exhausted"),
            ("quota", "model"),
            "try again in 3600 s",
        ),
        fault("a web page", page, ERROR, ("html-answer", "model"), "Please sign in"),
        fault("no content", json!({ "text": "" }), ERROR, ("unclassified", "model"), "empty response"),
    ]
}

/// Plays faults to an agent in a mode, as one caller after the other.
fn play(agent: Agent, mode: AccessMode, faults: Vec<Fault>) {
    for (fault, caller) in faults.into_iter().zip(Caller::both().into_iter().cycle()) {
        let world = World::with_providers(&caller);
        let scenario = json!({ "version": 1, "name": "fault", "steps": [], "otherwise": fault.step });
        let model = ScriptedModel::scenario(&world, &scenario, &[]);
        let ended = agent::end(agent.run(&world, mode, &model.url).args(fault.flags));
        assert_ended(&world, agent, &fault, &ended);
    }
}

/// Plays all of them in read-only, and an endpoint where nobody listens as each caller.
fn play_all(agent: Agent) {
    play(agent, AccessMode::ReadOnly, faults());
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let ended =
            agent::end(agent.run(&world, AccessMode::ReadOnly, &format!("http://127.0.0.1:{port}/v1")));
        let unreachable = (69, "provider-unreachable");
        let refused = fault("refused", Value::Null, unreachable, ("unreachable", "model"), "refused");
        assert_ended(&world, agent, &refused, &ended);
        assert!(ended.stderr.contains("hint: check that the endpoint runs"), "{}", ended.stderr);
    }
}

/// Plays three of them in isolated-write.
fn play_samples(agent: Agent) {
    let samples = ["401", "cut", "hang"];
    let faults = faults().into_iter().filter(|fault| samples.contains(&fault.what)).collect();
    play(agent, AccessMode::IsolatedWrite, faults);
}

#[track_caller]
fn assert_ended(world: &World, agent: Agent, fault: &Fault, ended: &Ended) {
    let receipt = world.receipt("r");
    let what = format!("{}, {} as {}: {receipt:#}", agent.name(), fault.what, world.caller.name);
    assert_eq!((ended.code(), &receipt["status"]), (fault.exit, &json!(fault.status)), "{what}");
    let cause = &receipt["cause"];
    let (code, boundary) = fault.cause;
    assert_eq!((&cause["code"], &cause["boundary"]), (&json!(code), &json!(boundary)), "{what}");
    assert!(
        format!("{} {} {}", cause["message"], cause["evidence"], cause["remedy"]).contains(fault.says),
        "{what}"
    );
    assert!(ended.stderr.contains(cause["message"].as_str().unwrap()), "{what}: {}", ended.stderr);
    let took = took(agent, &receipt, ended);
    assert!(took < AT_MOST, "{what}: told after {took:?}");
    // An answer that is only a part is kept and marked; where there is none there is no file.
    assert_eq!(receipt["partial"].as_bool().unwrap(), world.answer("r").is_some(), "{what}");
    assert_eq!(receipt["changes"], json!({ "commits": [], "files": [], "complete": true }), "{what}");
    outside::wait_for_no_process_fenced_for(world, Duration::from_secs(2));
}

/// How long the whole run took. What an agent computes before it asks anybody is not the fault's.
fn took(agent: Agent, receipt: &Value, ended: &Ended) -> Duration {
    if !SLOW_STARTERS.contains(&agent) {
        return ended.elapsed;
    }
    let events = World::events(receipt);
    let at = |kind: &str| {
        let event = events.iter().find(|event| event["event"]["kind"] == kind);
        event.map_or(0, |event| event["elapsedMs"].as_u64().unwrap())
    };
    let computing = at("model-request").saturating_sub(at("agent-started"));
    ended.elapsed.saturating_sub(Duration::from_millis(computing))
}

#[test]
fn claude_ends_every_fault_by_its_name() {
    play_all(Agent::Claude);
}

#[test]
fn claude_ends_three_of_them_in_isolated_write() {
    play_samples(Agent::Claude);
}

#[test]
fn codex_ends_every_fault_by_its_name() {
    play_all(Agent::Codex);
}

#[test]
fn codex_ends_three_of_them_in_isolated_write() {
    play_samples(Agent::Codex);
}

#[test]
fn grok_ends_every_fault_by_its_name() {
    play_all(Agent::Grok);
    play(Agent::Grok, AccessMode::ReadOnly, more_faults());
}

#[test]
fn grok_ends_three_of_them_in_isolated_write() {
    play_samples(Agent::Grok);
}

#[test]
fn opencode_ends_every_fault_by_its_name() {
    play_all(Agent::Opencode);
}

#[test]
fn opencode_ends_three_of_them_in_isolated_write() {
    play_samples(Agent::Opencode);
}
