//! Where the real Grok runs and where it is refused: every class of host, its own sandbox kept and replaced.
//!
//! `keep` runs both modes, on the rung that nests, where the host has what Grok's own sandbox needs, and is refused at once
//! with every missing part where it has not. `replace` runs both modes wherever a rung stands. Both run against a scripted
//! model, and what was done is looked at on the host. Doctor says the same as the run. Needs root, to become another user, and a host with Landlock, user namespaces and `bwrap`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test: a panic is how it fails")]

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    time::Duration,
};

use serde_json::{Value, json};
use stockade_fence::errno_name;
use stockade_tests::{Caller, ScriptedModel, World, model, outside};

/// A refusal takes no longer than this, the check of the executable included.
const REFUSAL_LIMIT: Duration = Duration::from_secs(1);
const MODES: [&str; 2] = ["read-only", "isolated-write"];
/// What only a reader of the workspace can know.
const WORD: &str = "The word is quince.";

/// A part that Grok's own sandbox needs: how the evidence names it, and what the remedy has to say.
type Part = (&'static str, &'static str);

const NO_BUBBLEWRAP: Part = ("bubblewrap: no `bwrap` on PATH", "install bubblewrap");
const LANDLOCK_ENOSYS: Part = ("Landlock: landlock_create_ruleset answered ENOSYS", "Landlock enabled");
const LANDLOCK_EOPNOTSUPP: Part =
    ("Landlock: landlock_create_ruleset answered EOPNOTSUPP", "Landlock enabled");
const NESTING_AS_ROOT: Part = (
    "nesting: as root it needs mapped owners, and mount_setattr(IDMAP) without CAP_SYS_ADMIN answered EPERM",
    "as a user who is not root",
);

/// What holds on a class of host.
struct Class {
    names: &'static [&'static str],
    /// What the host lacks for Grok's own sandbox, beside what follows from the fence, in the order of the refusal.
    lacks: &'static [Part],
    fence: Fence,
}

