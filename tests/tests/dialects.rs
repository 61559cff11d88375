//! How a run ended, told from what an agent prints: every agent's own way to say that it failed, was refused, fell silent, or
//! is done.
//!
//! Stubs speak as each of the four agents does, and misbehave. Callers alternate, because an ending does not depend on who
//! asked. Needs root, to become another user.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test: a panic is how it fails")]

use std::time::Duration;

use serde_json::{Value, json};
use stockade_core::mode::AccessMode;
use stockade_tests::{Agent, Caller, World, dialect::print, outside};

/// What a stub does, and how its run ends.
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

/// Every way of an agent to end by itself.
fn table(agent: Agent) -> Vec<Doing> {
    let start = print(&agent.begins());
    let success = || print(&(agent.says("Done.") + &agent.succeeds("Done.")));
    let fails = |text: &str| start.clone() + &print(&agent.fails(text));
    let long = agent.succeeds(&"x".repeat(70_000));
    let doing = |what, body, exit, status, cause, says| Doing { what, body, exit, status, cause, says };
    vec![
        doing(
            "a quota inside an error, a harmless notice on stderr, exit 1",
            "echo 'notice: a new version is there' >&2\n".to_owned()
                + &fails("You exceeded your monthly quota")
                + "exit 1",
            75,
            "usage-exhausted",
            "quota",
            "You exceeded your monthly quota",
        ),
        doing(
            "an error event, exit 0",
            fails("the tool runtime crashed"),
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
            fails("Server busy, this is not your limit") + "exit 1",
            75,
            "provider-busy",
            "busy",
            "not your limit",
        ),
        doing(
            "an error never seen before",
            fails("flux capacitor misaligned (E4711)") + "exit 1",
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
            "killed by a signal that nobody of us sent",
            start.clone() + "echo harmless telemetry >&2\nkill -9 $$",
            70,
            "killed",
            "killed",
            "signal 9",
        ),
        doing(
            "success, exit 5",
            start + &success() + "exit 5",
            0,
            "complete",
            "",
            "the agent exited with 5 after a proper result",
        ),
    ]
}

#[test]
fn an_agent_is_judged_by_what_it_did_and_not_by_its_exit_code() {
    for agent in Agent::ALL {
        for (doing, caller) in table(agent).into_iter().zip(Caller::both().into_iter().cycle()) {
            let world = World::new(&caller);
            let ended = agent.run_stub(&world, AccessMode::ReadOnly, &doing.body).end();
            let receipt = world.receipt("r");
            let what = format!("{}, {} as {}: {receipt:#}", agent.name(), doing.what, caller.name);
            assert_eq!((ended.code(), &receipt["status"]), (doing.exit, &json!(doing.status)), "{what}");
            let cause = &receipt["cause"];
            assert_eq!(cause["code"].as_str().unwrap_or_default(), doing.cause, "{what}");
            let told = format!("{} {} {}", cause["message"], cause["evidence"], receipt["notes"]);
            assert!(told.contains(doing.says), "{what}");
            assert!(!told.contains("a new version is there"), "a harmless notice is no cause: {what}");
        }
    }
}

/// What has to be true of every run in which a command was refused, whatever came then.
#[track_caller]
fn assert_refused(world: &World, agent: Agent, what: &str) {
    let receipt = world.receipt("r");
    let [permission] = receipt["permissions"].as_array().unwrap().as_slice() else { panic!("{what}") };
    assert_eq!(
        (&permission["tool"], &permission["by"]),
        (&json!(agent.shell_name()), &json!("agent")),
        "{what}"
    );
    assert_eq!((&receipt["sessionId"], &receipt["exitCode"]), (&json!("s-1"), &json!(0)), "{what}");
    assert_eq!(receipt["changes"], json!({ "commits": [], "files": [], "complete": true }), "{what}");
    let started = World::events(&receipt).iter().filter(|e| e["event"]["kind"] == "agent-started").count();
    assert_eq!(started, 1, "nothing is tried again: {what}");
    outside::wait_for_no_process_fenced_for(world, Duration::from_secs(2));
}

/// A stub that prints pages of warnings, these lines, and exits with 0, whoever asks it to end before.
fn warns_and(lines: &str) -> String {
    let warnings =
        "WARN  a deprecated setting was read: it will go in one of the later versions\n".repeat(80);
    format!("trap '' TERM INT\ncat >&2 <<'END'\n{warnings}END\n{}exit 0", print(lines))
}

#[test]
fn a_refused_command_that_the_turn_survives_is_counted_and_the_run_is_complete() {
    for (agent, caller) in Agent::ALL.into_iter().zip(Caller::both().into_iter().cycle()) {
        let world = World::new(&caller);
        let lines = agent.begins() + &agent.calls() + &agent.denies() + &agent.succeeds("I could not.");
        let ended = agent.run_stub(&world, AccessMode::IsolatedWrite, &warns_and(&lines)).end();
        let receipt = world.receipt("r");
        let what = format!("{} as {}: {receipt:#}", agent.name(), caller.name);
        assert_eq!(
            (ended.code(), &receipt["status"], &receipt["cause"]),
            (0, &json!("complete"), &Value::Null),
            "{what}"
        );
        let denied = json!([{ "tool": agent.shell_name(), "evidence": agent.denial() }]);
        assert_eq!((&receipt["denialCount"], &receipt["denials"]), (&json!(1), &denied), "{what}");
        assert_eq!(receipt["permissions"][0]["decision"], "denied", "{what}");
        assert_eq!(world.answer("r").as_deref(), Some("I could not."), "{what}");
        assert_refused(&world, agent, &what);
    }
}

#[test]
fn a_refused_command_that_ends_the_turn_is_no_success_whatever_is_said_then() {
    for (agent, caller) in Agent::ALL.into_iter().zip(Caller::both().into_iter().cycle()) {
        let world = World::new(&caller);
        let friendly = agent.says("I have edited the file.");
        let lines = agent.begins() + &agent.calls() + &agent.cancels() + &friendly;
        let ended = agent.run_stub(&world, AccessMode::IsolatedWrite, &warns_and(&lines)).end();
        let receipt = world.receipt("r");
        let what = format!("{} as {}: {receipt:#}", agent.name(), caller.name);
        let cause = &receipt["cause"];
        // Codex has no word for it: its turn goes on after a refusal, so that one without an end was broken off.
        let (exit, status, code) = match agent {
            Agent::Codex => (65, "incomplete-output", "no-terminal-event"),
            Agent::Claude | Agent::Grok | Agent::Opencode => {
                (80, "permission-cancelled", "permission-cancelled")
            }
        };
        assert_eq!(
            (ended.code(), &receipt["status"], &cause["code"]),
            (exit, &json!(status), &json!(code)),
            "{what}"
        );
        if exit == 80 {
            assert_eq!(cause["evidence"], json!([format!("tool: {}", agent.shell_name())]), "{what}");
            assert_eq!(receipt["usage"]["outputTokens"], 2, "{what}");
        }
        assert_refused(&world, agent, &what);
    }
}
