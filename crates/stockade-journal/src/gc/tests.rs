use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use rustix::fs::{FlockOperation, flock};
use stockade_core::status::Status;

use super::*;
use crate::{
    RunDir, launcher_record,
    testing::{dead_launcher, interrupted_receipt},
};

const DAY: Duration = Duration::from_secs(86_400);
const POLICY: GcPolicy = GcPolicy { keep_ended: Duration::from_secs(30 * 86_400), keep_interrupted: DAY };

/// The tests need a clock to speak of "in a day".
fn now() -> SystemTime {
    fs::metadata("/proc/self").unwrap().modified().unwrap()
}

fn state() -> (tempfile::TempDir, State) {
    let t = tempfile::tempdir().unwrap();
    let state = State::create(&t.path().join("state")).unwrap();
    (t, state)
}

/// A run whose launcher died; its directory is given back open, which holds the lock until it is dropped.
fn dead_run(state: &State, id: &str) -> RunDir {
    let run = state.create_run(id, &dead_launcher()).unwrap();
    let receipt = interrupted_receipt(id, run.path(), &dead_launcher());
    run.write_receipt(&serde_json::to_vec(&receipt).unwrap()).unwrap();
    run
}

fn found(state: &State, at: SystemTime) -> Vec<(LeftoverKind, String, bool)> {
    plan_gc(state, at, &POLICY)
        .unwrap()
        .into_iter()
        .map(|l| (l.kind, l.path.file_name().unwrap().to_str().unwrap().to_owned(), l.safe))
        .collect()
}

#[test]
fn nothing_of_a_living_run_is_a_leftover() {
    let (_t, state) = state();
    let by_process = state.create_run("alive", &launcher_record().unwrap()).unwrap();
    let by_lock = dead_run(&state, "locked");
    state.create_home("alive").unwrap();
    state.create_home("locked").unwrap();
    assert_eq!(found(&state, now() + DAY * 365), []);
    // Without its lock the second is over; the first still has its process.
    drop((by_process, by_lock));
    assert_eq!(
        found(&state, now() + DAY * 365),
        [
            (LeftoverKind::Home, "locked".to_owned(), true),
            (LeftoverKind::InterruptedRun, "locked".to_owned(), true)
        ]
    );
}

#[test]
fn a_dead_run_leaves_its_home_at_once_and_its_record_for_a_while() {
    let (_t, state) = state();
    drop(dead_run(&state, "dead"));
    let home = state.create_home("dead").unwrap();
    fs::write(home.join("token"), "12345").unwrap();
    let soon = plan_gc(&state, now(), &POLICY).unwrap();
    assert_eq!(
        soon.iter().map(|l| (l.kind, l.safe)).collect::<Vec<_>>(),
        [(LeftoverKind::Home, true), (LeftoverKind::InterruptedRun, false)]
    );
    assert_eq!(soon[0].bytes, 5);
    assert!(soon[1].why.contains("kept for 24 hours"), "{}", soon[1].why);
    assert!(home.exists(), "looking changes nothing");
    remove(&state, &soon[0]).unwrap();
    assert!(!home.exists());
    assert_eq!(remove(&state, &soon[1]).unwrap_err().kind(), ErrorKind::InUse);
    assert!(soon[1].path.exists());
    for late in plan_gc(&state, now() + DAY * 2, &POLICY).unwrap() {
        remove(&state, &late).unwrap();
    }
    assert_eq!(fs::read_dir(state.root().join("runs")).unwrap().count(), 0);
}

#[test]
fn a_home_without_a_run_waits_an_hour() {
    let (_t, state) = state();
    state.create_home("orphan").unwrap();
    assert_eq!(found(&state, now()), [(LeftoverKind::Home, "orphan".to_owned(), false)]);
    assert_eq!(found(&state, now() + DAY), [(LeftoverKind::Home, "orphan".to_owned(), true)]);
}

#[test]
fn a_run_that_is_just_being_made_is_no_leftover() {
    let (_t, state) = state();
    drop(dead_run(&state, "new"));
    fs::remove_file(state.run_path("new").join("launcher.json")).unwrap();
    let at_once = GcPolicy { keep_ended: Duration::ZERO, keep_interrupted: Duration::ZERO };
    assert_eq!(plan_gc(&state, now(), &at_once).unwrap(), []);
    assert_eq!(plan_gc(&state, now() + DAY, &at_once).unwrap().len(), 1);
}

#[test]
fn a_run_that_came_to_life_in_between_is_spared() {
    let (_t, state) = state();
    let home = state.create_home("r").unwrap();
    let leftover = plan_gc(&state, now() + DAY, &POLICY).unwrap().remove(0);
    let _run = state.create_run("r", &launcher_record().unwrap()).unwrap();
    assert_eq!(remove(&state, &leftover).unwrap_err().kind(), ErrorKind::InUse);
    assert!(home.exists());
}

