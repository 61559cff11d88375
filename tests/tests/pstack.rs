//! In the place of `pstack-runner`: its flags, receipts, exit codes and files, on Stockade's lanes.
//!
//! The real Grok under the tool's name, and stubs on `PATH`, which its own tests use too; where these go wrong is
//! `pstack_faults.rs`, the other agents are in `pstack_agents.rs`. Needs root, to become another user.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use stockade_tests::{
    Caller, ScriptedModel, World, model, outside,
    pstack::{
        LISTS, NOBODY, assert_told, by_link, configure, good, order, out_files, own_receipt, progress, set,
        snapshot, wait_for_phase, with_stub,
    },
    run::read_json,
    stub,
};

#[test]
fn the_real_grok_works_under_the_name_of_the_tool_in_both_modes() {
    for caller in Caller::both() {
        for mode in ["read-only", "isolated-write"] {
            let world = World::with_providers(&caller);
            let scripted = ScriptedModel::steps(
                &world,
                &json!([model::shell("echo new > made.txt; cat README.md"), { "text": "All done." }]),
            );
            configure(&world, "grok", &scripted.url, "");
            let progress = world.path("out/progress.json").display().to_string();
            let call = order(
                &world,
                &[("--model", Some("grok-4.6")), ("--mode", Some(mode)), ("--progress", Some(&progress))],
            );
            // The fresh user is reached through a program of its own, which keeps the binary's name.
            let ended = if caller.uid == 0 { by_link(&world, call).end() } else { call.end() };
            let receipt = assert_told(&world, &ended, 0);
            assert_eq!(receipt["status"], "complete", "{receipt:#}");
            assert_eq!(
                (&receipt["reportedModel"], &receipt["modelVerified"], &receipt["modelEvidence"]),
                (&json!("grok-4.6"), &json!(true), &json!("provider-report"))
            );
            let argv: Vec<&str> =
                receipt["argv"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            assert!(
                argv.windows(2).any(|w| w == ["--model", "grok-4.6"])
                    && argv.windows(2).any(|w| w == ["--reasoning-effort", "high"]),
                "{argv:?}"
            );
            assert!(!argv.iter().any(|a| a.contains("Do what the scenario says")), "the prompt is in argv");
            assert_eq!(fs::read_to_string(world.path("out/answer")).unwrap(), "All done.");
            for file in ["out/answer", "out/receipt.json", "out/progress.json"] {
                assert_eq!(
                    fs::metadata(world.path(file)).unwrap().permissions().mode() & 0o777,
                    0o600,
                    "{file}"
                );
            }
            assert_eq!(world.ws().join("made.txt").exists(), mode == "isolated-write");
            // The receipt is on the file that was reserved, which the progress file remembers.
            let snapshot = read_json(&world.path("out/progress.json"));
            let file = fs::metadata(world.path("out/receipt.json")).unwrap();
            assert_eq!(snapshot["receiptRef"], json!({ "dev": file.dev(), "ino": file.ino() }));
            assert_eq!(
                (&snapshot["phase"], &snapshot["terminal"]["receiptWritten"]),
                (&json!("terminal"), &json!(true))
            );
            let told = scripted.requests().iter().find(|r| r["class"] == "main").unwrap()["body"].to_string();
            assert!(
                told.contains("Worker contract") && told.contains("Do what the scenario says."),
                "{told}"
            );
        }
    }
}

#[test]
fn a_mistake_creates_nothing_and_an_old_receipt_stays_as_it_was() {
    let world = with_stub(&Caller::root(), &good("Done."));
    for (changes, says) in [
        (&[("--mode", Some("write"))][..], "--mode"),
        (&[("--parent", None)], "--parent"),
        (&[("--provider", Some("codex"))], "codex"),
        (&[("--effort", Some("default"))], "effort"),
        (&[("--prompt", Some("/nowhere"))], "/nowhere"),
        (&[("--output", Some("receipt.json"))], "same path"),
    ] {
        let ended = order(&world, changes).end();
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(64), ""), "{changes:?}");
        assert!(ended.stderr.starts_with("error: ") && ended.stderr.contains(says), "{}", ended.stderr);
        assert!(ended.stderr.contains("--api-spend"), "the whole help: {}", ended.stderr);
        assert_eq!(out_files(&world), set(&["prompt.md"]), "{changes:?}");
    }
    let help = world.call(&["--compat", "pstack", "-h"]).end();
    assert_eq!((help.status.code(), help.stderr.as_str()), (Some(0), ""));
    assert!(help.stdout.contains("--receipt"));

    assert_told(&world, &order(&world, &[]).end(), 0);
    let before = fs::read(world.path("out/receipt.json")).unwrap();
    let again = order(&world, &[("--output", Some("another"))]).end();
    assert_eq!(again.status.code(), Some(64));
    assert_eq!(fs::read(world.path("out/receipt.json")).unwrap(), before);
    assert_eq!(out_files(&world), set(&["answer", "prompt.md", "receipt.json"]));
    // Each of the reserved files is exclusive, and what was reserved beside it is given back.
    let world = with_stub(&Caller::root(), &good("Done."));
    for (flag, file) in
        [("--output", "answer"), ("--receipt", "receipt.json"), ("--progress", "progress.json")]
    {
        let old = world.write(&format!("out/{file}"), "old\n");
        let at = progress(&world).display().to_string();
        let ended = order(&world, &[("--progress", Some(&at))]).end();
        assert_eq!(ended.status.code(), Some(64), "{flag}: {}", ended.stderr);
        assert_eq!(fs::read_to_string(&old).unwrap(), "old\n", "{flag}");
        assert_eq!(out_files(&world), set(&["prompt.md", file]), "{flag}");
        fs::remove_file(old).unwrap();
    }
}

