//! When is it over? An agent that gave its result is done, one that is silent and does nothing has stalled, and one that works
//! in silence goes on.
//!
//! Stubs speak as each of the four agents does. All of them wait at the same time, because they do nothing else. Needs root,
//! to become another user.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test: a panic is how it fails")]

use std::{thread, time::Duration};

use serde_json::{Value, json};
use stockade_core::mode::AccessMode;
use stockade_tests::{Agent, Caller, Ended, World, dialect::print, outside};

/// Where silence ends a run.
const IDLE_LIMIT: &str = "1500ms";
/// Writes a line to descriptor 8 three times a second for so many seconds, without a process or any work to speak of.
const LOGS: &str = "logs() { mkfifo /tmp/never; exec 9<>/tmp/never; for ((i = 0; i < $1 * 3; i++)); do \
                    echo '{\"type\":\"still here\"}' >&8; read -r -t 0.33 -u 9; done; }\n";

/// Plays one stub of every agent at once, each with its own world; callers alternate.
fn each_agent(play: impl Fn(Agent, &World) + Sync) {
    thread::scope(|scope| {
        for (agent, caller) in Agent::ALL.into_iter().zip(Caller::both().into_iter().cycle()) {
            let play = &play;
            scope.spawn(move || {
                let world = World::new(&caller);
                play(agent, &world);
                assert_eq!(world.receipt("r")["tree"]["gone"], true);
                outside::wait_for_no_process_fenced_for(&world, Duration::from_secs(2));
            });
        }
    });
}

/// A child that runs for so many seconds. It waits for something where its call was announced, which is enough; OpenCode
/// tells of a call only when it has ended, so that only work shows that there is one.
fn child(agent: Agent, seconds: u32) -> String {
    match agent {
        Agent::Claude | Agent::Codex | Agent::Grok => format!("bash -c 'sleep {seconds}; true'\n"),
        Agent::Opencode => format!("timeout {seconds} bash -c 'while :; do :; done'\n"),
    }
}

fn run(agent: Agent, world: &World, body: &str) -> Ended {
    let mut call = agent.run_stub(world, AccessMode::ReadOnly, body).args(&["--idle-timeout", IDLE_LIMIT]);
    if let Some(profile) = agent.profile_with_log(world) {
        call = call.args(&["--profile", &profile]);
    }
    call.end()
}

#[track_caller]
fn assert_complete(agent: Agent, world: &World, ended: &Ended) -> Value {
    let receipt = world.receipt("r");
    let what = format!("{}: {receipt:#}", agent.name());
    assert_eq!((ended.code(), &receipt["status"]), (0, &json!("complete")), "{what}");
    assert_eq!(world.answer("r").as_deref(), Some("Done."), "{what}");
    receipt
}

#[test]
fn a_result_followed_by_sleep_is_complete_and_the_tree_is_gone() {
    each_agent(|agent, world| {
        let body = print(&(agent.begins() + &agent.succeeds("Done."))) + "setsid sleep 600 & exec sleep 600";
        let ended = agent.run_stub(world, AccessMode::ReadOnly, &body).end();
        let receipt = assert_complete(agent, world, &ended);
        let note = "the agent did not exit within 3000 ms of its result and was stopped";
        assert!(receipt["notes"].as_array().unwrap().contains(&json!(note)), "{receipt:#}");
        assert!((3..8).contains(&ended.elapsed.as_secs()), "{:?}", ended.elapsed);
    });
}

#[test]
fn silence_after_a_tool_has_returned_is_stalled_at_the_idle_limit() {
    each_agent(|agent, world| {
        let body = print(&(agent.begins() + &agent.calls() + &agent.returns("hi"))) + "exec sleep 600";
        let ended = run(agent, world, &body);
        assert_stalled(agent, world, &ended, "output");
    });
}

/// At the idle limit of 1.5 s, well before the deadline, with what was last and how long ago.
#[track_caller]
fn assert_stalled(agent: Agent, world: &World, ended: &Ended, last: &str) {
    let receipt = world.receipt("r");
    let what = format!("{}: {receipt:#}", agent.name());
    let cause = &receipt["cause"];
    assert_eq!((ended.code(), &receipt["status"]), (124, &json!("stalled")), "{what}");
    assert_eq!(cause["code"], "limit-idle", "{what}");
    let measured = cause["evidence"][0].as_str().unwrap().to_owned();
    let ago =
        measured.strip_prefix(&format!("measured: last was {last} ")).and_then(|t| t.strip_suffix(" ms ago"));
    let ago: u64 = ago.unwrap_or_else(|| panic!("{what}")).parse().unwrap();
    assert!((1500..3000).contains(&ago), "{what}");
    assert!(ended.elapsed < Duration::from_secs(10), "{what}");
}

#[test]
fn silence_while_the_session_log_grows_is_none() {
    each_agent(|agent, world| {
        let begins = print(&agent.begins());
        let done = print(&agent.succeeds("Done."));
        let ended = run(agent, world, &format!("{LOGS}{}{begins}logs 4\n{done}", agent.opens_log()));
        assert_complete(agent, world, &ended);
        assert!(ended.elapsed > Duration::from_secs(3), "{:?}", ended.elapsed);
    });
}

/// What the test above rests on: the same in a file that is no session log is silence.
#[test]
fn silence_while_another_file_grows_is_stalled() {
    each_agent(|agent, world| {
        let begins = print(&agent.begins());
        let ended = run(agent, world, &format!("{LOGS}exec 8>/tmp/other\n{begins}logs 30\n"));
        assert_stalled(agent, world, &ended, "output");
    });
}

/// The caller is told that the agent is silent, for how long, and what moved all the same.
#[test]
fn a_tool_that_works_in_silence_is_waited_for_with_heartbeats() {
    each_agent(|agent, world| {
        let announced = print(&(agent.begins() + &agent.calls()));
        let rest = print(&(agent.returns("hi") + &agent.succeeds("Done.")));
        let ended = run(agent, world, &format!("{announced}{}{rest}", child(agent, 11)));
        assert_complete(agent, world, &ended);
        let beat = ended.stderr.lines().find(|line| line.contains("no output for 10 s; last was "));
        let beat = beat.unwrap_or_else(|| panic!("{}: {}", agent.name(), ended.stderr));
        assert!(beat.starts_with("[  10 s  ]"), "{beat}");
    });
}
