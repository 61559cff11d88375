//! The real Claude Code: what it does in a lane, and what it does not.
//!
//! Needs root, to become another user, and a host with user namespaces, `bwrap` and `socat`.

#![expect(clippy::unwrap_used, reason = "a test: a panic is how it fails")]

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};
use stockade_tests::{Caller, ScriptedModel, World, run::Call, surroundings::Surroundings};

/// The model that the profile names.
const MODEL: &str = "claude-opus-5-5";

const READS: [&str; 4] = ["Bash", "Glob", "Grep", "Read"];
const WRITES: [&str; 6] = ["Bash", "Edit", "Glob", "Grep", "Read", "Write"];

/// A tool call that runs a command.
fn runs(command: &str) -> Value {
    json!({ "tools": [{ "name": "Bash", "arguments": { "command": command, "description": "test" } }] })
}

/// A lane with its own sandbox replaced.
fn lane<'w>(world: &'w World, endpoint: &str, args: &[&str]) -> Call<'w> {
    world
        .run("r", &["--provider", "claude", "--provider-sandbox", "replace", "--endpoint", endpoint])
        .args(args)
}

/// What a lane is made to do: read and search with the agent's own tools, run a command, write where that is possible.
fn work() -> Value {
    let tool = |name: &str, arguments: Value| json!({ "tools": [{ "name": name, "arguments": arguments }] });
    json!([
        tool("Read", json!({ "file_path": "{{workspace}}/README.md" })),
        tool("Grep", json!({ "pattern": "hell", "output_mode": "content" })),
        tool("Glob", json!({ "pattern": "*.md" })),
        tool(
            "Bash",
            json!({ "command": "id -u; echo written > by-shell.txt; echo status=$?", "description": "write" })
        ),
        tool(
            "Edit",
            json!({ "file_path": "{{workspace}}/README.md", "old_string": "hello", "new_string": "goodbye" })
        ),
        tool("Write", json!({ "file_path": "{{workspace}}/made.md", "content": "made\n" })),
    ])
}

