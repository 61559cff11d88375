//! A cancelled permission is no success: exit code 0 and a friendly sentence do not make one.
//!
//! A stub shows the failure as it was reported, and the real Grok shows it under the flags that many runners give it.
//! Needs root, to become another user.

#![expect(clippy::unwrap_used, reason = "a test: a panic is how it fails")]

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use stockade_core::mode::AccessMode;
use stockade_tests::{Agent, Caller, Ended, ScriptedModel, World, agent, model, outside, stub};

/// How the agent's own decision reads in its stream.
const CANCELLED: &str = r#"[{\"type\":\"content\",\"content\":{\"type\":\"text\",\"text\":\"User cancelled the execution for tool `TOOL`\"}}]"#;

/// A request for a tool, and what the agent told the model about it.
fn asked_and_told(tool: &str, told: &str) -> [String; 2] {
    [
        format!(
            r#"{{"type":"assistant","message":{{"role":"assistant","model":"m","content":[{{"type":"tool_use","id":"c-1","name":"{tool}","input":{{"file_path":"README.md"}}}}],"stop_reason":"tool_use"}}}}"#
        ),
        format!(
            r#"{{"type":"user","message":{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"c-1","content":"{told}","is_error":true}}]}}}}"#
        ),
    ]
}

/// The end of a turn that a permission prompt cancelled, with the tokens used until then.
const CANCELLED_END: &str = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"num_turns":1,"stop_reason":"cancelled","usage":{"input_tokens":60,"output_tokens":7,"cache_read_input_tokens":40},"modelUsage":{"m":{"inputTokens":60,"outputTokens":7,"cacheReadInputTokens":40}},"errors":["cancelled"]}"#;

/// About six thousand characters of warnings.
fn warnings() -> String {
    "WARN  a deprecated setting was read: it will be removed in one of the later versions .\n".repeat(70)
}

/// A stub that prints warnings and these lines, writes these lines into the session's own log, ignores TERM, and exits
/// with 0.
fn stub(world: &World, lines: &[String], log: &[&str]) -> PathBuf {
    let body = format!(
        r#"trap '' TERM
while [ $# -gt 0 ]; do case "$1" in -s) session=$2;; --cwd) cwd=$2;; esac; shift; done
cat >&2 <<'END_OF_WARNINGS'
{}END_OF_WARNINGS
folder="$GROK_HOME/sessions/${{cwd//\//%2F}}/$session"
mkdir -p "$folder"
cat >"$folder/events.jsonl" <<'END_OF_LOG'
{}
END_OF_LOG
cat <<'END_OF_LINES'
{}
END_OF_LINES
exit 0"#,
        warnings(),
        log.join("\n"),
        lines.join("\n"),
    );
    world.stub("cancels", &body)
}

/// Runs a stub; nothing answers at the endpoint, because a stub asks nothing.
fn run_stub(world: &World, mode: &str, stub: &Path) -> Ended {
    world
        .run("r", &["--provider", "grok", "--provider-sandbox", "replace", "--mode", mode, "--model", "m"])
        .args(&["--endpoint", "http://127.0.0.1:9/v1", "--executable", stub.to_str().unwrap()])
        .end()
}

/// What has to be true of every run that ended at a permission prompt.
#[track_caller]
fn assert_cancelled(world: &World, receipt: &Value, tool: &str) {
    assert_eq!(receipt["status"], "permission-cancelled", "{receipt:#}");
    let cause = json!({
        "code": "permission-cancelled",
        "boundary": "provider-permission",
        "step": format!("permission for {tool}"),
        "errno": null,
        "message": format!("the agent cancelled its turn at a permission prompt for `{tool}` that nobody could answer"),
        "evidence": [format!("tool: {tool}")],
        "remedy": "use Stockade's own profile of this provider: its permission strategy never prompts",
    });
    assert_eq!(receipt["cause"], cause);
    assert_eq!(receipt["error"]["message"], cause["message"]);
    assert_eq!(receipt["failurePhase"], "invocation");
    assert_eq!(receipt["permissions"], json!([{ "tool": tool, "decision": "cancelled", "by": "agent" }]));
    assert_eq!(receipt["denialCount"], 0);
    assert_eq!(receipt["changes"], json!({ "commits": [], "files": [], "complete": true }));
    let events = World::events(receipt);
    let of = |kind: &str| events.iter().filter(|e| e["event"]["kind"] == kind).count();
    assert_eq!((of("agent-started"), of("generation-started")), (1, 1), "nothing is tried again");
    outside::wait_for_no_process_fenced_for(world, Duration::from_secs(2));
}

#[test]
fn a_cancelled_edit_that_exits_with_zero_is_permission_cancelled() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let before = outside::picture(&world.ws());
        let [asked, told] = asked_and_told("search_replace", &CANCELLED.replace("TOOL", "search_replace"));
        let lines = [
            stub::INIT.to_owned(),
            asked,
            told,
            CANCELLED_END.to_owned(),
            stub::message("I have edited the file."),
        ];
        let stub = stub(&world, &lines, &[]);
        let ended = run_stub(&world, "isolated-write", &stub).expect_code(80);
        let receipt = world.receipt("r");
        assert_cancelled(&world, &receipt, "search_replace");
        assert!(ended.stderr.contains("`search_replace`"), "{}", ended.stderr);
        assert_eq!(receipt["sessionId"], "s-1");
        assert_eq!(receipt["reportedModel"], "m");
        let usage = &receipt["usage"];
        assert_eq!((&usage["inputTokens"], &usage["outputTokens"]), (&json!(100), &json!(7)), "{usage}");
        assert_eq!(receipt["exitCode"], 0);
        assert_kept_whole(&receipt, &lines);
        assert_eq!(outside::picture(&world.ws()), before);
    }
}

