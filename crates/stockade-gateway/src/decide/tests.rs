use proptest::prelude::*;
use stockade_core::{budget::Budget, profile::SideRequest};

use super::*;
use crate::upstream::Upstream;

fn policy() -> ModelPolicy {
    let tools = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    ModelPolicy {
        upstream: Upstream::parse("http://127.0.0.1:1/v1").unwrap(),
        base_path: "/v1".to_owned(),
        credential: None,
        extra_ca_pem: None,
        model_paths: vec!["/v1/chat/completions".to_owned()],
        models: vec!["m-1".to_owned()],
        classes: vec![
            ("turn".to_owned(), tools(&["read_file", "grep"])),
            ("title".to_owned(), tools(&["session_title"])),
        ],
        side_requests: vec![SideRequest { method: "GET".to_owned(), path: "/".to_owned(), status: 200 }],
        failures_before_stop: 1,
        stop_header: None,
        stop_status: None,
        budget: Budget::default(),
        placeholder_key: None,
    }
}

fn call(body: &str) -> Decision {
    decide(&policy(), "POST", "/v1/chat/completions", body.as_bytes())
}

fn refusal(body: &str) -> (&'static str, String) {
    match call(body) {
        Decision::Refused { code, detail } => (code, detail),
        other => panic!("{other:?}"),
    }
}

fn malformed(body: &str) -> String {
    match call(body) {
        Decision::Malformed { reason } => reason,
        other => panic!("{other:?}"),
    }
}

const TOOLS: &str =
    r#""tools":[{"type":"function","function":{"name":"grep"}},{"type":"function","name":"read_file"}]"#;

