//! What a step says arrives as the API has it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stockade_model::LogLine;
use stockade_model::RequestClass::{Main, Models, Other, Probe, Title, Toolless};

use crate::harness::{Model, raw_request, turn, whole_turn};

fn deltas(events: &[Value]) -> Vec<Value> {
    events.iter().filter_map(|event| event.pointer("/choices/0/delta").cloned()).collect()
}

#[tokio::test]
async fn text_is_streamed_in_its_pieces_with_finish_usage_and_done() {
    let model = Model::start(r#"{"text":["one ","two"]}"#).await;
    let reply = model.turn(0).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["content-type"], "text/event-stream");
    let (events, done) = reply.events();
    assert!(done);
    let expected = json!([{"role": "assistant", "content": ""}, {"content": "one "}, {"content": "two"}, {}]);
    assert_eq!(Value::from(deltas(&events)), expected);
    assert_eq!(events[3]["choices"][0]["finish_reason"], "stop");
    assert_eq!(events[4]["choices"], json!([]));
    assert_eq!(events[4]["usage"]["prompt_tokens_details"]["cached_tokens"], 40);
    assert!(events.iter().all(|event| event["model"] == "asked-1" && event["id"] == events[0]["id"]));
}

#[tokio::test]
async fn thinking_comes_before_text() {
    let model = Model::start(r#"{"think":["h","m"],"text":"so"}"#).await;
    let deltas = deltas(&model.turn(0).await.events().0);
    assert_eq!(
        deltas[1..4],
        [json!({"reasoning_content": "h"}), json!({"reasoning_content": "m"}), json!({"content": "so"})]
    );
}

#[tokio::test]
async fn tool_calls_carry_their_arguments_with_variables_filled() {
    let steps = r#"{"text":"look","tools":[{"name":"read_file","arguments":{"target_file":"{{workspace}}/a"}},
                    {"name":"bad","arguments":"{broken"}]}"#;
    let model = Model::start_with(steps, |options| {
        options.variables.insert("workspace".to_owned(), "/w".to_owned());
    })
    .await;
    let events = model.turn(0).await.events().0;
    let calls: Vec<Value> =
        deltas(&events).iter().filter_map(|delta| delta.pointer("/tool_calls/0").cloned()).collect();
    let expected = json!([
        {"index": 0, "id": "call_0_0", "type": "function",
         "function": {"name": "read_file", "arguments": "{\"target_file\":\"/w/a\"}"}},
        {"index": 1, "id": "call_0_1", "type": "function", "function": {"name": "bad", "arguments": "{broken"}},
    ]);
    assert_eq!(Value::from(calls), expected);
    assert!(
        events.iter().any(|event| event.pointer("/choices/0/finish_reason") == Some(&json!("tool_calls")))
    );
}

#[tokio::test]
async fn finish_model_and_usage_can_be_said_otherwise() {
    let steps = r#"{"text":"x","finish":"content_filter","model":"other-9",
                    "usage":{"inputTokens":5,"outputTokens":6,"cachedTokens":1,"reasoningTokens":2}}"#;
    let model = Model::start(steps).await;
    let events = model.turn(0).await.events().0;
    assert!(events.iter().all(|event| event["model"] == "other-9"));
    assert_eq!(events[2]["choices"][0]["finish_reason"], "content_filter");
    let usage = json!({
        "prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11,
        "prompt_tokens_details": {"cached_tokens": 1}, "completion_tokens_details": {"reasoning_tokens": 2},
    });
    assert_eq!(events[3]["usage"], usage);
}

