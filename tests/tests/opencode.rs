//! The real OpenCode: both access modes, and a repository that tries to configure it.
//!
//! It takes seconds of computing to start, whatever it is asked, so that every run here shows several things. Needs root, to
//! become another user.

#![expect(clippy::unwrap_used, reason = "a test: a panic is how it fails")]

use std::{fs, time::Duration};

use serde_json::{Value, json};
use stockade_tests::{Caller, Ended, ScriptedModel, World, git::git, run::Call, surroundings::Surroundings};

/// A start can take long while others compute.
const LIMIT: Duration = Duration::from_secs(180);

fn opencode<'w>(world: &'w World, endpoint: &str) -> Call<'w> {
    world.run("r", &["--provider", "opencode", "--model", "m-1", "--endpoint", endpoint])
}

fn end(call: Call<'_>) -> Ended {
    call.start().wait(LIMIT)
}

/// The events of a kind, oldest first.
fn of_kind(receipt: &Value, kind: &str) -> Vec<Value> {
    World::events(receipt).into_iter().filter(|e| e["event"]["kind"] == kind).collect()
}

fn tools_of(request: &Value) -> Vec<String> {
    let tools = request["body"]["tools"].as_array().unwrap();
    let mut names: Vec<String> =
        tools.iter().map(|t| t["function"]["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// Both callers on a host without Landlock and bubblewrap.
fn on_the_web() -> [Caller; 2] {
    Caller::both().map(|caller| caller.on(&["claude-code-web"]))
}

#[test]
fn it_reads_and_answers_and_the_wire_shows_what_was_asked() {
    for caller in on_the_web() {
        let world = World::with_providers(&caller);
        let around = Surroundings::of(&world);
        let readme = world.ws().join("README.md").display().to_string();
        let steps = json!([
            { "text": "Reading.", "tools": [{ "name": "read", "arguments": { "filePath": readme } }] },
            { "tools": [
                { "name": "write", "arguments": { "filePath": "made.txt", "content": "x" } },
                { "name": "bash", "arguments": { "description": "d", "command": "touch made.txt; env; ls -A ~" } },
            ] },
        ]);
        let model = ScriptedModel::steps(&world, &steps);
        let instructions = world.write("out/instructions.md", "Answer in one \"word\".\n");
        let call = opencode(&world, &model.url).args(&["--provider-sandbox", "replace"]);
        let call = call.args(&["--effort", "high", "--instructions"]);
        let ended = end(around.around(call.args(&[instructions.to_str().unwrap()])));
        let receipt = world.receipt("r");
        assert_eq!(
            (ended.code(), &receipt["status"]),
            (0, &json!("complete")),
            "{receipt:#}\n{}",
            ended.stderr
        );
        assert_eq!(world.answer("r").as_deref(), Some("done"));
        assert_eq!(receipt["modelIdentity"]["served"], json!(["m-1"]));
        assert_eq!(receipt["modelIdentity"]["evidence"], "wire");
        assert_eq!((&receipt["toolCalls"], &receipt["denials"]), (&json!(3), &json!([])));

        // The prompt as it was written, the tools of the mode, the effort, and one kind of request alone.
        let requests = model.requests();
        assert_eq!(requests.len(), 3, "no request beside the turn's: {requests:#?}");
        for request in &requests {
            assert_eq!(tools_of(request), ["bash", "read"]);
            assert_eq!(request["body"]["reasoning_effort"], "high");
        }
        let efforts: Vec<Value> =
            of_kind(&receipt, "model-request").iter().map(|e| e["event"]["effort"].clone()).collect();
        assert_eq!(efforts, [json!("high"), json!("high"), json!("high")]);
        let messages = requests[0]["body"]["messages"].as_array().unwrap();
        let said = |role: &str| -> String {
            messages.iter().filter(|m| m["role"] == role).map(|m| m["content"].to_string()).collect()
        };
        assert!(said("user").contains("Do what the scenario says."), "{}", said("user"));
        assert!(said("system").contains(r#"Answer in one \"word\"."#), "{}", said("system"));

        // A tool that is not offered says so; the shell meets the fence; nothing secret is in its environment.
        let told = requests[2]["body"]["messages"].to_string();
        assert!(told.contains("unavailable tool 'write'"), "{told}");
        assert!(told.contains("Read-only file system"), "{told}");
        for secret in ["API_KEY", "TOKEN", "PASSWORD", "stockade-placeholder"] {
            assert!(!told.contains(secret), "{secret} in {told}");
        }
        around.assert_same(&[], caller.name);
    }
}

#[test]
fn it_edits_and_runs_commands() {
    for caller in on_the_web() {
        let world = World::with_providers(&caller);
        let around = Surroundings::of(&world);
        let steps = json!([
            { "tools": [{ "name": "write", "arguments": { "filePath": "made.txt", "content": "one\n" } }] },
            { "tools": [{ "name": "edit", "arguments": { "filePath": "made.txt", "oldString": "one", "newString": "two" } }] },
            { "tools": [{ "name": "bash", "arguments": { "description": "d", "command": "cat made.txt; setsid sleep 600 >/dev/null 2>&1 </dev/null & exit 3" } }] },
        ]);
        let model = ScriptedModel::steps(&world, &steps);
        let call = opencode(&world, &model.url).args(&["--mode", "isolated-write", "--in-place"]);
        let ended = end(around.around(call.args(&["--provider-sandbox", "replace"])));
        let receipt = world.receipt("r");
        assert_eq!(
            (ended.code(), &receipt["status"]),
            (0, &json!("complete")),
            "{receipt:#}\n{}",
            ended.stderr
        );
        assert_eq!(fs::read_to_string(world.ws().join("made.txt")).unwrap(), "two\n");
        assert_eq!(receipt["fence"]["rung"], "ns");
        let requests = model.requests();
        assert_eq!(tools_of(&requests[0]), ["bash", "edit", "read", "write"]);
        assert!(model.tool_result(2).contains("two"), "{}", model.tool_result(2));
        around.assert_same(&["made.txt"], caller.name);
    }
}

#[test]
fn a_workspace_that_would_configure_it_is_refused_before_it_starts() {
    for (caller, name) in Caller::both().into_iter().zip([".opencode/plugin/evil.js", "opencode.jsonc"]) {
        let world = World::with_providers(&caller);
        world.write(&format!("ws/{name}"), "export const Evil = 1\n");
        world.give("ws");
        for mode in ["read-only", "isolated-write"] {
            let call = opencode(&world, "http://127.0.0.1:9/v1").args(&["--mode", mode, "--in-place"]);
            let ended = call.end().expect_code(66);
            let receipt = world.receipt("r");
            let cause = &receipt["cause"];
            assert_eq!(
                (&receipt["status"], &cause["code"], &receipt["processStarted"]),
                (&json!("workspace-refused"), &json!("workspace-configures-agent"), &json!(false)),
                "{receipt:#}"
            );
            assert!(cause["evidence"].to_string().contains(name.split('/').next().unwrap()), "{cause:#}");
            assert!(ended.stderr.contains("another provider"), "{}", ended.stderr);
            fs::remove_file(world.path("out/r.receipt.json")).unwrap();
        }
    }
}

#[test]
fn a_worktree_in_which_they_are_checked_out_is_refused_as_well() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        git(&world.ws(), &["init", "-q", "-b", "main", "."]);
        world.write("ws/opencode.json", "{}\n");
        git(&world.ws(), &["add", "."]);
        git(&world.ws(), &["commit", "-qm", "one"]);
        // The caller has taken it away, but it is in what the run would work on.
        fs::remove_file(world.ws().join("opencode.json")).unwrap();
        world.give("ws");
        opencode(&world, "http://127.0.0.1:9/v1").args(&["--mode", "isolated-write"]).end().expect_code(66);
        let receipt = world.receipt("r");
        let cause = &receipt["cause"];
        assert_eq!(
            (&cause["code"], &cause["evidence"], &receipt["processStarted"]),
            (&json!("workspace-configures-agent"), &json!(["opencode.json"]), &json!(false)),
            "{receipt:#}"
        );
        assert_eq!(git(&world.ws(), &["worktree", "list"]).lines().count(), 1, "a worktree was left");
    }
}
