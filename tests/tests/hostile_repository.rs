//! A hostile repository, a home and an environment of the caller's: none of it has an effect on any of the four agents.
//!
//! No program of it runs, no request goes elsewhere, model, tools and effort stay as ordered, and no text of it is told to a
//! model, unless a tool is asked to read it. Needs root, to become another user, and a host with
//! user namespaces, Landlock, `bwrap` and `socat`.

#![expect(clippy::unwrap_used, reason = "a test: a panic is how it fails")]

use std::{collections::BTreeSet, path::Path, time::Duration};

use serde_json::{Value, json};
use stockade_core::mode::AccessMode;
use stockade_tests::{
    Agent, Caller, ScriptedModel, World,
    agent::end,
    git::git,
    hostile::{self, WORD},
    outside,
};

/// Looks around and reads a file beside which instructions lie.
fn steps(world: &World, agent: Agent) -> Value {
    let beside = world.ws().join("sub/plain.txt").display().to_string();
    json!([agent.shell(&hostile::look()), agent.read(&beside), agent.shell(&hostile::look())])
}

/// Makes the workspace a repository that would run programs as well, with everything in it committed.
fn commit(world: &World) {
    let git_in = |args: &[&str]| git(&world.ws(), args);
    git_in(&["init", "-q", "-b", "main", "."]);
    git_in(&["add", "-A"]);
    git_in(&["commit", "-qm", "one"]);
    let script = world.ws().join("trap.sh").display().to_string();
    for key in ["core.fsmonitor", "core.sshCommand", "core.pager", "diff.external", "alias.status"] {
        git_in(&["config", key, &script]);
    }
    for hook in ["post-checkout", "post-index-change", "pre-commit", "reference-transaction"] {
        world.script(&format!("ws/.git/hooks/{hook}"), &format!("#!/bin/sh\nexec '{script}'\n"));
    }
    world.give("ws");
}

fn has_no_effect(agent: Agent, caller: &Caller, mode: AccessMode, sandbox: &str) {
    let world = World::with_providers(caller);
    hostile::plant(&world);
    hostile::plant_in_home(&world);
    commit(&world);
    let (ws, home) = (outside::picture(&world.ws()), outside::picture(&world.home()));
    let model = ScriptedModel::steps(&world, &steps(&world, agent));
    let call = agent.run_with(&world, mode, sandbox, &model.url).args(&["--effort", "high"]);
    let ended = end(hostile::surround(&world, call));
    let receipt = world.receipt("r");
    let what = format!("{} {} as {}: {}\n{receipt:#}", agent.name(), mode.id(), caller.name, ended.stderr);
    assert_eq!((ended.code(), &receipt["status"]), (0, &json!("complete")), "{what}");
    assert_eq!((&receipt["denialCount"], &receipt["toolCalls"]), (&json!(0), &json!(3)), "{what}");

    // Nothing ran, here or in the fence, and nothing changed. In isolated-write it worked in a worktree, of which nothing came.
    assert_eq!(hostile::hooked(&world), [""; 0], "{what}");
    assert_eq!(receipt["changes"], json!({ "commits": [], "files": [], "complete": true }), "{what}");
    for step in [0, 2] {
        let printed = model.tool_result(step);
        assert!(!printed.contains("hooked"), "{what}\n{printed}");
        assert_eq!(hostile::leaked(&world, &printed), [""; 0], "{what}\n{printed}");
    }
    assert!(model.tool_result(1).contains("plain"), "{what}\n{}", model.tool_result(1));
    let mut now = outside::picture(&world.ws());
    // Git leaves the folder where references of the run were.
    now.remove(Path::new(".git/refs/stockade"));
    outside::assert_same(&ws, &now, &what);
    outside::assert_same(&home, &outside::picture(&world.home()), &what);

    // Every request came here, and nothing in it is the trap's.
    let requests = model.requests();
    let turns: Vec<&Value> = requests.iter().filter(|request| request["class"] == "main").collect();
    assert_eq!(turns.len(), 4, "{what}\n{requests:#?}");
    for request in &requests {
        assert!(!request.to_string().contains(WORD), "{what}\n{request:#}");
        assert_eq!(request["model"], agent.profile().models.default, "{what}");
    }
    for turn in turns {
        let tools = turn["tools"].as_array().unwrap().iter().map(|tool| tool.as_str().unwrap().to_owned());
        assert_eq!(tools.collect::<BTreeSet<_>>(), agent.tools(mode), "{what}");
    }
    assert_eq!(receipt["modelIdentity"]["effortsSeen"], json!(["high"]), "{what}");
    outside::wait_for_no_process_fenced_for(&world, Duration::from_secs(2));
}

