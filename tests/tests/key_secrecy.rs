//! The key named by `--key-env` is found nowhere inside the fence, nor in any record of the run.
//!
//! The real Grok is made to look for it everywhere it can reach; each place also holds something that looks like the key
//! and has to be found, so that a search that finds nothing is a failure. Needs root, to look into every process.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test: a panic is how it fails"
)]

use std::{
    fs,
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
    time::Duration,
};

use serde_json::{Value, json};
use stockade_tests::{Caller, Ended, ScriptedModel, World, model, outside, run::Call};

/// What the real key and the ones that are to be found begin with.
const PREFIX: &str = "sk-canary-";
/// The key.
const KEY: &str = "sk-canary-KEY4d1f9b7c2e";
/// Passed on by `--env`.
const IN_ENVIRONMENT: &str = "sk-canary-ENVIRONMENT";
/// In the prompt, which lies in the agent's home.
const IN_PROMPT: &str = "sk-canary-PROMPT";
/// In a file of the workspace.
const IN_WORKSPACE: &str = "sk-canary-WORKSPACE";
/// In a file that the tool itself puts into the temporary folder.
const IN_TEMPORARY: &str = "sk-canary-TEMPORARY";
/// In the argv of a process that the tool starts.
const IN_ARGV: &str = "sk-canary-ARGV";

/// Looks everywhere and prints one line per place: what it is, and each different thing that looks like the key. The
/// brackets keep the pattern from finding itself.
const HUNT: &str = r#"pattern='s[k]-canary-[A-Za-z0-9]+'
report=
look() {
  place=$1; shift
  found=$("$@" 2>/dev/null | command grep -a -o -E "$pattern" | sort -u | tr '\n' ' ')
  report="$report$place: $found
"
}
files() { find "$@" -xdev -type f -exec cat {} +; }
memory() {
  for process in /proc/[0-9]*; do
    while read -r range rights _; do
      case $rights in rw*) ;; *) continue ;; esac
      from=$((16#${range%-*})) to=$((16#${range#*-}))
      dd if="$process/mem" iflag=skip_bytes,count_bytes bs=1M skip="$from" count=$((to - from)) status=none
    done <"$process/maps"
  done
}
get() {
  exec 3<>/dev/tcp/127.0.0.1/8080
  printf '%s %s HTTP/1.1\r\nhost: model\r\nconnection: close\r\n\r\n' "$1" "$2" >&3
  cat <&3
}
temporary=$(printf '%s%s' sk-canary- TEMPORARY)
echo "$temporary" >/tmp/decoy
bash -c "exec -a $(printf '%s%s' sk-canary- ARGV) sleep 60" &
until tr '\0' ' ' </proc/$!/cmdline | command grep -q '^s[k]-'; do :; done
look argv cat /proc/[0-9]*/cmdline
look environ cat /proc/[0-9]*/environ
look tool env
look home files /home/agent
look workspace files .
look temporary files /tmp /var/tmp /run /dev/shm
look system files /etc
look descriptors cat /proc/[0-9]*/fdinfo/*
look memory memory
look models get GET /v1/models
look account get GET /v1/api-key
kill %1
# At the end, because the agent keeps what its tools print.
printf %s "$report"
echo "answer: $(get GET /v1/models 2>/dev/null | head -1 | tr -d '\r')"
echo "regions: $(cat /proc/[0-9]*/maps 2>/dev/null | command grep -c ' rw')""#;

/// The ways in which a key could be written down: as it is, as hex, and as base64 at each of the three offsets.
fn forms(key: &str) -> Vec<(String, Vec<u8>)> {
    let hex = key.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    let mut forms = vec![
        ("plain".to_owned(), key.as_bytes().to_vec()),
        ("hex".to_owned(), hex.clone().into_bytes()),
        ("HEX".to_owned(), hex.to_uppercase().into_bytes()),
        ("reversed".to_owned(), key.bytes().rev().collect()),
    ];
    for offset in 0..3 {
        // What surrounds the key changes the first and the last characters: those are left out.
        let shifted: Vec<u8> = std::iter::repeat_n(b'x', offset).chain(key.bytes()).collect();
        let whole = shifted.len() / 3 * 3;
        let skipped = if offset == 0 { 0 } else { 4 };
        forms.push((format!("base64 at {offset}"), base64(&shifted[..whole])[skipped..].to_vec()));
    }
    forms
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::new();
    for three in bytes.chunks_exact(3) {
        let number = three.iter().fold(0_usize, |n, b| n << 8 | usize::from(*b));
        text.extend([18, 12, 6, 0].map(|shift| ALPHABET[number >> shift & 63]));
    }
    text
}

fn holds(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|w| w == needle)
}

