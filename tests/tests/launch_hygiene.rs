//! Launch hygiene: prompts arrive byte for byte and at once, and nothing of the caller's surroundings comes along.
//!
//! A stub agent reads its standard input to the end before anything else, then writes down what it got. The real agents are
//! in `given.rs`. Needs root, to become another user.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test: a panic is how it fails")]

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use stockade_tests::{
    Agent, Caller, Ended, World,
    clutter::{Clutter, VARIABLES},
    dialect::print,
    run::Call,
};

/// An endpoint that nobody serves: the stub never asks.
const ENDPOINT: &str = "http://127.0.0.1:9/v1";

/// The longest prompt that Codex reads.
const CODEX_LIMIT_BYTES: usize = 1_048_576;

/// What every agent gets.
const OWN: [&str; 9] = ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];

/// What the profile of Grok adds.
const OF_PROFILE: [&str; 9] = [
    "GROK_DISABLE_AUTOUPDATER",
    "GROK_EXTERNAL_OTEL",
    "GROK_FEEDBACK_ENABLED",
    "GROK_HOME",
    "GROK_LOGIN_ENV",
    "GROK_MANAGED_CONFIG",
    "GROK_TELEMETRY_ENABLED",
    "GROK_TELEMETRY_MIXPANEL_ENABLED",
    "GROK_TELEMETRY_TRACE_UPLOAD",
];

/// A stub that reads its standard input to the end, then writes down into the workspace what it got. Its prompt is a file
/// that is named to it, or what it read.
fn curious_stub(world: &World, agent: Agent, socket: &str) -> PathBuf {
    let body = format!(
        r#"started=${{EPOCHREALTIME/./}}
prompt=/tmp/input
cat >$prompt
input=$(stat -c %s $prompt)
ended=${{EPOCHREALTIME/./}}
while [ $# -gt 0 ]; do case "$1" in --prompt-file) prompt=$2;; esac; shift; done
cp /proc/$$/environ environ
cat /proc/self/environ >environ-of-child
ls -l /proc/$$/fd >descriptors
ls -l /proc/self/fd >descriptors-of-child
sha256sum <"$prompt" >prompt-sha256
echo "$input bytes of input, $((ended - started)) us" >input
if [ -e '{socket}' ]; then echo visible; else echo absent; fi >ssh-agent
{}"#,
        print(&(agent.begins() + &agent.succeeds("ready"))),
    );
    world.stub("curious", &body)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// The names of a `/proc/PID/environ`.
fn names(environ: &[u8]) -> BTreeSet<String> {
    let entries = environ.split(|b| *b == 0).filter(|e| !e.is_empty());
    entries.map(|e| String::from_utf8_lossy(e).split('=').next().unwrap().to_owned()).collect()
}

fn set<'n>(lists: &[&[&'n str]]) -> BTreeSet<String> {
    lists.iter().flat_map(|l| l.iter()).map(|n: &&'n str| (*n).to_owned()).collect()
}

/// Number and target of each descriptor in a listing by `ls -l`.
fn descriptors(listing: &str) -> Vec<(u32, String)> {
    let lines = listing.lines().filter_map(|l| {
        let (left, target) = l.split_once(" -> ")?;
        Some((left.rsplit(' ').next()?.parse().ok()?, target.to_owned()))
    });
    let mut found: Vec<_> = lines.collect();
    found.sort();
    found
}

fn order<'w>(world: &'w World, agent: Agent, name: &str, stub: &Path) -> Call<'w> {
    let args = ["--provider", agent.name(), "--mode", "isolated-write", "--provider-sandbox", "replace"];
    let stub = stub.to_str().unwrap();
    world.run(name, &args).args(&["--endpoint", ENDPOINT, "--executable", stub, "--model", "m"])
}

