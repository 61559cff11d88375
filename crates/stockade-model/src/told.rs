//! What a request tells the model about the tool calls of its last answer, in whichever API it is written.

use serde_json::Value;

/// The results in the order of the request; those of earlier answers are left out.
pub(crate) fn tool_results(body: &Value) -> Vec<String> {
    let list = |key| body.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut results: Vec<String> = Vec::new();
    for message in list("messages").iter().rev().take_while(|message| text(message, "role") != "assistant") {
        match text(message, "role") {
            // Chat completions: a message for each.
            "tool" => results.push(content(message, "content")),
            // Messages: blocks of what the user says.
            "user" => {
                let blocks = message.get("content").and_then(Value::as_array).into_iter().flatten().rev();
                let told = blocks.filter(|block| text(block, "type") == "tool_result");
                results.extend(told.map(|block| content(block, "content")));
            }
            _ => {}
        }
    }
    // Responses: an item for each.
    let items = list("input").iter().rev();
    let since = items.take_while(|item| !is_models(item));
    let told = since.filter(|item| text(item, "type").ends_with("_call_output"));
    results.extend(told.map(|item| content(item, "output")));
    results.reverse();
    results
}

/// Whether an item of Responses is something that the model said or called for.
fn is_models(item: &Value) -> bool {
    text(item, "role") == "assistant" || text(item, "type").ends_with("_call")
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// One text, or a list of parts.
fn content(value: &Value, key: &str) -> String {
    match value.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str));
            texts.collect::<Vec<_>>().join("\n")
        }
        Some(_) | None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::tool_results;

    #[test]
    fn chat_completions_have_a_message_for_each() {
        let call = json!({"role": "assistant", "content": "", "tool_calls": [{"id": "a"}]});
        let old = json!({"role": "tool", "tool_call_id": "o", "content": "old"});
        let parts =
            json!({"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "one"}]});
        let plain = json!({"role": "tool", "tool_call_id": "b", "content": "two"});
        assert_eq!(tool_results(&json!({"messages": [call, old, call, parts, plain]})), ["one", "two"]);
    }

    #[test]
    fn messages_have_blocks_of_the_user() {
        let result = |id: &str, content: serde_json::Value| json!({"type": "tool_result", "tool_use_id": id, "content": content});
        let body = json!({"messages": [
            {"role": "user", "content": [result("o", json!("old"))]},
            {"role": "assistant", "content": []},
            {"role": "user", "content": [result("a", json!("one")), result("b", json!([{"type": "text", "text": "two"}]))]},
            {"role": "user", "content": "go on"},
            {"role": "system", "content": "note"},
        ]});
        assert_eq!(tool_results(&body), ["one", "two"]);
    }

    #[test]
    fn responses_have_items() {
        let body = json!({"input": [
            {"type": "function_call_output", "call_id": "o", "output": "old"},
            {"type": "function_call", "call_id": "a"},
            {"type": "custom_tool_call", "call_id": "b"},
            {"type": "function_call_output", "call_id": "a", "output": "one"},
            {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "two"}]},
        ]});
        assert_eq!(tool_results(&body), ["one", "two"]);
        assert_eq!(tool_results(&json!({"input": "go", "messages": 3})), [""; 0]);
    }
}