/// Each mode and each caller in it, and once with its own sandbox kept.
fn has_no_effect_in_either_mode(agent: Agent) {
    let [root, user] = Caller::both();
    has_no_effect(agent, &root, AccessMode::ReadOnly, "replace");
    has_no_effect(agent, &user, AccessMode::IsolatedWrite, "keep");
}

#[test]
fn nothing_of_it_has_an_effect_on_grok() {
    has_no_effect_in_either_mode(Agent::Grok);
}

#[test]
fn nothing_of_it_has_an_effect_on_claude_code() {
    has_no_effect_in_either_mode(Agent::Claude);
}

#[test]
fn nothing_of_it_has_an_effect_on_codex() {
    has_no_effect_in_either_mode(Agent::Codex);
}

#[test]
fn nothing_of_it_has_an_effect_on_opencode() {
    has_no_effect_in_either_mode(Agent::Opencode);
}

/// What the trap does where the doors are open.
struct Caught {
    world: World,
    model: ScriptedModel,
}

impl Caught {
    /// Plays to an agent whose profile has doors replaced, from closed to open.
    fn with(agent: Agent, doors: &[(&str, &str)]) -> Self {
        let world = World::with_providers(&Caller::root());
        hostile::plant(&world);
        commit(&world);
        let profile = agent.profile_with(&world, doors);
        let model = ScriptedModel::steps(&world, &steps(&world, agent));
        let call = agent.run(&world, AccessMode::IsolatedWrite, &model.url);
        let _however = end(call.args(&["--in-place", "--profile", &profile]));
        Self { world, model }
    }

    #[track_caller]
    fn assert_told(&self, by: &str) {
        let words = format!("{WORD} by {by}");
        let requests = self.model.requests();
        let told = requests.iter().any(|request| request["body"].to_string().contains(&words));
        assert!(told, "{words}: {requests:#?}");
    }

    #[track_caller]
    fn assert_ran(&self, mark: &str) {
        let hooked = hostile::hooked(&self.world);
        assert!(hooked.contains(&mark.to_owned()), "{hooked:?}");
    }
}

/// The trap is one: where a profile leaves its doors open, it catches. Without this the tests above would prove nothing.
#[test]
fn all_of_it_would_have_an_effect() {
    let open = [("GROK_LOGIN_ENV = \"0\"", "GROK_LOGIN_ENV = \"0\"\nGROK_FOLDER_TRUST = \"0\"")];
    let grok = Caught::with(Agent::Grok, &open);
    grok.assert_told("ws/AGENTS.md");
    grok.assert_ran("grok-mcp");
    grok.assert_ran(".grok-hooks-SessionStart");

    let open =
        [("\"--setting-sources\", \"\",", "\"--setting-sources\", \"project\","), ("\"--safe-mode\",", "")];
    let claude = Caught::with(Agent::Claude, &open);
    claude.assert_ran("settings-SessionStart");
    assert_eq!(claude.model.requests(), [] as [Value; 0], "its requests went where the repository said");
    claude.world.expects_network(&["elsewhere.example"]);

    let codex = Caught::with(Agent::Codex, &[("project_doc_max_bytes = 0", "")]);
    codex.assert_told("ws/AGENTS.override.md");

    let open = [
        ("OPENCODE_DISABLE_PROJECT_CONFIG = \"1\"", ""),
        ("  \"plugin\": [\"file://{home}/.config/opencode/read-alone.js\"],\n", ""),
    ];
    let opencode = Caught::with(Agent::Opencode, &open);
    opencode.assert_told("ws/AGENTS.md");
    opencode.assert_told("ws/sub/AGENTS.md");
}