#[test]
fn forwards_the_planned_call_whatever_the_order_of_its_tools() {
    let body =
        format!(r#"{{"messages":[{{"role":"user"}}],"model":"m-1",{TOOLS},"reasoning_effort":"high"}}"#);
    let Decision::ModelCall(found) = call(&body) else { panic!("{:?}", call(&body)) };
    assert_eq!(
        found,
        ModelCall {
            class: 0,
            class_name: "turn".to_owned(),
            model: "m-1".to_owned(),
            tools: vec!["grep".to_owned(), "read_file".to_owned()],
            effort: Some("high".to_owned()),
        }
    );
    let title = call(r#"{"model":"m-1","tools":[{"name":"session_title"}]}"#);
    assert!(matches!(title, Decision::ModelCall(ModelCall { class: 1, .. })), "{title:?}");
}

#[test]
fn reads_the_effort_wherever_the_three_formats_put_it() {
    for part in [
        r#""reasoning":{"effort":"low"}"#,
        r#""output_config":{"effort":"low"}"#,
        r#""reasoning_effort":"low""#,
    ] {
        let found = call(&format!(r#"{{"model":"m-1",{part},{TOOLS}}}"#));
        assert!(matches!(&found, Decision::ModelCall(c) if c.effort.as_deref() == Some("low")), "{found:?}");
    }
}

#[test]
fn an_effort_said_as_thinking_is_told_where_nothing_else_says_it() {
    for (part, effort) in [
        (r#""thinking":{"type":"adaptive"}"#, "thinking adaptive"),
        (r#""thinking":{"type":"enabled","budget_tokens":31999}"#, "thinking enabled (31999 tokens)"),
        (r#""thinking":{"type":"adaptive"},"output_config":{"effort":"max"}"#, "max"),
    ] {
        let found = call(&format!(r#"{{"model":"m-1",{part},{TOOLS}}}"#));
        assert!(matches!(&found, Decision::ModelCall(c) if c.effort.as_deref() == Some(effort)), "{found:?}");
    }
}

#[test]
fn every_kind_of_tool_has_a_name_of_its_own() {
    let names = |tools: &str| {
        let mut policy = policy();
        policy.classes = vec![("none".to_owned(), Vec::new())];
        let body = format!(r#"{{"model":"m-1","tools":[{tools}]}}"#);
        match decide(&policy, "POST", "/v1/chat/completions", body.as_bytes()) {
            Decision::Refused { detail, .. } => {
                let (_, rest) = detail.split_once("unexpected: ").unwrap();
                rest.split_once(';').unwrap().0.to_owned()
            }
            other => panic!("{other:?}"),
        }
    };
    for (tool, name) in [
        (r#"{"type":"function","function":{"name":"a","parameters":{}}}"#, "a"),
        (r#"{"type":"custom","custom":{"name":"a"}}"#, "a"),
        (r#"{"type":"custom","name":"apply_patch","format":{"type":"grammar"}}"#, "apply_patch"),
        (r#"{"name":"Bash","input_schema":{"name":"x"}}"#, "Bash"),
        (r#"{"type":"web_search_20250305","name":"web_search"}"#, "web_search_20250305/web_search"),
        (r#"{"type":"web_search"}"#, "web_search"),
        (r#"{"type":"local_shell"}"#, "local_shell"),
        (r#"{"type":"mcp","server_label":"x"}"#, "mcp"),
        (
            r#"{"type":"namespace","name":"g","tools":[{"type":"function","name":"a"},{"type":"custom","name":"b"}]}"#,
            "g/a, g/b",
        ),
        (r#"{"type":"namespace","name":"g"}"#, "g"),
    ] {
        assert_eq!(names(tool), name, "{tool}");
    }
    // Responses: as an item of the conversation.
    let seen = |body: &str| refusal(&format!(r#"{{"model":"m-1",{body}}}"#)).1;
    let item = r#"{"type":"additional_tools","role":"developer","tools":[{"type":"namespace","name":"g","tools":[{"type":"custom","name":"a"}]}]}"#;
    assert!(
        seen(&format!(r#""input":[{{"role":"user","content":[]}},{item}]"#)).contains("unexpected: g/a;")
    );
    assert!(seen(&format!(r#""input":[{item}],"tools":[{{"name":"b"}}]"#)).contains("unexpected: b, g/a;"));
    assert!(seen(r#""input":"tools""#).contains("unexpected: none;"));
    assert!(malformed(r#"{"model":"m-1","input":[{"Tools":[]}]}"#).contains("spelled `Tools`"));
    assert!(malformed(r#"{"model":"m-1","input":[{"tools":7}]}"#).contains("invalid type"));
    for (tool, reason) in [
        (r#"{"name":"grep","Name":"evil"}"#, "spelled `Name`"),
        (r#"{"name":"grep","name":"evil"}"#, "duplicate field `name`"),
        (r#"{"function":{"name":"grep","NAME":"evil"}}"#, "spelled `NAME`"),
        (r#"{"name":"grep","tools":[{"name":"evil"}]}"#, "no group holds tools"),
        (r#"{"type":"function"}"#, "neither name"),
    ] {
        assert!(malformed(&format!(r#"{{"model":"m-1","tools":[{tool}]}}"#)).contains(reason), "{tool}");
    }
}

#[test]
fn anything_but_post_to_a_model_path_is_no_model_call() {
    for (method, path) in [
        ("GET", "/v1/models"),
        ("GET", "/v1/organizations/keys"),
        ("POST", "/v1/other"),
        ("GET", "/v1/chat/completions"),
        ("POST", "/v1/chat/completions/"),
        ("POST", "/v1/chat/completions/../../organizations/keys"),
        ("POST", "/v1/chat%2Fcompletions"),
        ("POST", "//v1/chat/completions"),
        ("post", "/v1/chat/completions"),
        ("HEAD", "/"),
    ] {
        assert_eq!(decide(&policy(), method, path, b"{}"), Decision::NotAModelCall, "{method} {path}");
    }
    assert_eq!(decide(&policy(), "GET", "/", b""), Decision::Side { status: 200 });
}

#[test]
fn another_model_or_tool_list_is_refused_by_name() {
    let (code, detail) = refusal(&format!(r#"{{"model":"m-2",{TOOLS}}}"#));
    assert_eq!((code, detail.as_str()), (network_code::MODEL_MISMATCH, "asked for m-1, seen m-2"));

    let (code, detail) =
        refusal(r#"{"model":"m-1","tools":[{"name":"grep"},{"name":"write"},{"type":"web_search"}]}"#);
    assert_eq!(code, network_code::TOOLSET_MISMATCH);
    assert_eq!(detail, "against class turn: unexpected: web_search, write; missing: read_file");

    let (_, detail) = refusal(r#"{"model":"m-1"}"#);
    assert_eq!(detail, "against class title: unexpected: none; missing: session_title");

    let (_, detail) =
        refusal(r#"{"model":"m-1","tools":[{"name":"grep"},{"name":"read_file"},{"name":"grep"}]}"#);
    assert_eq!(detail, "offered more than once: grep");

    for hidden in [
        r#""functions":[{"name":"write"}]"#,
        r#""mcp_servers":[{"name":"x","url":"http://y"}]"#,
        r#""prompt":{"id":"p"}"#,
    ] {
        let (code, _) = refusal(&format!(r#"{{"model":"m-1",{TOOLS},{hidden}}}"#));
        assert_eq!(code, network_code::TOOLSET_MISMATCH, "{hidden}");
    }
}

#[test]
fn a_call_without_tools_needs_a_class_without_tools() {
    let mut with_plain = policy();
    with_plain.classes.push(("summary".to_owned(), Vec::new()));
    for body in [r#"{"model":"m-1"}"#, r#"{"model":"m-1","tools":[]}"#, r#"{"model":"m-1","tools":null}"#] {
        let found = decide(&with_plain, "POST", "/v1/chat/completions", body.as_bytes());
        assert!(matches!(found, Decision::ModelCall(ModelCall { class: 2, .. })), "{found:?}");
    }
}

#[test]
fn what_two_readers_could_read_differently_is_malformed() {
    assert!(
        malformed(&format!(r#"{{"model":"m-1","model":"m-2",{TOOLS}}}"#)).contains("duplicate field `model`")
    );
    assert!(malformed(&format!(r#"{{"model":"m-1","Model":"m-2",{TOOLS}}}"#)).contains("spelled `Model`"));
    assert!(
        malformed(&format!(r#"{{"model":"m-1",{TOOLS},"tools":[]}}"#)).contains("duplicate field `tools`")
    );
    let two = r#"{"model":"m-1","tools":[{"name":"evil","function":{"name":"grep"}}]}"#;
    assert!(malformed(two).contains("two names"));
}

#[test]
fn what_is_no_call_at_all_is_malformed() {
    for body in ["", "[]", "null", "hello", "{", r#"{"model":"m-1"} x"#, r#"{"model":1}"#, r#"{"tools":[]}"#]
    {
        malformed(body);
    }
    malformed(r#"{"model":"m-1","tools":{}}"#);
    malformed(r#"{"model":"m-1","tools":[{}]}"#);
}

proptest! {
    #[test]
    fn never_panics_and_never_lets_another_model_through(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let allowed = matches!(decide(&policy(), "POST", "/v1/chat/completions", &body), Decision::ModelCall(_));
        prop_assert!(!allowed || body.windows(5).any(|w| w == b"\"m-1\""));
    }
}
