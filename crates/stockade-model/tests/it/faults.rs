//! Broken answers are broken in the way the step says.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Model, PATIENCE, raw_request, turn, whole_turn};

/// How a chunked body ends when it ends properly.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

#[tokio::test]
async fn http_faults_come_with_their_status_headers_and_body() {
    for status in [400, 401, 403, 404, 429, 500, 503, 529] {
        let model = Model::start(&format!(r#"{{"http":{{"status":{status}}}}}"#)).await;
        let reply = model.turn(0).await;
        assert_eq!(reply.status.as_u16(), status);
        assert_eq!(reply.headers["content-type"], "application/json");
        assert_eq!(reply.json()["error"]["message"], format!("scripted error {status}"));
    }
    let steps = r#"{"http":{"status":429,"headers":{"retry-after":"2","x-should-retry":"false"}}},
                   {"http":{"status":200,"contentType":"text/html","body":"<html>no</html>"}}"#;
    let model = Model::start(steps).await;
    let reply = model.turn(0).await;
    assert_eq!(
        (&reply.headers["retry-after"], &reply.headers["x-should-retry"]),
        (&"2".parse().unwrap(), &"false".parse().unwrap())
    );
    let reply = model.turn(1).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["content-type"], "text/html");
    assert_eq!(reply.body, "<html>no</html>");
}

#[tokio::test]
async fn a_cut_stream_ends_properly_but_without_finish_reason() {
    let model = Model::start(r#"{"text":"part","end":"cut"}"#).await;
    let raw = model.raw_turn(0).await;
    let text = String::from_utf8_lossy(&raw);
    assert!(raw.ends_with(LAST_CHUNK), "{text}");
    assert!(text.contains("part") && text.contains("connection: close"), "{text}");
    assert!(!text.contains("[DONE]") && !text.contains("\"stop\""), "{text}");
}

#[tokio::test]
async fn an_aborted_stream_has_no_end_at_all() {
    let model = Model::start(r#"{"text":"part","end":"abort"}"#).await;
    let raw = model.raw_turn(0).await;
    let text = String::from_utf8_lossy(&raw);
    assert!(text.contains("part") && !raw.ends_with(LAST_CHUNK), "{text}");
    model.connect().await.post(&turn(0)).await.expect_err("half a body is no body");
}

#[tokio::test]
async fn a_malformed_stream_holds_an_event_that_is_not_json() {
    let model = Model::start(r#"{"text":"part","end":"malformed"}"#).await;
    let reply = model.turn(0).await;
    let last = reply.body.trim_end().rsplit("\n\n").next().unwrap().to_owned();
    assert!(reply.body.contains("part"));
    serde_json::from_str::<serde_json::Value>(last.strip_prefix("data: ").unwrap()).unwrap_err();
}

#[tokio::test]
async fn a_closed_connection_has_no_answer() {
    let model = Model::start(r#"{"end":"close"},{"end":"close","delayMs":10}"#).await;
    assert_eq!(model.raw_turn(0).await, b"");
    assert_eq!(model.raw_turn(1).await, b"");
}

#[tokio::test]
async fn a_hanging_answer_sends_its_head_and_what_it_says_and_then_nothing() {
    let model = Model::start(r#"{"end":"hang"},{"text":"part","end":"hang"}"#).await;
    for (answered, last) in [(0, "\r\n\r\n"), (1, "part")] {
        let mut stream = TcpStream::connect(model.address).await.unwrap();
        stream.write_all(raw_request(&turn(answered).to_string()).as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let head = async {
            while !String::from_utf8_lossy(&bytes).contains(last) {
                assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "closed");
            }
        };
        tokio::time::timeout(PATIENCE, head).await.expect("no head");
        let end = tokio::time::timeout(Duration::from_millis(200), stream.read_to_end(&mut bytes));
        end.await.expect_err("the hanging answer ended");
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("HTTP/1.1 200") && !text.contains("[DONE]"), "{text}");
        assert_eq!(text.contains("data: "), answered == 1, "{text}");
    }
}

#[tokio::test]
async fn whole_answers_break_in_the_same_ways() {
    let steps = r#"{"text":"a","end":"cut"},{"text":"a","end":"abort"},{"text":"a","end":"malformed"}"#;
    let model = Model::start(steps).await;
    for answered in [0, 2] {
        let reply = model.connect().await.post(&whole_turn(answered)).await.unwrap();
        serde_json::from_str::<serde_json::Value>(&reply.body).unwrap_err();
    }
    model.connect().await.post(&whole_turn(1)).await.unwrap_err();
}