/// Whether a fence stands.
enum Fence {
    /// On this rung.
    Stands(&'static str),
    /// As a user it stands on this rung; root is refused.
    StandsForUsers(&'static str, Refusal),
    /// Refused.
    Refused(Refusal),
}

/// How a fence is refused: the boundary, the step and its error number, and what the remedy has to say.
#[derive(Clone, Copy)]
struct Refusal {
    boundary: &'static str,
    step: &'static str,
    errno: i32,
    remedy: &'static str,
}

impl Fence {
    fn refusal(&self, caller: &Caller) -> Option<Refusal> {
        match self {
            Self::Stands(_) => None,
            Self::StandsForUsers(_, refusal) => (caller.uid == 0).then_some(*refusal),
            Self::Refused(refusal) => Some(*refusal),
        }
    }
}

impl Class {
    /// Everything that the host lacks for Grok's own sandbox: evidence, and what the remedy has to say.
    fn lacks(&self, caller: &Caller) -> Vec<(String, &'static str)> {
        let mut parts: Vec<_> =
            self.lacks.iter().map(|(part, remedy)| ((*part).to_owned(), *remedy)).collect();
        if let Some(refusal) = self.fence.refusal(caller) {
            let answer = errno_name(refusal.errno);
            parts.push((format!("nesting: {} answered {answer}", refusal.step), ""));
        } else if caller.uid == 0 && self.names.contains(&"few-capabilities") {
            // Who can map no owners would be the host's root inside.
            parts.push((NESTING_AS_ROOT.0.to_owned(), NESTING_AS_ROOT.1));
        }
        parts
    }
}

const USERNS_REFUSED: Refusal = Refusal {
    boundary: "host",
    step: "clone(NEWUSER)",
    errno: libc::EPERM,
    remedy: "unprivileged_userns_clone",
};
const USERNS_FILTERED: Refusal = Refusal { boundary: "parent-sandbox", remedy: "seccomp", ..USERNS_REFUSED };
const USERNS_SPENT: Refusal =
    Refusal { errno: libc::ENOSPC, remedy: "user.max_user_namespaces", ..USERNS_REFUSED };

#[test]
fn a_plain_host() {
    on(&Class { names: &[], lacks: &[], fence: Fence::Stands("nsl") });
}

#[test]
fn a_host_without_landlock() {
    on(&Class { names: &["no-landlock"], lacks: &[LANDLOCK_ENOSYS], fence: Fence::Stands("ns") });
}

#[test]
fn a_host_with_landlock_off_at_boot() {
    on(&Class { names: &["landlock-eopnotsupp"], lacks: &[LANDLOCK_EOPNOTSUPP], fence: Fence::Stands("ns") });
}

#[test]
fn a_host_without_bubblewrap() {
    on(&Class { names: &["no-bwrap"], lacks: &[NO_BUBBLEWRAP], fence: Fence::Stands("nsl") });
}

#[test]
fn a_host_without_landlock_and_bubblewrap() {
    on(&Class {
        names: &["no-landlock", "no-bwrap"],
        lacks: &[NO_BUBBLEWRAP, LANDLOCK_ENOSYS],
        fence: Fence::Stands("ns"),
    });
}

#[test]
fn claude_code_on_the_web() {
    let class = Class {
        names: &["claude-code-web"],
        lacks: &[NO_BUBBLEWRAP, LANDLOCK_ENOSYS],
        fence: Fence::Stands("ns"),
    };
    on(&class);
    // Its session's variables reach nobody, and there is no list of security modules to believe.
    let stage = Stage::new(&Caller::root(), &class);
    stage.run("read-only", "replace", "http://127.0.0.1:9/v1");
    let receipt = stage.receipt("read-only", "replace");
    assert_eq!(receipt["survey"]["caller"]["uid"], 0);
    assert_eq!(receipt["survey"]["lsm"], Value::Null);
    let has =
        |list: &str, name: &str| receipt["environment"][list].as_array().unwrap().contains(&json!(name));
    for name in ["CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "IS_SANDBOX"] {
        assert!(has("removed", name) && !has("passed", name), "{name}: {}", receipt["environment"]);
    }
}

#[test]
fn a_host_without_user_namespaces() {
    on(&Class { names: &["no-userns-sysctl"], lacks: &[], fence: Fence::Refused(USERNS_REFUSED) });
}

#[test]
fn a_host_whose_user_namespaces_are_filtered() {
    on(&Class { names: &["no-userns"], lacks: &[], fence: Fence::Refused(USERNS_FILTERED) });
}

#[test]
fn a_container_of_docker() {
    on(&Class { names: &["docker"], lacks: &[], fence: Fence::Refused(USERNS_FILTERED) });
}

/// Root that may not mount, as in a container started without its filters and with its default capabilities.
#[test]
fn root_of_a_container() {
    on(&Class { names: &["few-capabilities"], lacks: &[], fence: Fence::Stands("nsl") });
}

/// The limit itself: at 0, in a user namespace of the caller's.
#[test]
fn a_host_that_allows_no_user_namespaces() {
    on(&Class { names: &["max-user-namespaces-0"], lacks: &[], fence: Fence::Refused(USERNS_SPENT) });
}

/// As others start it around a whole session; root has no capabilities in there.
#[test]
fn inside_bubblewrap() {
    let as_root = Refusal {
        boundary: "host",
        step: "write(uid_map)",
        errno: libc::EPERM,
        remedy: "a user who is not root",
    };
    on(&Class { names: &["in-bwrap"], lacks: &[], fence: Fence::StandsForUsers("nsl", as_root) });
}

#[test]
fn inside_a_landlock_domain() {
    let fence = Fence::Refused(Refusal {
        boundary: "parent-sandbox",
        step: "mount(MS_PRIVATE)",
        errno: libc::EPERM,
        remedy: "outside the other sandbox",
    });
    on(&Class { names: &["in-landlock"], lacks: &[], fence });
}

/// One class as each caller: run or refused, and doctor agrees.
fn on(class: &Class) {
    for caller in Caller::both() {
        let what = format!("{:?} as {}", class.names, caller.name);
        let stage = Stage::new(&caller, class);
        for mode in MODES {
            if class.lacks(&caller).is_empty() {
                completes(&format!("{what}, {mode}, keep"), &stage, "ns-nest", mode, "keep");
            } else {
                keep_is_refused(&format!("{what}, {mode}, keep"), &stage, class, mode);
            }
            let replacing = format!("{what}, {mode}, replace");
            match (&class.fence, class.fence.refusal(&caller)) {
                (_, Some(refusal)) => {
                    let cause = stage.refused(&replacing, mode, "replace");
                    assert_no_fence(&replacing, &cause, refusal, &[]);
                }
                (Fence::Stands(rung) | Fence::StandsForUsers(rung, _), None) => {
                    completes(&replacing, &stage, rung, mode, "replace");
                }
                (Fence::Refused(_), None) => unreachable!("it is refused to everybody"),
            }
            for sandbox in ["keep", "replace"] {
                let what = format!("{what}, {mode}, {sandbox}, doctor");
                doctor_agrees(&what, &stage, class, mode, sandbox);
            }
        }
    }
}

/// A world with the pinned Grok on a class of host.
struct Stage {
    world: World,
}

impl Stage {
    fn new(caller: &Caller, class: &Class) -> Self {
        let caller = caller.clone().on(class.names);
        // In a user namespace of its own nobody else has a name: what root has installed belongs to somebody unknown.
        let has_own = ["max-user-namespaces-0", "in-bwrap"].iter().any(|name| class.names.contains(name));
        let is_alone = caller.uid != 0 && has_own;
        let world =
            if is_alone { World::with_own_provider(&caller, "grok") } else { World::with_providers(&caller) };
        if is_alone {
            // What was just copied is digested once.
            world.call(&["provision", "--list", "--verify"]).end().expect_code(0);
        }
        world.write("ws/README.md", format!("{WORD}\n"));
        // Only a fence keeps anybody out of there.
        fs::set_permissions(world.path("outside"), fs::Permissions::from_mode(0o777)).unwrap();
        Self { world }
    }

    /// One run, named after its mode.
    fn run(&self, mode: &str, sandbox: &str, endpoint: &str) -> stockade_tests::Ended {
        let mut args = vec!["--provider", "grok", "--endpoint", endpoint, "--mode", mode];
        // Keeping is the default, so it is not asked for.
        if sandbox != "keep" {
            args.extend(["--provider-sandbox", sandbox]);
        }
        self.world.run(&format!("{mode}-{sandbox}"), &args).end()
    }

    fn receipt(&self, mode: &str, sandbox: &str) -> Value {
        self.world.receipt(&format!("{mode}-{sandbox}"))
    }

    /// A run that has to be refused before anything of the agent's exists; gives the cause.
    fn refused(&self, what: &str, mode: &str, sandbox: &str) -> Value {
        let model = ScriptedModel::steps(&self.world, &json!([]));
        let workspace = outside::picture(&self.world.ws());
        let ended = self.run(mode, sandbox, &format!("{}/v1", model.url)).expect_code(71);
        assert!(ended.elapsed < REFUSAL_LIMIT, "{what}: refused after {:?}", ended.elapsed);
        let receipt = self.receipt(mode, sandbox);
        assert_eq!(receipt["status"], "sandbox-unavailable", "{what}: {receipt:#}");
        assert_eq!(receipt["failurePhase"], "preflight", "{what}");
        assert_eq!(receipt["processStarted"], false, "{what}");
        assert_eq!(receipt["argv"], json!([]), "{what}");
        assert_eq!(receipt["runtime"]["version"], "1.0.41", "{what}");
        let events = World::events(&receipt);
        assert_eq!(events.iter().map(|e| &e["event"]["kind"]).collect::<Vec<_>>(), ["run-started"], "{what}");
        assert_eq!(model.requests(), Vec::<Value>::new(), "{what}: somebody asked the model");
        assert_eq!(outside::picture(&self.world.ws()), workspace, "{what}");
        assert_eq!(self.world.answer(&format!("{mode}-{sandbox}")), None, "{what}");
        drop(model);
        self.assert_nobody_left();
        receipt["cause"].clone()
    }

    fn assert_nobody_left(&self) {
        outside::wait_for_no_process_fenced_for(&self.world, Duration::from_secs(2));
    }
}

/// What a cause says about code, boundary, step and error number.
fn place_of(cause: &Value) -> Value {
    json!([cause["code"], cause["boundary"], cause["step"], cause["errno"]])
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect()
}

fn keep_is_refused(what: &str, stage: &Stage, class: &Class, mode: &str) {
    let cause = stage.refused(what, mode, "keep");
    let parts = class.lacks(&stage.world.caller);
    if let Some(refusal) = class.fence.refusal(&stage.world.caller) {
        return assert_no_fence(what, &cause, refusal, &parts);
    }
    let (step, errno) = match class.lacks.first() {
        Some(&NO_BUBBLEWRAP) => ("find bwrap on PATH", libc::ENOENT),
        Some(&LANDLOCK_ENOSYS) => ("landlock_create_ruleset", libc::ENOSYS),
        Some(_) => ("landlock_create_ruleset", libc::EOPNOTSUPP),
        None => ("mount_setattr(IDMAP) without CAP_SYS_ADMIN", libc::EPERM),
    };
    let expected = json!(["provider-sandbox-unavailable", "provider-sandbox", step, errno]);
    assert_eq!(place_of(&cause), expected, "{what}: {cause:#}");
    // Every missing part at once, and nothing that is not missing.
    assert_eq!(texts(&cause["evidence"]), parts.iter().map(|p| p.0.as_str()).collect::<Vec<_>>(), "{what}");
    let remedy = cause["remedy"].as_str().unwrap();
    for part in parts.iter().map(|p| p.1).chain(["`--provider-sandbox replace`"]) {
        assert!(remedy.contains(part), "{what}: `{part}` is not in the remedy: {remedy}");
    }
}

/// The refusal of a host on which no fence stands. `parts`: what is to be told of Grok's own sandbox beside.
fn assert_no_fence(what: &str, cause: &Value, refusal: Refusal, parts: &[(String, &str)]) {
    let Refusal { boundary, step, errno, remedy } = refusal;
    assert_eq!(place_of(cause), json!(["no-rung", boundary, step, errno]), "{what}: {cause:#}");
    let evidence = texts(&cause["evidence"]);
    for rung in ["nsl", "ns"] {
        let line = format!("rung {rung}: {step} {}", errno_name(errno));
        assert!(evidence.contains(&line.as_str()), "{what}: {line}: {cause:#}");
    }
    let outer = evidence.iter().any(|e| e.contains("foreign seccomp filter") || e.contains("already inside"));
    assert_eq!(outer, boundary == "parent-sandbox", "{what}: {cause:#}");
    let told: Vec<&str> =
        evidence.iter().filter_map(|e| e.strip_prefix("for the provider's own sandbox, ")).collect();
    assert_eq!(told, parts.iter().map(|p| p.0.as_str()).collect::<Vec<_>>(), "{what}: {cause:#}");
    assert!(cause["remedy"].as_str().unwrap().contains(remedy), "{what}: {cause:#}");
}

/// Read a file; in the writing mode also edit it, and make another from the shell. Last, both try to get out.
fn steps(world: &World, mode: &str) -> Value {
    let readme = world.ws().join("README.md");
    let mut steps = vec![json!({
        "text": "Reading.",
        "tools": [{ "name": "read_file", "arguments": { "target_file": readme } }]
    })];
    if mode == "isolated-write" {
        let edit = json!({ "file_path": readme, "old_string": "quince", "new_string": "medlar" });
        steps.push(json!({ "tools": [{ "name": "search_replace", "arguments": edit }] }));
    }
    let out = world.path("outside/from-the-shell");
    steps.push(model::shell(&format!("printf made > made.txt; printf out > {}", out.display())));
    json!(steps)
}

fn completes(what: &str, stage: &Stage, rung: &str, mode: &str, sandbox: &str) {
    let world = &stage.world;
    let model = ScriptedModel::steps(world, &steps(world, mode));
    let others = ["home", "outside"].map(|f| outside::picture(&world.path(f)));
    // What the run before has left in the workspace is no news.
    world.write("ws/README.md", format!("{WORD}\n"));
    drop(fs::remove_file(world.ws().join("made.txt")));
    let workspace = outside::picture(&world.ws());
    let ended = stage.run(mode, sandbox, &format!("{}/v1", model.url));
    let receipt = stage.receipt(mode, sandbox);
    assert_eq!(ended.code(), 0, "{what}: {}\n{:#}", ended.stderr, receipt["cause"]);
    assert_eq!(receipt["status"], "complete", "{what}");
    assert_eq!(receipt["fence"]["rung"], rung, "{what}");
    assert_eq!(receipt["fence"]["nesting"], sandbox == "keep", "{what}");
    let argv = texts(&receipt["argv"]);
    let profile = match (sandbox, mode) {
        ("keep", "read-only") => "read-only",
        ("keep", _) => "workspace",
        _ => "off",
    };
    assert!(argv.windows(2).any(|pair| pair == ["--sandbox", profile]), "{what}: {argv:?}");
    assert!(receipt["fence"]["kernelUid"] != 0 || sandbox != "keep", "{what}: {}", receipt["fence"]);
    assert_eq!(receipt["modelVerified"], true, "{what}");
    // The agent answers itself, always in the same way: nobody is asked.
    let granted = |p: &Value| p["decision"] == "allowed" && p["by"] == "agent";
    assert!(receipt["permissions"].as_array().unwrap().iter().all(granted), "{what}: {receipt:#}");
    assert_eq!(receipt["denialCount"], 0, "{what}");
    assert_eq!(receipt["tree"]["gone"], true, "{what}");
    assert_eq!(world.answer(&format!("{mode}-{sandbox}")).as_deref(), Some("done"), "{what}");
    for guarantee in receipt["guarantees"].as_array().unwrap() {
        assert!(guarantee["held"] == true || guarantee["required"] == false, "{what}: {guarantee}");
    }
    // The model was told what only the file says.
    assert!(
        model.requests().iter().any(|r| r["class"] == "main" && r["body"].to_string().contains(WORD)),
        "{what}: the file was not read"
    );
    assert_eq!(["home", "outside"].map(|f| outside::picture(&world.path(f))), others, "{what}");
    if mode == "read-only" {
        assert_eq!(outside::picture(&world.ws()), workspace, "{what}");
        assert_eq!(receipt["changes"]["files"], json!([]), "{what}");
    } else {
        let read = |name: &str| fs::read_to_string(world.ws().join(name)).unwrap_or_default();
        assert_eq!(read("README.md"), "The word is medlar.\n", "{what}");
        assert_eq!(read("made.txt"), "made", "{what}");
        for name in ["README.md", "made.txt"] {
            let owner = world.ws().join(name).metadata().unwrap().uid();
            assert_eq!(owner, world.caller.uid, "{what}: {name} belongs to somebody else");
        }
        let changed = receipt["changes"]["files"].as_array().unwrap();
        let changed: Vec<Value> = changed.iter().map(|c| json!([c["path"], c["kind"]])).collect();
        assert_eq!(changed, [json!(["README.md", "modified"]), json!(["made.txt", "added"])], "{what}");
    }
    drop(model);
    stage.assert_nobody_left();
}

/// Doctor ends with the code of such a run, names its cause, and tells of each guarantee.
fn doctor_agrees(what: &str, stage: &Stage, class: &Class, mode: &str, sandbox: &str) {
    let args = ["doctor", "--provider", "grok", "--mode", mode, "--provider-sandbox", sandbox, "--json"];
    let ended = stage.world.call(&args).end();
    let report: Value =
        serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{what}: {e}: {ended:?}"));
    let diagnosis = &report["diagnosis"];
    let receipt = stage.receipt(mode, sandbox);
    let ready = receipt["status"] == "complete";
    assert_eq!(ended.code(), if ready { 0 } else { 71 }, "{what}: {}", ended.stderr);
    assert_eq!(diagnosis["ready"], ready, "{what}");
    assert_eq!(diagnosis["status"], if ready { Value::Null } else { receipt["status"].clone() }, "{what}");
    assert_eq!(diagnosis["cause"], receipt["cause"], "{what}");
    let guarantees = diagnosis["guarantees"].as_array().unwrap();
    let expected = if mode == "read-only" { 11 } else { 10 };
    assert_eq!(guarantees.len(), expected, "{what}: {guarantees:?}");
    for guarantee in guarantees {
        let refusal = class.fence.refusal(&stage.world.caller);
        assert_guarantee(what, refusal, guarantee, &diagnosis["rung"]);
    }
    assert_eq!(diagnosis["pin"]["version"], "1.0.41", "{what}");
    assert!(report["settings"].as_array().is_some_and(|s| !s.is_empty()), "{what}: no settings");
    stage.assert_nobody_left();
}

/// Held by a mechanism, or missing by a step with its error number and a remedy: the fence alone decides.
fn assert_guarantee(what: &str, refusal: Option<Refusal>, guarantee: &Value, rung: &Value) {
    assert!(!guarantee["mechanism"].as_str().unwrap().is_empty(), "{what}: {guarantee}");
    match refusal {
        None => {
            let given_up = rung == "ns-nest" && guarantee["id"] == "no-nesting";
            assert_eq!(guarantee["held"], !given_up, "{what}: {guarantee}");
            assert_eq!(
                guarantee["required"] == false,
                given_up || guarantee["id"] == "limits",
                "{what}: {guarantee}"
            );
            assert_eq!(guarantee["refused"], Value::Null, "{what}: {guarantee}");
            assert_eq!(guarantee["remedy"], Value::Null, "{what}: {guarantee}");
        }
        Some(Refusal { step, errno, remedy, .. }) => {
            assert_eq!(guarantee["held"], false, "{what}: {guarantee}");
            let refused = json!({ "step": step, "errno": errno, "errnoName": errno_name(errno) });
            assert_eq!(guarantee["refused"], refused, "{what}: {guarantee}");
            assert!(guarantee["remedy"].as_str().unwrap().contains(remedy), "{what}: {guarantee}");
            assert_eq!(guarantee["proof"], json!([]), "{what}: {guarantee}");
        }
    }
}
