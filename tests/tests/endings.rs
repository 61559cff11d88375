//! How a run ended: each ending has its own status, told from the wire, the kernel and the agent, in this order.
//!
//! The real Grok meets every fault that an endpoint can have; stubs show what an agent can do by itself. Callers
//! alternate through the tables, because an ending does not depend on who asked. Needs root, to become another user.

#![expect(clippy::unwrap_used, reason = "a test: a panic is how it fails")]

use std::{path::Path, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use stockade_tests::{Caller, Ended, ScriptedModel, World, outside, run::Call, stub};

/// No ending may be told later than this.
const AT_MOST: Duration = Duration::from_secs(10);

/// A fault of the endpoint, and the ending it makes.
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

fn real_grok<'w>(world: &'w World, endpoint: &str) -> Call<'w> {
    world.run("r", &["--provider", "grok", "--provider-sandbox", "replace", "--endpoint", endpoint])
}

/// Plays every fault to the real Grok, as one caller after the other.
fn play(faults: Vec<Fault>) {
    for (fault, caller) in faults.into_iter().zip(Caller::both().into_iter().cycle()) {
        let world = World::with_providers(&caller);
        let scenario = json!({ "version": 1, "name": "fault", "steps": [], "otherwise": fault.step });
        let model = ScriptedModel::scenario(&world, &scenario, &[]);
        let ended = real_grok(&world, &model.url).args(fault.flags).end();
        assert_ended(&world, &fault, &ended);
    }
}

#[track_caller]
fn assert_ended(world: &World, fault: &Fault, ended: &Ended) {
    let receipt = world.receipt("r");
    let what = format!("{} as {}: {receipt:#}", fault.what, world.caller.name);
    assert_eq!((ended.code(), &receipt["status"]), (fault.exit, &json!(fault.status)), "{what}");
    let cause = &receipt["cause"];
    let (code, boundary) = fault.cause;
    assert_eq!((&cause["code"], &cause["boundary"]), (&json!(code), &json!(boundary)), "{what}");
    assert!(format!("{} {}", cause["message"], cause["evidence"]).contains(fault.says), "{what}");
    assert!(ended.stderr.contains(cause["message"].as_str().unwrap()), "{what}: {}", ended.stderr);
    assert!(ended.elapsed < AT_MOST, "{what}: told after {:?}", ended.elapsed);
    // An answer that is only a part is kept and marked; where there is none there is no file.
    assert_eq!(receipt["partial"].as_bool().unwrap(), world.answer("r").is_some(), "{what}");
    assert_eq!(receipt["changes"], json!({ "commits": [], "files": [], "complete": true }), "{what}");
    outside::wait_for_no_process_fenced_for(world, Duration::from_secs(2));
}

fn http(status: u16) -> Value {
    json!({ "http": { "status": status } })
}

#[test]
fn an_answer_is_complete() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let model = ScriptedModel::steps(&world, &json!([{ "text": "All is well." }]));
        let ended = real_grok(&world, &model.url).end().expect_code(0);
        let receipt = world.receipt("r");
        assert_eq!((&receipt["status"], &receipt["cause"]), (&json!("complete"), &Value::Null));
        assert_eq!((&receipt["exitCode"], &receipt["partial"]), (&json!(0), &json!(false)));
        assert_eq!(world.answer("r").as_deref(), Some("All is well."));
        assert!(ended.stderr.contains("complete: exit 0"), "{}", ended.stderr);
    }
}

#[test]
fn an_answer_that_is_not_whole_is_no_success() {
    let incomplete = (65, "incomplete-output");
    play(vec![
        fault(
            "cut",
            json!({ "text": "Half", "end": "cut" }),
            incomplete,
            ("stream-cut", "output"),
            "cut off on the wire",
        ),
        fault(
            "cut again and again",
            json!({ "text": "Half", "end": "abort" }),
            incomplete,
            ("stream-cut", "output"),
            "cut off",
        ),
        fault(
            "token limit",
            json!({ "text": "Half", "finish": "length" }),
            incomplete,
            ("max-tokens", "output"),
            "token limit",
        ),
        fault(
            "malformed",
            json!({ "text": "Half", "end": "malformed" }),
            incomplete,
            ("stream-cut", "output"),
            "serialization",
        ),
        fault(
            "no content",
            json!({ "text": "" }),
            (70, "provider-error"),
            ("unclassified", "model"),
            "empty response",
        ),
        fault(
            "content filter",
            json!({ "text": "No", "finish": "content_filter" }),
            (70, "refused-by-model"),
            ("content-filter", "model"),
            "refused",
        ),
        fault(
            "another model",
            json!({ "text": "Hi", "model": "cheaper-1" }),
            (76, "model-mismatch"),
            ("served-model-mismatch", "model"),
            "`grok-4.6` was asked and `cheaper-1` answered",
        ),
    ]);
}

