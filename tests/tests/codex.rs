//! The real Codex: both modes, its own sandbox kept and replaced, and denials that it hides.
//!
//! Needs root, to become another user, and a host with user namespaces.

#![expect(clippy::unwrap_used, reason = "a test: a panic is how it fails")]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stockade_tests::{Caller, ScriptedModel, World, run::Call, surroundings::Surroundings};

const MODES: [&str; 2] = ["read-only", "isolated-write"];

fn command(cmd: &str) -> Value {
    json!({ "tools": [{ "name": "exec_command", "arguments": { "cmd": cmd } }] })
}

fn patch(path: &str) -> Value {
    let patch = format!("*** Begin Patch\n*** Add File: {path}\n+by a patch\n*** End Patch\n");
    json!({ "tools": [{ "name": "apply_patch", "arguments": patch }] })
}

fn script(source: &str) -> Value {
    json!({ "tools": [{ "name": "functions/exec", "arguments": source }] })
}

fn codex<'w>(world: &'w World, mode: &str, sandbox: &str, model: &ScriptedModel) -> Call<'w> {
    world.run(
        "r",
        &["--provider", "codex", "--mode", mode, "--provider-sandbox", sandbox, "--endpoint", &model.url],
    )
}

/// The lines that the scripted model was told about a step, after what Codex puts before them.
fn told(model: &ScriptedModel, step: u64) -> String {
    let result = model.tool_result(step);
    result.split_once("Output:\n").map_or(result.as_str(), |(_, output)| output).to_owned()
}

