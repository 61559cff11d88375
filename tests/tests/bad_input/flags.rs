//! Words on the command line.

use serde_json::json;
use stockade_tests::{Caller, World};

use super::{mistake, order, refused, refused_with_receipt, shown, traces};

#[test]
fn names_that_nobody_knows() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let names: Vec<&str> = stockade_providers::built_in().iter().map(|provider| provider.name).collect();
        let known = format!("one of: {}", names.join(", "));
        let error = mistake("provider-unknown", "provider", None, "there is no provider `grokk`", &known);
        refused(&world, order(&world, &[("--provider", Some("grokk"))]), 64, &error);

        let one_of = "one of: low, medium, high, xhigh";
        let error = mistake("effort-unknown", "effort", None, "Grok Build has no effort `bogus`", one_of);
        refused(&world, order(&world, &[("--effort", Some("bogus"))]), 64, &error);

        let hint = "use letters, digits and `-._:/@+` only, 200 at most";
        let error = mistake("model-name", "model", None, "`grok\"\n` is no model name", hint);
        refused(&world, order(&world, &[("--model", Some("grok\"\n"))]), 64, &error);

        let config = world.write(
            "home/.config/stockade/config.toml",
            "[defaults]\nmode = \"read-only\"\ntimeot = \"1m\"\n",
        );
        let message = format!(
            "`{}` line 3: unknown field `timeot`, expected one of `provider`, `mode`, `timeout`, `idle_timeout`, \
             `network`, `allow`, `provider_sandbox`, `max_processes`, `max_memory`, `max_open_files`, `max_file_size`, \
             `max_temp`, `max_growth`, `max_output`, `max_turns`, `max_tokens`, `max_cost`, `require_limits`, `rung`",
            config.display()
        );
        let error = mistake(
            "config",
            "config",
            Some(&config),
            &message,
            "correct that line; unknown keys are errors",
        );
        refused(&world, order(&world, &[]), 64, &error);
    }
}

#[test]
fn flags_that_do_not_go_together() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let message =
            "`--json` prints the receipt on standard output, so that the answer needs a place of its own";
        let error = mistake("json-needs-output", "json-needs-output", None, message, "add `--output FILE`");
        refused(&world, order(&world, &[("--output", None)]), 64, &error);

        let message = "`--json` and `--events -` both want standard output";
        let error =
            mistake("json-and-events", "json-and-events", None, message, "write the events to a file");
        refused(&world, order(&world, &[("--events", Some("-"))]), 64, &error);

        let message = "`--network none` leaves the agent without its model";
        let error = mistake("network-none", "network", None, message, "use `--network model`, the default");
        refused(&world, order(&world, &[("--network", Some("none"))]), 64, &error);

        let message = "`MY_KEY` holds the run's credential, which never enters the fence";
        let hint = "leave it out: the gateway adds the key to each model call";
        let error = mistake("env-credential", "env", None, message, hint);
        let call = order(&world, &[("--env", Some("MY_KEY")), ("--key-env", Some("MY_KEY"))])
            .env("MY_KEY", "k-4711");
        refused(&world, call, 64, &error);

        let message = "`http://example.invalid/v1` would carry the prompt and the key unencrypted";
        let error = mistake(
            "endpoint-plaintext",
            "endpoint",
            None,
            message,
            "use https; plain http is for loopback only",
        );
        refused(&world, order(&world, &[("--endpoint", Some("http://example.invalid/v1"))]), 64, &error);
    }
}

#[test]
fn arguments_that_cannot_be_read_are_json_too() {
    let world = World::new(&Caller::root());
    for wrong in [
        ("--timeout", Some("5 parsecs")),
        ("--mode", Some("read-write")),
        ("--colour", Some("x")),
        ("--rung", Some("nslx")),
        ("--accept-missing", Some("everything")),
    ] {
        let call = order(&world, &[wrong]);
        let before = traces(&world);
        let ended = call.end().expect_code(64);
        let error = shown(&ended);
        let keys: Vec<_> = error.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["boundary", "code", "errno", "hint", "message", "path", "step"]);
        assert_eq!((&error["code"], &error["boundary"]), (&json!("arguments"), &json!("order")));
        assert!(error["message"].as_str().unwrap().contains(wrong.0), "{error}");
        assert_eq!(traces(&world), before);
    }
}

#[test]
fn neither_an_endpoint_nor_a_key() {
    for caller in Caller::both() {
        let world = World::new(&caller);
        let message = "no endpoint and no key: Grok Build has nothing to talk to";
        let hint = "name the variable that holds a key with `--key-env NAME` (keys are made at https://console.x.ai), or \
                    an endpoint of your own with `--endpoint URL`; logins are not supported yet";
        let mut error = mistake("key-missing", "key", None, message, hint);
        error["boundary"] = json!("credential");
        refused_with_receipt(&world, order(&world, &[("--endpoint", None)]), 77, "unauthenticated", &error);
    }
}
