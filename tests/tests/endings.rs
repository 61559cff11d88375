//! How a run ended, where that does not depend on the agent: a proper answer, tools that nobody planned, a kill from outside.
//!
//! Every fault of an endpoint is in `providers.rs`, what an agent says by itself in `dialects.rs`, silence in `when_over.rs`.
//! Needs root, to become another user.

#![expect(clippy::unwrap_used, reason = "a test: a panic is how it fails")]

use std::{path::Path, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use stockade_core::mode::AccessMode;
use stockade_tests::{Agent, Caller, ScriptedModel, World, dialect::print, outside, run::Call};

#[test]
fn an_answer_is_complete() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let model = ScriptedModel::steps(&world, &json!([{ "text": "All is well." }]));
        let ended = Agent::Grok.run(&world, AccessMode::ReadOnly, &model.url).end().expect_code(0);
        let receipt = world.receipt("r");
        assert_eq!((&receipt["status"], &receipt["cause"]), (&json!("complete"), &Value::Null));
        assert_eq!((&receipt["exitCode"], &receipt["partial"]), (&json!(0), &json!(false)));
        assert_eq!(world.answer("r").as_deref(), Some("All is well."));
        assert!(ended.stderr.contains("complete: exit 0"), "{}", ended.stderr);
    }
}

#[test]
fn tools_that_are_not_in_the_plan_end_the_run_before_any_of_them() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let known = r#"read_only_argv = ["--tools", "read_file,"#;
        let profile = Agent::Grok.profile_with(&world, &[(known, &format!("{known}no_such_tool,"))]);
        let tool = json!({ "tools": [{ "name": "write", "arguments": { "file_path": "made.txt", "content": "x" } }] });
        let model = ScriptedModel::steps(&world, &json!([tool]));
        let ended =
            Agent::Grok.run(&world, AccessMode::ReadOnly, &model.url).args(&["--profile", &profile]).end();
        let receipt = world.receipt("r");
        let cause = &receipt["cause"];
        assert_eq!((ended.code(), &receipt["status"]), (78, &json!("policy-refused")), "{receipt:#}");
        assert_eq!((&cause["code"], &cause["boundary"]), (&json!("toolset-mismatch"), &json!("model")));
        assert!(cause["evidence"].to_string().contains("image_gen"), "{cause:#}");
        assert!(ended.stderr.contains(cause["message"].as_str().unwrap()), "{}", ended.stderr);
        assert_eq!(
            (&receipt["toolCalls"], &receipt["usage"]["outputTokens"].as_u64().is_some()),
            (&json!(0), &true)
        );
        outside::wait_for_no_process_fenced_for(&world, Duration::from_secs(2));
        let seen: Vec<_> = model.requests().iter().map(|r| r["class"].clone()).collect();
        assert!(
            seen.iter().all(|class| class == "title"),
            "something of the turn reached the endpoint: {seen:?}"
        );
        assert_eq!(world.answer("r"), None);
    }
}

fn run_stub<'w>(world: &'w World, body: &str) -> Call<'w> {
    Agent::Grok.run_stub(world, AccessMode::ReadOnly, body)
}

/// The agent's process on the host, once it runs.
fn agent_of(world: &World) -> Pid {
    let mark = world.ws().display().to_string();
    let agent =
        || outside::processes_with(&mark).into_iter().find(|(_, line)| line.contains("--prompt-file"));
    outside::wait_until("the agent runs", || agent().is_some());
    Pid::from_raw(i32::try_from(agent().unwrap().0).unwrap()).unwrap()
}

#[test]
fn an_agent_that_is_killed_from_outside_is_told_dead_at_once() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let ready = print(&Agent::Grok.begins()) + "sleep 600 & echo harmless telemetry >&2\nwait";
        let running = run_stub(&world, &ready).start();
        let agent = agent_of(&world);
        // Its first line is out, so that what it had said is there.
        let saying = || {
            let runs = std::fs::read_dir(world.state().join("runs")).unwrap();
            runs.flatten().any(|run| {
                std::fs::read_to_string(run.path().join("stdout")).is_ok_and(|t| t.contains("init"))
            })
        };
        outside::wait_until("the agent has said something", saying);
        let killed = std::time::Instant::now();
        kill_process(agent, Signal::KILL).unwrap();
        let ended = running.wait(Duration::from_secs(20)).expect_code(70);
        assert!(killed.elapsed() < Duration::from_secs(1), "told {:?} after the kill", killed.elapsed());
        let receipt = world.receipt("r");
        assert_eq!(receipt["status"], "killed", "{receipt:#}");
        let cause = &receipt["cause"];
        assert_eq!(
            (&cause["code"], &cause["boundary"], &cause["step"]),
            (&json!("killed"), &json!("host"), &json!("signal 9"))
        );
        assert_eq!(
            (&receipt["exitCode"], &receipt["signal"], &receipt["sessionId"]),
            (&json!(137), &Value::Null, &json!("s-1"))
        );
        assert!(ended.stderr.contains("killed by signal 9, which Stockade did not send"), "{}", ended.stderr);
        outside::wait_for_no_process_fenced_for(&world, Duration::from_secs(2));
    }
}

/// Both streams of every run are kept, whatever its ending.
#[test]
fn what_a_failed_agent_said_is_kept() {
    let world = World::new(&Caller::root());
    run_stub(&world, "echo not of the dialect; echo and a reason >&2; exit 2").end().expect_code(70);
    let folder = world.receipt("r")["runDirectory"].as_str().unwrap().to_owned();
    let kept = |file: &str| std::fs::read_to_string(Path::new(&folder).join(file)).unwrap();
    assert_eq!(
        (kept("stdout").as_str(), kept("stderr").as_str()),
        ("not of the dialect\n", "and a reason\n")
    );
}