#[test]
fn an_ended_run_is_kept_for_its_time_and_its_receipt_for_ever() {
    let (t, state) = state();
    let run = state.create_run("ended", &dead_launcher()).unwrap();
    let mut receipt = interrupted_receipt("ended", run.path(), &dead_launcher());
    let callers = t.path().join("receipt");
    receipt.receipt_path = Some(callers.to_str().unwrap().to_owned());
    fs::write(&callers, serde_json::to_vec(&receipt).unwrap()).unwrap();
    receipt.status = Status::Complete;
    receipt.completed_at = Some("2026-11-30T13:00:00.000Z".into());
    let last = serde_json::to_vec(&receipt).unwrap();
    run.write_receipt(&last).unwrap();
    drop(run);
    assert_eq!(found(&state, now() + DAY * 29), []);
    let old = plan_gc(&state, now() + DAY * 31, &POLICY).unwrap().remove(0);
    assert_eq!((old.kind, old.safe), (LeftoverKind::OldRun, true));
    remove(&state, &old).unwrap();
    assert!(!old.path.exists());
    assert_eq!(fs::read(&callers).unwrap(), last, "the last word was only in the run directory");
}

#[test]
fn torn_receipts_and_empty_outputs_are_found_where_the_caller_wanted_them() {
    let (t, state) = state();
    let run = state.create_run("dead", &dead_launcher()).unwrap();
    let mut receipt = interrupted_receipt("dead", run.path(), &dead_launcher());
    let (callers, output) = (t.path().join("receipt"), t.path().join("output"));
    receipt.receipt_path = Some(callers.to_str().unwrap().to_owned());
    receipt.output_path = Some(output.to_str().unwrap().to_owned());
    let bytes = serde_json::to_vec(&receipt).unwrap();
    drop(crate::Reservation::make(&callers, &bytes, &[]).unwrap());
    drop(crate::Reservation::make(&output, b"", &[]).unwrap());
    run.write_receipt(&bytes).unwrap();
    let stat = rustix::fs::stat(&callers).unwrap();
    let torn = t.path().join(format!(".stockade-{:x}.tmp", stat.st_ino));
    fs::write(&torn, "{\"half").unwrap();
    fs::write(run.path().join(".receipt.json.tmp"), "{\"half").unwrap();
    drop(run);

    let plan = plan_gc(&state, now(), &POLICY).unwrap();
    let safe: Vec<_> = plan.iter().filter(|l| l.safe).collect();
    assert_eq!(
        safe.iter().map(|l| l.kind).collect::<Vec<_>>(),
        [LeftoverKind::TornReceipt, LeftoverKind::TornReceipt, LeftoverKind::EmptyOutput]
    );
    for leftover in safe {
        remove(&state, leftover).unwrap();
        assert!(!leftover.path.exists());
    }
    assert_eq!(fs::read(&callers).unwrap(), bytes);

    // An output that a later run has reserved at the same path is that run's.
    drop(crate::Reservation::make(&output, b"", &[]).unwrap());
    let later = fs::File::options().write(true).open(&output).unwrap();
    later.set_modified(now() + Duration::from_secs(1)).unwrap();
    assert!(!plan_gc(&state, now(), &POLICY).unwrap().iter().any(|l| l.kind == LeftoverKind::EmptyOutput));
    let refused = remove(&state, plan.iter().find(|l| l.kind == LeftoverKind::EmptyOutput).unwrap());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InUse);
    assert!(output.exists());

    // An output that somebody has written to since is theirs.
    fs::write(&output, "theirs").unwrap();
    let refused = remove(&state, plan.iter().find(|l| l.kind == LeftoverKind::EmptyOutput).unwrap());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InUse);
    assert_eq!(fs::read(&output).unwrap(), b"theirs");
}

#[test]
fn half_made_installations_and_locks_go_unless_somebody_holds_them() {
    let (_t, state) = state();
    let staging = state.providers().unwrap().join(".staging");
    for name in ["dead-0", "alive-0"] {
        fs::create_dir_all(staging.join(name)).unwrap();
        fs::write(staging.join(name).join("alive"), "").unwrap();
    }
    fs::write(staging.join(".lock"), "").unwrap();
    fs::create_dir_all(state.root().join("providers/grok/1.0.41")).unwrap();
    let locks = state.locks().unwrap();
    fs::write(locks.join("free"), "").unwrap();
    fs::write(locks.join("held"), "").unwrap();
    let hold = |path: &Path| {
        let file = fs::File::open(path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        file
    };
    let _held = (hold(&staging.join("alive-0/alive")), hold(&locks.join("held")));

    let plan = plan_gc(&state, now(), &POLICY).unwrap();
    let names: Vec<_> = plan.iter().map(|l| l.path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["dead-0", "free"]);
    let door = hold(&staging.join(".lock"));
    assert_eq!(remove(&state, &plan[0]).unwrap_err().kind(), ErrorKind::InUse, "something is being made");
    drop(door);
    for leftover in &plan {
        remove(&state, leftover).unwrap();
    }
    assert_eq!(fs::read_dir(&staging).unwrap().count(), 2);
    assert_eq!(fs::read_dir(&locks).unwrap().count(), 1);
    assert!(state.root().join("providers/grok/1.0.41").exists());
}