/// The paths that a receipt lists as changed.
fn changed(receipt: &Value) -> BTreeSet<&str> {
    receipt["changes"]["files"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect()
}

/// Works in a mode with the fence in the place of its sandbox.
fn works_replaced(caller: &Caller, modes: &[&str], rung: &str) {
    for mode in modes {
        let world = World::with_providers(caller);
        let around = Surroundings::of(&world);
        let steps = json!([
            command(
                "cat README.md; echo x > made.txt; echo status=$?; echo y > {{outside}}/z; echo status=$?"
            ),
            patch("patched.txt"),
        ]);
        let model = ScriptedModel::steps(&world, &steps);
        around.around(codex(&world, mode, "replace", &model)).end().expect_code(0);
        let receipt = world.receipt("r");
        let what = format!("{} {mode} on {:?}: {receipt:#}", caller.name, caller.classes);
        assert_eq!(
            (&receipt["status"], &receipt["fence"]["rung"]),
            (&json!("complete"), &json!(rung)),
            "{what}"
        );
        assert_eq!(receipt["modelEvidence"], "wire", "{what}");
        assert_eq!((&receipt["toolCalls"], &receipt["modelRequests"]), (&json!(2), &json!(3)), "{what}");
        assert_eq!(receipt["denialCount"], 0, "{what}");
        assert_eq!(receipt["networkDecisions"], json!({}), "{what}");
        assert_eq!(world.answer("r").as_deref(), Some("done"), "{what}");
        let said = told(&model, 0);
        let writes = *mode == "isolated-write";
        let statuses: Vec<&str> = said.lines().filter_map(|l| l.strip_prefix("status=")).collect();
        assert!(said.contains("hello"), "{what}: {said}");
        assert_eq!(statuses, [if writes { "0" } else { "1" }, "1"], "{what}: {said}");
        let expected: &[&str] = if writes { &["made.txt", "patched.txt"] } else { &[] };
        assert_eq!(changed(&receipt), expected.iter().copied().collect(), "{what}");
        around.assert_same(expected, &what);
    }
}

#[test]
fn it_works_in_both_modes_with_the_fence_in_the_place_of_its_sandbox() {
    for (caller, mode) in Caller::both().into_iter().zip(MODES) {
        works_replaced(&caller, &[mode], "nsl");
    }
}

#[test]
fn it_works_in_both_modes_on_claude_code_on_the_web() {
    for caller in Caller::both() {
        works_replaced(&caller.on(&["claude-code-web"]), &MODES, "ns");
    }
}

#[test]
fn without_a_bubblewrap_on_the_host_its_sandbox_is_kept_by_the_one_it_brings() {
    let world = World::with_providers(&Caller::fresh_user().on(&["no-bwrap"]));
    let model = ScriptedModel::steps(&world, &json!([command("echo x > made.txt; echo status=$?")]));
    codex(&world, "read-only", "keep", &model).end().expect_code(0);
    let receipt = world.receipt("r");
    assert_eq!((&receipt["status"], &receipt["fence"]["rung"]), (&json!("complete"), &json!("ns-nest")));
    assert!(told(&model, 0).contains("Read-only file system"), "{}", model.tool_result(0));
}

#[test]
fn its_own_sandbox_is_kept_inside_the_fence_and_what_it_hides_is_counted() {
    for (caller, mode) in Caller::both().into_iter().flat_map(|c| MODES.map(|mode| (c.clone(), mode))) {
        let world = World::with_providers(&caller);
        let around = Surroundings::of(&world);
        let escalation = json!({ "tools": [{ "name": "exec_command", "arguments": {
            "cmd": "touch here", "sandbox_permissions": "require_escalated", "justification": "test",
        } }] });
        let steps = json!([command("echo x > made.txt && cat made.txt"), patch("patched.txt"), escalation]);
        let model = ScriptedModel::steps(&world, &steps);
        around.around(codex(&world, mode, "keep", &model)).end().expect_code(0);
        let receipt = world.receipt("r");
        let what = format!("{} {mode}: {receipt:#}", caller.name);
        assert_eq!(
            (&receipt["status"], &receipt["fence"]["rung"]),
            (&json!("complete"), &json!("ns-nest")),
            "{what}"
        );
        let denied: Vec<&str> =
            receipt["denials"].as_array().unwrap().iter().map(|d| d["tool"].as_str().unwrap()).collect();
        let (expected, files): (&[&str], &[&str]) = match mode {
            "read-only" => (&["exec_command", "apply_patch", "exec_command"], &[]),
            _ => (&["exec_command"], &["made.txt", "patched.txt"]),
        };
        assert_eq!(
            (denied.as_slice(), changed(&receipt)),
            (expected, files.iter().copied().collect()),
            "{what}"
        );
        assert_eq!(
            (&receipt["denialCount"], &receipt["toolCalls"]),
            (&json!(expected.len()), &json!(3)),
            "{what}"
        );
        // Its own record of the session is kept beside the receipt.
        assert!(receipt["digests"]["session-events.jsonl"].is_string(), "{what}");
        around.assert_same(files, &what);
    }
}

#[test]
fn a_sandbox_that_does_not_work_is_refused_before_the_agent_starts() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let stub = world.stub(
            "broken",
            "if [ \"$1\" = sandbox ]; then echo 'bwrap: No permissions to create a new namespace' >&2; exit 1; fi\n\
             echo started > started",
        );
        let model = ScriptedModel::steps(&world, &json!([]));
        let call = codex(&world, "isolated-write", "keep", &model);
        call.args(&["--executable", stub.to_str().unwrap()]).end().expect_code(71);
        let receipt = world.receipt("r");
        let what = format!("{}: {receipt:#}", caller.name);
        assert_eq!(receipt["status"], "sandbox-unavailable", "{what}");
        let cause = &receipt["cause"];
        assert_eq!(
            (&cause["code"], &cause["boundary"]),
            (&json!("provider-sandbox-broken"), &json!("provider-sandbox"))
        );
        assert!(cause["evidence"].to_string().contains("No permissions to create a new namespace"), "{what}");
        assert!(cause["remedy"].as_str().unwrap().contains("--provider-sandbox replace"), "{what}");
        assert_eq!((&receipt["processStarted"], world.ws().join("started").exists()), (&json!(false), false));
        assert_eq!(model.requests(), Vec::<Value>::new(), "{what}");
    }
}

#[test]
fn a_model_that_is_offered_scripts_is_run_and_its_tools_are_compared() {
    for (caller, model_name) in Caller::both().into_iter().zip(["gpt-6.2-sol", "gpt-5.6-luna"]) {
        let world = World::with_providers(&caller);
        let steps = json!([script(
            "const r = await tools.exec_command({cmd: \"echo x > made.txt; cat made.txt\"}); text(r);"
        ),]);
        let model = ScriptedModel::steps(&world, &steps);
        codex(&world, "isolated-write", "replace", &model)
            .args(&["--model", model_name])
            .end()
            .expect_code(0);
        let receipt = world.receipt("r");
        assert_eq!(
            (&receipt["status"], changed(&receipt)),
            (&json!("complete"), BTreeSet::from(["made.txt"])),
            "{receipt:#}"
        );
        let offered = World::events(&receipt).into_iter().map(|e| e["event"].clone());
        let offered: BTreeSet<String> = offered
            .filter(|e| e["kind"] == "model-request")
            .flat_map(|e| e["tools"].as_array().unwrap().clone())
            .map(|tool| tool.as_str().unwrap().to_owned())
            .collect();
        assert!(offered.contains("functions/exec") && offered.contains("functions/wait"), "{offered:?}");
    }
}