#[track_caller]
fn assert_without_key(what: &str, bytes: &[u8]) {
    for (form, needle) in forms(KEY) {
        assert!(!holds(bytes, &needle), "{what} holds the key, {form}");
    }
}

/// Every file and every name below a folder.
#[track_caller]
fn assert_tree_without_key(root: &Path) {
    for entry in fs::read_dir(root).unwrap().flatten() {
        let path = entry.path();
        assert_without_key("a file's name", path.to_str().unwrap().as_bytes());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            // The agent itself is the same file for everybody.
            if entry.file_name() != "providers" {
                assert_tree_without_key(&path);
            }
        } else if kind.is_file() {
            assert_without_key(path.to_str().unwrap(), &fs::read(&path).unwrap());
        }
    }
}

/// What a process holds in memory that it can write.
fn memory(pid: u32) -> Vec<u8> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let Ok(mut mem) = fs::File::open(format!("/proc/{pid}/mem")) else { return Vec::new() };
    let mut all = Vec::new();
    for line in maps.lines().filter(|l| l.split(' ').nth(1).is_some_and(|rights| rights.starts_with("rw"))) {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let at = |hex: &str| u64::from_str_radix(hex, 16).unwrap();
        let length = at(to) - at(from);
        mem.seek(SeekFrom::Start(at(from))).unwrap();
        // Some regions cannot be read; they hold nothing that the agent could.
        let _unreadable = (&mut mem).take(length).read_to_end(&mut all);
    }
    all
}

fn with_key<'w>(call: Call<'w>, model: &ScriptedModel) -> Call<'w> {
    call.args(&["--endpoint", &model.url, "--key-env", "MODEL_KEY", "--provider-sandbox", "replace"])
        .args(&["--provider", "grok", "--model", "grok-4.6", "--mode", "isolated-write"])
        .env("MODEL_KEY", KEY)
}

/// Each line of the hunt by its place.
fn found(told: &str, place: &str) -> Vec<String> {
    let line = told.lines().find_map(|l| l.strip_prefix(&format!("{place}: ")));
    line.unwrap_or_else(|| panic!("no line for {place}: {told}"))
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[track_caller]
fn assert_hunt_found_only_decoys(told: &str) {
    assert_without_key("what the tools could see", told.as_bytes());
    let nothing: [&str; 0] = [];
    assert_eq!(found(told, "argv"), [IN_ARGV], "{told}");
    assert_eq!(found(told, "environ"), [IN_ENVIRONMENT], "{told}");
    assert_eq!(found(told, "tool"), nothing, "{told}");
    assert_eq!(found(told, "home"), [IN_PROMPT], "{told}");
    assert_eq!(found(told, "workspace"), [IN_WORKSPACE], "{told}");
    assert_eq!(found(told, "temporary"), [IN_TEMPORARY], "{told}");
    for place in ["system", "descriptors", "models", "account"] {
        assert_eq!(found(told, place), nothing, "{told}");
    }
    let memory = found(told, "memory");
    for decoy in [IN_ENVIRONMENT, IN_PROMPT] {
        assert!(memory.iter().any(|m| m == decoy), "{decoy} is not even in memory: {told}");
    }
    assert_eq!(found(told, "answer")[1], "404", "the gateway answers for itself: {told}");
}

fn assert_call_left_no_key(ended: &Ended) {
    assert_without_key("standard output", ended.stdout.as_bytes());
    assert_without_key("standard error", ended.stderr.as_bytes());
}

#[test]
fn a_scripted_agent_that_looks_everywhere_does_not_find_the_key() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        world.expects_network(&["GET /v1/models", "GET /v1/api-key"]);
        world.write("ws/hunt.sh", HUNT);
        world.write("ws/decoy", IN_WORKSPACE);
        // The endpoint repeats the key in its answer, as some do.
        let steps = json!([
            model::shell("bash hunt.sh"),
            { "hold": "look", "text": "your key is {{key}}" },
        ]);
        let scenario = json!({ "version": 1, "name": "hunt", "steps": steps });
        let key = format!("key={KEY}");
        let model = ScriptedModel::scenario(&world, &scenario, &["--var", &key, "--api-key", KEY]);
        let events = world.path("out/events");
        let call = world.run("r", &["--env", "DECOY", "--events", events.to_str().unwrap()]);
        let prompt = world.write("out/prompt-with-decoy.md", format!("Find it. {IN_PROMPT}"));
        let run = with_key(call, &model).env("DECOY", IN_ENVIRONMENT).with_prompt(&prompt).start();

        // From outside, too, while everything lives: all memory of the fence, its first process included.
        model.wait_for_hold("look");
        let processes = outside::processes_fenced_for(&world);
        assert!(processes.iter().any(|(_, line)| line.starts_with("stockade-fence-helper")), "{processes:?}");
        let mut held = Vec::new();
        for (pid, line) in &processes {
            let memory = memory(*pid);
            assert!(!memory.is_empty(), "the memory of {line} cannot be read");
            assert!(!holds(&memory, KEY.as_bytes()), "the key is in the memory of {line}");
            for file in ["environ", "cmdline"] {
                assert_without_key(line, &fs::read(format!("/proc/{pid}/{file}")).unwrap());
            }
            held.extend(memory);
        }
        assert!(holds(&held, IN_PROMPT.as_bytes()), "a search of memory that finds nothing at all");
        drop(held);
        model.release("look");
        let ended = run.wait(Duration::from_secs(60)).expect_code(0);

        assert_hunt_found_only_decoys(&model.tool_result(0));
        // The key was on the wire, put there by the gateway, and only in that header.
        let requests = model.requests();
        assert!(requests.iter().any(|r| r["class"] == "main"));
        for mut request in requests {
            assert_eq!(request["method"], "POST", "only model calls are forwarded: {request:#}");
            assert_eq!(request["path"], "/v1/chat/completions");
            let headers = request["headers"].as_object_mut().unwrap();
            assert_eq!(headers.remove("authorization"), Some(Value::from(format!("Bearer {KEY}"))));
            assert_without_key("a request", request.to_string().as_bytes());
        }
        assert_eq!(world.answer("r").unwrap(), format!("your key is {}", "*".repeat(KEY.len())));
        assert_call_left_no_key(&ended);
        for folder in ["state", "out", "home", "ws"] {
            assert_tree_without_key(&world.path(folder));
        }
        let receipt = world.receipt("r");
        assert_eq!(receipt["credential"], json!({ "kind": "key-env", "accountMark": "MODEL_KEY" }));
        assert!(receipt["environment"]["removed"].as_array().unwrap().contains(&json!("MODEL_KEY")));
        assert!(!receipt["environment"]["passed"].as_array().unwrap().contains(&json!("MODEL_KEY")));
    }
}

