//! The exact model, through the whole run: a later answer by another one, a second one in the usage, names that a profile
//! states, and nothing stated at all.
//!
//! The real agents are led there by what the scripted model calls itself; stubs say it themselves, where no wire contradicts
//! them. Needs root, to become another user.

use serde_json::{Value, json};
use stockade_core::mode::AccessMode;
use stockade_tests::{Agent, Caller, Ended, ScriptedModel, World, agent, dialect::print, run::Call};

/// Every agent with a caller; they alternate.
fn agents() -> impl Iterator<Item = (Agent, Caller)> {
    Agent::ALL.into_iter().zip(Caller::both().into_iter().cycle())
}

/// Status, exit code and the code of the cause.
fn ending(world: &World, ended: &Ended) -> Value {
    let receipt = world.receipt("r");
    json!([receipt["status"], ended.code(), receipt["cause"]["code"]])
}

const MISMATCH: &str = "served-model-mismatch";

/// The command before works in silence for twice the idle limit, and is waited for.
#[test]
fn a_later_answer_by_another_model_ends_the_run_at_that_answer() {
    for (agent, caller) in agents() {
        let world = World::with_providers(&caller);
        let work = agent.shell("timeout 2.5 sh -c 'while :; do :; done'; echo worked");
        let other = json!({ "text": "By another.", "model": "dearer-2" });
        let model = ScriptedModel::steps(&world, &json!([work, other]));
        let ended = agent::end(
            agent.run(&world, AccessMode::ReadOnly, &model.url).args(&["--idle-timeout", "1200ms"]),
        );
        let receipt = world.receipt("r");
        let what = format!("{} as {}: {receipt:#}", agent.name(), caller.name);
        assert_eq!(ending(&world, &ended), json!(["model-mismatch", 76, MISMATCH]), "{what}");
        let cause = &receipt["cause"];
        let message = cause["message"].as_str().unwrap();
        let named = format!("`{}` was asked and `dearer-2` answered", agent.model());
        assert!(message.contains(&named), "{what}");
        let turns: Vec<&Value> =
            receipt["requests"].as_array().unwrap().iter().filter(|r| r["class"] == "turn").collect();
        assert_eq!(turns.len(), 2, "nothing is asked again: {what}");
        assert_eq!(
            (&turns[0]["served"], &turns[1]["served"]),
            (&json!(agent.model()), &json!("dearer-2")),
            "{what}"
        );
        assert_eq!(receipt["modelVerified"], false, "{what}");
        assert!(model.tool_result(0).contains("worked"), "{what}");
    }
}

/// A name that the endpoint answers with, what has to stand in the profile for it, and whether it does.
#[test]
fn another_name_of_the_model_passes_only_where_the_profile_states_it() {
    for (agent, caller) in agents() {
        let ours = agent.model();
        let (asked, served, unknown) = match agent {
            Agent::Claude => ("claude-haiku-4-5", "claude-haiku-4-5-20251001", "claude-haiku-4-5-20990101"),
            Agent::Grok => ("grok-4.6", "grok-4.6-build", "grok-4.6-fast"),
            // Their profiles state none, so this is the one of a user.
            Agent::Codex | Agent::Opencode => (ours.as_str(), "stated-1", "stated-2"),
        };
        for (name, expected) in
            [(served, json!(["complete", 0, null])), (unknown, json!(["model-mismatch", 76, MISMATCH]))]
        {
            let world = World::with_providers(&caller);
            let model = ScriptedModel::steps(&world, &json!([{ "text": "Here.", "model": name }]));
            let mut call = agent.run(&world, AccessMode::ReadOnly, &model.url).args(&["--model", asked]);
            if matches!(agent, Agent::Codex | Agent::Opencode) {
                let stated = format!("[models.served_as]\n\"{asked}\" = [\"{served}\"]\n\n[vendor]");
                let profile = agent.profile_with(&world, &[("[vendor]", &stated)]);
                call = call.args(&["--profile", &profile]);
            }
            let ended = agent::end(call);
            let receipt = world.receipt("r");
            let what = format!("{} as {}, {name}: {receipt:#}", agent.name(), caller.name);
            assert_eq!(ending(&world, &ended), expected, "{what}");
            let identity = &receipt["modelIdentity"];
            assert_eq!((&identity["asked"], &identity["served"]), (&json!(asked), &json!([name])), "{what}");
            assert_eq!(receipt["modelVerified"], name == served, "{what}");
        }
    }
}

#[test]
fn an_answer_that_names_no_model_is_never_called_verified() {
    for (agent, caller) in agents() {
        let world = World::with_providers(&caller);
        let model = ScriptedModel::steps(&world, &json!([{ "text": "Who am I?", "model": "" }]));
        let ended = agent::end(agent.run(&world, AccessMode::ReadOnly, &model.url));
        let receipt = world.receipt("r");
        let what = format!("{} as {}: {receipt:#}", agent.name(), caller.name);
        assert_eq!(ending(&world, &ended), json!(["complete", 0, null]), "{what}");
        assert_eq!(receipt["modelVerified"], false, "{what}");
        assert_ne!(receipt["modelEvidence"], "wire", "{what}");
    }
}

/// A stub that was asked for `m`.
fn stub<'w>(world: &'w World, agent: Agent, lines: &str) -> Call<'w> {
    agent.run_stub(world, AccessMode::ReadOnly, &print(lines))
}

/// Where nothing goes over the wire the agent's own words count, of those that have any.
#[test]
fn another_model_in_the_agents_own_words_is_a_mismatch_and_silence_no_proof() {
    for (agent, caller) in agents() {
        let first = ["One.", "Two.", "Three."].map(|text| agent.says(text)).concat();
        let later = agent.begins() + &first + &agent.says_as("dearer-2", "Four.") + &agent.succeeds("Four.");
        let listed = agent.begins() + &agent.says("Hi.") + &agent.succeeds_with(&["m", "dearer-2"], "Hi.");
        for (lines, place) in [(later, "message"), (listed, "usage")] {
            let world = World::new(&caller);
            let ended = stub(&world, agent, &lines).end();
            let receipt = world.receipt("r");
            let what = format!("{} as {}, {place}: {receipt:#}", agent.name(), caller.name);
            assert_eq!(receipt["modelVerified"], false, "{what}");
            match agent {
                Agent::Claude | Agent::Grok => {
                    assert_eq!(ending(&world, &ended), json!(["model-mismatch", 76, MISMATCH]), "{what}");
                    let cause = receipt["cause"].to_string();
                    assert!(cause.contains("dearer-2") && cause.contains(place), "{what}");
                }
                Agent::Codex | Agent::Opencode => {
                    assert_eq!(ending(&world, &ended), json!(["complete", 0, null]), "{what}");
                    assert_eq!(receipt["modelEvidence"], "pinned-argv", "{what}");
                    assert_eq!(receipt["reportedModel"], Value::Null, "{what}");
                }
            }
        }
    }
}
