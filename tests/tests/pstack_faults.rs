//! In the place of `pstack-runner`, where something goes wrong: what its own tests lead it into with fake programs on
//! `PATH`. Needs root, to become another user.

#![expect(clippy::panic, reason = "a test: a panic is how it fails")]

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};
use stockade_tests::{
    Caller, World, outside,
    pstack::{
        LISTS, NOBODY, assert_told, configure, good, order, out_files, progress, set, snapshot,
        wait_for_phase, with_bare_stub, with_stub,
    },
};

/// What `grok models` says in contradiction to itself.
const DENIES: &str = "say 'You are not authenticated.'; say 'Available models:'; say '  * m (default)'";

/// A stub that denies its login when it is asked for the first time, or every time.
fn denies(times: &str) -> String {
    format!(
        r#"if [ "$1" = models ]; then
  echo >> "$HOME/asked"
  [ "$(wc -l < "$HOME/asked")" -le {times} ] && {{ {DENIES}; exit; }}
fi
{LISTS}
{}"#,
        good("Done.")
    )
}

fn text<'v>(receipt: &'v Value, pointer: &str) -> &'v str {
    receipt.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{pointer}: {receipt:#}"))
}

/// A lane that ended in its preflight, by these words.
#[track_caller]
fn assert_not_started(receipt: &Value, status: &str, preflight: &str) {
    assert_eq!(
        (&receipt["status"], &receipt["preflight"]["status"], &receipt["processStarted"], &receipt["argv"]),
        (&json!(status), &json!(preflight), &json!(false), &json!([])),
        "{receipt:#}"
    );
    assert!(receipt["executable"].is_string(), "{receipt:#}");
    assert!(text(receipt, "/preflight/argv/0").ends_with("/grok"), "{receipt:#}");
    assert_eq!(receipt["preflight"]["argv"][1], "models", "{receipt:#}");
}

#[test]
fn a_login_that_is_denied_once_is_asked_for_again_after_five_seconds() {
    let world = with_bare_stub(&Caller::fresh_user(), &denies("1"));
    let at = progress(&world).display().to_string();
    let started = order(&world, &[("--progress", Some(&at))]).start();
    wait_for_phase(&world, "preflight-retry-wait");
    assert!(snapshot(&world).unwrap()["retryWait"].is_string());
    let ended = started.wait(Duration::from_secs(30));
    let receipt = assert_told(&world, &ended, 0);
    assert!((5..12).contains(&ended.elapsed.as_secs()), "{:?}", ended.elapsed);
    let evidence = text(&receipt, "/preflight/evidence");
    for part in [
        "attempt 1 failed, no login: exit code 0, 3 line(s), \"You are not authenticated.\"",
        "attempt 2 passed: exit code 0, 4 line(s), \"You are logged in with grok.com.\"",
    ] {
        assert!(evidence.contains(part), "{evidence}");
    }
    assert_eq!(
        (&receipt["preflight"]["status"], &receipt["preflight"]["argv"][1]),
        (&json!("passed"), &json!("models"))
    );
    assert!(snapshot(&world).unwrap()["retryWait"].is_null());
}

#[test]
fn a_login_that_is_denied_twice_is_none() {
    let world = with_bare_stub(&Caller::root(), &denies("9"));
    let receipt = assert_told(&world, &order(&world, &[]).end(), 77);
    assert_not_started(&receipt, "unauthenticated", "failed");
    assert_eq!(receipt["exitCode"], 0, "the preflight's own: {receipt:#}");
    for attempt in ["attempt 1 failed, no login", "attempt 2 failed, no login"] {
        assert!(text(&receipt, "/preflight/evidence").contains(attempt), "{receipt:#}");
        assert!(text(&receipt, "/error/evidence").contains(attempt), "{receipt:#}");
    }
    assert!(!text(&receipt, "/preflight/evidence").contains("attempt 3"), "{receipt:#}");
}