/// Both streams stand whole in the run directory.
#[track_caller]
fn assert_kept_whole(receipt: &Value, lines: &[String]) {
    let kept = |file: &str| {
        std::fs::read_to_string(Path::new(receipt["runDirectory"].as_str().unwrap()).join(file)).unwrap()
    };
    assert_eq!(kept("stderr"), warnings());
    assert_eq!(kept("stdout"), lines.join("\n") + "\n");
}

#[test]
fn a_cancelled_shell_command_in_a_read_only_lane_is_permission_cancelled() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        // Here only the session's own log says what the permission was for.
        let log = [
            r#"{"type":"tool_started","tool_name":"run_terminal_command"}"#,
            r#"{"type":"phase_changed","phase":"permission_prompt"}"#,
            r#"{"type":"permission_requested","tool_name":"run_terminal_command"}"#,
            r#"{"type":"permission_resolved","tool_name":"run_terminal_command","decision":"cancelled","wait_ms":0}"#,
            r#"{"type":"turn_ended","outcome":"cancelled","cancellation_category":"permission_cancelled"}"#,
        ];
        let lines =
            [stub::INIT.to_owned(), CANCELLED_END.to_owned(), stub::message("I have listed the files.")];
        let stub = stub(&world, &lines, &log);
        run_stub(&world, "read-only", &stub).expect_code(80);
        let receipt = world.receipt("r");
        assert_cancelled(&world, &receipt, "run_terminal_command");
        assert_kept_whole(&receipt, &lines);
        assert_eq!(receipt["sessionId"], "s-1");
        let kept = Path::new(receipt["runDirectory"].as_str().unwrap()).join("session-events.jsonl");
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), log.join("\n") + "\n", "{}", kept.display());
    }
}