#[test]
fn an_http_error_is_named_by_its_status() {
    let quota = r#"{"error":{"message":"You exceeded your monthly quota","type":"insufficient_quota"}}"#;
    play(vec![
        fault("401", http(401), (77, "unauthenticated"), ("key-refused", "credential"), "HTTP 401"),
        fault("403", http(403), (77, "unauthenticated"), ("key-forbidden", "credential"), "HTTP 403"),
        fault("404", http(404), (69, "unavailable-model"), ("model-not-found", "model"), "HTTP 404"),
        fault(
            "429",
            json!({ "http": { "status": 429, "headers": { "retry-after": "7" } } }),
            (75, "provider-busy"),
            ("rate-limited", "model"),
            "try again in 7 s",
        ),
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
            (75, "provider-busy"),
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
        fault("500", http(500), (70, "provider-error"), ("http-error", "model"), "HTTP 500"),
        fault("503", http(503), (75, "provider-busy"), ("overloaded", "model"), "HTTP 503"),
        fault("529", http(529), (75, "provider-busy"), ("overloaded", "model"), "HTTP 529"),
        fault(
            "a web page",
            json!({ "http": { "status": 200, "contentType": "text/html", "body": "<html>Please sign in</html>" } }),
            (70, "provider-error"),
            ("html-answer", "model"),
            "Please sign in",
        ),
    ]);
}

#[test]
fn an_endpoint_that_is_not_there_is_told_at_once() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        // A port that was free a moment ago: nobody listens.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let ended = real_grok(&world, &format!("http://127.0.0.1:{port}/v1")).end();
        let unreachable =
            fault("refused", Value::Null, (69, "provider-unreachable"), ("unreachable", "model"), "refused");
        assert_ended(&world, &unreachable, &ended);
        assert!(ended.elapsed < Duration::from_secs(5), "{:?}", ended.elapsed);
        assert!(ended.stderr.contains("hint: check that the endpoint runs"), "{}", ended.stderr);
    }
    play(vec![fault(
        "closed",
        json!({ "end": "close" }),
        (69, "provider-unreachable"),
        ("protocol", "model"),
        "did not answer",
    )]);
}

#[test]
fn a_model_that_falls_silent_is_ended_by_the_limits() {
    let hang = || json!({ "text": "Half", "end": "hang" });
    let idle = fault("idle", hang(), (124, "stalled"), ("limit-idle", "limit"), "measured: last was ");
    let wall =
        fault("wall", hang(), (124, "timed-out"), ("limit-wall", "limit"), "the deadline passed (2500 ms)");
    play(vec![
        Fault { flags: &["--idle-timeout", "1500ms"], ..idle },
        Fault { flags: &["--timeout", "2500ms"], ..wall },
    ]);
}

#[test]
fn tools_that_are_not_in_the_plan_end_the_run_before_any_of_them() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let built_in = include_str!("../../crates/stockade-providers/profiles/grok.toml");
        let known = r#"read_only_argv = ["--tools", "read_file,"#;
        assert!(built_in.contains(known), "the profile lists its tools in another way now");
        let profile = built_in.replace(known, &format!("{known}no_such_tool,"));
        let profile = world.write("out/unknown-tool.toml", profile).display().to_string();
        let tool = json!({ "tools": [{ "name": "write", "arguments": { "file_path": "made.txt", "content": "x" } }] });
        let model = ScriptedModel::steps(&world, &json!([tool]));
        let ended = real_grok(&world, &model.url).args(&["--profile", &profile]).end();
        let mismatch =
            fault("tools", Value::Null, (78, "policy-refused"), ("toolset-mismatch", "model"), "image_gen");
        assert_ended(&world, &mismatch, &ended);
        let receipt = world.receipt("r");
        assert_eq!(
            (&receipt["toolCalls"], &receipt["usage"]["outputTokens"].as_u64().is_some()),
            (&json!(0), &true)
        );
        let seen: Vec<_> = model.requests().iter().map(|r| r["class"].clone()).collect();
        assert!(
            seen.iter().all(|class| class == "title"),
            "something of the turn reached the endpoint: {seen:?}"
        );
        assert_eq!(world.answer("r"), None);
    }
}

