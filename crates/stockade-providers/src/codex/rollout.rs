//! The rollout: Codex's own record of a session, and the only place that tells of what the stream leaves out.
//!
//! A call of a tool is one line, what the model was told is another. What the stream shows has a line of its own between
//! them. A command that Codex takes for refused by its sandbox has none where it failed fast, and one like any failure's
//! where it did not; what its policy refuses has none.

use std::{borrow::Cow, collections::VecDeque};

use serde::Deserialize;
use serde_json::value::RawValue;
use stockade_core::event::{EventKind, PermissionDecision, ToolStatus};

use super::parse;
use crate::{
    bounds::{OPEN_CALLS_LIMIT, name, tool_text},
    text::{Text, json_line},
};

/// How the answer to a call begins that Codex's policy refused.
const REFUSALS: [&str; 3] =
    ["patch rejected:", "approval policy is Never; reject command", "exec command rejected"];
/// Words by which Codex takes a failure for its sandbox's doing.
const SANDBOX_WORDS: [&str; 3] = ["read-only file system", "operation not permitted", "permission denied"];
/// What stands before an error in the answer to a script.
const SCRIPT_ERROR: &str = "Script error:\n";
/// What the answer to a command says that goes on.
const STILL_RUNNING: &str = "Process running with session ID";
/// The tools that run scripts.
const SCRIPT_TOOLS: [&str; 2] = ["exec", "wait"];
/// The tools that ask the person.
const QUESTION_TOOLS: [&str; 2] = ["request_user_input", "request_user_input_async"];
/// The tool that runs a command.
const COMMAND_TOOL: &str = "exec_command";

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Payload<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    call_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    permission_profile: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Permissions<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

/// What the stream shows.
#[derive(Deserialize)]
struct Shown<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(default)]
    exit_code: Option<i64>,
    #[serde(borrow, default)]
    aggregated_output: Option<Text<'a>>,
}

impl Shown<'_> {
    /// The output of a command that a sandbox seems to have refused.
    fn refused(&self) -> Option<&str> {
        let output = self.aggregated_output.as_deref().filter(|_| self.kind == "CommandExecution")?;
        let failed = self.exit_code.is_some_and(|code| code != 0);
        let lower = output.to_lowercase();
        (failed && SANDBOX_WORDS.iter().any(|word| lower.contains(word))).then_some(output)
    }
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
}

/// A call whose answer is not there yet.
#[derive(Debug)]
struct Call {
    id: String,
    tool: String,
    input: String,
    /// Whether the stream shows it.
    shown: bool,
}

/// What is kept between lines.
#[derive(Debug, Default)]
pub(crate) struct Rollout {
    /// Oldest first.
    open: VecDeque<Call>,
    /// Whether Codex's own sandbox is on.
    is_sandboxed: bool,
}

impl Rollout {
    /// Calls of tools that began and have no answer.
    pub(crate) fn tools_running(&self) -> u32 {
        u32::try_from(self.open.len()).unwrap_or(u32::MAX)
    }

