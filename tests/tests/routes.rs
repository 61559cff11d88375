//! Private authorities inside the fence, and agents that speak to their model themselves.

#![expect(clippy::unwrap_used, reason = "a test: a panic is how it fails")]

use std::path::PathBuf;

use serde_json::{Value, json};
use stockade_tests::{
    Caller, ScriptedModel, World,
    internet::{Authority, Internet},
    model,
    run::Call,
};

/// A name of the internet that leads to the model, on the host's loopback.
const MODEL: &str = "model.example";

fn scenario(step: &Value) -> Value {
    json!({ "version": 1, "name": "routes", "steps": [step], "otherwise": { "text": "done" } })
}

/// A model under its own authority on the host's side of an internet.
struct Endpoint {
    internet: Internet,
    model: ScriptedModel,
    /// Its base URL, by its name.
    url: String,
    /// Its address.
    address: String,
    ca: String,
}

impl Endpoint {
    fn new(world: &World) -> Self {
        let internet = Internet::new(&[(MODEL, &["127.0.0.1"])]);
        let steps = scenario(&json!({ "text": "through the tunnel" }));
        let flags = ["--tls", "--tls-name", MODEL];
        let model = ScriptedModel::through(world, &steps, &flags, &internet.enter(world.root()));
        let address = model.url.trim_start_matches("https://").trim_end_matches("/v1").to_owned();
        let ca = model.ca.clone().unwrap().display().to_string();
        let url = model.url.replace("127.0.0.1", MODEL);
        Self { internet, model, url, address, ca }
    }

    /// Its name and port.
    fn destination(&self) -> String {
        format!("{MODEL}:{}", self.address.rsplit_once(':').unwrap().1)
    }

    /// A run of a profile by which the agent speaks to this model itself.
    fn run<'w>(&self, world: &'w World, name: &str, provider: &str) -> Call<'w> {
        let profile = routed(world, provider).display().to_string();
        world
            .run(name, &["--provider", provider, "--provider-sandbox", "replace", "--profile", &profile])
            .args(&["--network", "allow", "--endpoint", &self.url])
            .through(&self.internet.enter(&world.ws()))
    }
}

/// The built-in profile of a provider, with one key more.
fn routed(world: &World, provider: &str) -> PathBuf {
    let text = stockade_providers::find(provider).unwrap().text;
    assert_eq!(text.matches("\n[wire]\n").count(), 1, "{provider}");
    world.write(&format!("out/{provider}.toml"), text.replace("\n[wire]\n", "\n[wire]\nroute = \"egress\"\n"))
}

#[test]
fn every_agent_speaks_to_a_model_under_a_private_authority_through_the_egress_listener() {
    // Without an account of the wire it is the agent's own word, where it has one.
    let providers = [
        ("grok", "agent-report"),
        ("claude", "agent-report"),
        ("codex", "pinned-argv"),
        ("opencode", "pinned-argv"),
    ];
    for ((provider, evidence), caller) in providers.into_iter().zip(Caller::both().into_iter().cycle()) {
        let world = World::with_providers(&caller);
        let endpoint = Endpoint::new(&world);
        let destination = endpoint.destination();
        world.expects_network(&[&destination]);
        let listed = ["--allow", endpoint.address.as_str()];

        // Grok asks for half a minute, and nothing ends that.
        let untrusted = endpoint.run(&world, "untrusted", provider).args(&listed).args(&["--timeout", "5s"]);
        untrusted.end();
        let receipt = world.receipt("untrusted");
        let code = receipt["cause"]["code"].as_str().unwrap();
        assert!(["unclassified", "limit-wall"].contains(&code), "{provider}: {receipt:#}");
        assert_eq!(endpoint.model.requests().len(), 0, "{provider}: nothing was told to a stranger");

        let trusting = endpoint.run(&world, "own", provider).args(&listed).args(&["--ca", &endpoint.ca]);
        trusting.end().expect_code(0);
        assert_eq!(world.answer("own").as_deref(), Some("through the tunnel"), "{provider}");
        assert!(!endpoint.model.requests().is_empty(), "{provider}");
        let receipt = world.receipt("own");
        let identity = &receipt["modelIdentity"];
        assert_eq!(identity["evidence"], evidence, "{provider}: {identity}");
        assert_eq!(identity["requestedSeen"], json!([]), "{provider}: {identity}");
        let egress = &receipt["fence"]["network"]["egress"];
        assert_eq!(egress["model"], *destination, "{provider}");
        assert_eq!(egress["listed"], json!([endpoint.address, destination]), "{provider}");
        let passed: Vec<_> = egress["passed"].as_object().unwrap().keys().collect();
        assert_eq!((passed, &egress["turnedAway"]), (vec![&destination], &json!({})), "{provider}: {egress}");
        let said = format!("by TLS to `{destination}`, of which nothing is seen");
        assert!(receipt["notes"].as_array().unwrap().iter().any(|n| n.as_str().unwrap().contains(&said)));
        let events = World::events(&receipt);
        assert!(!events.iter().any(|e| e["event"]["kind"] == "model-request"), "{provider}");
    }
}

