//! Every recorded stream, read whole: what the real agent printed and what it means.

use std::path::Path;

use proptest::prelude::*;
use stockade_core::{event::EventKind, profile::Dialect};

use crate::recordings::{self, brief, recording};

fn events(bytes: &[u8]) -> Vec<EventKind> {
    recordings::events(Dialect::ClaudeStream, bytes)
}

fn briefs(name: &str) -> Vec<String> {
    events(&recording(&format!("claude/{name}"))).iter().map(brief).collect()
}

fn line(json: &serde_json::Value) -> Vec<String> {
    events(format!("{json}\n").as_bytes()).iter().map(brief).collect()
}

const STARTED: &str = "turn-started 36 4 tools";
const INIT: &str = "model claude-opus-5-5 in init";
const MESSAGE: &str = "model claude-opus-5-5 in message";
const RESULT: &str = "model claude-opus-5-5 in result";

/// What a recording says after its start, without the messages that name models and tokens.
fn told(name: &str) -> Vec<String> {
    let mut lines = briefs(name);
    lines.retain(|l| !["turn-started ", "model ", "usage "].iter().any(|start| l.starts_with(start)));
    lines
}

#[test]
fn a_success_is_read_whole() {
    assert_eq!(
        briefs("success.jsonl"),
        [
            STARTED,
            INIT,
            MESSAGE,
            "message Hello from mock. -0",
            "usage in 1320 cached 300 out 40 all 1360 cost Some(0.004960000000000001) models 1",
            RESULT,
            "ended Success { answer: Some(\"Hello from mock.\") }"
        ]
    );
}

#[test]
fn tools_are_told_as_the_model_was_told() {
    assert_eq!(
        told("tools.jsonl"),
        [
            "call toolu_59fb104be099456a9b8c Read {\"file_path\":\"/w/ws/README.md\"}",
            "update toolu_59fb104be099456a9b8c Completed 1\thello\n2\t",
            "call toolu_19220af708c049b08034 Bash {\"command\":\"ls; exit 3\",\"description\":\"x\"}",
            "call toolu_a0f19d6b2b9d4a79aeb7 Glob {\"pattern\":\"*.md\"}",
            "update toolu_19220af708c049b08034 Failed Exit code 3\nREADME.md",
            "update toolu_a0f19d6b2b9d4a79aeb7 Completed README.md",
            "message All done. -0",
            "ended Success { answer: Some(\"All done.\") }"
        ]
    );
    let unknown = told("unknown_tool.jsonl");
    assert!(
        unknown[1].contains(" Failed <tool_use_error>Error: No such tool available: NoSuch"),
        "{unknown:#?}"
    );
    assert_eq!(told("bash_allowed.jsonl")[2], "update toolu_2ccc50ca712c48adb8b9 Completed hi");
}

#[test]
fn a_refused_call_is_denied_once_and_the_turn_goes_on() {
    let read = told("bash_denied.jsonl");
    assert!(
        read[2].starts_with("update toolu_428b32993d864c5b8161 Denied Output redirection to"),
        "{read:#?}"
    );
    assert_eq!(
        read[3..],
        ["Denied Bash by agent", "message Done. -0", "ended Success { answer: Some(\"Done.\") }"]
    );
}

#[test]
fn a_refused_call_that_ends_the_turn_is_named_as_its_reason() {
    let read = told("denied_and_stopped.jsonl");
    // What it says of the call is the same where a signal ended it, so only the list in the result counts.
    let call =
        "update toolu_82d612d94bcc4a478281 Failed The user doesn't want to proceed with this tool use.";
    assert!(read[2].starts_with(call), "{read:#?}");
    assert_eq!(
        read[3..],
        [
            "Denied Bash by agent",
            "update toolu_82d612d94bcc4a478281 Denied ",
            "ended Cancelled { permission: Some(\"Bash\") }"
        ]
    );
}

#[test]
fn a_refusal_that_only_the_result_tells_of_is_told_then() {
    let call = serde_json::json!({"type": "assistant", "message": {"content": [
        {"type": "tool_use", "id": "a", "name": "Write", "input": {}}]}});
    let rejected = serde_json::json!({"type": "user", "message": {"content": [
        {"type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": true}]},
        "tool_result_meta": [{"id": "a", "permission_decision": {"decision": "reject"}}]});
    let result = serde_json::json!({"type": "result", "subtype": "success", "result": "x", "permission_denials": [
        {"tool_name": "Write", "tool_use_id": "a"}, {"tool_name": "Bash", "tool_use_id": "b"}]});
    let stream = format!("{call}\n{rejected}\n{result}\n");
    assert_eq!(
        events(stream.as_bytes()).iter().map(brief).collect::<Vec<_>>(),
        [
            "call a Write {}",
            "update a Denied no",
            "Denied Write by agent",
            "Denied Bash by agent",
            "update b Denied ",
            "ended Success { answer: Some(\"x\") }"
        ]
    );
}

#[test]
fn an_empty_name_is_no_models() {
    let message = serde_json::json!({"type": "assistant", "message": {"model": "", "content": [{"type": "text", "text": "x"}]}});
    let result = serde_json::json!({"type": "result", "subtype": "success", "result": "x", "modelUsage": {"": {"inputTokens": 1}}});
    let stream = format!("{message}\n{result}\n");
    assert_eq!(
        events(stream.as_bytes()).iter().map(brief).collect::<Vec<_>>(),
        ["message x -0", "ended Success { answer: Some(\"x\") }"]
    );
}