#[test]
fn only_a_denied_login_is_asked_for_again() {
    let answers = |body: &str| format!("if [ \"$1\" = models ]; then {body}\nfi\n{}", good("Done."));
    let logged_in = "say 'You are logged in with grok.com.'";
    for (body, status, code, came_to) in [
        // Part of a name is not the name.
        (format!("{logged_in}; say '  * m-mini'; say '  * xm'; exit"), "unavailable-model", 69, "not listed"),
        (format!("{logged_in}; say '  * m'; exit 3"), "unavailable-cli", 69, "exit code 3"),
        ("kill -KILL $$".to_owned(), "unavailable-cli", 69, "exit code 137"),
    ] {
        let world = with_bare_stub(&Caller::root(), &answers(&body));
        let ended = order(&world, &[]).end();
        let receipt = assert_told(&world, &ended, code);
        assert_not_started(&receipt, status, "failed");
        assert!(ended.elapsed < Duration::from_secs(4), "{:?}", ended.elapsed);
        let evidence = text(&receipt, "/preflight/evidence");
        assert!(evidence.contains(came_to) && !evidence.contains("attempt 2"), "{evidence}");
    }
    // A key is as good as a login.
    for key in ["You are using XAI_API_KEY.", "Model `m` is using its own API key."] {
        let world = with_bare_stub(&Caller::root(), &answers(&format!("say '{key}'; say '  * m'; exit")));
        let receipt = assert_told(&world, &order(&world, &[]).end(), 0);
        assert_eq!(receipt["preflight"]["status"], "passed", "{receipt:#}");
    }
}

#[test]
fn a_deadline_counts_from_the_start_whatever_is_waited_for() {
    let hangs = format!("if [ \"$1\" = models ]; then sleep 300; fi\n{}", good("Done."));
    for (body, waits_for) in [(denies("9"), "the second try"), (hangs, "the first answer")] {
        let world = with_bare_stub(&Caller::fresh_user(), &body);
        let ended = order(&world, &[("--timeout", Some("0.7"))]).end();
        let receipt = assert_told(&world, &ended, 124);
        assert_not_started(&receipt, "timed-out", "timed-out");
        assert_eq!(receipt["timeoutMs"], 700, "{waits_for}");
        assert!(ended.elapsed < Duration::from_secs(3), "{waits_for}: {:?}", ended.elapsed);
        outside::wait_for_no_process_fenced_for(&world, Duration::from_secs(2));
    }
    // It may be over before anything was begun.
    let world = with_stub(&Caller::root(), &good("Done."));
    let receipt = assert_told(&world, &order(&world, &[("--timeout", Some("0.001"))]).end(), 124);
    assert_eq!(
        (&receipt["status"], &receipt["processStarted"], &receipt["timeoutMs"]),
        (&json!("timed-out"), &json!(false), &json!(1))
    );
    // And it may be farther away than a timer of 31 bits.
    let world = with_stub(&Caller::root(), &good("Done."));
    let receipt = assert_told(&world, &order(&world, &[("--timeout", Some("2147483.648"))]).end(), 0);
    assert_eq!(receipt["timeoutMs"], 2_147_483_648_u64);
}

#[test]
fn a_signal_in_the_wait_for_the_second_try_cancels() {
    let world = with_bare_stub(&Caller::root(), &denies("9"));
    let at = progress(&world).display().to_string();
    let started = order(&world, &[("--progress", Some(&at))]).start();
    wait_for_phase(&world, "preflight-retry-wait");
    started.signal(Signal::TERM);
    let ended = started.wait(Duration::from_secs(10));
    let receipt = assert_told(&world, &ended, 130);
    assert_not_started(&receipt, "cancelled", "cancelled");
    assert!(ended.elapsed < Duration::from_secs(4), "{:?}", ended.elapsed);
}

