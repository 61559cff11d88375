//! The escape probes, taken by the shell of the real Grok in a rehearsal: each ends as the table says for the rung, the
//! mode and the user, and the check fails where one does not or where something changed outside.
//!
//! Needs root, to become another user, git, `bwrap`, and a kernel with Landlock and user namespaces.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: a panic is how it fails, and what a rehearsal makes is looked for until it is there"
)]

use std::{
    fs,
    io::Write as _,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use stockade_core::{mode::AccessMode, survey::Rung};
use stockade_fence::probes::{Expected, KernelUser, ProcessLimit, Setting, taken_by_tool};
use stockade_tests::{Caller, Ended, World, outside, run::read_json};

/// What the stage may take in a mode, in milliseconds.
const STAGE_LIMIT_MS: u64 = 10_000;

/// One rehearsal at a time, so that what one leaves is not taken for another's.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folders that rehearsals make.
fn folders() -> Vec<PathBuf> {
    let entries = fs::read_dir("/tmp").unwrap().flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().contains("stockade-rehearsal-")).collect()
}

#[track_caller]
fn assert_nothing_left(what: &str) {
    assert_eq!(folders(), Vec::<PathBuf>::new(), "{what}");
    let shared = ["/tmp", "/var/tmp", "/dev/shm"].into_iter().flat_map(fs::read_dir).flatten().flatten();
    let tokens: Vec<_> =
        shared.filter(|e| e.file_name().to_string_lossy().contains("stockade-probe-")).collect();
    assert!(tokens.is_empty(), "{what}: {tokens:?}");
    outside::wait_for_no_process_with("stockade-probes", Duration::from_secs(2));
}

/// The check `probes` of a mode.
fn check(reports: &Value, mode: AccessMode) -> &Value {
    let report = reports.as_array().unwrap().iter().find(|r| r["mode"] == mode.id());
    let checks = report.unwrap_or_else(|| panic!("no {} in {reports:#}", mode.id()))["checks"].as_array();
    checks.unwrap().iter().find(|c| c["name"] == "probes").unwrap_or_else(|| panic!("{reports:#}"))
}

