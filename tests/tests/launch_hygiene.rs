//! Launch hygiene: prompts arrive byte for byte and at once, and nothing of the caller's surroundings comes along.
//!
//! A stub agent reads its standard input to the end before anything else, then writes down what it got; the real Grok
//! shows what its tools see. Needs root, to become another user.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test: a panic is how it fails"
)]

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::PathBuf,
    time::Duration,
};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use stockade_tests::{Caller, Ended, ScriptedModel, World, model, outside, run::Call, stub};

/// An endpoint that nobody serves: the stub never asks.
const ENDPOINT: &str = "http://127.0.0.1:9/v1";

/// What the caller has around it: sessions of three agents, foreign keys, a terminal that can do nothing.
const SURROUNDINGS: [(&str, &str); 14] = [
    ("CLAUDECODE", "1"),
    ("CLAUDE_CODE_ENTRYPOINT", "cli"),
    ("CLAUDE_CODE_SSE_PORT", "41999"),
    ("CODEX_HOME", "/home/someone/.codex"),
    ("CODEX_SANDBOX", "seatbelt"),
    ("CODEX_SANDBOX_NETWORK_DISABLED", "1"),
    ("GROK_SESSION_ID", "foreign-session"),
    ("GROK_AGENT", "foreign-agent"),
    ("GROK_CONFIG", "{\"models\":{\"default\":\"foreign-model\"}}"),
    ("GROK_SANDBOX", "strict"),
    ("ANTHROPIC_API_KEY", "foreign-key-one-5c1f"),
    ("OPENAI_API_KEY", "foreign-key-two-77ab"),
    ("LD_PRELOAD", ""),
    ("TERM", "dumb"),
];

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

/// What the real Grok sets for its tools, beside what a shell sets for itself.
const OF_GROK_FOR_TOOLS: [&str; 24] = [
    "AWS_PAGER",
    "CARGO_TERM_PROGRESS_WHEN",
    "CARGO_TERM_PROGRESS_WIDTH",
    "CI",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "FORCE_COLOR",
    "GH_PAGER",
    "GIT_EDITOR",
    "GIT_PAGER",
    "GIT_SEQUENCE_EDITOR",
    "GIT_TERMINAL_PROMPT",
    "GPG_TTY",
    "GRADLE_OPTS",
    "GROK_AGENT",
    "GROK_SESSION_ID",
    "MANPAGER",
    "MAVEN_OPTS",
    "NO_COLOR",
    "NPM_CONFIG_PROGRESS",
    "PAGER",
    "PIP_PROGRESS_BAR",
    "SYSTEMD_PAGER",
];

/// A caller with surroundings: an SSH agent that really listens, a folder with a space and a wrapper first on `PATH`.
struct Surroundings {
    world: World,
    agent_folder: tempfile::TempDir,
    ssh_agent: UnixListener,
}

impl Surroundings {
    fn around(world: World) -> Self {
        let agent_folder = tempfile::Builder::new().prefix("ssh-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(agent_folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let ssh_agent = UnixListener::bind(agent_folder.path().join("agent.7")).unwrap();
        fs::set_permissions(agent_folder.path().join("agent.7"), fs::Permissions::from_mode(0o777)).unwrap();
        ssh_agent.set_nonblocking(true).unwrap();
        world.folder("marks");
        let mark = world.path("marks/wrapper");
        world.script("my tools/grok", &format!("#!/bin/sh\necho ran >>{}\nexit 1\n", mark.display()));
        Self { world, agent_folder, ssh_agent }
    }

    fn socket(&self) -> PathBuf {
        self.agent_folder.path().join("agent.7")
    }

    /// The call among all that, with a standard input that never ends and one more pipe that everybody inherits.
    fn surround<'w>(&self, call: Call<'w>) -> Call<'w> {
        let pipe = self.world.path("inherited pipe");
        if !pipe.exists() {
            let mode = rustix::fs::Mode::from_raw_mode(0o666);
            rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        }
        let inherit = format!("exec 7<>'{}'; exec \"$@\"", pipe.display());
        let through = ["/bin/bash", "-c", &inherit, "through"].map(str::to_owned);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.world.path("my tools").display());
        let socket = self.socket().display().to_string();
        let call =
            call.through(&through).stdin_that_never_ends().env("PATH", &path).env("SSH_AUTH_SOCK", &socket);
        SURROUNDINGS.iter().fold(call, |call, (name, value)| call.env(name, value))
    }

    /// Nobody spoke with the SSH agent and nothing ran the wrapper.
    #[track_caller]
    fn assert_untouched(&self) {
        let spoken = self.ssh_agent.accept().expect_err("somebody connected to the SSH agent");
        assert_eq!(spoken.kind(), std::io::ErrorKind::WouldBlock);
        assert!(!self.world.path("marks/wrapper").exists(), "the wrapper on PATH was run");
    }
}

