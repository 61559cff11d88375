//! Every recorded stream and rollout, read whole: what the real agent printed and logged, and what it means.

use std::{fs, path::Path};

use proptest::prelude::*;
use stockade_core::{
    event::{EventKind, TurnOutcome},
    profile::Dialect,
};

use super::Rollout;
use crate::Reader;

fn recording(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/codex").join(name);
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn read(chunks: &[&[u8]]) -> Vec<EventKind> {
    let mut reader = Reader::new(Dialect::CodexExec);
    let mut out = Vec::new();
    for chunk in chunks {
        reader.push(chunk, &mut out);
    }
    reader.finish(&mut out);
    out
}

fn rollout(bytes: &[u8]) -> (Vec<EventKind>, u32) {
    let mut rollout = Rollout::default();
    let mut out = Vec::new();
    for line in bytes.split(|b| *b == b'\n') {
        rollout.read(line, &mut out);
    }
    (out, rollout.tools_running())
}

/// One line an event, everything that decides something in it.
fn brief(event: &EventKind) -> String {
    match event {
        EventKind::TurnStarted { session, tools } => {
            format!("turn-started {} {} tools", session.as_deref().map_or(0, str::len), tools.len())
        }
        EventKind::Message { text, cut_bytes } => format!("message {text:?} -{cut_bytes}"),
        EventKind::ToolCall { id, tool, input } => format!("call {id} {tool} {input}"),
        EventKind::ToolUpdate { id, status, output } => format!("update {id} {status:?} {output:?}"),
        EventKind::PermissionDecided { tool, decision, by } => format!("{decision:?} {tool} by {by}"),
        EventKind::QuestionAsked { text } => format!("asked {text}"),
        EventKind::Usage { usage, cost_usd, models } => format!(
            "usage in {} cached {} out {} thought {} all {} cost {cost_usd:?} models {}",
            usage.input_tokens.unwrap(),
            usage.cached_input_tokens.unwrap(),
            usage.output_tokens.unwrap(),
            usage.reasoning_tokens.unwrap(),
            usage.total_tokens.unwrap(),
            models.len()
        ),
        EventKind::TurnEnded { outcome } => format!("ended {outcome:?}"),
        EventKind::Note { code, text } => format!("note {code} {text}"),
        other => format!("{other:?}"),
    }
}

fn briefs(name: &str) -> Vec<String> {
    read(&[&recording(name)]).iter().map(brief).collect()
}

const STARTED: &str = "turn-started 36 0 tools";
const TWO: &str = "usage in 2000 cached 600 out 80 thought 14 all 2080 cost None models 0";
const DONE: &str = "ended Success { answer: Some(\"Done.\") }";

#[test]
fn a_command_and_the_answer_are_read_whole() {
    assert_eq!(
        briefs("code-xcode-workspace-write.jsonl"),
        [
            STARTED,
            "call item_0 command_execution /bin/bash -lc 'echo hi > made.txt && cat made.txt'",
            "update item_0 Completed \"hi\\n\"",
            "message \"Done.\" -0",
            TWO,
            DONE,
        ]
    );
}

#[test]
fn a_failed_command_and_a_changed_file_are_calls_of_tools() {
    let read = briefs("full-access.jsonl");
    for expected in [
        "call item_1 file_change [{\"path\":\"/w/ws/made.txt\",\"kind\":\"add\"}]",
        "update item_1 Completed \"\"",
        "call item_2 command_execution /bin/bash -lc 'ls; exit 3'",
        "update item_2 Failed \"made.txt\\n\"",
    ] {
        assert_eq!(read.iter().filter(|line| *line == expected).count(), 1, "{expected}: {read:#?}");
    }
    assert_eq!(read.last().unwrap(), DONE);
}

#[test]
fn each_failure_has_its_text_and_its_status() {
    for (name, status) in [
        ("e400", None),
        ("e401", Some(401)),
        ("e403", Some(403)),
        ("e404", Some(404)),
        ("e429", Some(429)),
        ("e500", None),
        ("e529", Some(529)),
        ("drop", None),
    ] {
        let events = read(&[&recording(&format!("{name}.jsonl"))]);
        let Some(EventKind::TurnEnded { outcome: TurnOutcome::Error { text, http_status } }) = events.last()
        else {
            panic!("{name}: {events:#?}");
        };
        assert_eq!(*http_status, status, "{name}");
        assert!(!text.is_empty(), "{name}");
    }
}

#[test]
fn an_answer_that_was_begun_again_is_the_last_one() {
    let begun = recording("drop.jsonl");
    let end =
        begun.windows(b"{\"type\":\"turn.failed\"".len()).position(|w| w == b"{\"type\":\"turn.failed\"");
    let mut bytes = begun[..end.unwrap()].to_vec();
    bytes.extend_from_slice(
        b"{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"whole\"}}\n",
    );
    bytes.extend_from_slice(
        b"{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":0,\"output_tokens\":0}}\n",
    );
    let events = read(&[&bytes]);
    let answer = Some("whole".to_owned());
    assert_eq!(events.last(), Some(&EventKind::TurnEnded { outcome: TurnOutcome::Success { answer } }));
    assert!(!events.iter().any(|e| matches!(e, EventKind::Usage { .. })), "zeros are no usage");
}

#[test]
fn a_turn_that_was_broken_off_has_no_end() {
    for name in ["hang-sigint.jsonl", "hang-sigterm.jsonl"] {
        assert_eq!(briefs(name), [STARTED], "{name}");
    }
}

#[test]
fn what_the_stream_leaves_out_is_in_the_rollout() {
    let shown = briefs("denied-read-only.jsonl");
    assert!(!shown.iter().any(|line| line.contains("made.txt") || line.contains("patch")), "{shown:#?}");
    let (events, running) = rollout(&recording("denied-read-only.rollout.jsonl"));
    let heads: Vec<String> = events.iter().map(brief).map(|b| b.chars().take(90).collect()).collect();
    let statuses: Vec<&str> =
        heads.iter().filter(|h| h.starts_with("update")).map(|h| h.split(' ').nth(2).unwrap()).collect();
    // The command, the patch, the escalation, the question, another patch, a command that was shown, a tool that is not there.
    assert_eq!(
        statuses,
        ["Denied", "Denied", "Denied", "Failed", "Denied", "Denied", "Failed"],
        "{heads:#?}"
    );
    assert_eq!(heads.iter().filter(|h| h.starts_with("Denied ")).count(), 5);
    assert_eq!(
        heads.iter().filter(|h| h.starts_with("call ")).count(),
        6,
        "the one that was shown is told of"
    );
    assert_eq!(heads.iter().filter(|h| h.starts_with("asked ")).count(), 1);
    assert!(heads[0].ends_with("exec_command {\"cmd\": \"echo hi > made.txt\"}"), "{heads:#?}");
    assert_eq!(running, 0);
}

#[test]
fn what_the_stream_shows_is_not_told_again() {
    let (events, running) = rollout(&recording("full-access.rollout.jsonl"));
    let calls: Vec<&str> = events
        .iter()
        .filter_map(|e| match e {
            EventKind::ToolCall { tool, .. } => Some(tool.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!((calls, running), (vec!["exec_command", "request_user_input", "nosuch"], 0));
}

#[test]
fn a_script_is_told_of_only_where_something_was_refused() {
    let (events, running) = rollout(&recording("script-denied-read-only.rollout.jsonl"));
    let read: Vec<String> = events.iter().map(brief).collect();
    let denied: Vec<&String> = read.iter().filter(|line| line.starts_with("Denied ")).collect();
    let expected = ["exec_command", "exec", "exec"].map(|tool| format!("Denied {tool} by agent"));
    assert_eq!(denied, expected.iter().collect::<Vec<_>>(), "{read:#?}");
    assert_eq!(read.iter().filter(|line| line.starts_with("asked ")).count(), 2);
    assert_eq!(running, 0);
}

#[test]
fn a_question_that_nobody_waits_for_is_recorded() {
    let (events, _) = rollout(&recording("question-async.rollout.jsonl"));
    let read: Vec<String> = events.iter().map(brief).collect();
    assert_eq!(read, ["asked {\"questions\": [{\"title\": \"q?\", \"options\": [\"x\", \"y\"]}]}"]);
}

#[test]
fn a_call_without_an_answer_runs() {
    let line = br#"{"type":"response_item","payload":{"type":"function_call","name":"exec_command","call_id":"c","arguments":"{}"}}"#;
    assert_eq!(rollout(line), (vec![], 1));
    let background = br#"{"type":"response_item","payload":{"type":"function_call_output","call_id":"c","output":"Wall time: 1.0 seconds\nProcess running with session ID 5\nOutput:\n"}}"#;
    let both = [line.as_slice(), background].join(&b'\n');
    assert_eq!(rollout(&both), (vec![], 0), "the stream tells of it when it is done");
}

proptest! {
    #[test]
    fn any_split_of_a_stream_gives_the_same_events(
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        junk in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut data = recording("full-access.jsonl");
        data.extend_from_slice(&junk);
        data.extend_from_slice(&recording("drop.jsonl"));
        let mut at: Vec<usize> = cuts.iter().map(|c| c.index(data.len())).collect();
        at.extend([0, data.len()]);
        at.sort_unstable();
        let chunks: Vec<&[u8]> = at.windows(2).map(|w| &data[w[0]..w[1]]).collect();
        prop_assert_eq!(read(&chunks), read(&[&data]));
    }

    #[test]
    fn no_json_is_too_odd(
        kind in "thread.started|turn.completed|turn.failed|item.started|item.completed|error",
        rest in r#"[\[\]{}",:a-z0-9]{0,60}"#,
    ) {
        read(&[format!("{{\"type\":\"{kind}\",\"item\":{rest}}}\n").as_bytes()]);
        read(&[format!("{{\"type\":\"{kind}\",{rest}}}\n").as_bytes()]);
        for kind in ["response_item", "event_msg"] {
            rollout(format!("{{\"type\":\"{kind}\",\"payload\":{rest}}}").as_bytes());
        }
    }
}
