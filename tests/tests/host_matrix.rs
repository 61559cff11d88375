//! The sandbox is measured, never assumed: one order on six hosts that differ in one thing each.
//!
//! A stub agent writes one canary inside its workspace and others outside, and says that all went well. What really
//! happened is looked at from outside. Needs root, to become another user, and a host with everything on: Landlock,
//! user namespaces, and `bwrap` on `PATH`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test: a panic is how it fails"
)]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::{Value, json};
use stockade_tests::{Caller, Ended, World, outside, stub, world::helper_binary};

/// An endpoint that nobody serves: the stub never asks.
const ENDPOINT: &str = "http://127.0.0.1:9/v1";
/// Preflight has to have told by then.
const PREFLIGHT_LIMIT: Duration = Duration::from_secs(3);
const MODES: [&str; 2] = ["read-only", "isolated-write"];
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What Grok prints, on standard error alone, where its own profile cannot be applied.
const OWN_SANDBOX_REFUSED: &str = "error: could not apply the 'workspace' sandbox profile; see the warning above for the cause. \
     Refusing to start with its protections missing.";

/// One of the six hosts.
struct Host {
    name: &'static str,
    classes: &'static [&'static str],
    /// Whether a `bwrap` that fails is first on `PATH`.
    broken_bwrap: bool,
    /// The rung that stands; `None`: none does.
    rung: Option<&'static str>,
    /// What the host lacks for the agent's own sandbox, as the refusal names it; without a rung, nesting too.
    lacks: &'static [&'static str],
}

const NO_LANDLOCK: &str = "Landlock: landlock_create_ruleset answered ENOSYS";
const NO_BUBBLEWRAP: &str = "bubblewrap: no `bwrap` on PATH";
/// The first on `PATH` is the caller's own, which is not there inside.
const OWN_BUBBLEWRAP: &str = "/first/bwrap`, the first on PATH, is in no folder of the system";
const NO_NESTING: &str = "nesting: clone(NEWUSER) answered EPERM";