/// Prompts that have gone wrong on their way to some agent.
fn prompts() -> Vec<(&'static str, Vec<u8>)> {
    let of_length = |n: usize| b"All work and no play. ".iter().copied().cycle().take(n).collect::<Vec<u8>>();
    // Every control character but NUL, a separator that some readers take for a line's end, and a byte order mark.
    let mut odd: Vec<u8> =
        "\u{feff}quotes ' \" ` and $(touch pwned) \\ %s {{x}}\r\n\u{2028}\u{1f980}\n\n".as_bytes().to_vec();
    odd.extend(1..=127u8);
    odd.extend("\u{80}\u{9f}\u{ffff}\u{10ffff}".as_bytes());
    vec![
        ("the longest argument", of_length(131_071)),
        ("one byte more than an argument", of_length(131_072)),
        ("a megabyte and a half", of_length(1_500_000)),
        ("a leading dash", b"--sandbox off\n-p is no flag here".to_vec()),
        ("odd bytes", odd),
    ]
}

#[test]
fn an_agent_that_reads_its_input_first_starts_at_once_and_gets_the_prompt_byte_for_byte() {
    for (agent, caller) in Agent::ALL.into_iter().flat_map(|agent| Caller::both().map(|c| (agent, c))) {
        let around = Clutter::around(World::new(&caller));
        let stub = curious_stub(&around.world, agent, around.socket().to_str().unwrap());
        for (number, (what, prompt)) in prompts().into_iter().enumerate() {
            // A longer one is refused before the start.
            if agent != Agent::Codex || prompt.len() <= CODEX_LIMIT_BYTES {
                delivered(&around, agent, &stub, &format!("p{number}"), &prompt, what);
            }
        }
        around.assert_untouched();
    }
}

/// One prompt, from the order to what the stub wrote down.
#[track_caller]
fn delivered(around: &Clutter, agent: Agent, stub: &Path, name: &str, prompt: &[u8], what: &str) {
    let world = &around.world;
    let what = format!("{}, {what}", agent.name());
    let file = world.write("prompt with spaces.md", prompt);
    let call = order(world, agent, name, stub).with_prompt(&file);
    let ended = around.surround(call).end().expect_code(0);
    let told = |file: &str| fs::read_to_string(world.ws().join(file)).unwrap();
    assert_eq!(told("prompt-sha256"), format!("{}  -\n", hex(&Sha256::digest(prompt))), "{what}");
    let read = if agent == Agent::Grok { 0 } else { prompt.len() };
    let input = told("input");
    let waited =
        input.strip_prefix(&format!("{read} bytes of input, ")).and_then(|t| t.strip_suffix(" us\n"));
    let waited: u64 = waited.unwrap_or_else(|| panic!("{what}: {input}")).parse().unwrap();
    assert!(waited < 1_000_000, "{what}: the end of input came after {waited} us");
    let receipt = world.receipt(name);
    let started = World::events(&receipt)
        .into_iter()
        .find(|e| e["event"]["kind"] == "agent-started")
        .unwrap_or_else(|| panic!("{what}: {receipt:#}"));
    assert!(started["elapsedMs"].as_u64().unwrap() < 1_000, "{what}: {started}");
    assert!(ended.elapsed < Duration::from_secs(10), "{what}: {:?}", ended.elapsed);
    assert_eq!(receipt["digests"]["prompt"], hex(&Sha256::digest(prompt)), "{what}");
    assert!(!world.ws().join("pwned").exists(), "{what}: something ran the prompt");
    let argv = receipt["argv"].to_string();
    assert!(argv.len() < 4_000 && !argv.contains("work and no play"), "{what}: {argv}");
}