#[test]
fn instructions_effort_and_model_are_on_the_wire_and_questions_are_answered_with_an_error() {
    let caller = Caller::fresh_user();
    let world = World::with_providers(&caller);
    let text = "Say \"yes\" to\\nothing,\nand be brief.";
    let instructions = world.write("out/instructions.md", text);
    let ask = json!({ "tools": [{ "name": "request_user_input", "arguments": { "questions": [{
        "id": "a", "header": "h", "question": "Which one?",
        "options": [{ "label": "x", "description": "x" }, { "label": "y", "description": "y" }],
    }] } }] });
    let model = ScriptedModel::steps(&world, &json!([ask]));
    let call = codex(&world, "read-only", "replace", &model);
    call.args(&["--effort", "high", "--instructions", instructions.to_str().unwrap()]).end().expect_code(0);
    let receipt = world.receipt("r");
    assert_eq!(receipt["status"], "complete", "{receipt:#}");
    let request = &model.requests()[0];
    assert!(request["body"]["input"].to_string().contains(&json!(text).to_string()), "{request:#}");
    let events: Vec<Value> = World::events(&receipt).into_iter().map(|e| e["event"].clone()).collect();
    let asked: Vec<_> = events.iter().filter(|e| e["kind"] == "model-request").collect();
    assert!(asked.iter().all(|e| e["effort"] == "high" && e["model"] == "gpt-5.5"), "{asked:#?}");
    assert!(model.tool_result(0).contains("unavailable"), "{}", model.tool_result(0));
    let question = events.iter().find(|e| e["kind"] == "question-asked").unwrap();
    assert!(question["text"].as_str().unwrap().contains("Which one?"), "{question}");
    let argv = receipt["argv"].to_string();
    assert!(!argv.contains("Do what the scenario says") && !argv.contains("Say"), "{argv}");
}

#[test]
fn commands_are_told_no_secret() {
    let world = World::with_providers(&Caller::root());
    let model = ScriptedModel::steps(&world, &json!([command("env")]));
    let call = codex(&world, "read-only", "replace", &model)
        .args(&["--key-env", "MODEL_KEY", "--env", "GITHUB_TOKEN", "--env", "MY_SECRET"])
        .env("MODEL_KEY", "sk-for-the-endpoint")
        .env("GITHUB_TOKEN", "ghp-of-the-caller")
        .env("MY_SECRET", "of-the-caller");
    call.end().expect_code(0);
    let said = told(&model, 0);
    let named: Vec<&str> =
        said.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    for name in ["MODEL_KEY", "GITHUB_TOKEN", "MY_SECRET", "OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_HOME"] {
        assert!(!named.contains(&name), "{name}: {said}");
    }
    assert!(named.contains(&"HOME") && named.contains(&"PATH"), "{said}");
    assert_eq!(model.requests()[0]["headers"]["authorization"], "Bearer sk-for-the-endpoint");
}

#[test]
fn a_rollout_that_a_tool_replaces_by_a_link_is_followed_no_further() {
    let world = World::with_providers(&Caller::root());
    world.write("outside/elsewhere", "{\"type\":\"event_msg\"}\n");
    let steps = json!([command(
        "cd /home/agent/.codex/sessions/*/*/* && for f in rollout-*; do rm $f; ln -s {{outside}}/elsewhere $f; done"
    ),]);
    let model = ScriptedModel::steps(&world, &steps);
    codex(&world, "isolated-write", "replace", &model).end().expect_code(0);
    let receipt = world.receipt("r");
    assert_eq!(receipt["status"], "complete", "{receipt:#}");
    // The link would be the host's to follow.
    assert!(receipt["digests"]["session-events.jsonl"].is_null(), "{receipt:#}");
}
