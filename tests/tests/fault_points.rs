//! Nothing is lost: a kill at any named point of a run leaves a readable receipt and nothing that `gc` cannot remove.
//!
//! The real Grok runs a tool that leaves a daemon, and Stockade kills itself at each point in turn. Needs root, to become
//! another user, and a binary with the feature `fault-points`.

#![expect(clippy::unwrap_used, reason = "a test: a panic is how it fails")]

use std::{fs, os::unix::process::ExitStatusExt as _, path::PathBuf, time::Duration};

use serde_json::{Value, json};
use stockade_tests::{Caller, ScriptedModel, World, model, outside};

/// No process of a run may be left after this time.
const GONE: Duration = Duration::from_secs(2);

/// Every point of `stockade_lane::fault`, in the order of a run, and whether the private home is there by then.
const POINTS: [(&str, bool); 12] = [
    ("reserved", false),
    ("verified", false),
    ("surveyed", false),
    ("planned", false),
    ("staged", true),
    ("fence-built", true),
    ("fence-proven", true),
    ("agent-started", true),
    ("first-request", true),
    ("tool-running", true),
    ("turn-ended", true),
    ("receipt-rename", false),
];

/// The point at which the final receipt is already in the run directory.
const ENDED: &str = "receipt-rename";

#[test]
fn the_points_are_those_of_the_product() {
    let source = include_str!("../../crates/stockade-lane/src/fault.rs");
    let list = source.split("POINTS: [&str; ").nth(1).and_then(|rest| rest.split("];").next()).unwrap();
    let names: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    assert_eq!(names, POINTS.map(|(name, _)| name));
}

#[test]
fn a_kill_at_each_point_leaves_a_readable_receipt_as_root() {
    at_each_point(&Caller::root());
}

#[test]
fn a_kill_at_each_point_leaves_a_readable_receipt_as_a_fresh_user() {
    at_each_point(&Caller::fresh_user());
}

fn at_each_point(caller: &Caller) {
    for (point, has_home) in POINTS {
        let world = World::with_providers(caller);
        let command = "setsid -f sleep 600 </dev/null >/dev/null 2>&1 && echo started";
        let model = ScriptedModel::steps(&world, &json!([model::shell(command)]));
        let ended = world
            .run("r", &["--provider", "grok", "--provider-sandbox", "replace", "--endpoint", &model.url])
            .env("STOCKADE_FAULT_POINT", point)
            .end();
        assert_eq!(ended.status.signal(), Some(9), "{point} was not reached: {ended:?}");
        outside::wait_for_no_process_fenced_for(&world, GONE);
        if ["turn-ended", ENDED].contains(&point) {
            assert!(model.tool_result(0).contains("started"), "there was no daemon");
        }
        receipt_stays_readable(&world, point);
        what_is_left_can_be_removed(&world, point, has_home);
    }
}

fn receipt_stays_readable(world: &World, point: &str) {
    let path = world.path("out/r.receipt.json");
    let reserved = world.receipt("r");
    assert_eq!(reserved["status"], "interrupted", "{point}: {reserved:#}");
    assert_eq!(reserved["completedAt"], Value::Null, "{point}");
    let show = |target: &str| world.call(&["receipt", "show", target, "--json"]).end().expect_code(0);
    let shown = show(path.to_str().unwrap());
    let receipt: Value = serde_json::from_str(&shown.stdout).unwrap();
    if point == ENDED {
        assert_eq!(receipt["status"], "complete", "{receipt:#}");
        assert!(shown.stderr.contains("repaired"), "{}", shown.stderr);
    } else {
        assert_eq!(receipt, reserved, "{point}");
    }
    assert_eq!(world.receipt("r"), receipt, "{point}: the caller's file says something else");
    let by_id = show(receipt["executionId"].as_str().unwrap());
    assert_eq!(serde_json::from_str::<Value>(&by_id.stdout).unwrap(), receipt, "{point}");
    assert_eq!(by_id.stderr, "", "{point}");
    // Whatever was recorded up to the kill is whole.
    let events = World::events(&receipt);
    assert_eq!(events.is_empty(), point == "reserved", "{point}: {} events", events.len());
}

fn what_is_left_can_be_removed(world: &World, point: &str, has_home: bool) {
    let homes = world.state().join("homes");
    let count = || fs::read_dir(&homes).map_or(0, Iterator::count);
    assert_eq!(count(), usize::from(has_home), "{point}");
    let gc = || {
        let ended = world.call(&["gc", "--remove", "--json"]).end().expect_code(0);
        serde_json::from_str::<Vec<Value>>(&ended.stdout).unwrap()
    };
    let rows = |found: &[Value]| -> Vec<(String, bool)> {
        found.iter().map(|l| (l["kind"].as_str().unwrap().to_owned(), l["removed"] == true)).collect()
    };
    let row = |kind: &str, removed| (kind.to_owned(), removed);
    let id = world.receipt("r")["executionId"].as_str().unwrap().to_owned();
    let groups = outside::wait_for_empty_groups(&id);
    let first = gc();
    let mut expected = Vec::new();
    if point != ENDED {
        expected.push(row("empty-output", true));
    }
    expected.extend(groups.iter().map(|_| row("control-group", true)));
    assert_eq!(outside::groups_of(&id), [] as [PathBuf; 0], "{point}");
    if has_home {
        expected.push(row("home", true));
    }
    if point != ENDED {
        // The record of what happened is kept for its time.
        expected.push(row("interrupted-run", false));
    }
    assert_eq!(rows(&first), expected, "{point}");
    assert_eq!(count(), 0, "{point}");
    let kept = gc();
    let runs: PathBuf = world.state().join("runs");
    let picture = outside::picture(&runs);
    for time in 2..=10 {
        assert_eq!(gc(), kept, "{point}: run {time} of gc found something else");
    }
    assert_eq!(outside::picture(&runs), picture, "{point}");
    assert_eq!(world.answer("r").as_deref(), (point == ENDED).then_some("done"), "{point}");
    let ended = world.call(&["gc", "--remove", "--older-than", "1ms"]).end().expect_code(0);
    assert_eq!(fs::read_dir(runs).unwrap().count(), 0, "{point}: {}", ended.stdout);
}