#[test]
fn an_answer_in_parts_is_taken_from_the_messages() {
    assert_eq!(
        told("resumed_after_cut.jsonl"),
        ["message part one  -0", "message part two -0", "ended Success { answer: None }"]
    );
    assert_eq!(told("empty.jsonl"), ["ended Success { answer: None }"]);
}

#[test]
fn what_the_program_says_by_itself_is_no_answer_and_its_name_no_model() {
    let says = "/compact isn't available in this environment.";
    assert_eq!(
        briefs("own_command.jsonl"),
        [STARTED, INIT, &format!("note agent-local-text {says}"), "ended Success { answer: None }"]
    );
    for name in ["e401.jsonl", "e429.jsonl", "e500.jsonl", "e529.jsonl", "max_tokens.jsonl", "refusal.jsonl"]
    {
        assert!(!briefs(name).iter().any(|l| l.contains("<synthetic>")), "{name}");
    }
}

#[test]
fn errors_of_the_service_carry_their_status() {
    for (name, status, says) in [
        ("e401.jsonl", 401, "Failed to authenticate. API Error: 401 mock error 401"),
        ("e429.jsonl", 429, "API Error: Request rejected (429)"),
        ("e500.jsonl", 500, "API Error: 500 mock error 500."),
        ("e529.jsonl", 529, "API Error: 529 mock error 529."),
        ("credit.jsonl", 400, "Credit balance is too low"),
        ("context.jsonl", 400, "Prompt is too long"),
    ] {
        let last = told(name).pop().unwrap();
        assert!(last.starts_with(&format!("ended Error {{ text: \"{says}")), "{last}");
        assert!(last.ends_with(&format!("http_status: Some({status}) }}")), "{last}");
    }
    assert_eq!(
        told("e529.jsonl")[..2],
        [
            "note agent-retry retry 1 of 2: overloaded, HTTP 529",
            "note agent-retry retry 2 of 2: overloaded, HTTP 529",
        ]
    );
    let lost = "API Error: Connection lost mid-response. The response above may be incomplete.";
    assert_eq!(told("drop.jsonl"), [format!("ended Error {{ text: {lost:?}, http_status: None }}")]);
    assert_eq!(
        told("prompt_too_long.jsonl"),
        [
            "note agent-local-text Prompt is too long",
            "ended Error { text: \"Prompt is too long\", http_status: None }"
        ]
    );
}

#[test]
fn every_other_end_of_a_turn_is_told_apart() {
    assert_eq!(told("maxturns.jsonl").pop().unwrap(), "ended MaxTurns");
    assert_eq!(told("max_tokens.jsonl").pop().unwrap(), "ended Truncated");
    assert!(
        told("refusal.jsonl").pop().unwrap().starts_with("ended Refusal { text: \"API Error: Opus 5.5's")
    );
    for name in ["sigint_hang.jsonl", "sigint_sleep.jsonl"] {
        assert_eq!(told(name).pop().unwrap(), "ended Cancelled { permission: None }", "{name}");
    }
    // Answers name the model that was asked for, even where another one answered.
    assert_eq!(briefs("othermodel.jsonl")[1], "model claude-sonnet-4-6 in result");
}

#[test]
fn lines_about_background_tasks_are_noted_and_a_second_result_is_told_too() {
    let read = told("background.jsonl");
    assert_eq!(read.iter().filter(|l| l.starts_with("ended Success")).count(), 2, "{read:#?}");
    assert!(read.contains(&"note unknown-event task_started".to_owned()), "{read:#?}");
}

#[test]
fn every_recording_is_tested() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/claude");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(include_str!("tests.rs").contains(&format!("\"{name}\"")), "{name} is read by no test");
    }
}

#[test]
fn unknown_parts_and_forms_are_passed_over() {
    assert_eq!(
        line(&serde_json::json!({"type": "assistant", "message": {"model": 3, "content": "x"}})),
        [""; 0]
    );
    assert_eq!(
        line(&serde_json::json!({"type": "user", "message": {"content": [7]}, "tool_result_meta": 3})),
        [""; 0]
    );
    assert_eq!(line(&serde_json::json!({"type": "system", "subtype": "new"})), ["note unknown-event new"]);
    assert_eq!(line(&serde_json::json!({"type": "system"})), ["note unknown-event system"]);
    assert_eq!(
        line(&serde_json::json!({"type": "system", "subtype": "api_retry"})),
        ["note agent-retry retry ? of ?: unknown"]
    );
}

proptest! {
    #[test]
    fn any_split_of_a_stream_gives_the_same_events(
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        junk in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut data = recording("claude/bash_denied.jsonl");
        data.extend_from_slice(&junk);
        data.extend_from_slice(&recording("claude/resumed_after_cut.jsonl"));
        let mut at: Vec<usize> = cuts.iter().map(|c| c.index(data.len())).collect();
        at.extend([0, data.len()]);
        at.sort_unstable();
        let chunks: Vec<&[u8]> = at.windows(2).map(|w| &data[w[0]..w[1]]).collect();
        prop_assert_eq!(recordings::read(Dialect::ClaudeStream, &chunks), events(&data));
    }

    #[test]
    fn no_json_is_too_odd(kind in "assistant|user|system|result", rest in r#"[\[\]{}",:a-z0-9]{0,60}"#) {
        events(format!("{{\"type\":\"{kind}\",\"message\":{rest}}}\n").as_bytes());
        events(format!("{{\"type\":\"{kind}\",{rest}}}\n").as_bytes());
    }
}