const fn host(name: &'static str, classes: &'static [&'static str], rung: Option<&'static str>) -> Host {
    Host { name, classes, broken_bwrap: false, rung, lacks: &[] }
}

const HOSTS: [Host; 6] = [
    host("everything on", &[], Some("nsl")),
    Host { lacks: &[NO_LANDLOCK], ..host("Landlock off", &["no-landlock"], Some("ns")) },
    host("user namespaces off", &["no-userns"], None),
    Host { lacks: &[NO_LANDLOCK], ..host("both off", &["no-landlock", "no-userns"], None) },
    Host { lacks: &[NO_BUBBLEWRAP], ..host("no bwrap", &["no-bwrap"], Some("nsl")) },
    Host { broken_bwrap: true, lacks: &[OWN_BUBBLEWRAP], ..host("a bwrap that fails", &[], Some("nsl")) },
];

/// A stub's world: the workspace, a folder in which a start leaves its mark, and everywhere else it tries to write.
struct Stage {
    world: World,
    path: String,
    agent: PathBuf,
}

impl Stage {
    fn new(caller: &Caller, host: &Host) -> Self {
        let world = World::new(&caller.clone().on(host.classes));
        world.folder("marks");
        fs::set_permissions(world.path("outside"), fs::Permissions::from_mode(0o777)).unwrap();
        let path = if host.broken_bwrap {
            let mark = world.path("marks/bwrap-ran");
            let script = format!(
                "#!/bin/sh\ntouch {}\necho \"bwrap: Can't mount proc on /newroot/proc: Operation not permitted\" >&2\nexit 1\n",
                mark.display()
            );
            let bwrap = world.script("first/bwrap", &script);
            format!("{}:{PATH}", bwrap.parent().unwrap().display())
        } else {
            PATH.to_owned()
        };
        let agent = world.stub("writes", &body(&world));
        Self { world, path, agent }
    }

    /// One run, named after its mode.
    fn run(&self, agent: &Path, mode: &str, sandbox: &str, args: &[&str]) -> Ended {
        let marks = self.world.path("marks").display().to_string();
        let agent = agent.display().to_string();
        self.world
            .run(
                &format!("{mode}-{sandbox}"),
                &["--provider", "grok", "--model", "m", "--endpoint", ENDPOINT],
            )
            .args(&["--mode", mode, "--provider-sandbox", sandbox, "--executable", &agent, "--write", &marks])
            .args(args)
            .env("PATH", &self.path)
            .end()
    }

    fn receipt(&self, mode: &str, sandbox: &str) -> Value {
        self.world.receipt(&format!("{mode}-{sandbox}"))
    }

    fn was_started(&self) -> bool {
        self.world.path("marks/started").exists()
    }

    fn inner_canary(&self) -> Option<String> {
        fs::read_to_string(self.world.ws().join("inner-canary")).ok()
    }

    fn outer_canaries(&self) -> Vec<PathBuf> {
        outer_canaries(&self.world).into_iter().filter(|p| p.symlink_metadata().is_ok()).collect()
    }

    /// What no run may leave, whatever it did before.
    fn assert_host_untouched(&self, what: &str) {
        assert_eq!(self.outer_canaries(), Vec::<PathBuf>::new(), "{what}: an outer canary exists");
        assert!(!self.world.path("marks/bwrap-ran").exists(), "{what}: the bwrap on PATH was run");
        outside::wait_for_no_process_fenced_for(&self.world, Duration::from_secs(2));
    }
}

/// Everywhere outside that the stub tries: open to everybody, its user's own, and shared temp folders.
fn outer_canaries(world: &World) -> Vec<PathBuf> {
    let name = world.root().file_name().unwrap().to_str().unwrap();
    vec![
        world.path("outside/outer-canary"),
        world.home().join("outer-canary"),
        world.path("out/outer-canary"),
        Path::new("/tmp").join(format!("{name}-outer-canary")),
        Path::new("/var/tmp").join(format!("{name}-outer-canary")),
        Path::new("/dev/shm").join(format!("{name}-outer-canary")),
    ]
}

/// Leaves a mark, writes the canaries, says that all went well.
fn body(world: &World) -> String {
    let mut body = format!(
        "echo started > {}\necho inner > {}\n",
        world.path("marks/started").display(),
        world.ws().join("inner-canary").display()
    );
    for path in outer_canaries(world) {
        body.push_str(&format!("echo outer > {}\n", path.display()));
    }
    for line in
        [stub::INIT, &stub::message("Both files are written."), &stub::success("Both files are written.")]
    {
        body.push_str(&format!("say '{line}'\n"));
    }
    body
}

/// The kinds of events, in their order.
fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|e| e["event"]["kind"].as_str().unwrap()).collect()
}

fn event<'e>(events: &'e [Value], kind: &str) -> &'e Value {
    events.iter().find(|e| e["event"]["kind"] == kind).unwrap_or_else(|| panic!("no {kind}: {events:?}"))
}

/// What is said of every cause: code, boundary, step and error number.
fn place_of(cause: &Value) -> Value {
    json!([cause["code"], cause["boundary"], cause["step"], cause["errno"]])
}

/// Which canaries proved a guarantee of a receipt.
fn proof<'r>(receipt: &'r Value, guarantee: &str) -> Vec<&'r str> {
    let all = receipt["guarantees"].as_array().unwrap();
    let found = all.iter().find(|g| g["id"] == guarantee).unwrap_or_else(|| panic!("{guarantee}: {all:?}"));
    found["proof"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect()
}