/// A stub that reads its standard input to the end, then writes down into the workspace what it got.
fn curious_stub(world: &World, socket: &str) -> PathBuf {
    let body = format!(
        r#"started=${{EPOCHREALTIME/./}}
input=$(cat | wc -c)
ended=${{EPOCHREALTIME/./}}
while [ $# -gt 0 ]; do case "$1" in --prompt-file) prompt=$2;; esac; shift; done
cp /proc/$$/environ environ
cat /proc/self/environ >environ-of-child
ls -l /proc/$$/fd >descriptors
ls -l /proc/self/fd >descriptors-of-child
sha256sum <"$prompt" >prompt-sha256
echo "$input bytes of input, $((ended - started)) us" >input
if [ -e '{socket}' ]; then echo visible; else echo absent; fi >ssh-agent
say '{init}'
say '{success}'"#,
        init = stub::INIT,
        success = stub::success("ready"),
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

fn order<'w>(world: &'w World, name: &str, agent: &str) -> Call<'w> {
    world
        .run(name, &["--provider", "grok", "--mode", "isolated-write", "--provider-sandbox", "replace"])
        .args(&["--endpoint", ENDPOINT, "--executable", agent, "--model", "m"])
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
    for caller in Caller::both() {
        let around = Surroundings::around(World::new(&caller));
        let world = &around.world;
        let stub = curious_stub(world, around.socket().to_str().unwrap());
        for (number, (what, prompt)) in prompts().into_iter().enumerate() {
            let file = world.write("prompt with spaces.md", &prompt);
            let name = format!("p{number}");
            let mut call = order(world, &name, stub.to_str().unwrap());
            call = call.with_prompt(&file);
            let ended = around.surround(call).end().expect_code(0);
            let told = |file: &str| fs::read_to_string(world.ws().join(file)).unwrap();
            assert_eq!(told("prompt-sha256"), format!("{}  -\n", hex(&Sha256::digest(&prompt))), "{what}");
            let input = told("input");
            let waited = input.strip_prefix("0 bytes of input, ").and_then(|t| t.strip_suffix(" us\n"));
            let waited: u64 = waited.unwrap_or_else(|| panic!("{what}: {input}")).parse().unwrap();
            assert!(waited < 1_000_000, "{what}: the end of input came after {waited} us");
            let receipt = world.receipt(&name);
            let started = World::events(&receipt)
                .into_iter()
                .find(|e| e["event"]["kind"] == "agent-started")
                .unwrap_or_else(|| panic!("{what}: {receipt:#}"));
            assert!(started["elapsedMs"].as_u64().unwrap() < 1_000, "{what}: {started}");
            assert!(ended.elapsed < Duration::from_secs(10), "{what}: {:?}", ended.elapsed);
            assert_eq!(receipt["digests"]["prompt"], hex(&Sha256::digest(&prompt)), "{what}");
            assert!(!world.ws().join("pwned").exists(), "{what}: something ran the prompt");
            let argv = receipt["argv"].to_string();
            assert!(argv.len() < 4_000 && !argv.contains("work and no play"), "{what}: {argv}");
        }
        around.assert_untouched();
    }
}

#[test]
fn nothing_of_the_callers_surroundings_reaches_the_agent_or_a_child_of_it() {
    for caller in Caller::both() {
        let around = Surroundings::around(World::new(&caller));
        let world = &around.world;
        let stub = curious_stub(world, around.socket().to_str().unwrap());
        let call = order(world, "r", stub.to_str().unwrap()).args(&["--env", "WANTED"]).env("WANTED", "yes");
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
            &SURROUNDINGS.map(|(name, _)| name),
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

/// The last message of the user in the conversation.
fn prompt_on_the_wire(model: &ScriptedModel) -> String {
    let requests = model.requests();
    let turn = requests.iter().find(|r| r["class"] == "main").expect("a turn came");
    let messages = turn["body"]["messages"].as_array().unwrap();
    let last = messages.iter().rev().find(|m| m["role"] == "user").unwrap();
    match &last["content"] {
        Value::String(text) => text.clone(),
        parts => parts.as_array().unwrap().last().unwrap()["text"].as_str().unwrap().to_owned(),
    }
}

#[test]
fn the_real_grok_sends_the_whole_prompt_and_its_tools_see_only_listed_variables() {
    for caller in Caller::both() {
        let around = Surroundings::around(World::with_providers(&caller));
        let world = &around.world;
        let look = format!(
            "command env -0 | tr '\\0' '\\n' | cut -d= -f1 | sort | tr '\\n' ' '; echo; ls /proc/self/fd | tr '\\n' ' '; echo; \
             env | command grep -c -e foreign -e seatbelt -e 41999; if [ -e {} ]; then echo visible; else echo absent; fi",
            around.socket().display()
        );
        let model = ScriptedModel::steps(world, &json!([model::shell(&look)]));
        // The agent trims white space at both ends, and only there.
        let prompt =
            format!("--help ' \" $(id)\n\n{}\u{2028}\u{1f980}.", "All work and no play.\n".repeat(71_428));
        let file = world.write("prompt with spaces.md", &prompt);
        let call = world
            .run("r", &["--provider", "grok", "--provider-sandbox", "replace", "--endpoint", &model.url])
            .args(&["--env", "WANTED"])
            .env("WANTED", "yes")
            .with_prompt(&file);
        around.surround(call).end().expect_code(0);
        let sent = prompt_on_the_wire(&model);
        assert_eq!(sent.len(), prompt.len());
        assert!(sent == prompt, "the prompt changed on its way");

        let told = model.tool_result(0);
        let mut lines = told.lines().skip_while(|l| !l.contains("GROK_SESSION_ID"));
        let seen: BTreeSet<String> =
            lines.next().unwrap_or_else(|| panic!("{told}")).split_whitespace().map(str::to_owned).collect();
        let core = ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"];
        assert_eq!(seen, set(&[&core, &OF_GROK_FOR_TOOLS, &["PWD", "SHLVL", "_"]]));
        let rest: Vec<&str> = lines.map(str::trim).collect();
        assert_eq!(rest, ["0 1 2 3", "0", "absent"], "{told}");
        around.assert_untouched();
        outside::wait_for_no_process_fenced_for(world, Duration::from_secs(2));
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
        let stub = curious_stub(&world, "/nowhere");
        let refused = |prompt: &[u8], code: &str, text: &str| {
            let file = world.write("prompt.md", prompt);
            let call = order(&world, "r", stub.to_str().unwrap()).args(&["--json"]).with_prompt(&file);
            assert_refused(&world, &call.end().expect_code(64), code, text);
            let call = order(&world, "r", stub.to_str().unwrap()).args(&["--json"]).with_prompt("-".as_ref());
            assert_refused(&world, &call.stdin(prompt).end().expect_code(64), code, text);
        };
        refused(b"", "prompt-empty", "empty");
        refused(&vec![b'a'; 8 * 1024 * 1024 + 1], "prompt-too-large", "8388609 bytes");
        refused(b"binary: \xc3\x28 \xff\xfe", "prompt-not-text", "from byte 8 of 13 on");
    }
}