fn rehearsed(caller: &Caller, sandbox: &str) -> Value {
    let world = World::with_providers(caller);
    let ended = world
        .call(&["rehearse", "--provider", "grok", "--provider-sandbox", sandbox, "--json"])
        .end()
        .expect_code(0);
    assert_nothing_left(sandbox);
    // No run left a home, a git folder or a worktree behind.
    let gc = world.call(&["gc", "--json"]).end().expect_code(0);
    let found: Vec<Value> = serde_json::from_str(&gc.stdout).unwrap();
    assert!(found.is_empty(), "{found:#?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

/// On a root host the payload has a user of its own.
fn user(caller: &Caller) -> KernelUser {
    if caller.uid == 0 { KernelUser::Another } else { KernelUser::Callers }
}

fn may_work(expected: Expected) -> bool {
    matches!(expected, Expected::PrivateCopy(_) | Expected::Needed(_) | Expected::Price(_))
}

#[test]
fn with_its_sandbox_replaced_every_probe_ends_as_the_table_says() {
    let _alone = alone();
    for caller in Caller::both() {
        let reports = rehearsed(&caller, "replace");
        for mode in AccessMode::ALL {
            let check = check(&reports, mode);
            let user = user(&caller);
            let setting = Setting { mode, rung: Rung::Nsl, user, processes: ProcessLimit::Watched };
            let work = taken_by_tool().filter(|p| may_work(p.expected_in(&setting))).count();
            let evidence = format!(
                "{} probes taken by a tool on rung nsl, {work} worked: each ended as the table says; nothing changed outside",
                taken_by_tool().count()
            );
            assert_eq!((&check["status"], &check["evidence"]), (&"passed".into(), &evidence.into()));
            assert!(check["elapsedMs"].as_u64().unwrap() < STAGE_LIMIT_MS, "{check}");
        }
    }
}

#[test]
fn with_its_sandbox_kept_nothing_works_that_the_table_denies() {
    let _alone = alone();
    for caller in Caller::both() {
        let reports = rehearsed(&caller, "keep");
        for mode in AccessMode::ALL {
            let check = check(&reports, mode);
            let evidence = check["evidence"].as_str().unwrap();
            assert_eq!(check["status"], "passed", "{check}");
            let begin = format!("{} probes taken by a tool on rung ns-nest, ", taken_by_tool().count());
            let end = " worked: none was allowed that the table denies; nothing changed outside";
            assert!(evidence.starts_with(&begin) && evidence.ends_with(end), "{evidence}");
            assert!(check["elapsedMs"].as_u64().unwrap() < STAGE_LIMIT_MS, "{check}");
        }
    }
}

/// Rehearses one mode, and does something to what the probes reach for again and again until it has ended.
fn while_rehearsing(mode: AccessMode, mut act: impl FnMut(&Path) + Send) -> (Ended, Value) {
    let world = World::with_providers(&Caller::root());
    let report = world.path("out/report.json");
    let arguments =
        ["rehearse", "--provider", "grok", "--provider-sandbox", "replace", "--mode", mode.id(), "--report"];
    let call = world.call(&arguments).args(&[report.to_str().unwrap()]);
    let ended = AtomicBool::new(false);
    let run = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                for folder in folders() {
                    act(&folder.join("probed"));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let run = call.end();
        ended.store(true, Ordering::Relaxed);
        run
    });
    assert_nothing_left(mode.id());
    (run.expect_code(70), read_json(&report))
}

/// The check failed for this alone, in the report and on the screen.
#[track_caller]
fn assert_only_failed_for(ended: &Ended, reports: &Value, mode: AccessMode, why: &str) {
    let checks = reports[0]["checks"].as_array().unwrap();
    let failed: Vec<_> = checks.iter().filter(|c| c["status"] == "failed").map(|c| &c["name"]).collect();
    assert_eq!(failed, ["probes"], "{reports:#}");
    let evidence = check(reports, mode)["evidence"].as_str().unwrap();
    assert!(evidence.starts_with("on rung nsl: ") && evidence.ends_with(why), "{evidence}");
    assert!(!evidence.contains("; "), "{evidence}");
    let line = ended.stdout.lines().find(|line| line.starts_with("FAILED")).unwrap_or_default();
    assert!(line.contains(" probes ") && line.ends_with(why), "{}", ended.stdout);
}

#[test]
fn a_hole_in_the_wall_is_found() {
    let _alone = alone();
    let mut listener = None;
    let (ended, reports) = while_rehearsing(AccessMode::IsolatedWrite, |probed| {
        let workspace = probed.join("wt/lane");
        // Made by a probe: the lane has been admitted, which a socket in its workspace would have prevented.
        if listener.is_none() && workspace.join("link").symlink_metadata().is_ok() {
            let path = workspace.join("host.sock");
            let made = UnixListener::bind(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
            made.set_nonblocking(true).unwrap();
            listener = Some(made);
        }
        if let Some((mut stream, _)) = listener.as_ref().and_then(|l| l.accept().ok()) {
            stream.write_all(b"HELLO").unwrap();
        }
    });
    let why = "U06 (connect to a listener inside the workspace): expected denied, observed allowed";
    assert_only_failed_for(&ended, &reports, AccessMode::IsolatedWrite, why);
}

#[test]
fn a_change_outside_is_found_though_every_probe_was_denied() {
    let _alone = alone();
    let (ended, reports) = while_rehearsing(AccessMode::ReadOnly, |probed| {
        // There may be no file yet, or no longer.
        if let Ok(mut file) = fs::OpenOptions::new().append(true).open(probed.join("home/.bashrc")) {
            let _written = file.write_all(b"#\n");
        }
    });
    assert_only_failed_for(&ended, &reports, AccessMode::ReadOnly, "/home/.bashrc` was changed");
}