#[test]
fn a_denial_that_the_turn_survives_is_counted_and_the_run_is_complete() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let denied = "Tool `search_replace` was not executed: Denied by permission policy: deny rule on edit";
        let [asked, told] = asked_and_told("search_replace", denied);
        let lines = [
            stub::INIT.to_owned(),
            asked,
            told,
            stub::message("I could not."),
            stub::success("I could not."),
        ];
        let stub = stub(&world, &lines, &[]);
        run_stub(&world, "isolated-write", &stub).expect_code(0);
        let receipt = world.receipt("r");
        assert_eq!((&receipt["status"], &receipt["cause"]), (&json!("complete"), &Value::Null));
        assert_eq!(receipt["denialCount"], 1);
        assert_eq!(receipt["denials"], json!([{ "tool": "search_replace", "evidence": denied }]));
        assert_eq!(
            receipt["permissions"],
            json!([{ "tool": "search_replace", "decision": "denied", "by": "agent" }])
        );
        assert_eq!(world.answer("r").as_deref(), Some("I could not."));
        assert_kept_whole(&receipt, &lines);
    }
}

/// The permission strategy of two profiles.
const OURS: &str = r#""--permission-mode", "bypassPermissions""#;

/// A built-in profile with another permission mode: what many runners start the agent with.
fn profile_with(agent: Agent, world: &World, permission_mode: &str) -> String {
    agent.profile_with(world, &[(OURS, &format!(r#""--permission-mode", "{permission_mode}""#))])
}

#[test]
fn the_real_grok_under_its_old_flags_is_told_at_once_with_the_tool_it_asked_for() {
    let edit = json!({ "tools": [{ "name": "search_replace", "arguments": {
        "file_path": "README.md", "old_string": "hello\n", "new_string": "changed\n" } }] });
    for caller in Caller::both() {
        for (mode, permission_mode, step, tool) in [
            ("isolated-write", "acceptEdits", edit.clone(), "search_replace"),
            ("read-only", "plan", model::shell("echo hi > made.txt"), "run_terminal_command"),
        ] {
            let world = World::with_providers(&caller);
            let before = outside::picture(&world.ws());
            let model = ScriptedModel::steps(&world, &json!([step]));
            let profile = profile_with(Agent::Grok, &world, permission_mode);
            let flags = [
                "--provider",
                "grok",
                "--provider-sandbox",
                "replace",
                "--mode",
                mode,
                "--profile",
                &profile,
            ];
            world.run("r", &flags).args(&["--endpoint", &model.url]).end().expect_code(80);
            let receipt = world.receipt("r");
            assert_cancelled(&world, &receipt, tool);
            assert!(
                receipt["sessionId"].is_string() && receipt["usage"]["inputTokens"].is_u64(),
                "{receipt:#}"
            );
            assert_eq!(receipt["modelIdentity"]["evidence"], "wire");
            let events = World::events(&receipt);
            let at = |kind: &str| {
                let found = events.iter().find(|e| e["event"]["kind"] == kind);
                found.unwrap_or_else(|| panic!("no {kind}"))["elapsedMs"].as_u64().unwrap()
            };
            let told_in = at("tree-ended") - at("permission-decided");
            assert!(told_in < 1500, "{told_in} ms from the cancelled prompt to the end");
            let turns = model.requests().iter().filter(|r| r["class"] == "main").count();
            assert_eq!(turns, 1, "the model was not asked again");
            assert_eq!(outside::picture(&world.ws()), before);
        }
    }
}

/// Nothing changed, and one refusal was counted that the turn survived.
#[track_caller]
fn assert_one_denied(world: &World, ended: &Ended, agent: Agent, tool: &str) {
    let receipt = world.receipt("r");
    let what = format!("{} as {}: {receipt:#}", agent.name(), world.caller.name);
    assert_eq!((ended.code(), &receipt["status"]), (0, &json!("complete")), "{what}");
    assert_eq!(
        (&receipt["denialCount"], &receipt["denials"][0]["tool"]),
        (&json!(1), &json!(tool)),
        "{what}"
    );
    assert_eq!(world.answer("r").as_deref(), Some("I could not."), "{what}");
    assert_eq!(receipt["changes"], json!({ "commits": [], "files": [], "complete": true }), "{what}");
}

/// It refuses, tells the model, and goes on.
#[test]
fn the_real_claude_under_other_flags_is_complete_with_one_denial() {
    let agent = Agent::Claude;
    let write = json!({ "tools": [{ "name": "Write", "arguments": { "file_path": "{{workspace}}/made.txt", "content": "x" } }] });
    for (caller, mode, step, tool) in [
        (Caller::root(), AccessMode::IsolatedWrite, write, "Write"),
        (Caller::fresh_user(), AccessMode::ReadOnly, agent.shell("echo hi > made.txt"), "Bash"),
    ] {
        let world = World::with_providers(&caller);
        let model = ScriptedModel::steps(&world, &json!([step, { "text": "I could not." }]));
        let profile = profile_with(agent, &world, "default");
        let ended = agent.run(&world, mode, &model.url).args(&["--profile", &profile]).end();
        assert_one_denied(&world, &ended, agent, tool);
    }
}

/// A question that nobody answers ends its turn with exit code 0; a rule that forbids a command does not.
#[test]
fn the_real_opencode_that_asks_is_told_at_once_and_one_that_refuses_goes_on() {
    let agent = Agent::Opencode;
    let steps = json!([agent.shell("touch made.txt"), { "text": "I could not." }]);
    let allowed = "\"bash\": \"allow\"";

    let world = World::with_providers(&Caller::root());
    let model = ScriptedModel::steps(&world, &steps);
    let profile = agent.profile_with(&world, &[(allowed, "\"bash\": \"ask\"")]);
    let call = agent.run(&world, AccessMode::ReadOnly, &model.url).args(&["--profile", &profile]);
    agent::end(call).expect_code(80);
    assert_cancelled(&world, &world.receipt("r"), "bash");
    assert_eq!(model.requests().len(), 1, "the model was not asked again");

    let world = World::with_providers(&Caller::fresh_user());
    let model = ScriptedModel::steps(&world, &steps);
    let rules = "\"bash\": {{ \"*\": \"allow\", \"touch *\": \"deny\" }}";
    let profile = agent.profile_with(&world, &[(allowed, rules)]);
    let call = agent.run(&world, AccessMode::IsolatedWrite, &model.url).args(&["--profile", &profile]);
    assert_one_denied(&world, &agent::end(call), agent, "bash");
}

#[test]
fn an_agent_that_cancels_under_other_flags_works_under_ours() {
    for caller in Caller::both() {
        for (permission_mode, code) in [(None, 0), (Some("acceptEdits"), 80), (Some("plan"), 80)] {
            let world = World::new(&caller);
            let [asked, told] =
                asked_and_told("search_replace", &CANCELLED.replace("TOOL", "search_replace"));
            let cancelled = [stub::INIT, &asked, &told, CANCELLED_END].join("\n");
            let done = [stub::INIT.to_owned(), stub::message("Edited."), stub::success("Edited.")].join("\n");
            let stub = world.stub(
                "looks-at-its-flags",
                &format!(
                    r#"case " $* " in
*" --permission-mode bypassPermissions "*) printf 'edited\n' >README.md; cat <<'END'
{done}
END
;;
*) cat <<'END'
{cancelled}
END
;;
esac"#
                ),
            );
            let profile = permission_mode.map(|mode| profile_with(Agent::Grok, &world, mode));
            let flags = [
                "--provider",
                "grok",
                "--provider-sandbox",
                "replace",
                "--mode",
                "isolated-write",
                "--model",
                "m",
            ];
            let mut call = world.run("r", &flags);
            if let Some(profile) = &profile {
                call = call.args(&["--profile", profile]);
            }
            call.args(&["--endpoint", "http://127.0.0.1:9/v1", "--executable", stub.to_str().unwrap()])
                .end()
                .expect_code(code);
            let receipt = world.receipt("r");
            if code == 0 {
                assert_eq!(receipt["status"], "complete");
                assert_eq!(std::fs::read_to_string(world.ws().join("README.md")).unwrap(), "edited\n");
                let paths: Vec<_> =
                    receipt["changes"]["files"].as_array().unwrap().iter().map(|f| &f["path"]).collect();
                assert_eq!(paths, ["README.md"]);
            } else {
                assert_cancelled(&world, &receipt, "search_replace");
            }
        }
    }
}