#[tokio::test]
async fn a_step_may_end_without_saying_anything() {
    let model = Model::start(r#"{"finish":"length"}"#).await;
    let reply = model.turn(0).await;
    assert_eq!(reply.text(), "");
    assert_eq!(reply.events().0[1]["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn the_step_follows_from_the_request_so_a_retry_repeats_it() {
    let model = Model::start(r#"{"text":"first"},{"text":"second"}"#).await;
    for (answered, text) in
        [(0, "first"), (1, "second"), (1, "second"), (0, "first"), (2, "Done."), (9, "Done.")]
    {
        assert_eq!(model.turn(answered).await.text(), text);
    }
    let steps: Vec<_> = model.requests().iter().map(|seen| seen.step).collect();
    assert_eq!(steps, [Some(0), Some(1), Some(1), Some(0), Some(2), Some(9)]);
}

#[tokio::test]
async fn whole_answers_come_as_one_object() {
    let model = Model::start(r#"{"text":["a","b"],"tools":[{"name":"t","arguments":{}}]}"#).await;
    let reply = model.connect().await.post(&whole_turn(0)).await.unwrap();
    assert_eq!(reply.headers["content-type"], "application/json");
    let object = reply.json();
    assert_eq!(object["choices"][0]["message"]["content"], "ab");
    assert_eq!(object["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "t");
    assert_eq!(object["choices"][0]["finish_reason"], "tool_calls");
}

#[tokio::test]
async fn delay_comes_before_the_answer_and_gaps_between_pieces() {
    let model = Model::start(r#"{"text":"late","delayMs":150},{"text":["a","b","c"],"gapMs":60}"#).await;
    for (answered, least) in [(0, 150), (1, 180)] {
        let before = Instant::now();
        model.turn(answered).await;
        assert!(before.elapsed() >= Duration::from_millis(least), "{answered}: {:?}", before.elapsed());
    }
}

#[tokio::test]
async fn slow_answers_come_byte_by_byte_and_are_the_same() {
    let model = Model::start(r#"{"text":"x","slowMs":0},{"text":"x"}"#).await;
    let request = raw_request(&turn(0).to_string()).replacen("host: h", "connection: close\r\nhost: h", 1);
    let raw = String::from_utf8(model.raw(&request).await).unwrap();
    let chunks = raw.matches("\r\n1\r\n").count();
    assert!(chunks > 100, "only {chunks} chunks of one byte");
    assert_eq!(model.turn(0).await.text(), model.turn(1).await.text());
}

#[tokio::test]
async fn side_requests_do_not_touch_the_conversation() {
    let model = Model::start(r#"{"text":"main"}"#).await;
    let mut client = model.connect().await;
    let mut title = turn(0);
    title["tools"] = json!([{"type": "function", "function": {"name": "session_title"}}]);
    let events = client.post(&title).await.unwrap().events().0;
    let call = deltas(&events)[1]["tool_calls"][0]["function"].clone();
    assert_eq!(
        call,
        json!({"name": "session_title", "arguments": "{\"session_title\":\"Scripted session\"}"})
    );
    let mut toolless = whole_turn(0);
    toolless["tools"] = json!([]);
    let answer = client.post(&toolless).await.unwrap().json();
    assert_eq!(answer["choices"][0]["message"]["content"], "Scripted answer");
    assert_eq!(client.get("/").await.unwrap().body, "{}");
    assert_eq!(client.get("/v1/models").await.unwrap().json()["data"][0]["object"], "model");
    assert_eq!(client.get("/v1/chat/completions").await.unwrap().status, 404);
    assert_eq!(client.post_text("{".to_owned()).await.unwrap().status, 400);
    assert_eq!(client.post(&turn(0)).await.unwrap().text(), "main");

    let requests = model.requests();
    let classes: Vec<_> = requests.iter().map(|seen| (seen.class, seen.step)).collect();
    let expected = [
        (Title, None),
        (Toolless, None),
        (Probe, None),
        (Models, None),
        (Other, None),
        (Other, None),
        (Main, Some(0)),
    ];
    assert_eq!(classes, expected);
    assert_eq!(requests[5].body_text.as_deref(), Some("{"));
}

#[tokio::test]
async fn the_log_holds_each_request_as_it_came() {
    let model = Model::start(r#"{"text":"x"}"#).await;
    model.turn(0).await;
    let log = model.log();
    assert_eq!(log.len(), 2);
    let seen = &model.requests()[0];
    assert_eq!((seen.sequence, seen.connection, seen.step), (1, 1, Some(0)));
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(seen.headers["authorization"], "Bearer sk-test");
    assert_eq!(seen.model.as_deref(), Some("asked-1"));
    assert_eq!(seen.tools, ["read_file"]);
    assert_eq!(seen.body, Some(turn(0)));
    assert!(!seen.body_cut);
    let LogLine::Answered(answered) = &log[1] else { panic!("{log:?}") };
    assert_eq!((answered.sequence, answered.status, answered.complete), (1, Some(200), true));
}
