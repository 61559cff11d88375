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
        finished: true,
        ..Seen::default()
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
        finished: true,
        ..Seen::default()
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
fn reads_how_a_response_failed_or_stayed_incomplete() {
    let ended = |response: &str| {
        let body = format!("event: x\ndata: {{\"type\":\"response.x\",\"response\":{response}}}\n\n");
        seen(200, Some("text/event-stream"), &body)
    };
    let failed = ended(
        r#"{"object":"response","status":"failed","error":{"code":"context_length_exceeded","message":"m"},"model":"g"}"#,
    );
    assert_eq!(
        (failed.finish_reason, failed.stated.code.as_deref()),
        (None, Some("context_length_exceeded"))
    );
    assert!(failed.finished && failed.error.is_some_and(|text| text.contains("response.x")));
    for (reason, details) in [
        ("content_filter", r#"{"reason":"content_filter"}"#),
        ("max_output_tokens", r#"{"reason":"max_output_tokens"}"#),
        ("incomplete", "null"),
    ] {
        let found = ended(&format!(
            r#"{{"object":"response","status":"incomplete","error":null,"incomplete_details":{details}}}"#
        ));
        assert_eq!((found.finish_reason.as_deref(), found.error), (Some(reason), None));
    }
}

#[test]
fn reads_what_an_error_states() {
    let stated = |status, body| {
        let StatedError { kind, code, resets_at_s } = seen(status, Some("application/json"), body).stated;
        (kind, code, resets_at_s)
    };
    let own = |text: &str| Some(text.to_owned());
    assert_eq!(
        stated(529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#),
        (own("overloaded_error"), None, None)
    );
    assert_eq!(
        stated(429, r#"{"error":{"type":"usage_limit_reached","code":null,"resets_at":1893456000}}"#),
        (own("usage_limit_reached"), None, Some(1_893_456_000))
    );
    assert_eq!(
        stated(400, r#"{"error":{"message":"m","type":"x","code":"context_length_exceeded"}}"#),
        (own("x"), own("context_length_exceeded"), None)
    );
    assert_eq!(stated(500, r#"{"error":"boom"}"#), (None, None, None));
    let in_seconds = |body: &str| seen(429, Some("application/json"), body).resets_in_s;
    assert_eq!(
        in_seconds(r#"{"error":{"type":"usage_limit_reached","resets_in_seconds":3600}}"#),
        Some(3600)
    );
    for nothing in ["-1", "1.5", "\"soon\"", "null"] {
        assert_eq!(in_seconds(&format!(r#"{{"error":{{"resets_in_seconds":{nothing}}}}}"#)), None);
    }
    let in_stream = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n";
    let found = seen(200, Some("text/event-stream"), in_stream);
    assert!(found.finished && found.finish_reason.is_none());
    assert_eq!(found.stated.kind.as_deref(), Some("overloaded_error"));
}

#[test]
fn members_of_another_kind_than_expected_are_skipped() {
    let body = concat!(
        "data: {\"model\":7,\"usage\":[1],\"choices\":{\"a\":1},\"delta\":\"text\",\"message\":\"m\",\"response\":null,\"error\":null,\"x\":{\"y\":[{}]}}\n\n",
        "data: {\"model\":\"m\",\"usage\":{\"input_tokens\":-1,\"output_tokens\":1.5,\"prompt_tokens\":\"9\",\"completion_tokens\":4},\"choices\":[7,{\"finish_reason\":\"stop\"},{\"finish_reason\":null}]}\n\n",
        "data: [1]\n\ndata: \"text\"\n\ndata: 7\n\n",
    );
    let found = seen(200, Some("text/event-stream"), body);
    let expected = Seen {
        served_model: Some("m".to_owned()),
        finish_reason: Some("stop".to_owned()),
        usage: Some(Usage { output_tokens: Some(4), ..Usage::default() }),
        finished: true,
        ..Seen::default()
    };
    assert_eq!(found, expected);
    assert_eq!(seen(200, Some("application/json"), "[1]").error.as_deref(), Some("[1]"));
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
    let body = format!("data: {}\n\n{CHAT}", "x".repeat(8_400_000));
    assert_eq!(seen(200, Some("text/event-stream"), &body), chat());
}

#[test]
fn an_answer_that_repeats_everything_at_its_end_is_read_without_being_kept() {
    let text = "\\u00e4 \\n text".repeat(200_000);
    let body = format!(
        "data: {{\"type\":\"response.completed\",\"response\":{{\"output\":[{{\"content\":[{{\"text\":\"{text}\"}}]}}],\"object\":\"response\",\"status\":\"completed\",\"model\":\"g\"}}}}\n\n"
    );
    let found = seen(200, Some("text/event-stream"), &body);
    assert_eq!(
        (found.finish_reason.as_deref(), found.served_model.as_deref()),
        (Some("completed"), Some("g"))
    );
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