    /// Reads one line. What is not known says nothing.
    pub(crate) fn read(&mut self, bytes: &[u8], out: &mut Vec<EventKind>) {
        let Some(line) = json_line::<Line<'_>>(bytes) else { return };
        let payload = || line.payload.and_then(parse::<Payload<'_>>);
        match &*line.kind {
            "response_item" => {
                let Some(payload) = payload() else { return };
                match &*payload.kind {
                    "function_call" | "custom_tool_call" | "local_shell_call" => self.called(&payload, out),
                    "function_call_output" | "custom_tool_call_output" => self.answered(&payload, out),
                    _ => {}
                }
            }
            "event_msg" => {
                let Some(payload) = payload() else { return };
                match &*payload.kind {
                    "item_completed" => self.shown(&payload, out),
                    "task_complete" | "turn_aborted" => self.open.clear(),
                    _ => {}
                }
            }
            "turn_context" => {
                let permissions =
                    payload().and_then(|p| p.permission_profile).and_then(parse::<Permissions<'_>>);
                self.is_sandboxed = permissions.is_some_and(|permissions| permissions.kind != "disabled");
            }
            _ => {}
        }
    }

    fn called(&mut self, payload: &Payload<'_>, out: &mut Vec<EventKind>) {
        let tool = payload.name.as_deref().map_or_else(|| "local_shell".to_owned(), name);
        let input = payload.arguments.or(payload.input).map(words).unwrap_or_default();
        if QUESTION_TOOLS.contains(&tool.as_str()) {
            out.push(EventKind::QuestionAsked { text: tool_text(&input) });
        }
        if self.open.len() >= OPEN_CALLS_LIMIT {
            self.open.pop_front();
        }
        let id = payload.call_id.as_deref().map(name).unwrap_or_default();
        self.open.push_back(Call { id, tool, input: tool_text(&input), shown: false });
    }

    fn shown(&mut self, payload: &Payload<'_>, out: &mut Vec<EventKind>) {
        let Some(item) = payload.item.and_then(parse::<Shown<'_>>) else { return };
        let Some(id) = item.id.as_deref().map(name) else { return };
        if let Some(call) = self.open.iter_mut().find(|call| call.id == id) {
            call.shown = true;
        }
        // The stream has told of the call, by another id and as one that failed.
        if let Some(output) = item.refused().filter(|_| self.is_sandboxed) {
            out.push(denied(COMMAND_TOOL.to_owned()));
            out.push(EventKind::ToolUpdate { id, status: ToolStatus::Denied, output: tool_text(output) });
        }
    }

    fn answered(&mut self, payload: &Payload<'_>, out: &mut Vec<EventKind>) {
        let Some(id) = payload.call_id.as_deref().map(name) else { return };
        let Some(at) = self.open.iter().position(|call| call.id == id) else { return };
        let Some(call) = self.open.remove(at).filter(|call| !call.shown) else { return };
        let told = payload.output.map(words).unwrap_or_default();
        let status = status(&call.tool, &told);
        // What a script called and what goes on in the background is told of by itself.
        let told_elsewhere =
            SCRIPT_TOOLS.contains(&call.tool.as_str()) || head(&told).contains(STILL_RUNNING);
        if told_elsewhere && status != ToolStatus::Denied {
            return;
        }
        let Call { tool, input, .. } = call;
        out.push(EventKind::ToolCall { id: id.clone(), tool: tool.clone(), input });
        if status == ToolStatus::Denied {
            out.push(denied(tool));
        }
        out.push(EventKind::ToolUpdate { id, status, output: tool_text(&told) });
    }
}

fn denied(tool: String) -> EventKind {
    EventKind::PermissionDecided { tool, decision: PermissionDecision::Denied, by: "agent".to_owned() }
}

/// How a call stands that the stream does not show.
fn status(tool: &str, told: &str) -> ToolStatus {
    let said = told.split_once(SCRIPT_ERROR).map_or(told, |(_, error)| error);
    if REFUSALS.iter().any(|refusal| said.starts_with(refusal)) {
        return ToolStatus::Denied;
    }
    match exit_code(told) {
        // A command that failed and is not shown is one that Codex takes for refused by its sandbox.
        Some(code) if tool == COMMAND_TOOL && code != 0 => ToolStatus::Denied,
        None if QUESTION_TOOLS.contains(&tool) || said.starts_with("unsupported call") => ToolStatus::Failed,
        _ => ToolStatus::Completed,
    }
}

/// The exit code that the answer to a command states in its head.
fn exit_code(told: &str) -> Option<i64> {
    head(told).lines().find_map(|line| line.strip_prefix("Process exited with code ")?.parse().ok())
}

/// What stands before the output of a command.
fn head(told: &str) -> &str {
    told.split_once("\nOutput:\n").map_or(told, |(head, _)| head)
}

/// A text, or the texts of a list of parts.
fn words(raw: &RawValue) -> String {
    if let Some(text) = parse::<Text<'_>>(raw) {
        return text.into_owned();
    }
    match parse::<Vec<Part<'_>>>(raw) {
        Some(parts) => parts.into_iter().filter_map(|part| part.text).collect::<Vec<_>>().join(""),
        None => raw.get().to_owned(),
    }
}