/// An agent that does this, and the ending it makes.
struct Doing {
    what: &'static str,
    body: String,
    exit: i32,
    status: &'static str,
    /// The code of the cause; empty: none.
    cause: &'static str,
    /// Stands in the cause or in the notes.
    says: &'static str,
}

fn run_stub<'w>(world: &'w World, body: &str) -> Call<'w> {
    let stub = world.stub("agent", body);
    world.run("r", &["--provider", "grok", "--provider-sandbox", "replace", "--model", "m"]).args(&[
        "--endpoint",
        "http://127.0.0.1:9/v1",
        "--executable",
        stub.to_str().unwrap(),
    ])
}

fn says(line: &str) -> String {
    format!("say '{line}'\n")
}

fn error(text: &str) -> String {
    says(&format!(
        r#"{{"type":"result","subtype":"error_during_execution","is_error":true,"num_turns":1,"errors":["{text}"]}}"#
    ))
}

#[test]
fn an_agent_is_judged_by_what_it_did_and_not_by_its_exit_code() {
    let start = says(stub::INIT);
    let success = || says(&stub::message("Done.")) + &says(&stub::success("Done."));
    let long = format!(r#"{{"type":"result","subtype":"success","result":"{}"#, "x".repeat(70_000));
    let doing = |what, body, exit, status, cause, says| Doing { what, body, exit, status, cause, says };
    let table = [
        doing(
            "a quota inside an error, a harmless notice on stderr, exit 1",
            start.clone()
                + "echo 'notice: a new version is there' >&2\n"
                + &error("You exceeded your monthly quota")
                + "exit 1",
            75,
            "usage-exhausted",
            "quota",
            "You exceeded your monthly quota",
        ),
        doing(
            "an error event, exit 0",
            start.clone() + &error("the tool runtime crashed"),
            70,
            "provider-error",
            "unclassified",
            "the tool runtime crashed",
        ),
        doing(
            "a log line with ERROR, then success",
            start.clone() + "echo 'ERROR telemetry failed'\n" + &success(),
            0,
            "complete",
            "",
            "ERROR telemetry failed",
        ),
        doing(
            "the first 65,536 bytes of a longer result, exit 0",
            start.clone() + &format!("printf '%s' '{}'", &long[..65_536]),
            65,
            "incomplete-output",
            "output-cut",
            "in the middle of a line",
        ),
        doing(
            "nothing at all, exit 0",
            "exit 0".to_owned(),
            65,
            "no-result",
            "nothing-done",
            "without an answer",
        ),
        doing(
            "a start event only, exit 0",
            start.clone(),
            65,
            "no-result",
            "nothing-done",
            "without an answer",
        ),
        doing(
            "busy, exit 1",
            start.clone() + &error("Server busy, this is not your limit") + "exit 1",
            75,
            "provider-busy",
            "busy",
            "not your limit",
        ),
        doing(
            "an error never seen before",
            start.clone() + &error("flux capacitor misaligned (E4711)") + "exit 1",
            70,
            "provider-error",
            "unclassified",
            "flux capacitor misaligned (E4711)",
        ),
        doing(
            "no word, exit 3",
            start.clone() + "echo 'cannot open the flux store' >&2\nexit 3",
            70,
            "child-failed",
            "exit-code",
            "cannot open the flux store",
        ),
        doing(
            "success, exit 5",
            start + &success() + "exit 5",
            0,
            "complete",
            "",
            "the agent exited with 5 after a proper result",
        ),
    ];
    for (doing, caller) in table.into_iter().zip(Caller::both().into_iter().cycle()) {
        let world = World::new(&caller);
        let ended = run_stub(&world, &doing.body).end();
        let receipt = world.receipt("r");
        let what = format!("{} as {}: {receipt:#}", doing.what, caller.name);
        assert_eq!((ended.code(), &receipt["status"]), (doing.exit, &json!(doing.status)), "{what}");
        let cause = &receipt["cause"];
        assert_eq!(cause["code"].as_str().unwrap_or_default(), doing.cause, "{what}");
        let told = format!("{} {} {}", cause["message"], cause["evidence"], receipt["notes"]);
        assert!(told.contains(doing.says), "{what}");
        assert!(!told.contains("a new version is there"), "a harmless notice is no cause: {what}");
    }
}

/// The agent's process on the host, once it runs.
fn agent_of(world: &World) -> Pid {
    let mark = world.ws().display().to_string();
    let agent =
        || outside::processes_with(&mark).into_iter().find(|(_, line)| line.contains("--prompt-file"));
    outside::wait_until("the agent runs", || agent().is_some());
    Pid::from_raw(i32::try_from(agent().unwrap().0).unwrap()).unwrap()
}

#[test]
fn an_agent_that_is_killed_from_outside_is_told_dead_at_once() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let ready = says(stub::INIT) + "sleep 600 & echo harmless telemetry >&2\nwait";
        let running = run_stub(&world, &ready).start();
        let agent = agent_of(&world);
        // Its first line is out, so that what it had said is there.
        let saying = || {
            let runs = std::fs::read_dir(world.state().join("runs")).unwrap();
            runs.flatten().any(|run| {
                std::fs::read_to_string(run.path().join("stdout")).is_ok_and(|t| t.contains("init"))
            })
        };
        outside::wait_until("the agent has said something", saying);
        let killed = std::time::Instant::now();
        kill_process(agent, Signal::KILL).unwrap();
        let ended = running.wait(Duration::from_secs(20)).expect_code(70);
        assert!(killed.elapsed() < Duration::from_secs(1), "told {:?} after the kill", killed.elapsed());
        let receipt = world.receipt("r");
        assert_eq!(receipt["status"], "killed", "{receipt:#}");
        let cause = &receipt["cause"];
        assert_eq!(
            (&cause["code"], &cause["boundary"], &cause["step"]),
            (&json!("killed"), &json!("host"), &json!("signal 9"))
        );
        assert_eq!(
            (&receipt["exitCode"], &receipt["signal"], &receipt["sessionId"]),
            (&json!(137), &Value::Null, &json!("s-1"))
        );
        assert!(ended.stderr.contains("killed by signal 9, which Stockade did not send"), "{}", ended.stderr);
        outside::wait_for_no_process_fenced_for(&world, Duration::from_secs(2));
    }
}

