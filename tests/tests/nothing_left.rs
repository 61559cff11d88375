//! However a run of an agent ends, nothing of it is left: no file in workspace, home or temporary folders, no process.
//!
//! Runs with the fence in the place of an agent's own sandbox that complete are in `observer.rs`. Needs root, to become another
//! user, and a host with user namespaces, Landlock, `bwrap` and `socat`.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test: a panic is how it fails, and what is seen is tried on another program"
)]

use std::{os::unix::process::ExitStatusExt as _, panic::AssertUnwindSafe, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};
use stockade_core::mode::AccessMode;
use stockade_tests::{
    Agent, Caller, ScriptedModel, World,
    agent::end,
    outside,
    surroundings::{LITTER, Surroundings},
};

/// No process may be left after this time.
const GONE: Duration = Duration::from_secs(3);

/// A run whose first answer litters; `then` is all that follows.
fn litters(agent: Agent, then: &Value) -> Value {
    json!({ "version": 1, "name": "litter", "steps": [agent.shell(LITTER)], "otherwise": then })
}

#[track_caller]
fn assert_littered(model: &ScriptedModel, what: &str) {
    let told = model.tool_result(0);
    assert!(told.contains("littered"), "{what}\n{told}");
}

fn completes_with_its_own_sandbox(agent: Agent, caller: &Caller, mode: AccessMode) {
    let world = World::with_providers(caller);
    let around = Surroundings::of(&world);
    let model = ScriptedModel::scenario(&world, &litters(agent, &json!({ "text": "done" })), &[]);
    let ended = end(around.around(agent.run_with(&world, mode, "keep", &model.url)));
    let receipt = world.receipt("r");
    let what = format!("{} {} as {}: {}\n{receipt:#}", agent.name(), mode.id(), caller.name, ended.stderr);
    assert_eq!((ended.code(), &receipt["status"]), (0, &json!("complete")), "{what}");
    assert_littered(&model, &what);
    around.assert_littered_alone(mode, &what);
}

fn fails(agent: Agent, caller: &Caller, mode: AccessMode) {
    let world = World::with_providers(caller);
    let around = Surroundings::of(&world);
    let refused = litters(agent, &json!({ "http": { "status": 400 } }));
    let model = ScriptedModel::scenario(&world, &refused, &[]);
    let ended = end(around.around(agent.run(&world, mode, &model.url)));
    let receipt = world.receipt("r");
    let what = format!("{} {} as {}: {}\n{receipt:#}", agent.name(), mode.id(), caller.name, ended.stderr);
    assert_eq!((ended.code(), &receipt["status"]), (70, &json!("provider-error")), "{what}");
    assert_littered(&model, &what);
    around.assert_littered_alone(mode, &what);
}

/// Stockade is killed in the middle of the turn, and `gc` clears what it had no time to.
fn is_killed(agent: Agent, caller: &Caller, mode: AccessMode) {
    let world = World::with_providers(caller);
    let around = Surroundings::of(&world);
    let held = litters(agent, &json!({ "text": "Half", "hold": "here" }));
    let model = ScriptedModel::scenario(&world, &held, &[]);
    let running = around.around(agent.run(&world, mode, &model.url)).start();
    model.wait_for_hold("here");
    running.signal(Signal::KILL);
    let ended = running.wait(Duration::from_secs(60));
    let what = format!("{} {} as {}: {}", agent.name(), mode.id(), caller.name, ended.stderr);
    assert_eq!(ended.status.signal(), Some(9), "{what}");
    assert_littered(&model, &what);
    outside::wait_for_no_process_fenced_for(&world, GONE);
    outside::wait_for_empty_groups(world.receipt("r")["executionId"].as_str().unwrap());
    around.around(world.call(&["gc", "--remove"])).end().expect_code(0);
    around.assert_littered_alone(mode, &what);
}

/// Every ending of an agent, each mode and each caller in it.
fn leaves_nothing(agent: Agent) {
    let [root, user] = Caller::both();
    for (mode, caller) in agent.keeps().iter().zip([&root, &user]) {
        completes_with_its_own_sandbox(agent, caller, *mode);
    }
    fails(agent, &user, AccessMode::IsolatedWrite);
    is_killed(agent, &root, AccessMode::IsolatedWrite);
    is_killed(agent, &user, AccessMode::ReadOnly);
}

#[test]
fn nothing_is_left_of_grok() {
    leaves_nothing(Agent::Grok);
}

#[test]
fn nothing_is_left_of_claude_code() {
    leaves_nothing(Agent::Claude);
}

#[test]
fn nothing_is_left_of_codex() {
    leaves_nothing(Agent::Codex);
}

#[test]
fn nothing_is_left_of_opencode() {
    leaves_nothing(Agent::Opencode);
}

/// Without this the tests above would prove nothing.
#[test]
fn what_is_left_would_be_seen() {
    let world = World::with_providers(&Caller::fresh_user());
    let around = Surroundings::of(&world);
    let mut words = around.program();
    let leave = "for folder in /tmp /var/tmp /dev/shm ../home ../home/.cache ../runtime ../ws; do echo x >$folder/left; done";
    words.extend(["sh", "-c", leave].map(str::to_owned));
    let status = std::process::Command::new(&words[0]).args(&words[1..]).status().unwrap();
    assert!(status.success());
    let seen = std::panic::catch_unwind(AssertUnwindSafe(|| around.assert_same(&[], "")));
    let told = *seen.unwrap_err().downcast::<String>().unwrap();
    for path in ["tmp", "var-tmp", "shm", "home", "home/.cache", "runtime", "ws"] {
        assert!(told.contains(&format!("\"{path}/left\"")), "{path}: {told}");
    }
}
