use serde_json::json;

use super::*;

fn names(asked: &Asked) -> Vec<&str> {
    asked.tools.iter().map(|tool| tool.name.as_str()).collect()
}

fn functions(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"type": "function", "function": {"name": name}})).collect()
}

fn naming(tools: Vec<Offered>) -> Naming {
    Naming { sequence: 3, model: "m".to_owned(), step: 2, tools }
}

/// A completion with everything that has pieces.
fn full() -> Completion {
    Completion {
        think: vec!["h".to_owned(), "m".to_owned()],
        text: vec!["a".to_owned(), "b".to_owned()],
        tools: vec![
            ToolCall { name: "t".to_owned(), arguments: json!({"x": 1}) },
            ToolCall { name: "u".to_owned(), arguments: json!("{broken") },
        ],
        ..Completion::default()
    }
}

/// All events of a streamed answer: names, and data without what numbers them.
fn events(api: Api, naming: &Naming, completion: &Completion) -> Vec<(String, Value)> {
    let stream = api.stream(naming, completion, UsageEvent::Wanted);
    let parts = [vec![stream.open], stream.pieces, stream.calls, vec![stream.finish]].concat().concat();
    let text = String::from_utf8(parts).unwrap();
    let event = |event: &str| {
        let (name, data) = event.split_once("\ndata: ").unwrap();
        let mut data: Value = serde_json::from_str(data).unwrap();
        data.as_object_mut().unwrap().remove("sequence_number");
        (name.strip_prefix("event: ").unwrap().to_owned(), data)
    };
    text.split_terminator("\n\n").map(event).collect()
}

#[test]
fn paths_tell_the_api() {
    for (path, api) in [
        ("/v1/chat/completions", Some(Api::Chat)),
        ("/v1/messages", Some(Api::Messages)),
        ("/v1/responses", Some(Api::Responses)),
        ("/v1/responses/compact", None),
        ("/v1/models", None),
    ] {
        assert_eq!(Api::of_path(path), api, "{path}");
    }
}

#[test]
fn a_chat_completion_is_understood() {
    let body = json!({
        "model": "m-1", "stream": true, "stream_options": {"include_usage": true},
        "tools": functions(&["read_file", "grep"]),
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
    let asked = Api::Chat.read(&body);
    assert_eq!(names(&asked), ["read_file", "grep"]);
    let expected = Asked {
        class: RequestClass::Main,
        model: Some("m-1".to_owned()),
        tools: asked.tools.clone(),
        form: Form::Stream { usage: UsageEvent::Wanted },
        answered: 2,
    };
    assert_eq!(asked, expected);
}

#[test]
fn a_message_request_is_understood() {
    let body = json!({
        "model": "m-1", "stream": true,
        "tools": [{"name": "Bash", "input_schema": {}}, {"type": "web_search_20250305", "name": "web_search"}],
        "messages": [
            {"role": "user", "content": "first"},
            {"role": "assistant", "content": "old"},
            {"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>x</system-reminder>"}, {"type": "text", "text": "second"},
            ]},
            {"role": "assistant", "content": [{"type": "tool_use"}]},
            {"role": "user", "content": [{"type": "tool_result"}, {"type": "text", "text": "beside a result"}]},
            {"role": "assistant", "content": [{"type": "text"}]},
            {"role": "assistant", "content": [{"type": "tool_use"}]},
            {"role": "user", "content": [{"type": "tool_result"}]},
            {"role": "user", "content": [{"type": "text", "text": "<system-reminder>y"}]},
        ],
    });
    let asked = Api::Messages.read(&body);
    assert_eq!(names(&asked), ["Bash", "web_search"]);
    assert_eq!((asked.class, asked.answered), (RequestClass::Main, 2));
}