fn each_host(on: impl Fn(&Host) -> bool, check: impl Fn(&str, &Host, &Stage)) {
    for caller in Caller::both() {
        for host in HOSTS.iter().filter(|h| on(h)) {
            check(&format!("{} as {}", host.name, caller.name), host, &Stage::new(&caller, host));
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test that starts its own stub")]
fn without_a_fence_the_stub_writes_every_canary() {
    let stage = Stage::new(&Caller::root(), &HOSTS[0]);
    let ran = Command::new(&stage.agent).output().unwrap();
    assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
    assert!(stage.was_started());
    assert_eq!(stage.inner_canary().as_deref(), Some("inner\n"));
    assert_eq!(stage.outer_canaries(), outer_canaries(&stage.world));
    for path in outer_canaries(&stage.world) {
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn where_one_way_works_the_lane_runs_and_it_is_proven_before_the_agent_starts() {
    each_host(
        |h| h.rung.is_some(),
        |what, host, stage| {
            for mode in MODES {
                let what = format!("{what}, {mode}");
                stage.run(&stage.agent, mode, "replace", &[]).expect_code(0);
                let receipt = stage.receipt(mode, "replace");
                assert_eq!(receipt["status"], "complete", "{what}: {receipt:#}");
                assert_eq!(receipt["processStarted"], true, "{what}");
                assert_eq!(receipt["fence"]["rung"].as_str(), host.rung, "{what}");
                assert!(stage.was_started(), "{what}: the stub left no mark, so the marks prove nothing");

                let events = World::events(&receipt);
                let proven = event(&events, "fence-proven");
                let started = event(&events, "agent-started");
                assert_eq!(proven["event"]["rung"].as_str(), host.rung, "{what}");
                assert!(proven["seq"].as_u64() < started["seq"].as_u64(), "{what}: {:?}", kinds(&events));
                let told = Duration::from_millis(proven["elapsedMs"].as_u64().unwrap());
                assert!(told < PREFLIGHT_LIMIT, "{what}: preflight took {told:?}");
                assert_proven(&what, &receipt, mode, host);

                let inner = (mode == "isolated-write").then_some("inner\n");
                assert_eq!(stage.inner_canary().as_deref(), inner, "{what}");
                let changed: Vec<&str> = if mode == "isolated-write" { vec!["inner-canary"] } else { vec![] };
                let files = receipt["changes"]["files"].as_array().unwrap();
                assert_eq!(files.iter().map(|f| f["path"].as_str().unwrap()).collect::<Vec<_>>(), changed);
                stage.assert_host_untouched(&what);
            }
        },
    );
}

/// Every required guarantee is held, and canaries from inside have proven those that canaries can prove.
fn assert_proven(what: &str, receipt: &Value, mode: &str, host: &Host) {
    for guarantee in receipt["guarantees"].as_array().unwrap() {
        assert!(guarantee["held"] == true || guarantee["required"] == false, "{what}: {guarantee}");
    }
    if mode == "read-only" {
        assert!(proof(receipt, "workspace-readonly").contains(&"workspace-write"), "{what}");
    }
    let writes = proof(receipt, "write-confinement");
    assert!(writes.contains(&"write-outside"), "{what}: {writes:?}");
    // The second lock is proven where it stands and nowhere else.
    assert_eq!(writes.contains(&"second-lock"), host.rung == Some("nsl"), "{what}: {writes:?}");
    for guarantee in ["secrets", "process-visibility", "privileges", "no-nesting", "network"] {
        assert!(!proof(receipt, guarantee).is_empty(), "{what}: `{guarantee}` is not proven");
    }
}

#[test]
fn where_no_way_works_the_call_is_named_and_nobody_is_started() {
    each_host(
        |h| h.rung.is_none(),
        |what, host, stage| {
            for mode in MODES {
                let what = format!("{what}, {mode}");
                let before = outside::picture(&stage.world.ws());
                let ended = stage.run(&stage.agent, mode, "replace", &[]).expect_code(71);
                assert!(ended.elapsed < PREFLIGHT_LIMIT, "{what}: {:?}", ended.elapsed);
                let receipt = stage.receipt(mode, "replace");
                assert_eq!(receipt["status"], "sandbox-unavailable", "{what}");
                let cause = &receipt["cause"];
                let named = json!(["no-rung", "parent-sandbox", "clone(NEWUSER)", libc::EPERM]);
                assert_eq!(place_of(cause), named, "{what}: {cause:#}");
                assert!(ended.stderr.contains("clone(NEWUSER) with EPERM"), "{what}: {}", ended.stderr);
                assert!(cause["remedy"].as_str().unwrap().contains("user namespaces"), "{what}: {cause:#}");
                let evidence = cause["evidence"].as_array().unwrap();
                let first = if host.lacks.contains(&NO_LANDLOCK) {
                    "rung nsl: landlock_create_ruleset ENOSYS"
                } else {
                    "rung nsl: clone(NEWUSER) EPERM"
                };
                for line in [first, "rung ns: clone(NEWUSER) EPERM"] {
                    assert!(evidence.iter().any(|e| e == line), "{what}: {line}: {cause:#}");
                }
                assert_not_started(&what, stage, &receipt);
                assert_eq!(outside::picture(&stage.world.ws()), before, "{what}");
            }
        },
    );
}

fn assert_not_started(what: &str, stage: &Stage, receipt: &Value) {
    assert_eq!(receipt["processStarted"], false, "{what}");
    assert_eq!(receipt["failurePhase"], "preflight", "{what}");
    assert_eq!(kinds(&World::events(receipt)), ["run-started"], "{what}");
    assert!(!stage.was_started(), "{what}: the stub was started");
    stage.assert_host_untouched(what);
}

#[test]
fn the_survey_tells_the_six_hosts_apart() {
    for caller in Caller::both() {
        let surveys: Vec<(&str, Value)> = HOSTS
            .iter()
            .map(|host| {
                let stage = Stage::new(&caller, host);
                drop(stage.run(&stage.agent, "read-only", "replace", &[]));
                let mut survey = stage.receipt("read-only", "replace")["survey"].take();
                for trial in survey["rungs"].as_array_mut().unwrap() {
                    trial.as_object_mut().unwrap().remove("elapsedUs");
                }
                assert_eq!(bwrap_seen(&stage, host), survey["bubblewrap"]["path"], "{}", host.name);
                (host.name, survey)
            })
            .collect();
        for (at, (one, a)) in surveys.iter().enumerate() {
            for (other, b) in surveys.iter().skip(at + 1) {
                assert_ne!(a, b, "{one} and {other} look the same as {}", caller.name);
            }
        }
    }
}

/// Which `bwrap` the survey has to name: it is only looked up.
fn bwrap_seen(stage: &Stage, host: &Host) -> Value {
    if host.classes.contains(&"no-bwrap") {
        return Value::Null;
    }
    let found = stage.path.split(':').map(|f| Path::new(f).join("bwrap")).find(|p| p.is_file());
    json!(found.expect("this test needs bubblewrap: `cargo xtask test` installs it"))
}

#[test]
fn an_agent_that_cannot_apply_its_own_profile_ends_as_child_failed_with_its_reason() {
    each_host(
        |h| h.rung.is_some(),
        |what, host, stage| {
            let agent = needs_landlock(stage);
            let has_landlock = !host.lacks.contains(&NO_LANDLOCK);
            let tools = stage.world.path("tools").display().to_string();
            let ended = stage.run(&agent, "isolated-write", "replace", &["--read", &tools]);
            let receipt = stage.receipt("isolated-write", "replace");
            if has_landlock {
                assert_eq!(receipt["status"], "complete", "{what}: {}", ended.stderr);
            } else {
                assert_eq!(ended.code(), 70, "{what}: {}", ended.stderr);
                assert_eq!(receipt["status"], "child-failed", "{what}: {receipt:#}");
                assert_eq!(receipt["exitCode"], 1, "{what}");
                assert_eq!(receipt["processStarted"], true, "{what}");
                let cause = &receipt["cause"];
                assert_eq!(place_of(cause), json!(["exit-code", "output", "exit", null]), "{what}");
                // The warning and the refusal, in their order, as the agent printed them.
                let evidence = cause["evidence"].as_array().unwrap();
                let told: Vec<&str> = evidence.iter().map(|e| e.as_str().unwrap()).collect();
                assert!(told.len() == 2 && told[0].contains("class in-landlock"), "{what}: {told:?}");
                assert_eq!(told[1], format!("stderr: {OWN_SANDBOX_REFUSED}"), "{what}");
                assert_eq!(stage.inner_canary(), None, "{what}");
            }
            assert!(stage.was_started(), "{what}");
            stage.assert_host_untouched(what);
        },
    );
}

/// A stub that puts itself into a Landlock domain, and gives up after a moment where the kernel knows none.
fn needs_landlock(stage: &Stage) -> PathBuf {
    let tool = stage.world.folder("tools").join("host-class");
    fs::copy(helper_binary("host-class"), &tool).unwrap();
    let body = format!(
        "echo started > {}\n{} in-landlock -- /bin/true || {{ echo \"{OWN_SANDBOX_REFUSED}\" >&2; exit 1; }}\n{}",
        stage.world.path("marks/started").display(),
        tool.display(),
        body(&stage.world)
    );
    stage.world.stub("needs-landlock", &body)
}

#[test]
fn an_agent_whose_own_profile_is_kept_is_refused_before_start_naming_the_missing_parts() {
    each_host(
        |h| h.rung.is_none() || !h.lacks.is_empty(),
        |what, host, stage| {
            let agent = needs_landlock(stage);
            for mode in MODES {
                let ended = stage.run(&agent, mode, "keep", &[]).expect_code(71);
                let receipt = stage.receipt(mode, "keep");
                let cause = &receipt["cause"];
                assert_eq!(receipt["status"], "sandbox-unavailable", "{what}");
                let code = if host.rung.is_some() { "provider-sandbox-unavailable" } else { "no-rung" };
                assert_eq!(cause["code"], code, "{what}: {cause:#}");
                let evidence = cause["evidence"].to_string();
                let nesting = host.rung.is_none().then_some(&NO_NESTING);
                for part in host.lacks.iter().chain(nesting) {
                    assert!(evidence.contains(part), "{what}: `{part}` is not named: {cause:#}");
                }
                let parts = [NO_LANDLOCK, NO_BUBBLEWRAP, OWN_BUBBLEWRAP];
                for part in parts.iter().filter(|p| !host.lacks.contains(p)) {
                    assert!(!evidence.contains(part), "{what}: `{part}` is not true here: {cause:#}");
                }
                if host.rung.is_some() {
                    assert!(ended.stderr.contains("--provider-sandbox replace"), "{what}: {}", ended.stderr);
                }
                assert_not_started(&format!("{what}, {mode}, keep"), stage, &receipt);
            }
        },
    );
}

#[test]
fn an_agent_whose_own_profile_is_kept_applies_it_inside_the_fence() {
    each_host(
        |h| h.rung.is_some() && h.lacks.is_empty(),
        |what, _, stage| {
            let agent = needs_landlock(stage);
            let tools = stage.world.path("tools").display().to_string();
            for mode in MODES {
                let what = format!("{what}, {mode}");
                let ended = stage.run(&agent, mode, "keep", &["--read", &tools]);
                let receipt = stage.receipt(mode, "keep");
                assert_eq!(receipt["status"], "complete", "{what}: {}", ended.stderr);
                assert_eq!(receipt["fence"]["rung"], "ns-nest", "{what}");
                assert_eq!(receipt["fence"]["nesting"], true, "{what}");
                let proven = proof(&receipt, "privileges");
                for canary in ["kernel-setting", "nested-capability", "nested-setting", "setuid-in-home"] {
                    assert!(proven.contains(&canary), "{what}: {proven:?}");
                }
                let inner = (mode == "isolated-write").then_some("inner\n");
                assert_eq!(stage.inner_canary().as_deref(), inner, "{what}");
                stage.assert_host_untouched(&what);
            }
        },
    );
}