#[test]
fn there_is_no_deadline_and_no_idle_limit_that_was_not_asked_for() {
    let world = with_stub(&Caller::root(), &good("Done."));
    let receipt = assert_told(&world, &order(&world, &[]).end(), 0);
    let own = own_receipt(&receipt).unwrap();
    assert_eq!(
        (&receipt["timeoutMs"], &own["limits"]["timeoutMs"], &own["limits"]["idleTimeoutMs"]),
        (&Value::Null, &Value::Null, &Value::Null),
        "{own:#}"
    );
}

#[test]
fn a_model_is_asked_once_and_no_other_takes_its_place() {
    let world = with_stub(&Caller::root(), "echo started >> starts; exit 3");
    let ended = order(&world, &[("--mode", Some("isolated-write"))]).end();
    assert_told(&world, &ended, 70);
    assert_eq!(fs::read_to_string(world.ws().join("starts")).unwrap(), "started\n");

    // What the service refuses is refused, with every model that the agent knows beside the asked one.
    let world = World::with_providers(&Caller::root());
    let refuses =
        json!({ "version": 1, "name": "r", "steps": [], "otherwise": { "http": { "status": 400 } } });
    let scripted = ScriptedModel::scenario(&world, &refuses, &[]);
    configure(&world, "grok", &scripted.url, "");
    let receipt = assert_told(&world, &order(&world, &[("--model", Some("grok-4.6"))]).end(), 70);
    assert_eq!(receipt["terminalSuccess"], false, "{receipt:#}");
    let mains: Vec<Value> = scripted
        .requests()
        .into_iter()
        .filter(|r| r["class"] == "main")
        .map(|r| r["model"].clone())
        .collect();
    assert_eq!(mains, ["grok-4.6"]);
}

#[test]
fn nothing_lies_beside_the_callers_files_and_the_process_called_is_the_lane() {
    let world =
        with_stub(&Caller::root(), &format!("while [ ! -e go ]; do sleep 0.05; done\n{}", good("Done.")));
    let at = progress(&world).display().to_string();
    let mut started = order(&world, &[("--progress", Some(&at))]).start();
    wait_for_phase(&world, "workload-running");
    let reserved = set(&["answer", "progress.json", "prompt.md", "receipt.json"]);
    assert_eq!(out_files(&world), reserved);
    // It has not gone into the background: a parent cancels it by the handle that it has.
    assert_eq!(snapshot(&world).unwrap()["runner"]["pid"], started.pid());
    assert!(!started.has_ended());
    world.write("ws/go", "");
    assert_told(&world, &started.wait(Duration::from_secs(20)), 0);
    assert_eq!(out_files(&world), reserved);
    outside::wait_for_no_process_fenced_for(&world, Duration::from_secs(2));
}

