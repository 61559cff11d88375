//! Rungs by name: each is taken or refused, never another in its place, and on each of them work goes on as anywhere.
//!
//! A stub agent works in its workspace and reaches out of it. Needs root, to become another user and to cover a part of
//! `/proc`, and a host with everything on: Landlock, user namespaces, bubblewrap, a C compiler and a Rust toolchain.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test: a panic is how it fails")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::{Value, json};
use stockade_tests::{Caller, Ended, World, git, outside, rungs::RUNGS, stub};

/// An endpoint that nobody serves: the stub never asks.
const ENDPOINT: &str = "http://127.0.0.1:9/v1";
const MODES: [&str; 2] = ["read-only", "isolated-write"];
const ACCEPT: [&str; 2] = ["--accept-missing", "process-visibility"];

/// A toolchain where every user can reach it, as it would lie in `~/.rustup` of the caller. Unmounted when dropped.
struct Toolchain(PathBuf);

impl Toolchain {
    #[expect(clippy::disallowed_methods, reason = "a test that asks for its own toolchain")]
    fn in_world(world: &World) -> Self {
        let said =
            Command::new("rustc").args(["--print", "sysroot"]).output().expect("this test needs rustc");
        let from = PathBuf::from(String::from_utf8(said.stdout).unwrap().trim());
        assert!(from.join("bin/cargo").is_file(), "this test needs cargo in {}", from.display());
        let at = world.folder("toolchain");
        rustix::mount::mount_bind(&from, &at).unwrap();
        Self(at)
    }
}

impl Drop for Toolchain {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// A program and the library it uses, both in the workspace.
fn two_crates(world: &World) {
    world.write("ws/Cargo.toml", "[workspace]\nmembers = [\"app\", \"lib\"]\nresolver = \"3\"\n");
    let package =
        |name: &str| format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\nedition = \"2024\"\n");
    world.write("ws/lib/Cargo.toml", package("lib"));
    world.write("ws/lib/src/lib.rs", "pub fn word() -> &'static str { \"built\" }\n");
    world.write("ws/app/Cargo.toml", package("app") + "[dependencies]\nlib = { path = \"../lib\" }\n");
    world.write("ws/app/src/main.rs", "fn main() { println!(\"{}\", lib::word()); }\n");
    world.give("ws");
}

/// A stub that works, tries to write outside, and says that all went well.
fn worker(world: &World, work: &str) -> PathBuf {
    let outside = world.path("outside/reached").display().to_string();
    let body = format!(
        "cd {}\n{work}\necho out > {outside}\nsay '{}'\nsay '{}'\nsay '{}'\n",
        world.ws().display(),
        stub::INIT,
        stub::message("Done."),
        stub::success("Done."),
    );
    world.stub("works", &body)
}

fn world(caller: &Caller) -> World {
    let world = World::new(caller);
    fs::set_permissions(world.path("outside"), fs::Permissions::from_mode(0o777)).unwrap();
    world
}

fn run(world: &World, name: &str, agent: &Path, mode: &str, args: &[&str]) -> Ended {
    run_with(world, name, agent, mode, "replace", args)
}

fn run_with(world: &World, name: &str, agent: &Path, mode: &str, sandbox: &str, args: &[&str]) -> Ended {
    let agent = agent.display().to_string();
    world
        .run(name, &["--provider", "grok", "--model", "m", "--endpoint", ENDPOINT, "--mode", mode])
        .args(&["--provider-sandbox", sandbox, "--executable", &agent])
        .args(args)
        .end()
}

fn assert_host_untouched(world: &World, what: &str) {
    assert!(!world.path("outside/reached").exists(), "{what}: written outside");
    outside::wait_for_no_process_fenced_for(world, Duration::from_secs(2));
}