#[test]
fn a_refused_key_is_repeated_nowhere() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let body = json!({ "error": { "message": "Incorrect API key provided: {{key}}", "code": "invalid_api_key" } });
        let steps = json!([{ "http": { "status": 401, "contentType": "application/json", "body": body.to_string() } }]);
        let scenario = json!({ "version": 1, "name": "refused", "steps": steps });
        let model = ScriptedModel::scenario(&world, &scenario, &["--var", &format!("key={KEY}")]);
        let ended = with_key(world.run("r", &[]), &model).end().expect_code(77);
        assert!(model.requests().iter().any(|r| r["headers"]["authorization"] == format!("Bearer {KEY}")));
        let receipt = world.receipt("r");
        assert_eq!(receipt["status"], "unauthenticated", "{receipt:#}");
        assert!(receipt.to_string().contains("Incorrect API key provided"), "{receipt:#}");
        assert_call_left_no_key(&ended);
        for folder in ["state", "out", "home", "ws"] {
            assert_tree_without_key(&world.path(folder));
        }
    }
}

#[test]
fn a_plan_names_the_variable_and_never_its_value() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let model = ScriptedModel::steps(&world, &json!([]));
        let prompt = world.write("out/prompt.md", "Plan.\n");
        for form in [&["--json"][..], &[]] {
            let call =
                world.call(&["plan", "--prompt", prompt.to_str().unwrap()]).args(form).cwd(&world.ws());
            let ended = with_key(call, &model).end().expect_code(0);
            assert!(ended.stdout.contains("MODEL_KEY"), "{}", ended.stdout);
            assert_call_left_no_key(&ended);
        }
        // Passing it on by another option is refused, with its name only.
        let call = world.run("r", &["--env", "MODEL_KEY", "--json"]);
        let ended = with_key(call, &model).end().expect_code(64);
        assert!(ended.stderr.contains("env-credential"), "{}", ended.stderr);
        assert_call_left_no_key(&ended);
    }
}

#[test]
fn the_search_would_find_a_key_that_is_there() {
    // `echo -n 'xx<key>yy' | base64`, by hand for one offset each.
    assert_eq!(base64(b"sk-canary-KE"), b"c2stY2FuYXJ5LUtF");
    for offset in 0..3 {
        let text: Vec<u8> = [&vec![b'"'; offset][..], KEY.as_bytes(), b"\"}  "].concat();
        let encoded = base64(&text);
        assert!(forms(KEY).iter().any(|(_, needle)| holds(&encoded, needle)), "offset {offset}");
    }
    assert!(KEY.starts_with(PREFIX));
}