#[test]
fn what_an_agent_prints_is_in_no_receipt() {
    let private = "the-private-words-of-a-repository";
    let init = stub::INIT;
    for body in [
        format!("echo {private} >&2; exit 3"),
        format!("say {private}; say '{init}'"),
        format!("say '{init}'; say '{}'; exit 1", stub::message(private)),
        format!("say '{}'; exit 4", stub::success(private)),
        good(private),
    ] {
        let world = with_stub(&Caller::root(), &body);
        let ended = order(&world, &[]).end();
        let receipt = assert_told(&world, &ended, ended.status.code().unwrap());
        assert!(!receipt.to_string().contains(private), "{body}: {receipt:#}");
    }
}

#[test]
fn an_output_that_the_agent_could_write_is_refused() {
    let world = with_stub(&Caller::root(), &good("Done."));
    let inside = world.ws().join("answer").display().to_string();
    let ended = order(&world, &[("--mode", Some("isolated-write")), ("--output", Some(&inside))]).end();
    assert_eq!(ended.status.code(), Some(64), "{}", ended.stderr);
    assert_eq!(out_files(&world), set(&["prompt.md"]));
    assert!(!Path::new(&inside).exists());
}

#[test]
fn what_may_not_or_cannot_start_ends_before_anything_runs() {
    for (changes, status, code) in [
        (&[("--contract", Some("strict"))][..], "unsupported-capability", 79),
        (&[("--api-spend", Some("deny"))], "billing-policy-blocked", 78),
        (
            &[("--provider", Some("opencode")), ("--effort", Some("default")), ("--model", Some("a/b"))],
            "billing-policy-blocked",
            78,
        ),
        (&[("--provider", Some("devin"))], "unavailable-cli", 69),
        (&[("--provider", Some("cursor")), ("--effort", Some("default"))], "unavailable-cli", 69),
    ] {
        let world = with_stub(&Caller::root(), "touch started; exit 1");
        let ended = order(&world, changes).env("XAI_API_KEY", "sk-never-told").end();
        let receipt = assert_told(&world, &ended, code);
        assert_eq!(
            (&receipt["status"], &receipt["processStarted"], &receipt["argv"]),
            (&json!(status), &json!(false), &json!([]))
        );
        assert!(!receipt.to_string().contains("sk-never-told"), "{receipt:#}");
        assert_eq!(out_files(&world), set(&["prompt.md", "receipt.json"]), "{changes:?}");
    }
}

#[test]
fn only_executables_that_the_project_did_not_bring_are_taken_from_path() {
    let world = World::new(&Caller::root());
    configure(&world, "grok", NOBODY, "executables = \"path\"");
    fs::create_dir(world.ws().join("bin")).unwrap();
    world.script("ws/bin/grok", "#!/bin/sh\ntouch /tmp/started\n");
    let path = format!("bin:{}:/usr/bin:/bin", world.ws().join("bin").display());
    let ended = order(&world, &[]).env("PATH", &path).cwd(&world.ws()).end();
    let receipt = assert_told(&world, &ended, 69);
    assert_eq!(receipt["error"]["message"], "grok is not on PATH");
}

#[test]
fn a_host_without_a_fence_is_a_missing_program_to_the_tool_and_named_in_full_beside() {
    let world = with_stub(&Caller::fresh_user().on(&["no-userns"]), &good("Done."));
    let ended = order(&world, &[]).end();
    let receipt = assert_told(&world, &ended, 69);
    assert_eq!(
        (&receipt["status"], &receipt["cause"]["code"]),
        (&json!("unavailable-cli"), &json!("sandbox-unavailable"))
    );
    assert!(receipt["cause"]["detail"]["step"].is_string(), "{receipt:#}");
    let preflight = &receipt["preflight"];
    assert_eq!(
        (&preflight["status"], &preflight["argv"]),
        (&json!("failed"), &json!([])),
        "nothing was asked"
    );
    assert_eq!(preflight["evidence"], receipt["cause"]["detail"]["message"], "{receipt:#}");
}

