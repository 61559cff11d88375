//! A budget holds before the next call of the model, and what a caller demands of a success is measured.
//!
//! Everything with the real Grok, the budgets with the other agents too. Needs root, to become another user.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test: a panic is how it fails"
)]

use std::time::Duration;

use serde_json::{Value, json};
use stockade_tests::{Caller, ScriptedModel, World, model::shell, outside, run::Call};

/// What every turn of [`endless`] states: more than the title has, so that a title changes no outcome.
const TOKENS: u64 = 10_000;

fn real_grok<'w>(world: &'w World, model: &ScriptedModel, args: &[&str]) -> Call<'w> {
    let fixed = ["--provider", "grok", "--provider-sandbox", "replace", "--endpoint", model.url.as_str()];
    world.run("r", &fixed).args(args)
}

/// A model that never comes to an end: each turn says something and calls a tool.
fn endless(world: &World) -> ScriptedModel {
    let mut step = shell("true");
    step["text"] = json!("Still looking.");
    step["usage"] = json!({ "inputTokens": TOKENS, "outputTokens": 0 });
    let scenario = json!({ "version": 1, "name": "endless", "steps": [], "otherwise": step });
    ScriptedModel::scenario(world, &scenario, &[])
}

fn turns(model: &ScriptedModel) -> usize {
    model.requests().iter().filter(|request| request["class"] == "main").count()
}

fn held<'r>(receipt: &'r Value, id: &str) -> &'r Value {
    receipt["heldLimits"].as_array().unwrap().iter().find(|l| l["id"] == id).expect("the limit is there")
}

/// A run that went two turns and ended at this limit.
#[track_caller]
fn ends_after_two_turns(world: &World, model: &ScriptedModel, id: &str, value: &str) -> Value {
    let flag = format!("--max-{id}");
    let ended = real_grok(world, model, &[&flag, value]).end().expect_code(73);
    let receipt = world.receipt("r");
    let what = format!("{receipt:#}");
    assert_eq!(
        (&receipt["status"], &receipt["cause"]["code"], &receipt["cause"]["boundary"]),
        (&json!("limit-reached"), &json!(format!("limit-{id}")), &json!("limit")),
        "{what}"
    );
    assert_eq!(turns(model), 2, "the third call was not forwarded");
    assert!(receipt["cause"]["remedy"].as_str().unwrap().contains(&flag), "{what}");
    let record = held(&receipt, id);
    assert_eq!(
        (&record["state"], &record["by"], &record["reached"]),
        (&json!("enforced"), &json!("gateway"), &json!(true))
    );
    assert_eq!(
        (receipt["partial"].as_bool(), world.answer("r").as_deref()),
        (Some(true), Some("Still looking."))
    );
    assert!(ended.elapsed < Duration::from_secs(10), "{:?}", ended.elapsed);
    outside::wait_for_no_process_fenced_for(world, Duration::from_secs(2));
    receipt
}

#[test]
fn a_budget_of_turns_ends_the_run_before_the_next_and_keeps_what_was_said() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let model = endless(&world);
        let receipt = ends_after_two_turns(&world, &model, "turns", "2");
        assert_eq!(
            (&held(&receipt, "turns")["limit"], &held(&receipt, "turns")["peak"]),
            (&json!(2), &json!(2))
        );
    }
}

#[test]
fn a_budget_of_tokens_ends_the_run_before_the_next_call() {
    let world = World::with_providers(&Caller::fresh_user());
    let model = endless(&world);
    let receipt = ends_after_two_turns(&world, &model, "tokens", "15000");
    let peak = held(&receipt, "tokens")["peak"].as_u64().unwrap();
    assert!((2 * TOKENS..2 * TOKENS + 1_000).contains(&peak), "two turns and perhaps a title: {peak}");
}

#[test]
fn a_budget_of_money_needs_a_price_and_ends_the_run_before_the_next_call() {
    let world = World::with_providers(&Caller::root());
    let model = endless(&world);
    let ended = real_grok(&world, &model, &["--max-cost", "0.015"]).end().expect_code(64);
    assert!(ended.stderr.contains("`--max-cost` cannot be held"), "{}", ended.stderr);
    assert!(ended.stderr.contains("providers.grok.prices"), "{}", ended.stderr);
    assert!(model.requests().is_empty() && !world.path("out/r.receipt.json").exists(), "nothing was created");

    world.write(
        "home/.config/stockade/config.toml",
        "[providers.grok.prices.\"grok-4.6\"]\ninput = 1\noutput = 2.5\n",
    );
    let receipt = ends_after_two_turns(&world, &model, "cost", "0.015");
    let cost = receipt["costUsd"].as_f64().unwrap();
    assert!((0.02..0.021).contains(&cost), "two turns and perhaps a title: {cost}");
    assert_eq!(receipt["costSource"], "prices");
    assert_eq!(held(&receipt, "cost")["limit"], 15_000);
}

