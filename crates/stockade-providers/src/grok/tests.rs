//! Every recorded stream, read whole: what the real agent printed and what it means.

use std::path::Path;

use stockade_core::{
    event::{EventKind, TurnOutcome},
    profile::Dialect,
};

use crate::recordings::{self, brief, recording};

fn events(bytes: &[u8]) -> Vec<EventKind> {
    recordings::events(Dialect::GrokMessages, bytes)
}

fn briefs(name: &str) -> Vec<String> {
    events(&recording(&format!("grok/{name}"))).iter().map(brief).collect()
}

const STARTED: &str = "turn-started 36 24 tools";
const INIT: &str = "model mock-1 in init";
const MESSAGE: &str = "model mock-1 in message";
const RESULT: &str = "model mock-1 in result";
const ONE: &str = "usage in 100 cached 40 out 7 all 107 cost None models 1";
const TWO: &str = "usage in 200 cached 80 out 14 all 214 cost None models 1";

#[test]
fn a_success_is_read_whole() {
    assert_eq!(
        briefs("success.jsonl"),
        [
            STARTED,
            INIT,
            MESSAGE,
            "thought pondering",
            "message ok from mock -0",
            ONE,
            RESULT,
            "ended Success { answer: Some(\"ok from mock\") }"
        ]
    );
}

#[test]
fn a_tool_that_ran_is_told_as_the_model_was_told() {
    for (file, call, update, last) in [
        (
            "tool_allowed.jsonl",
            "call call_0_0 run_terminal_command {\"command\":\"ls -1\",\"description\":\"list\"}",
            "update call_0_0 Completed exit: 0\na.txt\n",
            "listed",
        ),
        (
            "tool_bypass.jsonl",
            "call call_0_0 run_terminal_command \
             {\"command\":\"echo hi > made.txt && cat made.txt\",\"description\":\"write\"}",
            "update call_0_0 Completed exit: 0\nhi\n",
            "wrote",
        ),
    ] {
        let read = briefs(file);
        assert!(read.contains(&call.to_owned()), "{read:#?}");
        assert!(read.contains(&update.to_owned()), "{read:#?}");
        assert_eq!(read.last().unwrap(), &format!("ended Success {{ answer: Some(\"{last}\") }}"));
        assert_eq!(read[read.len() - 3], TWO);
    }
}

#[test]
fn a_denied_tool_is_denied_and_the_turn_goes_on() {
    assert_eq!(
        briefs("tool_denied_rule.jsonl"),
        [
            STARTED,
            INIT,
            MESSAGE,
            "call call_0_0 run_terminal_command \
             {\"command\":\"echo hi > made.txt && cat made.txt\",\"description\":\"write\"}",
            "update call_0_0 Denied Tool `run_terminal_command` was not executed: Denied by permission policy: \
             deny rule on bash",
            "Denied run_terminal_command by agent",
            "message wrote -0",
            TWO,
            RESULT,
            "ended Success { answer: Some(\"wrote\") }"
        ]
    );
}

#[test]
fn a_cancelled_permission_ends_the_turn_and_names_the_tool() {
    for (file, tool) in [
        ("perm_cancelled_shell.jsonl", "run_terminal_command"),
        ("perm_cancelled_edit.jsonl", "search_replace"),
        ("dontask_denied.jsonl", "run_terminal_command"),
    ] {
        let read = briefs(file);
        let tail = &read[read.len() - 5..];
        assert_eq!(
            tail,
            [
                format!("update call_0_0 Cancelled User cancelled the execution for tool `{tool}`"),
                format!("Cancelled {tool} by agent"),
                ONE.to_owned(),
                RESULT.to_owned(),
                format!("ended Cancelled {{ permission: Some(\"{tool}\") }}"),
            ],
            "{file}"
        );
    }
}