#[test]
fn on_every_rung_files_are_moved_linked_and_cut_and_a_program_of_two_crates_is_built_offline() {
    for caller in Caller::both() {
        let world = world(&caller);
        two_crates(&world);
        let toolchain = Toolchain::in_world(&world);
        let path = toolchain.0.display().to_string();
        let work = format!(
            "set -e\nexec 3>work.log 2>&3\necho one > a; mv a b; mkdir d; mv b d/b; ln d/b c; truncate -s 2 c; cp -a d e\n\
             export PATH={path}/bin:$PATH CARGO_HOME=/tmp/cargo\ncargo build --offline --quiet\n\
             target/debug/app > said; rm -rf target\nset +e"
        );
        let agent = worker(&world, &work);
        for rung in RUNGS {
            let what = format!("{rung} as {}", caller.name);
            let ended = run(
                &world,
                rung,
                &agent,
                "isolated-write",
                &["--rung", rung, "--read", &path, ACCEPT[0], ACCEPT[1]],
            );
            let receipt = world.receipt(rung);
            let log = fs::read_to_string(world.ws().join("work.log")).unwrap_or_default();
            assert_eq!(receipt["status"], "complete", "{what}: {}\n{log}", ended.stderr);
            assert_eq!(receipt["fence"]["rung"], rung, "{what}");
            assert_eq!(receipt["fence"]["nesting"], rung == "ns-nest", "{what}");
            let read = |name: &str| fs::read_to_string(world.ws().join(name)).unwrap_or_default();
            assert_eq!(
                (read("said"), read("c"), read("d/b"), read("e/b")),
                ("built\n".into(), "on".into(), "on".into(), "on".into()),
                "{what}: {log}"
            );
            assert_missing(
                &what,
                &receipt,
                if rung == "ns-hostproc" { &["process-visibility"] } else { &[] },
            );
            assert_host_untouched(&world, &what);
            for made in ["c", "said", "work.log", "Cargo.lock"] {
                fs::remove_file(world.ws().join(made)).unwrap();
            }
            for made in ["d", "e"] {
                fs::remove_dir_all(world.ws().join(made)).unwrap();
            }
        }
    }
}

/// Exactly these required guarantees are not held, and the notes repeat them.
fn assert_missing(what: &str, receipt: &Value, expected: &[&str]) {
    let all = receipt["guarantees"].as_array().unwrap();
    let missing: Vec<&str> = all
        .iter()
        .filter(|g| g["held"] == false && g["required"] == true)
        .map(|g| g["id"].as_str().unwrap())
        .collect();
    assert_eq!(missing, expected, "{what}");
    let notes = receipt["notes"].to_string();
    for guarantee in expected {
        assert!(
            notes.contains(&format!("`{guarantee}` is missing, as the caller accepted")),
            "{what}: {notes}"
        );
    }
}

#[test]
fn on_every_rung_a_workspace_to_read_stays_as_it_is() {
    for caller in Caller::both() {
        let world = world(&caller);
        let agent =
            worker(&world, "echo x > made; mv README.md away; truncate -s 0 README.md; chmod 777 README.md");
        let before = outside::picture(&world.ws());
        for rung in RUNGS {
            let what = format!("{rung} as {}", caller.name);
            let ended = run(&world, rung, &agent, "read-only", &["--rung", rung, ACCEPT[0], ACCEPT[1]]);
            let receipt = world.receipt(rung);
            assert_eq!(receipt["status"], "complete", "{what}: {}", ended.stderr);
            assert_eq!(receipt["fence"]["rung"], rung, "{what}");
            assert_eq!(receipt["tree"]["gone"], true, "{what}");
            assert_eq!(outside::picture(&world.ws()), before, "{what}");
            assert_host_untouched(&world, &what);
        }
    }
}

/// The cause of a run that has to be refused before anything starts.
fn refused(world: &World, name: &str, mode: &str, args: &[&str]) -> Value {
    refused_with(world, name, mode, "replace", args)
}

fn refused_with(world: &World, name: &str, mode: &str, sandbox: &str, args: &[&str]) -> Value {
    let agent = worker(world, "touch started");
    let before = outside::picture(&world.ws());
    run_with(world, name, &agent, mode, sandbox, args).expect_code(71);
    let receipt = world.receipt(name);
    assert_eq!(receipt["status"], "sandbox-unavailable", "{name}: {receipt:#}");
    assert_eq!(receipt["processStarted"], false, "{name}");
    assert_eq!(outside::picture(&world.ws()), before, "{name}");
    assert_host_untouched(world, name);
    receipt["cause"].clone()
}

fn place_of(cause: &Value) -> Value {
    json!([cause["code"], cause["step"], cause["errno"]])
}

#[test]
fn a_rung_by_name_that_does_not_stand_is_a_refusal_with_its_step() {
    for caller in Caller::both() {
        for (class, rung, step, errno) in [
            ("no-landlock", "nsl", "landlock_create_ruleset", libc::ENOSYS),
            ("no-userns-sysctl", "ns", "clone(NEWUSER)", libc::EPERM),
            ("no-userns-sysctl", "ns-nest", "clone(NEWUSER)", libc::EPERM),
            ("docker", "ns-hostproc", "clone(NEWUSER)", libc::EPERM),
            ("no-bwrap", "bs", "find bwrap on PATH", libc::ENOENT),
        ] {
            let world = world(&caller.clone().on(&[class]));
            for mode in MODES {
                let name = format!("{rung}-{mode}");
                let cause = refused(&world, &name, mode, &["--rung", rung, ACCEPT[0], ACCEPT[1]]);
                let what = format!("{class} {rung} as {}", caller.name);
                assert_eq!(place_of(&cause), json!(["rung-refused", step, errno]), "{what}: {cause:#}");
                let named = cause["message"].as_str().unwrap();
                assert!(named.contains(&format!("rung `{rung}`, which was asked for")), "{what}: {named}");
            }
        }
    }
}

