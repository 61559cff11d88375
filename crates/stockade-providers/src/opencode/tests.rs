//! Every recorded stream, read whole: what the real agent printed and what it means.

use std::path::Path;

use proptest::prelude::*;
use stockade_core::{event::EventKind, profile::Dialect};

use crate::recordings::{self, brief, recording};

fn events(bytes: &[u8]) -> Vec<EventKind> {
    recordings::events(Dialect::OpencodeRun, bytes)
}

fn briefs(name: &str) -> Vec<String> {
    events(&recording(&format!("opencode/{name}"))).iter().map(brief).collect()
}

fn lines(all: &[serde_json::Value]) -> Vec<String> {
    let text = all.iter().fold(String::new(), |text, json| text + &json.to_string() + "\n");
    events(text.as_bytes()).iter().map(brief).collect()
}

const STARTED: &str = "turn-started 30 0 tools";
const COMMAND: &str = "{\"command\":\"echo hi > made.txt && cat made.txt\",\"description\":\"w\"}";
const ONE: &str = "usage in 1000 cached 300 out 40 all 1040 cost Some(0.0027) models 0";
const TWO: &str = "usage in 2000 cached 600 out 80 all 2080 cost Some(0.0054) models 0";
const DONE: &str = "ended Success { answer: Some(\"Done.\") }";

#[test]
fn a_success_with_a_tool_is_read_whole() {
    for file in ["bash.jsonl", "ask-bash-auto.jsonl"] {
        let read = briefs(file);
        let call = if file == "bash.jsonl" { "call_d62f967008" } else { "call_83b1642bce" };
        assert_eq!(
            read,
            [
                STARTED,
                "message I will run. -0",
                &format!("call {call} bash {COMMAND}"),
                &format!("update {call} Completed hi\n"),
                ONE,
                "message Done. -0",
                TWO,
                DONE
            ],
            "{file}"
        );
    }
}

#[test]
fn a_question_that_nobody_answers_cancels_the_turn_and_names_the_tool() {
    assert_eq!(
        briefs("ask-bash.jsonl"),
        [
            STARTED,
            "message I will run. -0",
            &format!("call call_daa4da30b8 bash {COMMAND}"),
            "update call_daa4da30b8 Cancelled The user rejected permission to use this specific tool call.",
            "Cancelled bash by agent",
            ONE,
        ]
    );
}

#[test]
fn a_tool_that_is_not_offered_has_failed_and_is_named() {
    for (file, tool) in [("deny-bash.jsonl", "bash"), ("deny-write.jsonl", "write")] {
        let read = briefs(file);
        let call = read.iter().find(|l| l.starts_with("call ")).unwrap();
        assert!(call.contains(&format!(" {tool} {{\"tool\":\"{tool}\"")), "{call}");
        let update = read.iter().find(|l| l.starts_with("update ")).unwrap();
        assert!(update.contains(" Failed The arguments provided to the tool are invalid"), "{update}");
        assert_eq!(read.last().unwrap(), DONE, "a text that comes after its tool is none of the answer");
    }
}

#[test]
fn a_rule_that_forbids_a_call_is_a_denial_and_the_turn_goes_on() {
    let rule = "The user has specified a rule which prevents you from using this specific tool call. Here are some of \
                the relevant rules []";
    let tool = |call: &str, error: &str| {
        serde_json::json!({"type": "tool_use", "sessionID": "s", "part": {"tool": "bash", "callID": call,
            "state": {"status": "error", "input": {}, "error": error}}})
    };
    assert_eq!(
        lines(&[tool("a", rule), tool("b", "No such file")]),
        [
            "call a bash {}",
            &format!("update a Denied {rule}"),
            "Denied bash by agent",
            "call b bash {}",
            "update b Failed No such file",
        ]
    );
}

#[test]
fn a_command_that_fails_has_failed() {
    let tool = |exit: i64| {
        serde_json::json!({"type": "tool_use", "part": {"tool": "bash", "callID": "c",
            "state": {"status": "completed", "input": {}, "output": "x", "metadata": {"exit": exit}}}})
    };
    let read = lines(&[tool(0), tool(2)]);
    assert_eq!([&read[1], &read[3]], ["update c Completed x", "update c Failed x"]);
}

#[test]
fn errors_of_the_service_end_the_turn_with_their_status() {
    for status in [400, 401, 429, 500] {
        let text = format!("APIError: mock error {status}");
        assert_eq!(
            briefs(&format!("e{status}.jsonl")),
            [format!("ended Error {{ text: \"{text}\", http_status: Some({status}) }}")]
        );
    }
}

#[test]
fn a_filtered_answer_is_a_refusal_and_an_overlong_conversation_an_error() {
    let read = briefs("content_filter.jsonl");
    assert_eq!(
        read[read.len() - 2..],
        [
            "ended Refusal { text: \"the answer ended by the content filter\" }",
            "ended Refusal { text: \"The response was blocked by the provider's content filter\" }",
        ]
    );
    let says = "ContextOverflowError: This model's maximum context length is 1000 tokens";
    assert_eq!(briefs("context.jsonl"), [format!("ended Error {{ text: \"{says}\", http_status: None }}")]);
}