#[test]
fn endings_of_the_agent() {
    let refused = r#"{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"Hi.","stop_reason":"end_turn","modelUsage":{"other":{"inputTokens":5,"outputTokens":2}}}"#;
    for (body, status, code, phase) in [
        (good("Done."), "complete", 0, Value::Null),
        ("exit 3".to_owned(), "child-failed", 70, json!("invocation")),
        ("say '{broken'".to_owned(), "malformed-output", 65, json!("postprocess")),
        (format!("say '{}'", stub::INIT), "malformed-output", 65, json!("postprocess")),
        (format!("say '{refused}'"), "malformed-output", 65, json!("postprocess")),
        ("kill -TERM $$".to_owned(), "child-failed", 70, json!("invocation")),
    ] {
        let world = with_stub(&Caller::root(), &body);
        let ended = order(&world, &[]).end();
        let receipt = assert_told(&world, &ended, code);
        assert_eq!(
            (&receipt["status"], &receipt["failurePhase"]),
            (&json!(status), &phase),
            "{body}: {receipt:#}"
        );
        let is_delivered = code == 0;
        assert_eq!(world.path("out/answer").exists(), is_delivered, "{body}");
        if body.starts_with("kill") {
            assert_eq!(
                (&receipt["exitCode"], &receipt["signal"]),
                (&json!(143), &Value::Null),
                "nobody here sent it"
            );
        }
        if !is_delivered {
            assert_eq!(receipt["terminalSuccess"], false, "{body}: {receipt:#}");
        }
    }
    // A whole answer of an agent that then failed is not thrown at another one.
    let world = with_stub(&Caller::root(), &format!("{}\nexit 4", good("Done.")));
    let receipt = assert_told(&world, &order(&world, &[]).end(), 70);
    assert_eq!(
        (&receipt["status"], &receipt["terminalSuccess"]),
        (&json!("child-failed"), &json!(true)),
        "{receipt:#}"
    );
    assert_eq!(receipt["error"]["message"], "the agent answered and then ended with 4");
    assert!(!world.path("out/answer").exists());
}

#[test]
fn a_hand_over_at_the_end_of_an_answer_is_the_parents_to_carry_out() {
    let body = |operation: &str| {
        let block = format!(
            r#"{{\"task\":\"t\",\"checkpoint\":\"c\",\"operation\":\"{operation}\",\"files\":[\"a.rs\"],\"checks\":[],\"summary\":\"s\"}}"#
        );
        good(&format!("Half done.\\n\\n```pstack-handoff\\n{block}\\n```"))
    };
    let world = with_stub(&Caller::root(), &body("commit-checkpoint"));
    let receipt = assert_told(&world, &order(&world, &[]).end(), 0);
    assert_eq!(
        (&receipt["status"], &receipt["handoff"]["operation"]),
        (&json!("needs-parent-operation"), &json!("commit-checkpoint"))
    );
    assert!(fs::read_to_string(world.path("out/answer")).unwrap().starts_with("Half done."));

    let world = with_stub(&Caller::root(), &body("force-push"));
    let receipt = assert_told(&world, &order(&world, &[]).end(), 65);
    assert_eq!(receipt["handoffMalformed"], true);
    assert!(world.path("out/answer").exists(), "the answer is kept");
}

#[test]
fn deadline_and_signals_end_the_whole_tree() {
    let mark = |world: &World| world.root().file_name().unwrap().to_str().unwrap().to_owned();
    // A grandchild holds the pipe open.
    let stuck = |mark: &str| format!("setsid bash -c 'exec -a {mark} sleep 300' & sleep 300");
    for caller in Caller::both() {
        let world = World::new(&caller);
        configure(&world, "grok", NOBODY, "executables = \"path\"");
        world.stub("grok", &format!("{LISTS}\n{}", stuck(&mark(&world))));
        let ended = order(&world, &[("--timeout", Some("0.9"))]).end();
        let receipt = assert_told(&world, &ended, 124);
        assert_eq!((&receipt["status"], &receipt["timeoutMs"]), (&json!("timed-out"), &json!(900)));
        assert!(ended.elapsed < Duration::from_secs(6), "{:?}", ended.elapsed);
        outside::wait_for_no_process_with(&mark(&world), Duration::from_secs(2));
    }
    for signal in [Signal::TERM, Signal::INT] {
        let world = World::new(&Caller::root());
        configure(&world, "grok", NOBODY, "executables = \"path\"");
        world.stub("grok", &format!("{LISTS}\n{}", stuck(&mark(&world))));
        let progress = world.path("out/progress.json").display().to_string();
        let started = order(&world, &[("--progress", Some(&progress))]).start();
        wait_for_phase(&world, "workload-running");
        started.signal(signal);
        let ended = started.wait(Duration::from_secs(20));
        let receipt = assert_told(&world, &ended, 130);
        assert_eq!(receipt["status"], "cancelled", "{receipt:#}");
        assert!(receipt["terminalSuccess"].is_null(), "{receipt:#}");
        outside::wait_for_no_process_with(&mark(&world), Duration::from_secs(2));
    }
}

