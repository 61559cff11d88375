//! The way to the model: TLS under a private authority, the host's network, a network without a way out.
use serde_json::json;
use stockade_tests::{Caller, ScriptedModel, World, outside};

const GROK: [&str; 4] = ["--provider", "grok", "--provider-sandbox", "replace"];

fn one_answer() -> serde_json::Value {
    json!({ "version": 1, "name": "tls", "steps": [{ "text": "over the wire" }], "otherwise": { "text": "done" } })
}

#[test]
fn a_private_authority_is_trusted_when_named_and_only_then() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let model = ScriptedModel::scenario(&world, &one_answer(), &["--tls"]);
        let ca = model.ca.clone().unwrap().display().to_string();
        let endpoint = ["--endpoint", model.url.as_str()];

        world.run("named", &GROK).args(&endpoint).args(&["--ca", &ca]).end().expect_code(0);
        let receipt = world.receipt("named");
        assert_eq!(world.answer("named").as_deref(), Some("over the wire"));
        assert_eq!(receipt["modelIdentity"]["evidence"], "wire");

        world.run("unnamed", &GROK).args(&endpoint).end().expect_code(69);
        let cause = &world.receipt("unnamed")["cause"];
        assert_eq!(
            (cause["code"].as_str(), cause["boundary"].as_str()),
            (Some("tls"), Some("model")),
            "{cause}"
        );
        assert!(cause["remedy"].as_str().unwrap().contains("--ca"), "{cause}");
    }
}

#[test]
fn every_agent_speaks_to_an_endpoint_under_a_private_authority_by_a_key_it_never_sees() {
    let providers = ["claude", "codex", "opencode"];
    for (provider, caller) in providers.into_iter().zip(Caller::both().into_iter().cycle()) {
        let world = World::with_providers(&caller);
        let model = ScriptedModel::scenario(&world, &one_answer(), &["--tls"]);
        let ca = model.ca.clone().unwrap().display().to_string();
        let key = "sk-of-the-endpoint-0a1b";
        world
            .run("named", &["--provider", provider, "--provider-sandbox", "replace"])
            .args(&["--endpoint", &model.url, "--ca", &ca, "--key-env", "MODEL_KEY"])
            .env("MODEL_KEY", key)
            .end()
            .expect_code(0);
        assert_eq!(world.answer("named").as_deref(), Some("over the wire"), "{provider}");
        let receipt = world.receipt("named");
        assert_eq!(receipt["modelIdentity"]["evidence"], "wire", "{provider}");
        assert!(!receipt.to_string().contains(key), "{provider}: {receipt:#}");
    }
}

#[test]
fn on_the_hosts_network_the_listener_demands_the_runs_own_key_and_the_receipt_says_what_is_missing() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        let model = ScriptedModel::scenario(&world, &one_answer(), &[]);
        world.run("host", &GROK).args(&["--network", "host", "--endpoint", &model.url]).end().expect_code(0);
        let receipt = world.receipt("host");
        assert_eq!(receipt["fence"]["network"], json!({ "policy": "host", "egress": null }));
        let network =
            receipt["guarantees"].as_array().unwrap().iter().find(|g| g["id"] == "network").unwrap();
        assert_eq!((network["required"].as_bool(), network["held"].as_bool()), (Some(true), Some(false)));

        // A stub on the same network that shows no key, or another, is turned away and reaches nothing.
        let before = model.requests().len();
        world.expects_network(&["POST /v1/chat/completions"]);
        let stub = world.stub(
            "nokey",
            r#"port=$(sed -n 's#.*http://127.0.0.1:\([0-9]*\)/v1.*#\1#p' "$HOME/.grok/config.toml" | head -1)
body='{"model":"grok-4.6","messages":[],"tools":[]}'
exec 3<>/dev/tcp/127.0.0.1/$port
printf 'POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer wrong\r\ncontent-length: %s\r\n\r\n%s' "${#body}" "$body" >&3
read -r line <&3
say "$line" >&2
exit 1"#,
        );
        let stub = stub.display().to_string();
        let ended = world
            .run("nokey", &GROK)
            .args(&["--network", "host", "--endpoint", &model.url, "--executable", &stub])
            .end();
        let receipt = world.receipt("nokey");
        assert_eq!(receipt["networkDecisions"]["placeholder-missing"], 1, "{ended:?}\n{receipt}");
        assert_eq!(model.requests().len(), before, "nothing was forwarded");
    }
}

#[test]
fn a_network_without_a_way_out_is_told_apart_as_the_parents_doing() {
    let world = World::with_providers(&Caller::root());
    let call = world
        .run("shut", &GROK)
        .args(&["--endpoint", "https://192.0.2.1/v1", "--key-env", "KEY"])
        .env("KEY", "sk-nothing");
    let inner = call.command();
    #[expect(clippy::disallowed_methods, reason = "the test puts the binary into an empty network")]
    let mut shut = std::process::Command::new("unshare");
    shut.args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    shut.arg(inner.get_program()).args(inner.get_args()).env_clear();
    for (name, value) in inner.get_envs() {
        shut.env(name, value.unwrap());
    }
    let out = shut.current_dir(world.path("out")).output().unwrap();
    assert_eq!(out.status.code(), Some(69), "{}", String::from_utf8_lossy(&out.stderr));
    let cause = &world.receipt("shut")["cause"];
    assert_eq!(
        (cause["code"].as_str(), cause["boundary"].as_str()),
        (Some("unreachable"), Some("parent-sandbox"))
    );
    outside::wait_for_no_process_with(&world.root().display().to_string(), std::time::Duration::from_secs(2));
}

#[test]
fn a_name_is_refused_at_once_and_recorded() {
    for caller in Caller::both() {
        let world = World::with_providers(&caller);
        world.expects_network(&["api.example.com", "collect.example.net"]);
        let model = ScriptedModel::scenario(&world, &one_answer(), &[]);
        // Without an answer a resolver waits five seconds for each name.
        let stub = world.stub(
            "names",
            r#"SECONDS=0
for name in api.example.com collect.example.net; do getent ahosts "$name"; done
say '{"type":"result","subtype":"success","is_error":false,"result":"took '$SECONDS' s","stop_reason":"end_turn"}'"#,
        );
        let stub = stub.display().to_string();
        world
            .run("names", &GROK)
            .args(&["--endpoint", &model.url, "--executable", &stub])
            .end()
            .expect_code(0);
        let answer = world.answer("names").unwrap();
        assert!(["took 0 s", "took 1 s"].contains(&answer.trim()), "{answer}");
        let receipt = world.receipt("names");
        let names: Vec<_> = World::events(&receipt)
            .iter()
            .filter(|e| e["event"]["code"] == "name")
            .map(|e| e["event"]["target"].as_str().unwrap().trim_end_matches('.').to_owned())
            .collect();
        assert_eq!(names, ["api.example.com", "collect.example.net"], "{receipt}");
    }
}
