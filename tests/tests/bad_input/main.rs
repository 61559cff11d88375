//! What bad input gets: an exit code, an error that says what is wrong and what to do, and nothing half-made.
//!
//! An order that cannot be carried out as it stands leaves nothing at all; one that was accepted and then refused leaves
//! its receipt and its run directory. Needs root, to become another user and to mount small file systems.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test: a panic is how it fails")]

mod executable;
mod flags;
mod paths;
mod prompt;
mod storage;

use std::{collections::BTreeMap, fs, path::Path, path::PathBuf};

use serde_json::{Value, json};
use stockade_tests::{Ended, World, outside, run::Call, stub};

/// Nobody listens there, and nobody has to: these orders end before a model is asked.
const ENDPOINT: &str = "http://127.0.0.1:9/v1";

/// What is wrong with an order: flags in place of those of a good one. `None` leaves a flag out.
type Wrong<'a> = &'a [(&'a str, Option<&'a str>)];

/// A good order of a stub, changed.
fn order<'w>(world: &'w World, wrong: Wrong<'_>) -> Call<'w> {
    let stub = world.stub_lines("good", &[stub::INIT, &stub::success("Done.")]);
    let path = |relative: &str| world.path(relative).display().to_string();
    let mut flags: BTreeMap<&str, Option<String>> = BTreeMap::from([
        ("--provider", Some("grok".to_owned())),
        ("--provider-sandbox", Some("replace".to_owned())),
        ("--model", Some("m".to_owned())),
        ("--executable", Some(stub.display().to_string())),
        ("--endpoint", Some(ENDPOINT.to_owned())),
        ("--cwd", Some(path("ws"))),
        ("--prompt", Some(world.write("out/prompt.md", "Do it.\n").display().to_string())),
        ("--output", Some(path("out/answer"))),
        ("--receipt", Some(path("out/receipt.json"))),
    ]);
    flags.extend(wrong.iter().map(|(flag, value)| (*flag, value.map(str::to_owned))));
    let args: Vec<String> =
        flags.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?])).flatten().collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    world.call(&["run", "--json"]).args(&args)
}

/// The one JSON object on standard error.
#[track_caller]
fn shown(ended: &Ended) -> Value {
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    serde_json::from_str(&ended.stderr).unwrap_or_else(|e| panic!("{e}: {}", ended.stderr))
}

/// What a mistake in the order looks like; `boundary` is `order` and there is no error number, unless changed.
fn mistake(code: &str, step: &str, path: Option<&Path>, message: &str, hint: &str) -> Value {
    json!({ "code": code, "boundary": "order", "step": step, "errno": null, "path": path, "message": message, "hint": hint })
}

fn with_errno(mut error: Value, errno: i32) -> Value {
    error["errno"] = json!(errno);
    error
}

/// Everything that an order could leave behind.
fn traces(world: &World) -> [BTreeMap<PathBuf, String>; 4] {
    ["out", "ws", "home", "outside"].map(|folder| outside::picture(&world.path(folder)))
}

/// The entries of a folder of the state directory.
fn state_entries(world: &World, folder: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(world.state().join(folder)) else { return Vec::new() };
    entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

/// Makes the call; it has to be refused like this and to leave nothing.
#[track_caller]
fn refused(world: &World, call: Call<'_>, exit: i32, error: &Value) {
    let before = traces(world);
    let ended = call.end();
    assert_eq!((ended.code(), &shown(&ended)), (exit, error), "as {}", world.caller.name);
    assert_eq!(ended.stdout, "");
    assert_eq!(traces(world), before, "something was left");
    let (runs, homes) = (state_entries(world, "runs"), state_entries(world, "homes"));
    assert_eq!((runs.len(), homes.len()), (0, 0), "{runs:?} {homes:?}");
}

/// Makes the call; it has to end like this, with a receipt, but before an agent was started.
#[track_caller]
fn refused_with_receipt(world: &World, call: Call<'_>, exit: i32, status: &str, error: &Value) -> Value {
    let ended = call.end();
    assert_eq!((ended.code(), &shown(&ended)), (exit, error), "as {}", world.caller.name);
    let receipt = stockade_tests::run::read_json(&world.path("out/receipt.json"));
    assert_eq!(serde_json::from_str::<Value>(&ended.stdout).unwrap(), receipt);
    assert_eq!(
        (&receipt["status"], &receipt["processStarted"]),
        (&json!(status), &json!(false)),
        "{receipt:#}"
    );
    let cause = &receipt["cause"];
    for (shown, kept) in
        [("code", "code"), ("boundary", "boundary"), ("message", "message"), ("hint", "remedy")]
    {
        assert_eq!(error[shown], cause[kept], "{receipt:#}");
    }
    assert!(!world.path("out/answer").exists());
    assert_eq!((state_entries(world, "runs").len(), state_entries(world, "homes").len()), (1, 0));
    receipt
}
