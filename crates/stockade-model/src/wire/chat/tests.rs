use super::*;

fn asked(body: &Value) -> Asked {
    read(body)
}

fn tools(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"type": "function", "function": {"name": name}})).collect()
}

#[test]
fn a_request_is_understood() {
    let body = json!({
        "model": "m-1", "stream": true, "stream_options": {"include_usage": true},
        "tools": tools(&["read_file", "grep"]),
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "first"},
            {"role": "assistant", "content": "old"},
            {"role": "user", "content": [{"type": "text", "text": "second"}]},
            {"role": "assistant", "tool_calls": []},
            {"role": "tool", "content": "out"},
            {"role": "user", "content": "<system-reminder>\nstill there"},
            {"role": "assistant", "content": "b"},
            {"role": "tool", "content": "out"},
        ],
    });
    let expected = Asked {
        class: RequestClass::Main,
        model: Some("m-1".to_owned()),
        tools: vec!["read_file".to_owned(), "grep".to_owned()],
        form: Form::Stream { usage: UsageEvent::Wanted },
        answered: 2,
    };
    assert_eq!(asked(&body), expected);
}

#[test]
fn side_requests_are_told_apart() {
    assert_eq!(asked(&json!({"tools": tools(&["session_title"])})).class, RequestClass::Title);
    assert_eq!(asked(&json!({"tools": tools(&["session_title", "grep"])})).class, RequestClass::Main);
    assert_eq!(asked(&json!({"tools": []})).class, RequestClass::Toolless);
    assert_eq!(asked(&json!({})).class, RequestClass::Toolless);
}

#[test]
fn nonsense_is_no_panic() {
    for body in [
        json!(null),
        json!([]),
        json!({"tools": 3, "messages": "x", "stream": "yes", "model": 4}),
        json!({"tools": [1, {"function": []}], "messages": [1, {"role": 2}, {"role": "user", "content": {"a": 1}}]}),
    ] {
        assert_eq!(asked(&body).answered, 0);
        assert_eq!(asked(&body).form, Form::Whole);
    }
}

#[test]
fn usage_comes_only_where_it_was_asked_for() {
    let encoder = Encoder::new(1, "m".to_owned(), 0);
    let completion = Completion::default();
    let with = String::from_utf8(encoder.finish(&completion, UsageEvent::Wanted).to_vec()).unwrap();
    let without = String::from_utf8(encoder.finish(&completion, UsageEvent::Unwanted).to_vec()).unwrap();
    assert!(with.contains("\"prompt_tokens\":100"), "{with}");
    assert!(!without.contains("prompt_tokens"), "{without}");
    assert!(without.ends_with("data: [DONE]\n\n"));
}

#[test]
fn a_whole_answer_holds_all_parts() {
    let completion = Completion {
        think: vec!["h".to_owned(), "m".to_owned()],
        text: vec!["a".to_owned(), "b".to_owned()],
        tools: vec![
            ToolCall { name: "t".to_owned(), arguments: json!({"x": 1}) },
            ToolCall { name: "u".to_owned(), arguments: json!("{broken") },
        ],
        ..Completion::default()
    };
    let whole: Value =
        serde_json::from_slice(&Encoder::new(3, "m".to_owned(), 2).whole(&completion)).unwrap();
    let expected = json!({
        "id": "chatcmpl-scripted-3", "object": "chat.completion", "created": CREATED, "model": "m",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": "ab", "reasoning_content": "hm",
            "tool_calls": [
                {"id": "call_2_0", "type": "function", "function": {"name": "t", "arguments": "{\"x\":1}"}},
                {"id": "call_2_1", "type": "function", "function": {"name": "u", "arguments": "{broken"}},
            ],
        }}],
        "usage": {
            "prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107,
            "prompt_tokens_details": {"cached_tokens": 40}, "completion_tokens_details": {"reasoning_tokens": 3},
        },
    });
    assert_eq!(whole, expected);
}