#[test]
fn edits_are_told_as_the_model_was_told() {
    let read = briefs("edits.jsonl");
    let updates: Vec<_> = read.iter().filter(|l| l.starts_with("update ")).collect();
    assert_eq!(updates.len(), 3);
    assert!(updates[0].ends_with(" Completed Wrote file successfully."), "{updates:#?}");
    assert!(updates[2].ends_with(" Completed Edit applied successfully."), "{updates:#?}");
    assert_eq!(read.last().unwrap(), DONE);
}

#[test]
fn answers_that_break_off_are_no_end() {
    let read = briefs("drop.jsonl");
    assert_eq!(read[0], STARTED);
    assert!(!read.iter().any(|l| l.starts_with("ended")), "{read:#?}");
    assert_eq!(read.iter().filter(|l| *l == "message partial -0").count(), 3);
}

#[test]
fn the_reason_of_a_step_is_its_end() {
    let step = |reason: &str| {
        serde_json::json!({"type": "step_finish", "part": {"messageID": "m", "reason": reason,
            "tokens": {"input": 1, "output": 2, "reasoning": 3, "cache": {"read": 4, "write": 5}}, "cost": 0}})
    };
    let spent = "usage in 10 cached 4 out 5 all 15 cost None models 0";
    assert_eq!(lines(&[step("stop")]), [spent, "ended Success { answer: Some(\"\") }"]);
    assert_eq!(lines(&[step("length")]), [spent, "ended Truncated"]);
    let refusal = "ended Refusal { text: \"the answer ended by the content filter\" }";
    assert_eq!(lines(&[step("content-filter")]), [spent, refusal]);
    for reason in ["tool-calls", "unknown", "other", "error", ""] {
        assert_eq!(lines(&[step(reason)]), [spent], "{reason}");
    }
}

#[test]
fn the_answer_is_the_text_of_the_last_message_alone() {
    let text = |message: &str, text: &str| serde_json::json!({"type": "text", "part": {"messageID": message, "text": text}});
    let stop = serde_json::json!({"type": "step_finish", "part": {"messageID": "b", "reason": "stop"}});
    let ended = |all: &[serde_json::Value]| lines(all).pop().unwrap();
    assert_eq!(
        ended(&[text("a", "old"), text("b", "new "), text("b", "words"), stop.clone()]),
        "ended Success { answer: Some(\"new words\") }"
    );
    assert_eq!(ended(&[text("a", "old"), stop]), "ended Success { answer: Some(\"\") }");
}

#[test]
fn an_answer_that_is_too_long_to_be_kept_is_left_to_the_messages() {
    let piece = "x".repeat(5 * 1024 * 1024);
    let text = serde_json::json!({"type": "text", "part": {"messageID": "m", "text": piece}});
    let stop = serde_json::json!({"type": "step_finish", "part": {"messageID": "m", "reason": "stop"}});
    let read = lines(&[text.clone(), text, stop]);
    assert_eq!(read.last().unwrap(), "ended Success { answer: None }");
}

#[test]
fn other_ends_and_forms_are_read_as_far_as_they_go() {
    let error = |error: serde_json::Value| lines(&[serde_json::json!({"type": "error", "error": error})]);
    assert_eq!(
        error(serde_json::json!({"name": "MessageAbortedError", "data": {"message": "Aborted"}})),
        ["ended Cancelled { permission: None }"]
    );
    assert_eq!(
        error(serde_json::json!({"name": "New", "data": "odd"})),
        [r#"ended Error { text: "{\"data\":\"odd\",\"name\":\"New\"}", http_status: None }"#]
    );
    assert_eq!(error(serde_json::json!("odd")), [r#"ended Error { text: "\"odd\"", http_status: None }"#]);
    assert_eq!(lines(&[serde_json::json!({"type": "reasoning", "part": {"text": "hm"}})]), ["thought hm"]);
    assert_eq!(lines(&[serde_json::json!({"type": "later"})]), ["note unknown-event later"]);
    assert_eq!(lines(&[serde_json::json!({"type": "step_finish", "part": 3})]), Vec::<String>::new());
}

#[test]
fn every_recording_is_read_without_a_note() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/opencode");
    let mut count = 0;
    for entry in folder.read_dir().unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let read = briefs(&name);
        assert!(!read.iter().any(|l| l.starts_with("note ")), "{name}: {read:#?}");
        count += 1;
    }
    assert!(count >= 10, "{count} recordings");
}

proptest! {
    #[test]
    fn any_split_of_a_stream_gives_the_same_events(
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        junk in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut data = recording("opencode/deny-bash.jsonl");
        data.extend_from_slice(&junk);
        data.extend_from_slice(&recording("opencode/ask-bash.jsonl"));
        data.extend_from_slice(&recording("opencode/e429.jsonl"));
        let mut at: Vec<usize> = cuts.iter().map(|c| c.index(data.len())).collect();
        at.extend([0, data.len()]);
        at.sort_unstable();
        let chunks: Vec<&[u8]> = at.windows(2).map(|w| &data[w[0]..w[1]]).collect();
        prop_assert_eq!(
            recordings::read(Dialect::OpencodeRun, &chunks),
            recordings::read(Dialect::OpencodeRun, &[&data])
        );
    }

    #[test]
    fn no_json_is_too_odd(
        kind in "step_start|text|tool_use|step_finish|error|reasoning",
        rest in r#"[\[\]{}",:a-z0-9]{0,60}"#,
    ) {
        events(format!("{{\"type\":\"{kind}\",\"part\":{rest}}}\n").as_bytes());
        events(format!("{{\"type\":\"{kind}\",{rest}}}\n").as_bytes());
    }
}
