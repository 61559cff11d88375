use proptest::prelude::*;

use super::*;

fn seen(status: u16, content_type: Option<&str>, body: &str) -> Seen {
    let mut observer = Observer::new(status, content_type);
    observer.read(body.as_bytes());
    observer.end()
}

const CHAT: &str = concat!(
    ": ping\n\n",
    "data: {\"model\":\"m-served\",\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n",
    "data: {\"model\":\"m-served\",\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"model\":\"m-served\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":4,\"total_tokens\":19,",
    "\"prompt_tokens_details\":{\"cached_tokens\":3},\"completion_tokens_details\":{\"reasoning_tokens\":5}}}\n\n",
    "data: [DONE]\n\n"
);

fn chat() -> Seen {
    Seen {
        served_model: Some("m-served".to_owned()),
        finish_reason: Some("stop".to_owned()),
        usage: Some(Usage {
            input_tokens: Some(10),
            cached_input_tokens: Some(3),
            cache_creation_input_tokens: None,
            output_tokens: Some(9),
            reasoning_tokens: Some(5),
            total_tokens: Some(19),
        }),
        error: None,
        finished: true,
    }
}

#[test]
fn reads_chat_completions() {
    assert_eq!(seen(200, Some("text/event-stream"), CHAT), chat());
}

#[test]
fn reads_responses() {
    let body = concat!(
        "event: response.created\r\ndata: {\"type\":\"response.created\",\"response\":{\"object\":\"response\",\"status\":\"in_progress\",\"model\":\"g-1\"}}\r\n\r\n",
        "event: response.completed\r\ndata: {\"type\":\"response.completed\",\"response\":{\"object\":\"response\",\"status\":\"completed\",\"model\":\"g-1\",",
        "\"usage\":{\"input_tokens\":7,\"input_tokens_details\":{\"cached_tokens\":2},\"output_tokens\":6,\"output_tokens_details\":{\"reasoning_tokens\":1},\"total_tokens\":13}}}\r\n\r\n"
    );
    let expected = Seen {
        served_model: Some("g-1".to_owned()),
        finish_reason: Some("completed".to_owned()),
        usage: Some(Usage {
            input_tokens: Some(7),
            cached_input_tokens: Some(2),
            cache_creation_input_tokens: None,
            output_tokens: Some(6),
            reasoning_tokens: Some(1),
            total_tokens: Some(13),
        }),
        error: None,
        finished: true,
    };
    assert_eq!(seen(200, Some("text/event-stream"), body), expected);
    let begun = body.split_once("event: response.completed").unwrap().0;
    assert!(!seen(200, Some("text/event-stream"), begun).finished);
}

#[test]
fn reads_messages() {
    let body = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"c-1\",\"stop_reason\":null,\"usage\":{\"input_tokens\":5,\"cache_creation_input_tokens\":20,\"cache_read_input_tokens\":100,\"output_tokens\":1}}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":42}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
    );
    let found = seen(200, Some("text/event-stream"), body);
    assert_eq!(found.finish_reason.as_deref(), Some("end_turn"));
    assert_eq!(found.served_model.as_deref(), Some("c-1"));
    let usage = found.usage.unwrap();
    assert_eq!(
        (
            usage.input_tokens,
            usage.cached_input_tokens,
            usage.cache_creation_input_tokens,
            usage.output_tokens
        ),
        (Some(125), Some(100), Some(20), Some(42))
    );
}

#[test]
fn tells_a_cut_stream_from_a_stated_error() {
    let cut = CHAT.split_once("data: {\"model\":\"m-served\",\"choices\":[{\"delta\":{},").unwrap().0;
    assert!(!seen(200, Some("text/event-stream"), cut).finished);
    let stated = seen(200, Some("text/event-stream"), "data: {\"error\":{\"message\":\"overloaded\"}}\n\n");
    assert!(stated.finished);
    assert_eq!(stated.error.as_deref(), Some("{\"error\":{\"message\":\"overloaded\"}}"));
    assert!(!seen(200, Some("text/event-stream"), "data: not json\n\n").finished);
}

#[test]
fn reads_answers_in_one_piece() {
    let found = seen(
        200,
        Some("application/json"),
        r#"{"model":"m","choices":[{"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#,
    );
    assert_eq!(found.finish_reason.as_deref(), Some("length"));
    assert_eq!(found.error, None);
    let title = seen(200, None, r#"{"type":"message","model":"c","stop_reason":"end_turn","content":[]}"#);
    assert_eq!((title.finish_reason.as_deref(), title.error), (Some("end_turn"), None));
}

#[test]
fn keeps_the_head_of_what_is_no_answer() {
    let refused = seen(401, Some("application/json"), r#"{"error":{"message":"bad key"}}"#);
    assert_eq!(refused.error.as_deref(), Some(r#"{"error":{"message":"bad key"}}"#));
    let html = seen(200, Some("text/html"), &"<p>".repeat(2_000));
    assert_eq!(html.error.map(|e| e.len()), Some(ERROR_HEAD_BYTES));
    assert_eq!(seen(200, Some("application/json"), "<html>").error.as_deref(), Some("<html>"));
    assert_eq!(seen(200, Some("application/json"), "").error.as_deref(), Some(""));
}

#[test]
fn an_overlong_event_passes_unread_and_the_next_is_read() {
    let body = format!("data: {}\n\n{CHAT}", "x".repeat(1_100_000));
    assert_eq!(seen(200, Some("text/event-stream"), &body), chat());
}

proptest! {
    #[test]
    fn reads_the_same_however_the_stream_is_cut(cuts in proptest::collection::vec(1usize..90, 0..40)) {
        let mut observer = Observer::new(200, Some("text/event-stream"));
        let mut rest = CHAT.as_bytes();
        for cut in cuts {
            let (piece, more) = rest.split_at(cut.min(rest.len()));
            observer.read(piece);
            rest = more;
        }
        observer.read(rest);
        prop_assert_eq!(observer.end(), chat());
    }
}
