//! Calls in the place of pstack-runner, and what its users take for granted about each.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{Caller, Ended, World, run::Call, run::read_json, schema, stub, world};

/// An endpoint that nobody serves: stubs never ask.
pub const NOBODY: &str = "http://127.0.0.1:9/v1";

/// What the tool's statuses exit with.
const CODES: [(&str, i32); 12] = [
    ("complete", 0),
    ("needs-parent-operation", 0),
    ("malformed-output", 65),
    ("unavailable-cli", 69),
    ("unavailable-model", 69),
    ("child-failed", 70),
    ("usage-exhausted", 75),
    ("unauthenticated", 77),
    ("billing-policy-blocked", 78),
    ("unsupported-capability", 79),
    ("timed-out", 124),
    ("cancelled", 130),
];

/// What `grok models` says when all is well, as a stub.
pub const LISTS: &str = r#"if [ "$1" = models ]; then
  say 'You are logged in with grok.com.'; say; say 'Available models:'; say '  * m (default)'; exit
fi"#;

/// Stockade's configuration, which takes the place of the flags that the tool does not have.
pub fn configure(world: &World, provider: &str, endpoint: &str, compat: &str) {
    let text = format!(
        "[providers.{provider}]\nendpoint = \"{endpoint}\"\nprovider_sandbox = \"replace\"\n\n[compat]\n{compat}\n"
    );
    world.folder("home/.config");
    world.folder("home/.config/stockade");
    world.write("home/.config/stockade/config.toml", text);
}

/// A world in which `grok` on PATH is this stub, whatever it is asked.
pub fn with_bare_stub(caller: &Caller, body: &str) -> World {
    let world = World::new(caller);
    configure(&world, "grok", NOBODY, "executables = \"path\"");
    world.stub("grok", body);
    world
}

/// A world in which `grok` on PATH is this stub, and passes its preflight.
pub fn with_stub(caller: &Caller, body: &str) -> World {
    with_bare_stub(caller, &format!("{LISTS}\n{body}"))
}

/// What a stub says when all is well.
pub fn good(text: &str) -> String {
    format!("say '{}'\nsay '{}'", stub::INIT, stub::success(text))
}

/// A good order, with flags changed or left out.
pub fn order<'w>(world: &'w World, changes: &[(&str, Option<&str>)]) -> Call<'w> {
    world.write("out/prompt.md", "Do what the scenario says.\n");
    let path = |relative: &str| world.path(relative).display().to_string();
    let mut flags: Vec<(String, String)> = [
        ("--parent", "codex".to_owned()),
        ("--provider", "grok".to_owned()),
        ("--model", "m".to_owned()),
        ("--effort", "high".to_owned()),
        ("--mode", "read-only".to_owned()),
        ("--prompt", path("out/prompt.md")),
        ("--cwd", path("ws")),
        ("--output", path("out/answer")),
        ("--receipt", path("out/receipt.json")),
    ]
    .map(|(k, v)| (k.to_owned(), v))
    .into();
    for (flag, value) in changes {
        flags.retain(|(k, _)| k != flag);
        flags.extend(value.map(|v| ((*flag).to_owned(), v.to_owned())));
    }
    let words: Vec<String> = flags.into_iter().flat_map(|(k, v)| [k, v]).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let path = format!("{}:/usr/bin:/bin", world.path("stubs").display());
    world.call(&["--compat", "pstack"]).args(&words).env("PATH", &path)
}

/// Calls the binary by a link at the place where the tool is installed, without the two words that say the same.
pub fn by_link<'w>(world: &World, call: Call<'w>) -> Call<'w> {
    let folder = world.path("skills/poteto-mode/scripts/runner");
    fs::create_dir_all(&folder).unwrap();
    let link = folder.join("pstack-runner");
    if !link.is_symlink() {
        std::os::unix::fs::symlink(world::binary(), &link).unwrap();
    }
    let exec = format!("exec {} \"${{@:3}}\"", link.display());
    call.through(&["bash".to_owned(), "-c".to_owned(), exec])
}

/// The receipt file, held against both schemas: the tool's, and for the receipt of the lane behind it Stockade's own.
#[track_caller]
pub fn receipt(world: &World) -> Value {
    let receipt = read_json(&world.path("out/receipt.json"));
    schema::assert_valid(&schema::PSTACK_RECEIPT, &receipt);
    assert_eq!(receipt["receiptPath"].as_str().map(Path::new), Some(&*world.path("out/receipt.json")));
    let is_delivered = receipt["failurePhase"].is_null() || receipt["handoffMalformed"] == true;
    let output = Path::new(receipt["outputPath"].as_str().unwrap());
    assert_eq!(output.exists(), is_delivered, "no output unless it was delivered: {receipt:#}");
    if let Some(own) = own_receipt(&receipt) {
        schema::assert_valid(&schema::OWN_RECEIPT, &own);
    }
    receipt
}

/// The receipt of the lane behind one of the tool's; `None`: there was no lane.
pub fn own_receipt(receipt: &Value) -> Option<Value> {
    let folder = receipt["stockade"]["runDirectory"].as_str()?;
    Some(read_json(&Path::new(folder).join("receipt.json")))
}

/// The one line that the tool prints: on standard output for exit code 0, else on standard error.
#[track_caller]
pub fn assert_told(world: &World, ended: &Ended, code: i32) -> Value {
    assert_eq!(ended.status.code(), Some(code), "{}\n{}", ended.stdout, ended.stderr);
    let (line, other) =
        if code == 0 { (&ended.stdout, &ended.stderr) } else { (&ended.stderr, &ended.stdout) };
    assert_eq!((line.lines().count(), other.as_str()), (1, ""), "{line}\n{other}");
    let receipt = receipt(world);
    assert_eq!(serde_json::from_str::<Value>(line).unwrap(), receipt);
    let status = receipt["status"].as_str().unwrap();
    assert!(CODES.contains(&(status, code)), "{status} with {code}");
    receipt
}

/// The names in the folder of the caller's files.
pub fn out_files(world: &World) -> BTreeSet<String> {
    fs::read_dir(world.path("out")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

/// Names as a set.
pub fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

/// Where the tests have their progress file.
pub fn progress(world: &World) -> PathBuf {
    world.path("out/progress.json")
}

/// The progress file; `None`: there is nothing to be read.
pub fn snapshot(world: &World) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(progress(world)).ok()?).ok()
}

/// Waits until the progress file tells this phase.
#[track_caller]
pub fn wait_for_phase(world: &World, phase: &str) {
    crate::outside::wait_until(phase, || snapshot(world).is_some_and(|s| s["phase"] == phase));
}