#[test]
fn status_tells_a_lane_that_runs_from_one_that_ended_and_one_that_was_killed() {
    let world = with_stub(&Caller::root(), &format!("sleep 300; {}", good("Done.")));
    let (progress, at): (PathBuf, PathBuf) =
        (world.path("out/progress.json"), world.path("out/receipt.json"));
    let look = || {
        let (p, r) = (progress.display().to_string(), at.display().to_string());
        let ended =
            world.call(&["--compat=pstack", "status", "--json", "--progress", &p, "--receipt", &r]).end();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        serde_json::from_str::<Value>(&ended.stdout).unwrap()["lanes"][0].clone()
    };
    assert_eq!((&look()["view"], &look()["reason"]), (&json!("unknown"), &json!("missing")));
    let text = progress.display().to_string();
    let started = order(&world, &[("--progress", Some(&text))]).start();
    wait_for_phase(&world, "workload-running");
    let running = look();
    assert_eq!(
        (&running["view"], &running["child"], &running["phase"]),
        (&json!("active"), &json!("running"), &json!("workload-running"))
    );
    assert_eq!(look()["changeKey"], running["changeKey"], "nothing new to tell");
    started.signal(Signal::KILL);
    drop(started.wait(Duration::from_secs(10)));
    let killed = look();
    assert_eq!(
        (&killed["view"], &killed["reason"], &killed["child"]),
        (&json!("interrupted"), &json!("launcher-gone"), &json!("gone"))
    );

    let world = with_stub(&Caller::root(), &good("Done."));
    let progress = world.path("out/progress.json").display().to_string();
    assert_told(&world, &order(&world, &[("--progress", Some(&progress))]).end(), 0);
    let at = world.path("out/receipt.json").display().to_string();
    let ended =
        world.call(&["--compat", "pstack", "status", "--progress", &progress, "--receipt", &at]).end();
    assert!(
        ended.stdout.starts_with("L1 grok:") && ended.stdout.contains(" terminal complete"),
        "{}",
        ended.stdout
    );
    for wrong in [&["--progress", "a"][..], &["--receipt", "a"], &["--nonsense"], &[]] {
        assert_eq!(
            world.call(&["--compat", "pstack", "status"]).args(wrong).end().status.code(),
            Some(64),
            "{wrong:?}"
        );
    }
}

#[test]
fn nothing_of_the_parents_identity_reaches_the_agent() {
    let body = format!("env > \"$HOME/seen\"; cat \"$HOME/seen\" >&2\n{}", good("Done."));
    let world = with_stub(&Caller::root(), &body);
    let mut call = order(&world, &[]);
    let names = [
        "CODEX_THREAD_ID",
        "CODEX_SESSION_ID",
        "CODEX_CI",
        "CODEX_SHELL",
        "CODEX_SANDBOX",
        "CODEX_SANDBOX_NETWORK_DISABLED",
        "CODEX_INTERNAL_ORIGINATOR_OVERRIDE",
        "CLAUDECODE",
        "CLAUDE_CODE_CHILD_SESSION",
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS",
        "DEVIN_REFUSAL_FALLBACK",
        "XAI_API_KEY",
    ];
    for name in names {
        call = call.env(name, "of-the-parent");
    }
    let receipt = assert_told(&world, &call.end(), 0);
    let run = receipt["stockade"]["runDirectory"].as_str().unwrap();
    let seen = fs::read_to_string(Path::new(run).join("stderr")).unwrap();
    assert!(seen.contains("HOME=") && !seen.contains("of-the-parent"), "{seen}");

    // Whoever the parent is, the agent is started the same way.
    let start = |parent: &str| {
        let world = with_stub(&Caller::root(), &good("Done."));
        let receipt = assert_told(&world, &order(&world, &[("--parent", Some(parent))]).end(), 0);
        let run = Path::new(receipt["stockade"]["runDirectory"].as_str().unwrap()).to_owned();
        let plan = read_json(&run.join("plan.json"));
        let session = plan["session"].as_str().unwrap();
        let shown = json!([plan["argv"], plan["env"], plan["passedEnv"]]).to_string();
        shown.replace(session, "SESSION").replace(world.root().to_str().unwrap(), "WORLD")
    };
    assert_eq!(start("codex"), start("claude"));
}
