//! The real Claude Code, Codex and OpenCode under the name of `pstack-runner`: what their users are told of a success, and
//! the real Grok asked before its turn. Needs root, to become another user.

#![expect(clippy::unwrap_used, reason = "a test: a panic is how it fails")]

use std::{fs, time::Duration};

use serde_json::{Value, json};
use stockade_tests::{
    Caller, ScriptedModel, World, outside,
    pstack::{NOBODY, assert_told, by_link, configure, order, own_receipt},
};

/// OpenCode computes for seconds before it asks anything.
const LIMIT: Duration = Duration::from_secs(180);

/// One agent as the tool's users ask for it, and what is proven of its model.
struct Agent {
    provider: &'static str,
    parent: &'static str,
    model: &'static str,
    effort: &'static str,
    spend: Option<&'static str>,
    /// What the endpoint is asked for.
    wire: &'static str,
    /// Words of its argv that say model and effort.
    argv: &'static [&'static str],
    evidence: (Value, bool, &'static str),
    /// A tool call that makes a file.
    writes: Value,
}

fn agents() -> [Agent; 3] {
    let command = "echo new > made.txt";
    [
        Agent {
            provider: "claude",
            parent: "codex",
            model: "opus",
            effort: "high",
            spend: None,
            wire: "claude-opus-5-5",
            argv: &["--model", "opus", "--effort", "high"],
            // An alias stays one in `model`; the revision is what was served.
            evidence: (json!("claude-opus-5-5"), true, "provider-report"),
            writes: json!({ "name": "Bash", "arguments": { "command": command, "description": "d" } }),
        },
        Agent {
            provider: "codex",
            parent: "claude",
            model: "gpt-5.6-sol",
            effort: "high",
            spend: None,
            wire: "gpt-5.6-sol",
            argv: &["--model", "gpt-5.6-sol", "-c", "model_reasoning_effort=\"high\""],
            evidence: (Value::Null, false, "pinned-argv"),
            writes: json!({ "name": "exec_command", "arguments": { "cmd": command } }),
        },
        Agent {
            provider: "opencode",
            parent: "codex",
            model: "acme/m-1",
            effort: "default",
            spend: Some("approved"),
            wire: "m-1",
            // Where the model is comes from the configuration, so that the part in front is Stockade's.
            argv: &["--model", "stockade/m-1"],
            evidence: (Value::Null, false, "pinned-argv"),
            writes: json!({ "name": "write", "arguments": { "filePath": "{{workspace}}/made.txt", "content": "new\n" } }),
        },
    ]
}

fn succeeds(agent: &Agent, mode: &str, caller: &Caller) {
    let what = format!("{} {mode} as {}", agent.provider, caller.name);
    let world = World::with_providers(caller);
    let scripted =
        ScriptedModel::steps(&world, &json!([{ "tools": [agent.writes] }, { "text": "All done." }]));
    configure(&world, agent.provider, &scripted.url, "");
    let call = order(
        &world,
        &[
            ("--parent", Some(agent.parent)),
            ("--provider", Some(agent.provider)),
            ("--model", Some(agent.model)),
            ("--effort", Some(agent.effort)),
            ("--api-spend", agent.spend),
            ("--mode", Some(mode)),
        ],
    );
    // The fresh user is reached through a program of its own, which keeps the binary's name.
    let call = if caller.uid == 0 { by_link(&world, call) } else { call };
    let receipt = assert_told(&world, &call.start().wait(LIMIT), 0);
    assert_eq!(receipt["status"], "complete", "{what}: {receipt:#}");
    assert_eq!(fs::read_to_string(world.path("out/answer")).unwrap(), "All done.", "{what}");
    let made = fs::read_to_string(world.ws().join("made.txt")).ok();
    assert_eq!(made.as_deref(), (mode == "isolated-write").then_some("new\n"), "{what}");

    let asked = |key: &str| receipt[key].as_str().unwrap();
    assert_eq!(
        [asked("parent"), asked("provider"), asked("model"), asked("effort"), asked("mode")],
        [agent.parent, agent.provider, agent.model, agent.effort, mode],
        "{what}"
    );
    let (reported, verified, evidence) = &agent.evidence;
    assert_eq!(
        (&receipt["reportedModel"], &receipt["modelVerified"], &receipt["modelEvidence"]),
        (reported, &json!(verified), &json!(evidence)),
        "{what}: {receipt:#}"
    );
    let argv: Vec<&str> = receipt["argv"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
    for pair in agent.argv.chunks(2) {
        assert!(argv.windows(2).any(|w| w == pair), "{what}: {pair:?} in {argv:?}");
    }
    assert!(
        !argv.iter().any(|a| a.contains("Do what the scenario says")),
        "{what}: the prompt is in {argv:?}"
    );
    assert!(receipt["sessionId"].is_string(), "{what}: {receipt:#}");
    assert!(receipt["usage"]["outputTokens"].is_u64(), "{what}: {receipt:#}");
    let own = own_receipt(&receipt).unwrap();
    assert_eq!(receipt["costUsd"], own["costUsd"], "{what}");

    let mains: Vec<Value> = scripted.requests().into_iter().filter(|r| r["class"] == "main").collect();
    assert_eq!(mains.len(), 2, "{what}: {mains:#?}");
    for request in &mains {
        assert_eq!(request["model"], agent.wire, "{what}");
    }
    let told = mains[0]["body"].to_string();
    assert!(
        told.contains("Worker contract") && told.contains("Do what the scenario says."),
        "{what}: {told}"
    );
    outside::wait_for_no_process_fenced_for(&world, Duration::from_secs(2));
}

#[test]
fn the_real_agents_succeed_under_the_name_of_the_tool_in_both_modes() {
    for agent in agents() {
        succeeds(&agent, "read-only", &Caller::root());
        succeeds(&agent, "isolated-write", &Caller::fresh_user());
    }
}

#[test]
fn the_real_grok_on_path_is_asked_for_its_models_first() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let installed = fs::read_dir(world.state().join("providers/grok")).unwrap();
        let version = installed.map(|e| e.unwrap().path()).find(|p| p.join("grok").is_file()).unwrap();
        let scripted = ScriptedModel::steps(&world, &json!([]));
        configure(&world, "grok", &scripted.url, "executables = \"path\"");
        let path = format!("{}:/usr/bin:/bin", version.display());
        let ended = order(&world, &[("--model", Some("mock-1"))]).env("PATH", &path).end();
        let receipt = assert_told(&world, &ended, 0);
        let preflight = &receipt["preflight"];
        assert_eq!(
            (&preflight["status"], &preflight["exitCode"]),
            (&json!("passed"), &json!(0)),
            "{receipt:#}"
        );
        let evidence = preflight["evidence"].as_str().unwrap();
        assert!(evidence.contains("attempt 1 passed"), "{evidence}");
        assert!(evidence.contains("Model 'mock-1' is using its own API key."), "{evidence}");
        assert!(!evidence.contains("attempt 2"), "{evidence}");
        // Without asking anybody: the model was asked for the turn only.
        let own = own_receipt(&receipt).unwrap();
        assert_eq!(own["networkDecisions"], json!({}), "{own:#}");
    }
    // Of the pinned one it is not asked.
    let world = World::with_providers(&Caller::root());
    configure(&world, "grok", NOBODY, "");
    let receipt = assert_told(&world, &order(&world, &[("--timeout", Some("20"))]).end(), 70);
    assert_eq!(receipt["preflight"]["argv"], json!([]), "{receipt:#}");
}
