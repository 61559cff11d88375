//! Tool results: what the model was told, and what became of the call.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use stockade_core::{event::ToolStatus, text};

use crate::{messages::wire::parse, text::Text};

/// Words of a refusal are looked for this far into a text, in bytes.
const HEAD_BYTES: usize = 400;

/// What the model was told about a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) status: ToolStatus,
}

impl Told<'_> {
    /// The tool that the text itself names in backticks.
    pub(super) fn named_tool(&self) -> Option<&str> {
        self.text.split('`').nth(1)
    }
}

/// Results of tools that ran: an object in a string. Each tool has its own fields.
#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(borrow, default)]
    output_for_prompt: Option<Text<'a>>,
    #[serde(default)]
    exit_code: Option<i64>,
    #[serde(rename = "FileContent", borrow, default)]
    file_content: Option<FileContent<'a>>,
    #[serde(rename = "EditsApplied", borrow, default)]
    edits_applied: Option<EditsApplied<'a>>,
    #[serde(rename = "InvalidInput", borrow, default)]
    invalid_input: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct FileContent<'a> {
    #[serde(borrow)]
    content: Text<'a>,
}

#[derive(Deserialize)]
struct EditsApplied<'a> {
    #[serde(borrow)]
    tool_output_for_prompt: Text<'a>,
}

/// Results of tools that did not run: a list of wrapped texts in a string, or plain parts.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

/// Reads the content of a `tool_result`.
pub(super) fn told(content: Option<&RawValue>, is_error: bool) -> Told<'_> {
    let failed = if is_error { ToolStatus::Failed } else { ToolStatus::Completed };
    let Some(raw) = content else { return Told { text: Cow::Borrowed(""), status: failed } };
    let Some(inner) = parse::<Text<'_>>(raw).map(Text::into_cow) else {
        return untyped(parts(raw.get()).unwrap_or_else(|| raw.get().to_owned()).into(), is_error);
    };
    match inner.as_bytes().first() {
        Some(b'{') => match typed(&inner) {
            // Text from a tool that ran is never taken for a refusal: it may quote anything.
            Some((text, exit)) => {
                let status = if exit.is_some_and(|code| code != 0) { ToolStatus::Failed } else { failed };
                Told { text: text.into(), status }
            }
            None => Told { text: inner, status: failed },
        },
        Some(b'[') => untyped(parts(&inner).map_or(inner, Cow::Owned), is_error),
        _ => untyped(inner, is_error),
    }
}

fn typed(text: &str) -> Option<(String, Option<i64>)> {
    let typed: Typed<'_> = serde_json::from_str(text).ok()?;
    let said = typed
        .output_for_prompt
        .or_else(|| typed.file_content.map(|f| f.content))
        .or_else(|| typed.edits_applied.map(|e| e.tool_output_for_prompt))
        .or(typed.invalid_input)?;
    Some((said.into_owned(), typed.exit_code))
}

fn parts(text: &str) -> Option<String> {
    let parts: Vec<Part<'_>> = serde_json::from_str(text).ok()?;
    let texts: Vec<String> = parts
        .into_iter()
        .filter_map(|part| {
            part.text.map(Text::into_owned).or_else(|| {
                let inner: Part<'_> = part.content.and_then(parse)?;
                inner.text.map(Text::into_owned)
            })
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

fn untyped(text: Cow<'_, str>, is_error: bool) -> Told<'_> {
    let status = match is_error.then(|| refusal(&text)).flatten() {
        Some(status) => status,
        None if is_error => ToolStatus::Failed,
        None => ToolStatus::Completed,
    };
    Told { text, status }
}

fn refusal(told: &str) -> Option<ToolStatus> {
    let head = told.get(..text::floor(told, HEAD_BYTES)).unwrap_or_default();
    if head.starts_with("User cancelled the execution for tool") {
        return Some(ToolStatus::Cancelled);
    }
    let not_run = head.starts_with("Tool `") && head.contains("was not executed");
    let by_policy = ["Denied by permission policy", "denied by prompt policy", "Auto mode blocked"];
    (not_run || by_policy.iter().any(|words| head.contains(words))).then_some(ToolStatus::Denied)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &serde_json::Value, is_error: bool) -> (String, ToolStatus) {
        let raw = serde_json::value::to_raw_value(content).unwrap();
        let told = told(Some(&raw), is_error);
        (told.text.into_owned(), told.status)
    }

    #[test]
    fn a_refusal_counts_only_where_no_tool_ran() {
        let words = "Tool `grep` was not executed: denied by prompt policy (tool not pre-approved)";
        let wrapped = serde_json::json!([{"type": "content", "content": {"type": "text", "text": words}}]);
        let file = serde_json::json!({"type": "ReadFile", "FileContent": {"content": words}});
        let text = |v: &serde_json::Value| serde_json::Value::String(v.to_string());
        assert_eq!(read(&text(&wrapped), true), (words.to_owned(), ToolStatus::Denied));
        assert_eq!(read(&words.into(), true), (words.to_owned(), ToolStatus::Denied));
        assert_eq!(read(&wrapped, true), (words.to_owned(), ToolStatus::Denied));
        assert_eq!(read(&text(&file), false), (words.to_owned(), ToolStatus::Completed));
        assert_eq!(read(&text(&file), true), (words.to_owned(), ToolStatus::Failed));
        assert_eq!(read(&words.into(), false), (words.to_owned(), ToolStatus::Completed));
        let auto = "Auto mode blocked this action: no";
        assert_eq!(read(&auto.into(), true), (auto.to_owned(), ToolStatus::Denied));
    }

    #[test]
    fn a_shell_command_that_fails_has_failed() {
        let shell = |exit: i64| {
            let inner = serde_json::json!({"type": "Bash", "output": [1, 2], "output_for_prompt": "exit", "exit_code": exit});
            read(&inner.to_string().into(), false)
        };
        assert_eq!(shell(0), ("exit".to_owned(), ToolStatus::Completed));
        assert_eq!(shell(1), ("exit".to_owned(), ToolStatus::Failed));
    }

    #[test]
    fn unknown_forms_are_shown_as_they_are() {
        for (content, shown) in [
            (serde_json::json!({"a": 1}), "{\"a\":1}"),
            (serde_json::json!("{\"type\":\"New\"}"), "{\"type\":\"New\"}"),
            (serde_json::json!("[1"), "[1"),
            (serde_json::json!(null), "null"),
            (serde_json::json!(""), ""),
        ] {
            assert_eq!(read(&content, false), (shown.to_owned(), ToolStatus::Completed));
        }
        assert_eq!(told(None, true).status, ToolStatus::Failed);
    }
}
