//! One scenario plays on every API, and so does every fault.

use hyper::Request;
use serde_json::{Value, json};
use stockade_model::RequestClass::{Main, TokenCount};

use crate::harness::{Model, Reply, turn};

/// The path of each API, and a streaming main turn in it in which the model has already answered this often.
fn turns(answered: usize) -> [(&'static str, Value); 3] {
    let mut messages = vec![json!({"role": "user", "content": "do it"})];
    let mut input = vec![json!({"type": "message", "role": "user", "content": []})];
    for _ in 0..answered {
        messages.push(json!({"role": "assistant", "content": [{"type": "text", "text": "so far"}]}));
        messages.push(json!({"role": "user", "content": [{"type": "tool_result"}]}));
        input.push(json!({"type": "function_call"}));
        input.push(json!({"type": "function_call_output"}));
    }
    let with = |tool: Value, key: &str, list: Vec<Value>| json!({"model": "asked-1", "stream": true, "tools": [tool], key: list});
    [
        ("/v1/chat/completions", turn(answered)),
        ("/v1/messages?beta=true", with(json!({"name": "read_file"}), "messages", messages)),
        ("/v1/responses", with(json!({"type": "function", "name": "read_file"}), "input", input)),
    ]
}

async fn post(model: &Model, path: &str, body: &Value) -> hyper::Result<Reply> {
    let request = Request::post(path).header("host", "localhost").header("x-api-key", "k");
    model.connect().await.request(request.body(body.to_string().into()).unwrap()).await
}

/// The words by which an answer says how it ended, whatever the API.
fn ends(reply: &Reply) -> Vec<String> {
    let mut found = Vec::new();
    for event in reply.body.split_terminator("\n\n") {
        let data = event.split_once("data: ").map(|(_, data)| data).unwrap_or_default();
        let Ok(data) = serde_json::from_str::<Value>(data) else { continue };
        for place in ["/choices/0/finish_reason", "/delta/stop_reason", "/error/type", "/response/error/code"]
        {
            found.extend(data.pointer(place).and_then(Value::as_str).map(str::to_owned));
        }
        let ended = data["type"]
            .as_str()
            .filter(|kind| kind.starts_with("response.") && data.get("response").is_some());
        if let Some(kind) = ended.filter(|kind| !kind.ends_with("created") && !kind.ends_with("in_progress"))
        {
            found.push(kind.to_owned());
        }
    }
    found
}

#[tokio::test]
async fn one_scenario_plays_on_every_api() {
    let steps =
        r#"{"text":"look","tools":[{"name":"read_file","arguments":{"path":"a"}}]},{"text":["one ","two"]}"#;
    let model = Model::start_with(steps, |options| options.api_key = Some("k".to_owned())).await;
    let expected =
        [["tool_calls", "stop"], ["tool_use", "end_turn"], ["response.completed", "response.completed"]];
    for (answered, text) in [(0, "look"), (1, "two")] {
        for ((path, body), expected) in turns(answered).into_iter().zip(expected) {
            let reply = post(&model, path, &body).await.unwrap();
            assert_eq!(reply.status, 200, "{path}");
            assert_eq!(reply.headers["content-type"], "text/event-stream");
            assert!(reply.body.contains(text) && reply.body.contains("asked-1"), "{path}: {}", reply.body);
            assert_eq!(reply.body.contains("read_file"), answered == 0, "{path}");
            assert_eq!(ends(&reply), [expected[answered]], "{path}");
        }
    }
    let classes: Vec<_> = model.requests().iter().map(|seen| (seen.class, seen.step)).collect();
    assert_eq!(classes[..3], [(Main, Some(0)); 3]);
    assert_eq!(classes[3..], [(Main, Some(1)); 3]);
}

#[tokio::test]
async fn statuses_come_with_the_error_body_of_the_api() {
    for status in [400, 401, 403, 404, 429, 500, 503, 529] {
        let model = Model::start(&format!(r#"{{"http":{{"status":{status}}}}}"#)).await;
        for (path, body) in turns(0) {
            let reply = post(&model, path, &body).await.unwrap();
            assert_eq!(reply.status.as_u16(), status, "{path}");
            let error = reply.json();
            assert_eq!(error["error"]["message"], format!("scripted error {status}"), "{path}");
            assert_eq!(error["type"] == "error", path.contains("messages"), "{error}");
            if status == 529 {
                assert_eq!(error["error"]["type"], "overloaded_error", "{path}");
            }
        }
    }
}

#[tokio::test]
async fn faults_are_worded_as_the_vendor_does_alone_and_in_a_stream() {
    for (fault, statuses, words) in [
        (
            "overloaded",
            [503, 529, 503],
            ["service_unavailable_error", "overloaded_error", "server_is_overloaded"],
        ),
        ("rate-limited", [429, 429, 429], ["requests", "rate_limit_error", "rate_limit_exceeded"]),
        ("quota", [429, 400, 429], ["insufficient_quota", "invalid_request_error", "insufficient_quota"]),
        (
            "context-overflow",
            [400, 400, 400],
            ["invalid_request_error", "invalid_request_error", "context_length_exceeded"],
        ),
    ] {
        let steps = format!(r#"{{"fault":"{fault}"}},{{"text":"part","fault":"{fault}"}}"#);
        let model = Model::start(&steps).await;
        for (index, (path, body)) in turns(0).into_iter().enumerate() {
            let reply = post(&model, path, &body).await.unwrap();
            assert_eq!(reply.status.as_u16(), statuses[index], "{fault} {path}");
            assert!(reply.json()["error"]["message"].is_string());
        }
        for (index, (path, mut body)) in turns(1).into_iter().enumerate() {
            let reply = post(&model, path, &body).await.unwrap();
            assert!(reply.body.contains("part"), "{path}");
            assert!(ends(&reply).contains(&words[index].to_owned()), "{fault} {path}: {}", reply.body);
            body["stream"] = json!(false);
            let reply = post(&model, path, &body).await.unwrap();
            assert_eq!(reply.status.as_u16(), statuses[index], "{fault} {path}");
            assert!(reply.json()["error"]["message"].is_string());
        }
    }
}

#[tokio::test]
async fn every_end_plays_on_every_api() {
    let steps = r#"{"text":"part","end":"cut"},{"text":"part","end":"abort"},{"text":"part","end":"malformed"},
                   {"text":"part","finish":"content_filter","model":"other-9"},{"text":"part","finish":"length"}"#;
    let model = Model::start(steps).await;
    for (path, body) in turns(0) {
        let reply = post(&model, path, &body).await.unwrap();
        assert!(reply.body.contains("part") && ends(&reply).is_empty(), "{path}: {}", reply.body);
    }
    for (path, body) in turns(1) {
        post(&model, path, &body).await.expect_err(path);
    }
    for (path, body) in turns(2) {
        let reply = post(&model, path, &body).await.unwrap();
        let (_, data) = reply.body.trim_end().rsplit_once("data: ").unwrap();
        serde_json::from_str::<Value>(data).expect_err(path);
    }
    let words = [["content_filter", "length"], ["refusal", "max_tokens"], ["response.incomplete"; 2]];
    for step in [3, 4] {
        for ((path, body), words) in turns(step).into_iter().zip(words) {
            let reply = post(&model, path, &body).await.unwrap();
            assert_eq!(ends(&reply), [words[step - 3]], "{path}");
            assert_eq!(reply.body.contains("other-9"), step == 3, "{path}");
        }
    }
}

#[tokio::test]
async fn keys_and_token_counts_are_those_of_messages() {
    let model =
        Model::start_with(r#"{"text":"x"}"#, |options| options.api_key = Some("other".to_owned())).await;
    let (path, body) = turns(0)[1].clone();
    let reply = post(&model, path, &body).await.unwrap();
    assert_eq!((reply.status.as_u16(), reply.json()["type"].clone()), (401, json!("error")));
    let model = Model::start(r#"{"text":"x"}"#).await;
    let reply = post(&model, "/v1/messages/count_tokens", &json!({"messages": []})).await.unwrap();
    assert_eq!(reply.json(), json!({"input_tokens": 3}));
    assert_eq!(model.requests()[0].class, TokenCount);
}