#[test]
fn a_run_within_its_budget_is_complete_and_says_what_it_used() {
    let world = World::with_providers(&Caller::fresh_user());
    let steps = json!([shell("true"), { "text": "All is well.", "usage": { "inputTokens": 7, "outputTokens": 5, "cachedTokens": 2 } }]);
    let model = ScriptedModel::steps(&world, &steps);
    let budget =
        ["--max-turns", "2", "--max-tokens", "1000000", "--effort", "high", "--require-served-model"];
    real_grok(&world, &model, &budget).end().expect_code(0);
    let receipt = world.receipt("r");
    assert_eq!(
        (&held(&receipt, "turns")["peak"], &held(&receipt, "turns")["reached"]),
        (&json!(2), &json!(false))
    );
    let turns: Vec<&Value> =
        receipt["requests"].as_array().unwrap().iter().filter(|r| r["class"] == "turn").collect();
    assert_eq!(turns.len(), 2, "{receipt:#}");
    let told = |key: &str| turns[1][key].clone();
    assert_eq!(
        json!([
            told("asked"),
            told("served"),
            told("effort"),
            told("status"),
            told("finishReason"),
            told("cut")
        ]),
        json!(["grok-4.6", "grok-4.6", "high", 200, "stop", false])
    );
    let usage = json!({ "inputTokens": 7, "cachedInputTokens": 2, "outputTokens": 5, "reasoningTokens": 0, "totalTokens": 12 });
    assert_eq!(told("usage"), usage);
    assert_eq!(receipt["modelIdentity"]["effortsSeen"], json!(["high"]));
}

/// An agent but Grok, with a call of its shell that changes nothing.
fn others() -> [(&'static str, Value); 3] {
    [
        ("claude", json!({ "name": "Bash", "arguments": { "command": "true", "description": "d" } })),
        ("codex", json!({ "name": "exec_command", "arguments": { "cmd": "true" } })),
        ("opencode", json!({ "name": "bash", "arguments": { "command": "true", "description": "d" } })),
    ]
}

#[test]
fn every_other_agent_is_ended_by_its_budget_as_well() {
    for ((provider, call), caller) in others().into_iter().zip(Caller::both().into_iter().cycle()) {
        let world = World::with_providers(&caller);
        let usage = json!({ "inputTokens": TOKENS, "outputTokens": 0 });
        let step = json!({ "text": "Still looking.", "tools": [call], "usage": usage });
        let scenario = json!({ "version": 1, "name": "endless", "steps": [], "otherwise": step });
        for (flag, value) in [("--max-turns", "2"), ("--max-tokens", "15000")] {
            let model = ScriptedModel::scenario(&world, &scenario, &[]);
            let name = flag.trim_start_matches("--");
            let fixed = ["--provider", provider, "--provider-sandbox", "replace", "--endpoint", &model.url];
            let ended = world.run(name, &fixed).args(&[flag, value]).end();
            let receipt = world.receipt(name);
            let what = format!("{provider} {flag}: {receipt:#}");
            assert_eq!((ended.code(), &receipt["status"]), (73, &json!("limit-reached")), "{what}");
            assert_eq!(turns(&model), 2, "the third call was not forwarded: {what}");
            assert_eq!(world.answer(name).as_deref(), Some("Still looking."), "{what}");
            assert_eq!(receipt["partial"], true, "{what}");
        }
        outside::wait_for_no_process_fenced_for(&world, Duration::from_secs(2));
    }
}

#[test]
fn a_model_that_has_to_be_proven_is_named_by_the_answer_or_the_run_ends() {
    let world = World::with_providers(&Caller::root());
    let model = ScriptedModel::steps(&world, &json!([{ "text": "Who am I?", "model": "" }]));
    real_grok(&world, &model, &["--require-served-model"]).end().expect_code(76);
    let receipt = world.receipt("r");
    assert_eq!(
        (&receipt["status"], &receipt["cause"]["code"], &receipt["modelVerified"]),
        (&json!("model-mismatch"), &json!("served-model-unproven"), &json!(false)),
        "{receipt:#}"
    );
}

#[test]
fn expected_changes_are_measured_and_words_are_none() {
    let world = World::with_providers(&Caller::fresh_user());
    let demand = ["--mode", "isolated-write", "--expect", "changes"];
    let model = ScriptedModel::steps(&world, &json!([{ "text": "I have changed everything." }]));
    real_grok(&world, &model, &demand).end().expect_code(65);
    let receipt = world.receipt("r");
    assert_eq!((&receipt["status"], &receipt["cause"]["code"]), (&json!("no-result"), &json!("no-changes")));

    let other = World::with_providers(&Caller::root());
    let model = ScriptedModel::steps(&other, &json!([shell("echo x > made"), { "text": "Done." }]));
    real_grok(&other, &model, &demand).end().expect_code(0);
    assert_eq!(other.receipt("r")["changes"]["files"][0]["path"], "made");

    let ended = real_grok(&world, &model, &["--expect", "changes"]).end().expect_code(64);
    assert!(ended.stderr.contains("nothing may be changed"), "{}", ended.stderr);
}