#[test]
fn the_endpoints_address_is_checked_as_any_other_and_its_listener_is_closed() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let endpoint = Endpoint::new(&world);
        world.expects_network(&[&endpoint.destination(), "POST /v1/chat/completions"]);
        let stub = world.stub(
            "closed",
            r#"say "$(curl -sS --max-time 8 "$MODEL_URL/models" -o /dev/null -w '{"type":"none","tunnel":"%{http_connect}"}')"
post() { curl -s --max-time 8 -o /dev/null -w '%{http_code}' -d '{"model":"grok-4.6","messages":[],"tools":[]}' "$1"; }
say '{"type":"result","subtype":"success","is_error":false,"result":"'"$(post http://127.0.0.1:8080/v1/chat/completions)"'","stop_reason":"end_turn"}'"#,
        );
        let stub = stub.display().to_string();
        // The name leads to a loopback address, which is not listed itself.
        endpoint
            .run(&world, "closed", "grok")
            .args(&["--executable", &stub, "--ca", &endpoint.ca, "--env", "MODEL_URL"])
            .env("MODEL_URL", &endpoint.url)
            .end()
            .expect_code(0);
        assert_eq!(world.answer("closed").as_deref(), Some("404"));
        let receipt = world.receipt("closed");
        assert_eq!(receipt["fence"]["network"]["egress"]["turnedAway"], json!({ "egress-address": 1 }));
        assert_eq!(endpoint.model.requests().len(), 0);
    }
}

#[test]
fn the_tools_of_an_agent_trust_the_authority_that_was_named_and_the_hosts_own() {
    // Codex and Grok give their tools an environment of their own making.
    let command = "curl -sS -o /dev/null -w 'curl %{http_code}, ' https://ok.example/; \
                   git ls-remote https://ok.example/tree.git; echo; grep -c BEGIN \"$SSL_CERT_FILE\"";
    let shell_of_codex = json!({ "tools": [{ "name": "exec_command", "arguments": { "cmd": command } }] });
    let agents = [("grok", model::shell(command)), ("codex", shell_of_codex)];
    for ((provider, step), caller) in agents.into_iter().zip(Caller::both()) {
        let world = World::with_providers(&caller);
        let internet = Internet::new(&[("ok.example", &["1.2.3.4"])]);
        let authority = Authority::of(&["ok.example"]);
        world.expects_network(&["ok.example:443"]);
        let site = internet.site("1.2.3.4:443", Some(&authority));
        let model = ScriptedModel::through(&world, &scenario(&step), &[], &internet.enter(world.root()));
        let ca = world.write("out/ca.pem", &authority.pem).display().to_string();
        let run = |name| {
            world
                .run(name, &["--provider", provider, "--provider-sandbox", "replace"])
                .args(&["--endpoint", &model.url, "--allow", "ok.example"])
                .through(&internet.enter(&world.ws()))
        };
        run("trusting").args(&["--ca", &ca]).end().expect_code(0);
        let told = model.tool_result(0);
        assert!(told.contains("curl 200"), "{provider}: {told}");
        let authorities = told.lines().filter_map(|line| line.trim().parse::<u32>().ok()).next_back();
        assert!(authorities.is_some_and(|count| count > 20), "the host's own are among them: {told}");
        let asked = |connection: &String| connection.split(' ').nth(1).map(str::to_owned);
        let paths: Vec<_> = site.connections().iter().filter_map(asked).collect();
        let of_git = "/tree.git/info/refs?service=git-upload-pack";
        assert_eq!(paths, ["/", of_git], "{provider}: {told}");

        run("strange").end().expect_code(0);
        let strangers = site.connections().split_off(2);
        assert_eq!(strangers, ["", ""], "{provider}: two that broke off before a word");
    }
}

#[test]
fn a_file_without_a_certificate_is_no_authority() {
    let world = World::with_providers(&Caller::root());
    let ca = world.write("out/ca.pem", "no certificate").display().to_string();
    let ended = world
        .run("ca", &["--provider", "grok", "--provider-sandbox", "replace"])
        .args(&["--endpoint", "http://127.0.0.1:9/v1", "--allow", "ok.example", "--ca", &ca])
        .end()
        .expect_code(64);
    assert!(ended.stderr.contains("no certificate found"), "{}", ended.stderr);
}