#[test]
fn nothing_of_the_callers_surroundings_reaches_the_agent_or_a_child_of_it() {
    for caller in Caller::both() {
        let around = Clutter::around(World::new(&caller));
        let world = &around.world;
        let stub = curious_stub(world, Agent::Grok, around.socket().to_str().unwrap());
        let call = order(world, Agent::Grok, "r", &stub).args(&["--env", "WANTED"]).env("WANTED", "yes");
        around.surround(call).end().expect_code(0);
        let bytes = |file: &str| fs::read(world.ws().join(file)).unwrap();
        let text = |file: &str| String::from_utf8(bytes(file)).unwrap();

        let expected = set(&[&OWN, &OF_PROFILE, &["WANTED"]]);
        assert_eq!(names(&bytes("environ")), expected);
        let of_shell = set(&[&["PWD", "SHLVL", "_"]]);
        assert_eq!(names(&bytes("environ-of-child")), &expected | &of_shell);
        for file in ["environ", "environ-of-child"] {
            let dump = text(file);
            for foreign in ["foreign", "41999", "seatbelt", "my tools", around.socket().to_str().unwrap()] {
                assert!(!dump.contains(foreign), "{foreign} in {file}: {dump}");
            }
            assert!(dump.contains("\0WANTED=yes\0") || dump.starts_with("WANTED=yes\0"), "{dump}");
        }
        assert_eq!(text("ssh-agent"), "absent\n");

        // A shell keeps its script at 255; `ls` has the folder it lists at 3.
        let own = descriptors(&text("descriptors"));
        assert_eq!(own.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [0, 1, 2, 255], "{own:?}");
        let of_child = descriptors(&text("descriptors-of-child"));
        assert_eq!(of_child.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [0, 1, 2, 3], "{of_child:?}");
        for (number, target) in own.iter().take(3).chain(of_child.iter().take(1)) {
            let allowed = if *number == 2 { "pipe:" } else { "socket:" };
            let redirected = target == &world.ws().join("descriptors").display().to_string();
            assert!(target.starts_with(allowed) || redirected, "{number} -> {target}");
        }

        let receipt = world.receipt("r");
        let removed = set(&[
            &VARIABLES.map(|(name, _)| name),
            &["SSH_AUTH_SOCK", "PATH", "HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"],
            // Set by the shell that stands between the test and the binary.
            &["PWD", "SHLVL"],
        ]);
        let listed = |what: &str| {
            serde_json::from_value::<BTreeSet<String>>(receipt["environment"][what].clone()).unwrap()
        };
        assert_eq!(listed("passed"), expected);
        assert_eq!(listed("removed"), removed);
        let all = receipt.to_string();
        assert!(!all.contains("foreign-") && !all.contains("seatbelt"), "values stand in the receipt: {all}");
        around.assert_untouched();
    }
}

/// Nothing was started or made.
#[track_caller]
fn assert_refused(world: &World, ended: &Ended, code: &str, text: &str) {
    let error: Value =
        serde_json::from_str(&ended.stderr).unwrap_or_else(|e| panic!("{e}: {}", ended.stderr));
    assert_eq!(error["code"], code, "{error:#}");
    assert!(error["message"].as_str().unwrap().contains(text), "{error:#}");
    assert!(error["hint"].is_string(), "{error:#}");
    assert!(!world.state().join("runs").exists(), "a run was made");
    assert!(!world.ws().join("input").exists(), "the agent ran");
    assert!(!world.path("out/r.receipt.json").exists() && !world.path("out/r.answer").exists());
}

#[test]
fn a_prompt_that_cannot_be_delivered_is_refused_before_the_start_with_its_size() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let stub = curious_stub(&world, Agent::Grok, "/nowhere");
        let refused = |prompt: &[u8], code: &str, text: &str| {
            let file = world.write("prompt.md", prompt);
            let call = order(&world, Agent::Grok, "r", &stub).args(&["--json"]).with_prompt(&file);
            assert_refused(&world, &call.end().expect_code(64), code, text);
            let call = order(&world, Agent::Grok, "r", &stub).args(&["--json"]).with_prompt("-".as_ref());
            assert_refused(&world, &call.stdin(prompt).end().expect_code(64), code, text);
        };
        refused(b"", "prompt-empty", "empty");
        refused(&vec![b'a'; 8 * 1024 * 1024 + 1], "prompt-too-large", "8388609 bytes");
        refused(b"binary: \xc3\x28 \xff\xfe", "prompt-not-text", "from byte 8 of 13 on");
    }
}