#[test]
fn tools_that_do_not_exist_or_get_bad_arguments_have_failed() {
    for (file, says) in [("badtool.jsonl", "Tool not found"), ("badargs.jsonl", "missing field `command`")] {
        let read = briefs(file);
        let update = read.iter().find(|l| l.starts_with("update")).unwrap();
        assert!(update.starts_with("update call_0_0 Failed Failed to parse arguments"), "{update}");
        assert!(update.contains(says), "{update}");
        assert!(read.last().unwrap().starts_with("ended Success"), "{read:#?}");
        assert!(!read.iter().any(|l| l.contains(" by agent")), "{read:#?}");
    }
}

#[test]
fn every_other_end_is_told_apart() {
    let error = |text: &str, http_status: Option<u16>| (text.to_owned(), http_status);
    for (file, expected) in [
        ("e400.jsonl", error("API error (status 400 Bad Request): mock: mock error 400", Some(400))),
        ("e401.jsonl", error("Unauthorized (401) from http://", Some(401))),
        ("e403.jsonl", error("status 403 Forbidden", Some(403))),
        ("e404.jsonl", error("status 404 Not Found", Some(404))),
        ("e429.jsonl", error("mock: mock error 429", None)),
        ("e500.jsonl", error("status 500 Internal Server Error", Some(500))),
        ("e503.jsonl", error("status 503 Service Unavailable", Some(503))),
        ("refused.jsonl", error("Internal error", None)),
        ("closed.jsonl", error("Internal error", None)),
        ("badsse.jsonl", error("key must be a string at line 1 column 2", None)),
        ("html.jsonl", error("empty response from model (no_visible_content)", None)),
        ("empty.jsonl", error("empty response from model (no_visible_content)", None)),
        ("unknown_model.jsonl", error("Couldn't set model 'nope-9'", None)),
    ] {
        let read = events(&recording(&format!("grok/{file}")));
        // No tokens were counted, so nothing is said of them.
        assert!(!read.iter().any(|e| matches!(e, EventKind::Usage { .. })), "{file}");
        let Some(EventKind::TurnEnded { outcome: TurnOutcome::Error { text, http_status } }) = read.last()
        else {
            panic!("{file}: {:?}", read.last());
        };
        assert!(text.contains(&expected.0), "{file}: {text}");
        assert_eq!(*http_status, expected.1, "{file}: {text}");
    }
    let last = |file: &str| briefs(file).pop().unwrap();
    assert_eq!(last("filter.jsonl"), "ended Refusal { text: \"The model refused to continue\" }");
    assert_eq!(last("length.jsonl"), "ended Truncated");
    assert_eq!(last("maxturns.jsonl"), "ended MaxTurns");
}

#[test]
fn a_cut_stream_claims_success_and_states_no_tokens() {
    assert_eq!(
        briefs("cutsse.jsonl"),
        [STARTED, INIT, MESSAGE, "message partial -0", "ended Success { answer: Some(\"partial\") }"]
    );
}

#[test]
fn a_killed_agent_leaves_no_end() {
    for file in ["sigint.jsonl", "sigterm.jsonl", "sigint_tool.jsonl", "sigterm_tool.jsonl"] {
        assert_eq!(briefs(file), [STARTED, INIT], "{file}");
    }
}

#[test]
fn under_our_flags_a_read_only_turn_is_refused_its_writes_and_goes_on() {
    let read = briefs("our_read_only.jsonl");
    assert_eq!(read[0], "turn-started 36 4 tools");
    let has = |line: &str| assert!(read.iter().any(|l| l == line), "{line} in {read:#?}");
    has("update call_0_0 Completed 1→hello\n");
    has("update call_0_1 Failed exit: 1\n/bin/bash: line 1: report.md: Read-only file system\n");
    assert!(read.iter().any(|l| l.starts_with("update call_0_2 Failed") && l.contains("Tool not found")));
    assert_eq!(read.last().unwrap(), "ended Success { answer: Some(\"finished\") }");
    assert!(!read.iter().any(|l| l.contains(" by agent")));
}

