//! The two schemas of receipts can fail: real receipts are valid, and each is spoilt in every way that matters.
//!
//! That receipts are valid is held in `pstack.rs` and its neighbours for each that they make. Needs root.

#![expect(clippy::unwrap_used, reason = "a test: a panic is how it fails")]

use serde_json::{Value, json};
use stockade_tests::{
    Caller,
    pstack::{assert_told, good, order, own_receipt, with_stub},
    schema::{OWN_RECEIPT, PSTACK_RECEIPT},
};

/// The tool's receipts of an answer, of an agent that failed and of an order that was not begun, and Stockade's own of the
/// first.
fn real() -> ([Value; 3], Value) {
    let world = with_stub(&Caller::root(), &good("Done."));
    let complete = assert_told(&world, &order(&world, &[]).end(), 0);
    let own = own_receipt(&complete).unwrap();
    let world = with_stub(&Caller::root(), "exit 3");
    let failed = assert_told(&world, &order(&world, &[]).end(), 70);
    let world = with_stub(&Caller::root(), "exit 3");
    let blocked = assert_told(&world, &order(&world, &[("--api-spend", Some("deny"))]).end(), 78);
    ([complete, failed, blocked], own)
}

/// The receipt with other values, by pointer; a last part that is not there is put there.
fn spoilt(receipt: &Value, changes: &[(&str, Value)]) -> Value {
    let mut spoilt = receipt.clone();
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = spoilt.pointer_mut(parent).unwrap();
        match parent {
            Value::Array(list) => list[key.parse::<usize>().unwrap()] = value.clone(),
            parent => parent[key] = value.clone(),
        }
    }
    spoilt
}