fn files(receipt: &Value) -> Vec<&str> {
    receipt["changes"]["files"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect()
}

/// One lane of the agent's whole work, looked at on the wire and on the host.
fn works(caller: &Caller, mode: &str, sandbox: &str) {
    let world = World::with_providers(caller);
    let around = Surroundings::of(&world);
    let model = ScriptedModel::steps(&world, &work());
    let what = format!("{mode} {sandbox} as {} on {:?}", caller.name, caller.classes);
    let flags =
        ["--provider", "claude", "--mode", mode, "--provider-sandbox", sandbox, "--endpoint", &model.url];
    around.around(world.run("r", &flags)).end().expect_code(0);
    let receipt = world.receipt("r");
    assert_eq!(receipt["status"], "complete", "{what}: {receipt:#}");
    assert_eq!(receipt["tree"]["gone"], true, "{what}: {receipt:#}");
    assert_eq!(world.answer("r").as_deref(), Some("done"), "{what}");
    assert!(model.tool_result(0).contains("hello"), "{what}");
    assert!(model.tool_result(1).contains("hello"), "{what}");
    assert!(model.tool_result(2).contains("README.md"), "{what}");
    assert!(model.tool_result(3).starts_with("1000\n"), "{what}: {}", model.tool_result(3));
    let (tools, changed): (&[&str], &[&str]) = match mode {
        "read-only" => (&READS, &[]),
        _ => (&WRITES, &["README.md", "by-shell.txt", "made.md"]),
    };
    assert_eq!(files(&receipt), changed, "{what}");
    if mode == "read-only" {
        assert!(model.tool_result(3).contains("Read-only file system"), "{what}");
        assert!(model.tool_result(4).contains("No such tool available: Edit"), "{what}");
    } else {
        assert_eq!(fs::read_to_string(world.path("ws/README.md")).unwrap(), "goodbye\n", "{what}");
        assert_eq!(fs::read_to_string(world.path("ws/by-shell.txt")).unwrap(), "written\n", "{what}");
    }
    for request in model.requests() {
        assert_eq!(request["tools"], json!(tools), "{what}");
        assert_eq!(request["model"], MODEL, "{what}");
        // The placeholder is what the agent has, and it does not get this far.
        assert_eq!(
            (&request["headers"]["x-api-key"], &request["headers"]["authorization"]),
            (&Value::Null, &Value::Null)
        );
    }
    assert_eq!(receipt["modelEvidence"], "wire", "{what}");
    around.assert_same(changed, &what);
}

const MODES: [&str; 2] = ["read-only", "isolated-write"];

#[test]
fn both_modes_complete_on_a_plain_host() {
    for (caller, mode) in Caller::both().into_iter().zip(MODES) {
        works(&caller, mode, "replace");
    }
}

#[test]
fn both_modes_complete_on_claude_code_on_the_web() {
    for caller in Caller::both() {
        for mode in MODES {
            works(&caller.clone().on(&["claude-code-web"]), mode, "replace");
        }
    }
}

#[test]
fn its_own_sandbox_is_kept_and_leaves_nothing() {
    for caller in Caller::both() {
        works(&caller, "isolated-write", "keep");
    }
}

#[test]
fn what_its_sandbox_leaves_is_recorded_and_what_was_there_stays() {
    let world = World::with_providers(&Caller::root());
    world.write("ws/.claude/notes.md", "mine\n");
    world.give("ws");
    let command = "test -d .claude/.cc-writes; echo there=$?; touch other.txt";
    let model = ScriptedModel::steps(&world, &json!([runs(command)]));
    let flags = [
        "--provider",
        "claude",
        "--mode",
        "isolated-write",
        "--provider-sandbox",
        "keep",
        "--endpoint",
        &model.url,
    ];
    world.run("r", &flags).end().expect_code(0);
    let receipt = world.receipt("r");
    assert!(model.tool_result(0).contains("there=0"), "its sandbox runs: {}", model.tool_result(0));
    assert_eq!(files(&receipt), ["other.txt"]);
    let note = "removed what the provider's own sandbox left in the workspace: `.claude/.cc-writes`";
    assert!(receipt["notes"].as_array().unwrap().contains(&json!(note)), "{receipt:#}");
    assert_eq!(fs::read_to_string(world.path("ws/.claude/notes.md")).unwrap(), "mine\n");
    assert!(!world.path("ws/.claude/.cc-writes").exists());
}

#[test]
fn its_own_sandbox_is_refused_by_name_where_it_cannot_be_kept() {
    for (mode, classes, lacks) in [
        (
            "read-only",
            &[][..],
            "a way to work read-only: it leaves files in the workspace, such as `.claude/.cc-writes`",
        ),
        ("isolated-write", &["claude-code-web"][..], "bubblewrap: no `bwrap` on PATH"),
    ] {
        let world = World::with_providers(&Caller::root().on(classes));
        let flags = ["--provider", "claude", "--mode", mode, "--provider-sandbox", "keep"];
        let ended =
            world.run("r", &flags).args(&["--endpoint", "http://127.0.0.1:9/v1"]).end().expect_code(71);
        let receipt = world.receipt("r");
        let cause = &receipt["cause"];
        assert_eq!(
            (&receipt["status"], &cause["code"], &cause["boundary"], &receipt["processStarted"]),
            (
                &json!("sandbox-unavailable"),
                &json!("provider-sandbox-unavailable"),
                &json!("provider-sandbox"),
                &json!(false)
            ),
            "{receipt:#}"
        );
        assert!(cause["evidence"].as_array().unwrap().contains(&json!(lacks)), "{cause:#}");
        assert!(ended.stderr.contains("--provider-sandbox replace"), "{}", ended.stderr);
    }
}

#[test]
fn instructions_come_by_file_and_the_effort_is_told_from_the_wire() {
    let world = World::with_providers(&Caller::fresh_user());
    let rules = format!("- answer in Latin {{model}}\n{}\nlast rule\n", "x".repeat(200_000));
    let rules = world.write("out/rules.md", rules).display().to_string();
    let model = ScriptedModel::steps(&world, &json!([]));
    let flags = ["--instructions", &rules, "--model", "claude-sonnet-4-6", "--effort", "xhigh"];
    lane(&world, &model.url, &flags).end().expect_code(0);
    let receipt = world.receipt("r");
    let system = model.requests()[0]["body"]["system"].to_string();
    assert!(
        system.contains("- answer in Latin {model}") && system.contains("last rule"),
        "the whole file is there"
    );
    assert!(!receipt["argv"].to_string().contains("Latin"), "{receipt:#}");
    assert_eq!(
        (&receipt["effort"], &receipt["modelIdentity"]["effortsSeen"]),
        (&json!("xhigh"), &json!(["high"]))
    );
    let note = "the effort `xhigh` was ordered and `high` was sent on the wire";
    assert!(receipt["notes"].as_array().unwrap().contains(&json!(note)), "{receipt:#}");
}

#[test]
fn a_prompt_that_is_a_command_of_its_own_is_refused_before_anything_starts() {
    let world = World::with_providers(&Caller::root());
    for prompt in ["/compact", "/Model x", "\n /clear and more"] {
        let file = world.write("out/command.md", prompt);
        let call = lane(&world, "http://127.0.0.1:9/v1", &[]).with_prompt(&file);
        let ended = call.end().expect_code(64);
        assert!(ended.stderr.contains("command"), "{prompt:?}: {}", ended.stderr);
    }
}

/// On INT it still prints its result; tokens and cost of what was done are known.
#[test]
fn a_lane_that_is_stopped_tells_what_it_cost() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let around = Surroundings::of(&world);
        let steps = json!([runs("true"), { "text": "Half", "hold": "here" }]);
        let model = ScriptedModel::steps(&world, &steps);
        let running = around.around(lane(&world, &model.url, &[])).start();
        model.wait_for_hold("here");
        running.signal(Signal::TERM);
        let ended = running.wait(Duration::from_secs(10)).expect_code(130);
        assert!(ended.elapsed < Duration::from_secs(10));
        let receipt = world.receipt("r");
        assert_eq!(
            (&receipt["status"], &receipt["signal"]),
            (&json!("cancelled"), &json!("SIGINT")),
            "{receipt:#}"
        );
        assert!(receipt["costUsd"].as_f64().is_some_and(|cost| cost > 0.0), "{receipt:#}");
        let ends = World::events(&receipt).iter().filter(|e| e["event"]["kind"] == "turn-ended").count();
        assert_eq!(ends, 1, "its result line was there");
        around.assert_same(&[], caller.name);
    }
}

