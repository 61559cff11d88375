//! Stockade sends nothing of its own: an observer outside sees connections to the endpoint and to the registry only.
//!
//! Everything runs in a network in which every packet of every process is read. Needs root, to make that network.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test: a panic is how it fails, and the observer is tried on other programs first"
)]

use std::{collections::BTreeSet, panic::AssertUnwindSafe};

use serde_json::{Value, json};
use stockade_core::mode::AccessMode;
use stockade_tests::{
    Agent, Caller, ScriptedModel, World,
    agent::end,
    network::ObservedNetwork,
    run::Call,
    stub,
    surroundings::{LITTER, Surroundings},
};

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

/// What a tool tries: addresses, names, the resolver of another, and a service of the host.
const LEAK: &str = "for to in 198.51.100.1/80 leak.example/443 127.0.0.1/22; do (exec 3<>/dev/tcp/$to) 2>/dev/null && echo \"reached $to\"; done; \
                    echo x >/dev/udp/198.51.100.1/53; getent hosts leak.example; echo tried";

/// The names that a run was asked for, whoever asked.
fn names_asked(receipt: &Value) -> BTreeSet<String> {
    let events = World::events(receipt).into_iter().map(|event| event["event"].clone());
    let decisions = events.filter(|event| event["kind"] == "network-decision");
    decisions.map(|event| event["target"].as_str().unwrap().to_owned()).collect()
}

/// A run in each mode: connections to the endpoint alone, whatever its tools try, and nothing is left of it.
fn a_run_stays_with_its_endpoint(agent: Agent, caller: &Caller, mode: AccessMode) {
    let (world, network) = observed(World::with_providers(caller));
    world.expects_network(&["leak.example"]);
    let around = Surroundings::of(&world);
    let scenario = json!({
        "version": 1, "name": "leak", "steps": [agent.shell(&format!("{LEAK}; {LITTER}"))], "otherwise": { "text": "done" },
    });
    let enter = network.enter(&world.ws());
    let model = ScriptedModel::through(&world, &scenario, &[], &enter);
    assert_eq!(network.attempts(), set(&[]));
    let call = agent.run(&world, mode, &model.url).args(&["--key-env", "MODEL_KEY"]);
    let ended = end(around.around_in(call.env("MODEL_KEY", "sk-1234567"), &enter));
    let receipt = world.receipt("r");
    let what = format!("{} {} as {}: {}\n{receipt:#}", agent.name(), mode.id(), caller.name, ended.stderr);
    assert_eq!(ended.code(), 0, "{what}");
    let endpoint = endpoint(&model);
    assert_eq!(without_decoys(network.attempts(), &endpoint, 1), set(&[&endpoint]), "{what}");
    let told = model.tool_result(0);
    assert!(told.contains("tried") && !told.contains("reached"), "{what}\n{told}");
    // The one name is the tool's.
    assert_eq!(names_asked(&receipt), set(&["leak.example"]), "{what}");
    around.assert_littered_alone(mode, &what);
}

/// The same agent where the whole network is open to it: what it would reach for by itself is not even tried.
fn by_itself_it_asks_its_model_alone(agent: Agent, caller: &Caller) {
    let (world, network) = observed(World::with_providers(caller));
    let enter = network.enter(&world.ws());
    let scenario = json!({ "version": 1, "name": "open", "steps": [agent.shell("sleep 1; echo slept")], "otherwise": { "text": "done" } });
    let model = ScriptedModel::through(&world, &scenario, &[], &enter);
    let call = agent.run(&world, AccessMode::ReadOnly, &model.url).args(&["--network", "host"]);
    let ended = end(call.through(&enter));
    let receipt = world.receipt("r");
    let what = format!("{} as {}: {}\n{receipt:#}", agent.name(), caller.name, ended.stderr);
    assert_eq!(ended.code(), 0, "{what}");
    let endpoint = endpoint(&model);
    // Beside the decoy of the proof there is the listener, which is on the host's loopback now.
    assert_eq!(without_decoys(network.attempts(), &endpoint, 2), set(&[&endpoint]), "{what}");
}

/// Its rehearsal passes, and connects to nothing but loopback.
fn a_rehearsal_stays_on_loopback(agent: Agent, caller: &Caller, mode: AccessMode, sandbox: &str) {
    let (world, network) = observed(World::with_providers(caller));
    let flags = ["--provider", agent.name(), "--mode", mode.id(), "--provider-sandbox", sandbox];
    let call = world.call(&["rehearse", "--json"]).args(&flags).through(&network.enter(&world.ws()));
    let ended = end(call);
    let what = format!("{flags:?} as {}: {}", caller.name, ended.stderr);
    let reports: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    let checks = reports.iter().flat_map(|report| report["checks"].as_array().unwrap());
    let failed: Vec<_> = checks.filter(|check| check["status"] != "passed").collect();
    assert!(failed.is_empty() && reports.len() == 1 && ended.code() == 0, "{what}: {failed:#?}");
    assert!(!reports[0]["unproven"].as_array().unwrap().is_empty(), "{what}: what it cannot prove is said");
    let attempts = network.attempts();
    assert!(!attempts.is_empty(), "{what}: the scripted model was never asked");
    assert!(attempts.iter().all(|a| a.starts_with("tcp 127.0.0.1:")), "{what}: {attempts:?}");
}

/// All of it for one agent, each mode and each caller in it.
fn is_observed(agent: Agent) {
    let [root, user] = Caller::both();
    a_run_stays_with_its_endpoint(agent, &root, AccessMode::ReadOnly);
    a_run_stays_with_its_endpoint(agent, &user, AccessMode::IsolatedWrite);
    by_itself_it_asks_its_model_alone(agent, &user);
    a_rehearsal_stays_on_loopback(agent, &root, AccessMode::ReadOnly, "replace");
    a_rehearsal_stays_on_loopback(agent, &user, AccessMode::IsolatedWrite, "keep");
}

#[test]
fn grok_connects_to_its_endpoint_and_to_nothing_else() {
    is_observed(Agent::Grok);
}

#[test]
fn claude_code_connects_to_its_endpoint_and_to_nothing_else() {
    is_observed(Agent::Claude);
}

#[test]
fn codex_connects_to_its_endpoint_and_to_nothing_else() {
    is_observed(Agent::Codex);
}

#[test]
fn opencode_connects_to_its_endpoint_and_to_nothing_else() {
    is_observed(Agent::Opencode);
}

/// The check of every run of every test: what a test has not declared fails it, with the run and the event.
#[test]
fn a_run_that_asks_for_what_its_test_did_not_declare_fails_the_test() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let stub = world.stub(
            "asks",
            &format!("getent hosts declared.example undeclared.example\nsay '{}'", stub::success("asked")),
        );
        let stub = stub.display().to_string();
        let call = world.run(
            "r",
            &["--provider", "grok", "--provider-sandbox", "replace", "--model", "m", "--executable", &stub],
        );
        call.args(&["--endpoint", "http://127.0.0.1:9/v1"]).end().expect_code(0);
        let run = world.receipt("r")["executionId"].as_str().unwrap().to_owned();
        world.expects_network(&["declared.example"]);
        let failed = std::panic::catch_unwind(AssertUnwindSafe(|| drop(world)));
        let told = *failed.unwrap_err().downcast::<String>().unwrap();
        let says = |text: &str| told.contains(text);
        assert!(says(&run) && says("undeclared.example") && !says("\"declared.example"), "{told}");
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