/// Stockade's configuration is read before anything is reserved, and the prompt after it: two pipes in their places lead
/// the runner to where it has reserved its files and nothing runs yet.
#[test]
fn a_signal_after_the_files_are_reserved_and_before_there_is_a_lane_cancels() {
    for signal in [Signal::TERM, Signal::INT] {
        let world = with_stub(&Caller::root(), "touch started");
        let config = world.path("home/.config/stockade/config.toml");
        let settings = fs::read(&config).unwrap();
        let pipe = |path: &std::path::Path| {
            fs::remove_file(path).unwrap();
            rustix::fs::mknodat(
                rustix::fs::CWD,
                path,
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::from_raw_mode(0o600),
                0,
            )
            .unwrap();
        };
        pipe(&config);
        let started = order(&world, &[]).start();
        // Opening it waits for the reader, which has checked the prompt before.
        let mut writer = fs::OpenOptions::new().write(true).open(&config).unwrap();
        let prompt = world.path("out/prompt.md");
        pipe(&prompt);
        std::io::Write::write_all(&mut writer, &settings).unwrap();
        drop(writer);
        outside::wait_until("the receipt is reserved", || world.path("out/receipt.json").exists());
        started.signal(signal);
        fs::write(&prompt, "Do what the scenario says.\n").unwrap();
        let receipt = assert_told(&world, &started.wait(Duration::from_secs(20)), 130);
        assert_eq!(
            (&receipt["status"], &receipt["processStarted"], &receipt["failurePhase"]),
            (&json!("cancelled"), &json!(false), &json!("preflight"))
        );
        assert_eq!(receipt["preflight"]["status"], "cancelled", "{receipt:#}");
        assert_eq!(out_files(&world), set(&["prompt.md", "receipt.json"]));
    }
}

#[test]
fn a_prompt_that_cannot_be_read_is_told_in_a_receipt() {
    let world = World::new(&Caller::fresh_user());
    configure(&world, "grok", NOBODY, "executables = \"path\"");
    world.stub("grok", &format!("{LISTS}\n{}", good("Done.")));
    let call = order(&world, &[]);
    fs::set_permissions(world.path("out/prompt.md"), fs::Permissions::from_mode(0o000)).unwrap();
    let receipt = assert_told(&world, &call.end(), 70);
    assert_eq!(
        (&receipt["status"], &receipt["processStarted"], &receipt["failurePhase"]),
        (&json!("child-failed"), &json!(false), &json!("preflight"))
    );
    let message = text(&receipt, "/error/message");
    assert!(message.starts_with("launcher failed after reserving output paths"), "{message}");
}

#[test]
fn a_grandchild_that_holds_the_streams_open_costs_neither_the_answer_nor_time() {
    let holds = format!("{}\nsetsid sleep 300 &", good("Done."));
    for timeout in [None, Some("20")] {
        let world = with_stub(&Caller::fresh_user(), &holds);
        let ended = order(&world, &[("--timeout", timeout)]).end();
        let receipt = assert_told(&world, &ended, 0);
        assert_eq!((&receipt["exitCode"], &receipt["signal"]), (&json!(0), &Value::Null));
        assert!(ended.elapsed < Duration::from_secs(5), "{:?}", ended.elapsed);
        outside::wait_for_no_process_fenced_for(&world, Duration::from_secs(2));
    }
}

#[test]
fn a_second_signal_waits_for_nothing_and_the_first_is_the_one_that_counts() {
    // It takes no hint.
    let world = with_stub(&Caller::root(), "trap '' TERM INT; while :; do sleep 0.1; done");
    let at = progress(&world).display().to_string();
    let started = order(&world, &[("--progress", Some(&at))]).start();
    wait_for_phase(&world, "workload-running");
    started.signal(Signal::TERM);
    started.signal(Signal::TERM);
    let ended = started.wait(Duration::from_secs(10));
    let receipt = assert_told(&world, &ended, 130);
    assert_eq!(receipt["status"], "cancelled", "{receipt:#}");
    assert!(receipt["signal"].is_string(), "we sent it to a live child: {receipt:#}");
    outside::wait_for_no_process_fenced_for(&world, Duration::from_secs(2));
}

#[test]
fn an_executable_that_is_replaced_after_its_preflight_is_still_the_one_that_was_asked() {
    for caller in Caller::both() {
        let answers = "while [ ! -e go ]; do sleep 0.05; done";
        let body = format!("if [ \"$1\" = models ]; then {answers}; fi\n{LISTS}\n{}", good("Done."));
        let world = with_bare_stub(&caller, &body);
        let started = order(&world, &[]).start();
        outside::wait_until("it is asked", || {
            outside::processes_fenced_for(&world).iter().any(|(_, line)| line.contains("models"))
        });
        fs::remove_file(world.path("stubs/grok")).unwrap();
        world.stub("grok", "exit 9");
        world.write("ws/go", "");
        let receipt = assert_told(&world, &started.wait(Duration::from_secs(20)), 0);
        assert_eq!(receipt["status"], "complete", "{receipt:#}");
    }
}