/// The model starts a task in the background: there is no such thing, so that the end of the turn is the end of the work.
#[test]
fn a_task_cannot_be_left_in_the_background() {
    let world = World::with_providers(&Caller::fresh_user());
    let task = json!({ "tools": [{ "name": "Bash", "arguments": { "command": "sleep 1; echo slept", "description": "t", "run_in_background": true } }] });
    let model = ScriptedModel::steps(&world, &json!([task]));
    lane(&world, &model.url, &[]).end().expect_code(0);
    assert!(
        model.tool_result(0).contains("unexpected parameter `run_in_background`"),
        "{}",
        model.tool_result(0)
    );
}

#[test]
fn a_short_name_is_the_model_that_the_profile_lists() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let model = ScriptedModel::steps(&world, &json!([]));
        lane(&world, &model.url, &["--model", "sonnet"]).end().expect_code(0);
        let receipt = world.receipt("r");
        let identity = &receipt["modelIdentity"];
        assert_eq!(
            (&receipt["model"], &identity["asked"]),
            (&json!("sonnet"), &json!("sonnet")),
            "{receipt:#}"
        );
        for seen in ["requestedSeen", "served"] {
            assert_eq!(identity[seen], json!(["claude-sonnet-5-5"]), "{receipt:#}");
        }
        assert_eq!(receipt["modelVerified"], true);
        let note = "model `sonnet`: `claude-sonnet-5-5`, by the profile";
        assert!(receipt["notes"].as_array().unwrap().contains(&json!(note)), "{receipt:#}");
    }
}

/// What does not fit into the model's context is told by the program itself, before the model is asked.
#[test]
fn a_prompt_beyond_the_models_context_is_named_as_such() {
    let world = World::with_providers(&Caller::fresh_user());
    let prompt = world.write("out/long.md", "word ".repeat(1_600_000));
    let model = ScriptedModel::steps(&world, &json!([]));
    lane(&world, &model.url, &[]).with_prompt(&prompt).end().expect_code(70);
    let receipt = world.receipt("r");
    assert_eq!(
        (&receipt["status"], &receipt["cause"]["code"], &receipt["modelRequests"]),
        (&json!("provider-error"), &json!("context-overflow"), &json!(0)),
        "{receipt:#}"
    );
    assert_eq!(world.answer("r"), None, "what the program says by itself is no answer");
}
