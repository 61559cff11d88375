//! What an agent is started with: the same whoever the parent is, and written down for every agent, mode and choice about
//! its own sandbox. Needs root, to become another user.

#![expect(clippy::unwrap_used, reason = "a test: a panic is how it fails")]

use std::fmt::Write as _;

use serde_json::Value;
use stockade_tests::{Caller, World};

/// What a session of Claude Code leaves in the environment of its commands.
const CLAUDE: [(&str, &str); 12] = [
    ("AI_AGENT", "claude-code_2-1-332_agent"),
    ("ANTHROPIC_API_KEY", "of-the-parent"),
    ("ANTHROPIC_BASE_URL", "http://127.0.0.1:1"),
    ("CLAUDECODE", "1"),
    ("CLAUDE_CODE_CHILD_SESSION", "1"),
    ("CLAUDE_CODE_EFFORT_LEVEL", "low"),
    ("CLAUDE_CODE_ENTRYPOINT", "cli"),
    ("CLAUDE_CODE_EXECPATH", "/of/the/parent"),
    ("CLAUDE_CODE_SESSION_ID", "of-the-parent"),
    ("CLAUDE_CONFIG_DIR", "/of/the/parent"),
    ("CLAUDE_EFFORT", "low"),
    ("IS_SANDBOX", "1"),
];

/// The same of Codex.
const CODEX: [(&str, &str); 8] = [
    ("CODEX_API_KEY", "of-the-parent"),
    ("CODEX_CI", "1"),
    ("CODEX_HOME", "/of/the/parent"),
    ("CODEX_SANDBOX", "seatbelt"),
    ("CODEX_SANDBOX_NETWORK_DISABLED", "1"),
    ("CODEX_THREAD_ID", "of-the-parent"),
    ("OPENAI_API_KEY", "of-the-parent"),
    ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"),
];

/// Argv and environment of every mode and choice, as one text.
fn started(world: &World, provider: &str, parent: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for mode in ["read-only", "isolated-write"] {
        for sandbox in ["keep", "replace"] {
            writeln!(text, "--- {mode} {sandbox}").unwrap();
            let ws = world.ws().display().to_string();
            let prompt = world.path("out/prompt.md").display().to_string();
            let words =
                ["plan", "--json", "--provider", provider, "--mode", mode, "--provider-sandbox", sandbox];
            let mut call = world.call(&words).args(&["--cwd", &ws, "--prompt", &prompt]);
            call = call.args(&["--effort", "high", "--endpoint", "http://127.0.0.1:9/v1"]);
            for (name, value) in parent {
                call = call.env(name, value);
            }
            let ended = call.end();
            if ended.code() != 0 {
                let error: Value = serde_json::from_str(ended.stderr.trim()).unwrap();
                writeln!(text, "refused: {}", error["message"].as_str().unwrap()).unwrap();
                continue;
            }
            let plan: Value = serde_json::from_str(&ended.stdout).unwrap();
            let session = plan["session"].as_str().unwrap();
            for word in plan["argv"].as_array().unwrap() {
                writeln!(
                    text,
                    "{}",
                    word.as_str().unwrap().replace(session, "SESSION").replace(&ws, "WORKSPACE")
                )
                .unwrap();
            }
            for (name, value) in plan["env"].as_object().unwrap() {
                writeln!(text, "  {name}={}", value.as_str().unwrap()).unwrap();
            }
            assert_eq!(plan["passedEnv"], Value::Array(Vec::new()));
        }
    }
    text
}

#[test]
fn every_agent_is_started_the_same_way_whoever_its_parent_is() {
    let world = World::with_providers(&Caller::fresh_user());
    world.write("out/prompt.md", "Do it.\n");
    for provider in ["claude", "codex", "grok", "opencode"] {
        let alone = started(&world, provider, &[]);
        for parent in [&CLAUDE[..], &CODEX[..]] {
            assert_eq!(started(&world, provider, parent), alone, "{provider}");
        }
        assert!(!alone.contains("of-the-parent"), "{alone}");
        let ways: Vec<&str> =
            alone.split("--- ").skip(1).map(|way| way.split_once('\n').unwrap().1).collect();
        assert_eq!(ways.len(), 4, "each mode with its own sandbox kept and replaced: {alone}");
        if provider == "opencode" {
            // It has none, so that there is nothing to choose.
            assert_eq!((ways[0], ways[2]), (ways[1], ways[3]));
        }
        insta::assert_snapshot!(provider, alone);
    }
}