/// What is wrong, with which receipt, once which values are others.
type Rule<'r> = (&'static str, &'r Value, &'r [(&'static str, Value)]);

#[test]
fn what_readers_of_the_tool_would_not_take_is_no_valid_receipt() {
    let ([complete, failed, blocked], own) = real();
    let handoff = json!({
        "task": "t", "checkpoint": "c", "operation": "run-checks", "files": ["a/b.rs"], "checks": ["make"], "summary": "s"
    });
    let needed =
        spoilt(&complete, &[("/status", json!("needs-parent-operation")), ("/handoff", handoff.clone())]);
    assert!(PSTACK_RECEIPT.is_valid(&needed), "{:?}", PSTACK_RECEIPT.validate(&needed));
    // Further keys are nobody's concern.
    let more = spoilt(&complete, &[("/anything", json!({ "more": 1 })), ("/preflight/more", json!(1))]);
    assert!(PSTACK_RECEIPT.is_valid(&more));

    let error = json!({ "message": "m", "evidence": "e" });
    let rules: [Rule<'_>; 42] = [
        ("another version", &complete, &[("/schemaVersion", json!(1))]),
        ("a status of ours", &failed, &[("/status", json!("sandbox-unavailable"))]),
        ("a phase of ours", &failed, &[("/failurePhase", json!("staging"))]),
        ("a state of the preflight of ours", &failed, &[("/preflight/status", json!("skipped"))]),
        ("evidence of ours", &complete, &[("/modelEvidence", json!("wire"))]),
        ("a mode of ours", &complete, &[("/mode", json!("write"))]),
        ("a spend of ours", &complete, &[("/apiSpend", json!("maybe"))]),
        ("a contract of ours", &complete, &[("/contract", json!("loose"))]),
        ("a relative path", &complete, &[("/outputPath", json!("out/answer"))]),
        ("a path with detours", &complete, &[("/receiptPath", json!("/out/../receipt.json"))]),
        ("a path with an empty part", &complete, &[("/cwd", json!("/out//ws"))]),
        ("a folder with a slash behind it", &complete, &[("/canonicalPaths/cwd", json!("/out/ws/"))]),
        ("one path more", &complete, &[("/canonicalPaths/prompt", json!("/p"))]),
        ("a time without its zone", &complete, &[("/startedAt", json!("2026-12-01T00:00:00.000"))]),
        ("a time in seconds", &complete, &[("/completedAt", json!("2026-12-01T00:00:00Z"))]),
        ("half a millisecond", &complete, &[("/elapsedMs", json!(0.5))]),
        ("a signal that nobody could have sent", &failed, &[("/signal", json!("15"))]),
        ("numbers that no reader knows", &complete, &[("/usage/thoughts", json!(3))]),
        ("numbers below nothing", &complete, &[("/usage/inputTokens", json!(-3))]),
        ("no numbers at all", &complete, &[("/usage", json!({}))]),
        ("a success that failed", &complete, &[("/exitCode", json!(1))]),
        ("a success with a complaint", &complete, &[("/error", error.clone())]),
        ("a success with a phase", &complete, &[("/failurePhase", json!("postprocess"))]),
        ("a success that never ran", &complete, &[("/processStarted", json!(false))]),
        ("a success that says so twice", &complete, &[("/terminalSuccess", json!(true))]),
        ("a success by a signal", &complete, &[("/signal", json!("SIGTERM"))]),
        ("a success whose model nobody named", &complete, &[("/reportedModel", Value::Null)]),
        (
            "a success by argv alone",
            &complete,
            &[("/modelEvidence", json!("pinned-argv")), ("/modelVerified", json!(false))],
        ),
        (
            "a report that codex does not make",
            &complete,
            &[("/provider", json!("codex")), ("/parent", json!("claude"))],
        ),
        ("a failure without complaint", &failed, &[("/error", Value::Null)]),
        ("a complaint without words", &failed, &[("/error/message", json!(" "))]),
        ("evidence without end", &failed, &[("/error/evidence", json!("e".repeat(4_101)))]),
        ("a failure with a model", &failed, &[("/reportedModel", json!("m"))]),
        ("a failure with a cost", &failed, &[("/costUsd", json!(0))]),
        ("a failure that was started in its preflight", &failed, &[("/failurePhase", json!("preflight"))]),
        (
            "a failure in the invocation that was not started",
            &blocked,
            &[("/failurePhase", json!("invocation"))],
        ),
        (
            "an output that was read though the agent failed",
            &failed,
            &[("/failurePhase", json!("postprocess"))],
        ),
        ("a deadline that nobody set", &failed, &[("/status", json!("timed-out"))]),
        ("a quota before anything ran", &blocked, &[("/status", json!("usage-exhausted"))]),
        ("a strict contract that was carried out", &complete, &[("/contract", json!("strict"))]),
        ("a hand-over nobody is told of", &complete, &[("/handoff", handoff)]),
        ("a hand-over of a file of git", &needed, &[("/handoff/files/0", json!("a/.git/config"))]),
    ];
    for (what, receipt, changes) in &rules {
        let spoilt = spoilt(receipt, changes);
        assert!(!PSTACK_RECEIPT.is_valid(&spoilt), "{what}: {spoilt:#}");
    }
    every_key_is_needed(&PSTACK_RECEIPT, "pstack-receipt.schema.json", &complete);
    every_key_is_needed(&PSTACK_RECEIPT, "pstack-receipt.schema.json", &failed);
    assert!(!PSTACK_RECEIPT.is_valid(&own), "a receipt of the lane is none of the tool's");

    // The rest of what must not be left out: whether a failed agent had answered.
    let mut silent = failed.clone();
    silent.as_object_mut().unwrap().remove("terminalSuccess");
    assert!(!PSTACK_RECEIPT.is_valid(&silent));

    for (what, changes) in [
        ("another word for an end", ("/status", json!("done"))),
        ("an exit code that is none", ("/exitCode", json!("0"))),
        ("a preflight without evidence", ("/preflight/evidence", Value::Null)),
        ("a guarantee that is none", ("/guarantees/0/id", json!("everything"))),
        ("a rung that is none", ("/fence/rung", json!("tree-house"))),
        ("a boundary that is none", ("/cause", json!({ "code": "c", "boundary": "moat" }))),
    ] {
        let spoilt = spoilt(&own, &[changes]);
        assert!(!OWN_RECEIPT.is_valid(&spoilt), "{what}: {spoilt:#}");
    }
    every_key_is_needed(&OWN_RECEIPT, "receipt.schema.json", &own);
    assert!(!OWN_RECEIPT.is_valid(&complete), "a receipt of the tool is none of the lane's");
}

/// Without any of the keys that the schema asks for, and with something else in its place, a receipt is not valid.
fn every_key_is_needed(schema: &jsonschema::Validator, name: &str, receipt: &Value) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference").join(name);
    let required = stockade_tests::run::read_json(&path)["required"].clone();
    let required = required.as_array().unwrap();
    assert!(required.len() > 20, "{required:?}");
    for key in required {
        let key = key.as_str().unwrap();
        let mut without = receipt.clone();
        assert!(without.as_object_mut().unwrap().remove(key).is_some(), "{key}");
        assert!(!schema.is_valid(&without), "without {key}");
        let other = spoilt(receipt, &[(&format!("/{key}"), json!([[]]))]);
        assert!(!schema.is_valid(&other), "{key}");
    }
}