#[test]
fn under_our_flags_an_isolated_write_turn_edits_and_runs() {
    let read = briefs("our_isolated_write.jsonl");
    assert_eq!(read[0], "turn-started 36 5 tools");
    let has = |line: &str| assert!(read.iter().any(|l| l == line), "{line} in {read:#?}");
    has("update call_1_0 Completed The file a.txt has been updated successfully.");
    has("update call_2_0 Completed The file new.txt has been created successfully.");
    has("update call_3_0 Completed exit: 0\na.txt\nnew.txt\nreport.md\n2026 1\n2026 2\n");
    assert_eq!(read.last().unwrap(), "ended Success { answer: Some(\"finished\") }");
}

#[test]
fn every_recording_is_tested() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/grok");
    let tests = concat!(include_str!("tests.rs"), include_str!("../session_log/tests.rs"));
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(tests.contains(&format!("\"{name}\"")), "{name} is read by no test");
    }
}

fn line(json: &serde_json::Value) -> Vec<EventKind> {
    events(format!("{json}\n").as_bytes())
}

#[test]
fn long_texts_are_cut_and_say_how_much() {
    let text = "é".repeat(40_000);
    let message = serde_json::json!({"type": "assistant", "message": {"content": [
        {"type": "text", "text": text},
        {"type": "tool_use", "id": "c", "name": "t".repeat(9_000), "input": {"x": text}},
    ]}});
    let read = line(&message);
    let EventKind::Message { text, cut_bytes } = &read[0] else { panic!("{read:?}") };
    assert_eq!((text.len(), *cut_bytes), (64 * 1024, 80_000 - 64 * 1024));
    let EventKind::ToolCall { tool, input, .. } = &read[1] else { panic!("{read:?}") };
    assert!(tool.len() < 300 && input.len() < 4_200, "{} {}", tool.len(), input.len());
}

#[test]
fn open_calls_are_bounded_and_a_result_without_a_call_still_names_its_tool() {
    let mut bytes = Vec::new();
    for i in 0..1_000 {
        let call = serde_json::json!({"type": "assistant", "message": {"content": [
            {"type": "tool_use", "id": format!("c{i}"), "name": "grep", "input": {}}]}});
        bytes.extend_from_slice(format!("{call}\n").as_bytes());
    }
    let denied = |id: &str, text: &str| {
        serde_json::json!({"type": "user", "message": {"content": [
            {"type": "tool_result", "tool_use_id": id, "content": text, "is_error": true}]}})
        .to_string()
    };
    let words = "Tool `read_file` was not executed: Denied by permission policy";
    for (id, text) in [("c0", words), ("c999", words), ("c0", "Auto mode blocked this action")] {
        bytes.extend_from_slice(denied(id, text).as_bytes());
        bytes.push(b'\n');
    }
    let tools: Vec<String> = events(&bytes)
        .into_iter()
        .filter_map(|e| match e {
            EventKind::PermissionDecided { tool, .. } => Some(tool),
            _ => None,
        })
        .collect();
    assert_eq!(tools, ["read_file", "grep", "unknown"]);
}

#[test]
fn unknown_parts_and_forms_are_passed_over() {
    let odd = serde_json::json!({"type": "assistant", "message": {"model": 3, "content": "plain"}});
    assert_eq!(line(&odd), []);
    let plain = serde_json::json!({"type": "assistant", "message": {"content": "plain"}});
    assert_eq!(line(&plain).iter().map(brief).collect::<Vec<_>>(), ["message plain -0"]);
    let mixed = serde_json::json!({"type": "assistant", "message": {"content": [
        7, {"type": "new", "x": 1}, {"type": "text", "text": "kept"}]}});
    assert_eq!(line(&mixed).iter().map(brief).collect::<Vec<_>>(), ["message kept -0"]);
}