#[test]
fn a_response_request_is_understood() {
    let body = json!({
        "model": "m-1", "stream": true,
        "tools": [
            {"type": "function", "name": "update_plan"}, {"type": "custom", "name": "apply_patch"},
            {"type": "local_shell"}, {"type": "web_search"},
            {"type": "namespace", "name": "mcp", "tools": [{"type": "function", "name": "echo"}]},
        ],
        "input": [
            {"type": "message", "role": "developer", "content": []},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {"type": "reasoning"}, {"type": "message", "role": "assistant"}, {"type": "function_call"},
            {"type": "custom_tool_call"}, {"type": "function_call_output"}, {"type": "custom_tool_call_output"},
            {"type": "message", "role": "developer", "content": []},
            {"type": "local_shell_call"}, {"type": "local_shell_call_output"},
        ],
    });
    let asked = Api::Responses.read(&body);
    assert_eq!(names(&asked), ["update_plan", "apply_patch", "local_shell", "web_search", "mcp/echo"]);
    assert_eq!((asked.class, asked.answered), (RequestClass::Main, 2));
    assert_eq!(Api::Responses.read(&json!({"input": "go"})).answered, 0);
    let inner =
        json!([{"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}]);
    let asked = Api::Responses.read(&json!({"input": [{"type": "additional_tools", "tools": inner}]}));
    assert_eq!(names(&asked), ["functions/exec"]);
}

#[test]
fn side_requests_are_told_apart() {
    let class = |body| Api::Chat.read(&body).class;
    assert_eq!(class(json!({"tools": functions(&["session_title"])})), RequestClass::Title);
    assert_eq!(class(json!({"tools": functions(&["session_title", "grep"])})), RequestClass::Main);
    assert_eq!(class(json!({"tools": []})), RequestClass::Toolless);
    assert_eq!(class(json!({})), RequestClass::Toolless);
}

#[test]
fn nonsense_is_no_panic() {
    for body in [
        json!(null),
        json!([]),
        json!({"tools": 3, "messages": "x", "input": 7, "stream": "yes", "model": 4}),
        json!({"tools": [1, {"function": []}, {"type": "namespace", "tools": {}}],
               "input": [1, {"type": []}], "messages": [1, {"role": 2}, {"role": "user", "content": {"a": 1}}]}),
    ] {
        for api in [Api::Chat, Api::Messages, Api::Responses] {
            assert_eq!((api.read(&body).answered, api.read(&body).form), (0, Form::Whole), "{api:?}");
        }
    }
}

#[test]
fn chat_usage_comes_only_where_it_was_asked_for() {
    let finish = |usage| {
        let stream = Api::Chat.stream(&naming(Vec::new()), &Completion::default(), usage);
        String::from_utf8(stream.finish.to_vec()).unwrap()
    };
    assert!(finish(UsageEvent::Wanted).contains("\"prompt_tokens\":100"));
    let without = finish(UsageEvent::Unwanted);
    assert!(!without.contains("prompt_tokens"), "{without}");
    assert!(without.ends_with("data: [DONE]\n\n"));
}

#[test]
fn a_whole_chat_completion_holds_all_parts() {
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
    assert_eq!(Api::Chat.whole(&naming(Vec::new()), &full()), expected);
}

#[test]
fn a_streamed_message_has_one_block_after_the_other() {
    let events = events(Api::Messages, &naming(Vec::new()), &full());
    assert!(events.iter().all(|(name, data)| data["type"] == *name));
    let expected = json!([
        {"type": "message_start", "message": {
            "id": "msg_scripted_3", "type": "message", "role": "assistant", "model": "m", "content": [],
            "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 60, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 40,
                      "output_tokens": 1, "output_tokens_details": {"thinking_tokens": 3}},
        }},
        {"type": "ping"},
        {"type": "content_block_start", "index": 0,
         "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "h"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "m"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2NyaXB0ZWQ="}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "b"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2,
         "content_block": {"type": "tool_use", "id": "toolu_2_0", "name": "t", "input": {}}},
        {"type": "content_block_delta", "index": 2,
         "delta": {"type": "input_json_delta", "partial_json": "{\"x\":1}"}},
        {"type": "content_block_stop", "index": 2},
        {"type": "content_block_start", "index": 3,
         "content_block": {"type": "tool_use", "id": "toolu_2_1", "name": "u", "input": {}}},
        {"type": "content_block_delta", "index": 3,
         "delta": {"type": "input_json_delta", "partial_json": "{broken"}},
        {"type": "content_block_stop", "index": 3},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null},
         "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]);
    assert_eq!(events.into_iter().map(|(_, data)| data).collect::<Value>(), expected);
}

#[test]
fn a_whole_message_holds_all_parts() {
    let whole = Api::Messages.whole(&naming(Vec::new()), &full());
    let expected = json!([
        {"type": "thinking", "thinking": "hm", "signature": "c2NyaXB0ZWQ="},
        {"type": "text", "text": "ab"},
        {"type": "tool_use", "id": "toolu_2_0", "name": "t", "input": {"x": 1}},
        {"type": "tool_use", "id": "toolu_2_1", "name": "u", "input": "{broken"},
    ]);
    assert_eq!(whole["content"], expected);
    assert_eq!((&whole["stop_reason"], &whole["usage"]["output_tokens"]), (&json!("tool_use"), &json!(7)));
}

#[test]
fn a_streamed_response_has_one_item_after_the_other_and_all_of_them_at_its_end() {
    let naming = naming(Vec::new());
    let events = events(Api::Responses, &naming, &full());
    assert!(events.iter().all(|(name, data)| data["type"] == *name));
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.output_item.done",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(names, expected);
    let done = events.iter().filter(|(name, _)| name == "response.output_item.done");
    let (indices, items): (Vec<_>, Vec<_>) =
        done.map(|(_, data)| (data["output_index"].as_u64().unwrap(), data["item"].clone())).unzip();
    assert_eq!(indices, [0, 1, 2, 3]);
    let expected = json!([
        {"type": "reasoning", "id": "rs_scripted_3", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "id": "msg_scripted_3", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "ab", "annotations": []}]},
        {"type": "function_call", "id": "fc_2_0", "call_id": "call_2_0", "name": "t", "arguments": "{\"x\":1}",
         "status": "completed"},
        {"type": "function_call", "id": "fc_2_1", "call_id": "call_2_1", "name": "u", "arguments": "{broken",
         "status": "completed"},
    ]);
    assert_eq!(Value::from(items), expected);
    let whole = &events.last().unwrap().1["response"];
    assert_eq!((&whole["output"], &whole["status"]), (&expected, &json!("completed")));
    assert_eq!(whole["usage"]["input_tokens_details"]["cached_tokens"], 40);
    assert_eq!(*whole, Api::Responses.whole(&naming, &full()));
}