#[test]
fn a_result_followed_by_sleep_is_complete_and_the_tree_is_gone() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let body = says(stub::INIT) + &says(&stub::success("Done.")) + "setsid sleep 600 & exec sleep 600";
        let ended = run_stub(&world, &body).end().expect_code(0);
        let receipt = world.receipt("r");
        assert_eq!(receipt["status"], "complete", "{receipt:#}");
        assert_eq!(world.answer("r").as_deref(), Some("Done."));
        let note = "the agent did not exit within 3000 ms of its result and was stopped";
        assert!(receipt["notes"].as_array().unwrap().contains(&json!(note)), "{receipt:#}");
        assert!((3..6).contains(&ended.elapsed.as_secs()), "{:?}", ended.elapsed);
        assert_eq!(receipt["tree"]["gone"], true);
        outside::wait_for_no_process_fenced_for(&world, Duration::from_secs(2));
    }
}

/// Both streams of every run are kept, whatever its ending.
#[test]
fn what_a_failed_agent_said_is_kept() {
    let world = World::new(&Caller::root());
    run_stub(&world, "echo not of the dialect; echo and a reason >&2; exit 2").end().expect_code(70);
    let folder = world.receipt("r")["runDirectory"].as_str().unwrap().to_owned();
    let kept = |file: &str| std::fs::read_to_string(Path::new(&folder).join(file)).unwrap();
    assert_eq!(
        (kept("stdout").as_str(), kept("stderr").as_str()),
        ("not of the dialect\n", "and a reason\n")
    );
}