#[test]
fn a_rung_by_name_that_does_not_carry_the_order_is_a_refusal() {
    for caller in Caller::both() {
        let world = world(&caller);
        let cause = refused(&world, "blind", "read-only", &["--rung", "ns-hostproc"]);
        let expected = json!(["guarantee-missing", "guarantee process-visibility", null]);
        assert_eq!(place_of(&cause), expected, "{cause:#}");
        let cause = refused_with(&world, "keep", "read-only", "keep", &["--rung", "ns"]);
        assert_eq!(place_of(&cause), json!(["provider-sandbox-unavailable", "rung ns", null]), "{cause:#}");
    }
}

/// A shell in a mount namespace of its own, in which a part of /proc is covered, as containers do.
fn below_a_covered_proc() -> Vec<String> {
    let script = "mount --bind /dev/null /proc/cmdline && exec \"$@\"";
    ["unshare", "-m", "sh", "-c", script, "sh"].map(str::to_owned).to_vec()
}

#[test]
fn below_a_covered_proc_only_the_callers_word_lets_a_run_start() {
    for caller in Caller::both() {
        let world = world(&caller);
        let agent = worker(&world, "cat /proc/1/environ > environ; ls /proc | grep -c '^[0-9]' > seen");
        let order = |name: &str, args: &[&str]| {
            let path = agent.display().to_string();
            world
                .run(
                    name,
                    &[
                        "--provider",
                        "grok",
                        "--model",
                        "m",
                        "--endpoint",
                        ENDPOINT,
                        "--mode",
                        "isolated-write",
                    ],
                )
                .args(&["--provider-sandbox", "replace", "--executable", &path])
                .args(args)
                .through(&below_a_covered_proc())
                .end()
        };
        order("without", &[]).expect_code(71);
        let cause = world.receipt("without")["cause"].clone();
        assert_eq!(
            place_of(&cause),
            json!(["guarantee-missing", "guarantee process-visibility", null]),
            "{cause:#}"
        );
        let evidence = cause["evidence"].to_string();
        assert!(evidence.contains("rung ns: fsmount(proc) EPERM"), "{cause:#}");
        assert!(cause["remedy"].as_str().unwrap().contains("systempaths=unconfined"), "{cause:#}");
        order("other", &["--accept-missing", "network"]).expect_code(71);
        assert!(!world.ws().join("seen").exists());

        order("with", &ACCEPT).expect_code(0);
        let receipt = world.receipt("with");
        assert_eq!(receipt["fence"]["rung"], "ns-hostproc", "{receipt:#}");
        assert_missing("covered /proc", &receipt, &["process-visibility"]);
        let seen: u32 = fs::read_to_string(world.ws().join("seen")).unwrap().trim().parse().unwrap();
        assert!(seen > 3, "the host's processes are there: {seen}");
        assert_eq!(fs::read_to_string(world.ws().join("environ")).unwrap(), "", "read by {}", caller.name);
        assert_host_untouched(&world, caller.name);
    }
}

#[test]
fn inside_bubblewrap_a_user_has_the_fence_and_root_has_not() {
    for caller in Caller::both() {
        let world = world(&caller.clone().on(&["in-bwrap"]));
        let agent = worker(&world, "echo x > made");
        for mode in MODES {
            let ended = run(&world, mode, &agent, mode, &[]);
            let receipt = world.receipt(mode);
            if caller.uid == 0 {
                assert_eq!(ended.code(), 71, "{receipt:#}");
                let cause = &receipt["cause"];
                assert_eq!(place_of(cause), json!(["no-rung", "write(uid_map)", libc::EPERM]), "{cause:#}");
            } else {
                assert_eq!(ended.code(), 0, "{}", ended.stderr);
                assert_eq!(receipt["fence"]["rung"], "nsl");
                assert_eq!(world.ws().join("made").exists(), mode == "isolated-write");
            }
            assert_host_untouched(&world, caller.name);
        }
    }
}

#[test]
fn through_bubblewrap_a_mount_under_a_writable_tree_is_refused_by_name() {
    for caller in Caller::both() {
        let world = world(&caller);
        git::repository(&world.ws());
        world.give("ws");
        let cause = refused(&world, "repository", "isolated-write", &["--rung", "bs"]);
        assert_eq!(cause["code"], "rung-does-not-carry", "{cause:#}");
        assert!(cause["message"].as_str().unwrap().contains("CVE-2026-87766"), "{cause:#}");
    }
}