#[test]
fn a_response_calls_each_tool_as_it_was_offered() {
    let offer = json!({"tools": [
        {"type": "custom", "name": "apply_patch"}, {"type": "local_shell"},
        {"type": "namespace", "name": "mcp", "tools": [{"type": "function", "name": "echo"}]},
    ], "input": [{"type": "additional_tools", "tools": [
        {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]},
    ]}]});
    let call = |name: &str, arguments| ToolCall { name: name.to_owned(), arguments };
    let completion = Completion {
        tools: vec![
            call("apply_patch", json!("*** Begin Patch")),
            call("local_shell", json!({"type": "exec", "command": ["ls"]})),
            call("mcp/echo", json!({"text": "x"})),
            call("functions/exec", json!("text(1)")),
        ],
        ..Completion::default()
    };
    let whole = Api::Responses.whole(&naming(Api::Responses.read(&offer).tools), &completion);
    let expected = json!([
        {"type": "custom_tool_call", "id": "ctc_2_0", "call_id": "call_2_0", "name": "apply_patch",
         "input": "*** Begin Patch", "status": "completed"},
        {"type": "local_shell_call", "id": "lsc_2_1", "call_id": "call_2_1",
         "action": {"type": "exec", "command": ["ls"]}, "status": "completed"},
        {"type": "function_call", "id": "fc_2_2", "call_id": "call_2_2", "name": "echo", "namespace": "mcp",
         "arguments": "{\"text\":\"x\"}", "status": "completed"},
        {"type": "custom_tool_call", "id": "ctc_2_3", "call_id": "call_2_3", "name": "exec", "namespace": "functions",
         "input": "text(1)", "status": "completed"},
    ]);
    assert_eq!(whole["output"], expected);
}

#[test]
fn a_finish_is_said_in_the_words_of_the_api() {
    let said = |finish: &str| {
        let completion = Completion { finish: Some(finish.to_owned()), ..Completion::default() };
        let chat = Api::Chat.whole(&naming(Vec::new()), &completion);
        let messages = Api::Messages.whole(&naming(Vec::new()), &completion);
        let responses = Api::Responses.whole(&naming(Vec::new()), &completion);
        let texts = [&chat["choices"][0]["finish_reason"], &messages["stop_reason"], &responses["status"]];
        let mut said: Vec<String> = texts.iter().map(|text| text.as_str().unwrap().to_owned()).collect();
        said.extend(responses["incomplete_details"]["reason"].as_str().map(str::to_owned));
        said
    };
    assert_eq!(said("stop"), ["stop", "end_turn", "completed"]);
    assert_eq!(said("tool_calls"), ["tool_calls", "tool_use", "completed"]);
    assert_eq!(said("length"), ["length", "max_tokens", "incomplete", "max_output_tokens"]);
    assert_eq!(said("content_filter"), ["content_filter", "refusal", "incomplete", "content_filter"]);
    assert_eq!(said("pause_turn"), ["pause_turn", "pause_turn", "incomplete", "pause_turn"]);
}

#[test]
fn a_stated_error_is_said_in_the_words_of_the_api() {
    let stated = |api: Api| {
        String::from_utf8(api.stated(&naming(Vec::new()), Fault::ContextOverflow).to_vec()).unwrap()
    };
    assert!(stated(Api::Chat).starts_with("data: {\"error\":{\"code\":\"context_length_exceeded\""));
    assert!(
        stated(Api::Messages).starts_with("event: error\ndata: {\"error\":{\"message\":\"prompt is too long")
    );
    let failed = stated(Api::Responses);
    let data = failed.strip_prefix("event: response.failed\ndata: ").unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["response"]["status"], "failed");
    assert_eq!(data["response"]["error"]["code"], "context_length_exceeded");
}
