//! Claude Code's `stream-json`: one JSON object a line, in the manner of the Messages API.
//!
//! Text that the program says by itself (errors of the API, answers of its own commands) comes as a message of the model
//! `<synthetic>`: it is told as a note and never taken for an answer. Where an answer was cut off or came empty, the program
//! asks the model to go on, and its `result` repeats only what came then.

mod outcome;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::VecDeque;

use stockade_core::event::{EventKind, PermissionDecision, ToolStatus, TurnOutcome};

use self::wire::{Denied, ResultMeta, Retry};
use crate::{
    bounds::{OPEN_CALLS_LIMIT, name, tool_text},
    messages::{
        Conversation, usage,
        wire::{Block, Message, ResultLine, blocks, line, parse},
    },
    reader::{Recognised, note_code},
    text::json_line,
};

/// The name of no model: text that the program says by itself.
const SYNTHETIC: &str = "<synthetic>";
/// Lines of type `system` that say nothing to us.
const SILENT: [&str; 5] =
    ["compact_boundary", "informational", "model_refusal_no_fallback", "status", "ui_invalidate"];

/// The state between lines.
#[derive(Debug, Default)]
pub(crate) struct ClaudeStream {
    conversation: Conversation,
    /// Calls that were refused, by id: the last few.
    denied: VecDeque<String>,
    /// The call that ended last, where nothing came of the model since.
    last_ended: Option<String>,
    /// Whether the model was asked to go on with its answer.
    resumed: bool,
    /// What the program said last by itself.
    local: Option<String>,
}

impl ClaudeStream {
    /// Reads one line.
    pub(crate) fn read(&mut self, bytes: &[u8], out: &mut Vec<EventKind>) -> Recognised {
        let Some(line) = line(bytes) else { return Recognised::No };
        match (&*line.kind, line.subtype.as_deref()) {
            ("assistant", _) => {
                if let Some(message) = line.message {
                    self.assistant(message, out);
                }
            }
            ("user", _) => self.user(line.message, bytes, out),
            ("system", Some("init")) => Conversation::begin(&json_line(bytes).unwrap_or_default(), out),
            ("system", Some("permission_denied")) => {
                let denied: Denied<'_> = json_line(bytes).unwrap_or_default();
                self.refused(denied.tool_use_id.as_deref().map(name).unwrap_or_default());
            }
            ("system", Some("api_retry")) => {
                let retry: Retry<'_> = json_line(bytes).unwrap_or_default();
                out.push(EventKind::Note { code: note_code::AGENT_RETRY.to_owned(), text: retry.text() });
            }
            ("system", Some(subtype)) if SILENT.contains(&subtype) => {}
            ("system", Some(subtype)) => return Recognised::Unknown(name(subtype)),
            ("result", _) => self.result(&json_line(bytes).unwrap_or_default(), out),
            (other, _) => return Recognised::Unknown(name(other)),
        }
        Recognised::Known
    }

    fn assistant(&mut self, message: Message<'_>, out: &mut Vec<EventKind>) {
        if message.model.as_deref() != Some(SYNTHETIC) {
            let before = out.len();
            self.last_ended = None;
            self.conversation.assistant(message, out);
            if out.iter().skip(before).any(|e| matches!(e, EventKind::ToolCall { .. })) {
                self.resumed = false;
            }
            return;
        }
        for block in message.content.into_iter().flatten() {
            if let Some(text) = block.text.filter(|t| !t.is_empty()) {
                let text = tool_text(&text);
                self.local = Some(text.clone());
                out.push(EventKind::Note { code: note_code::AGENT_LOCAL_TEXT.to_owned(), text });
            }
        }
    }

    fn user(&mut self, message: Option<Message<'_>>, line: &[u8], out: &mut Vec<EventKind>) {
        for block in message.and_then(|m| m.content).into_iter().flatten() {
            match &*block.kind {
                "tool_result" => self.tool_result(&block, line, out),
                "text" => self.resumed = true,
                _ => {}
            }
        }
    }

    fn tool_result(&mut self, block: &Block<'_>, line: &[u8], out: &mut Vec<EventKind>) {
        let id = block.tool_use_id.as_deref().map(name).unwrap_or_default();
        let failed = block.is_error == Some(true);
        // What is said of the calls stands beside the message.
        if failed && json_line::<ResultMeta<'_>>(line).is_some_and(|meta| meta.rejects(&id)) {
            self.refused(id.clone());
        }
        let status = if self.denied.contains(&id) {
            ToolStatus::Denied
        } else if failed {
            ToolStatus::Failed
        } else {
            ToolStatus::Completed
        };
        let told =
            blocks(block.content).into_iter().filter_map(|part| part.text).collect::<Vec<_>>().join("\n");
        self.last_ended = Some(id.clone());
        self.ended(id, status, &told, out);
    }

    fn ended(&mut self, id: String, status: ToolStatus, told: &str, out: &mut Vec<EventKind>) {
        let tool = self.conversation.close(&id).unwrap_or_else(unknown);
        out.push(EventKind::ToolUpdate { id, status, output: tool_text(told) });
        if status == ToolStatus::Denied {
            out.push(denied_by_agent(tool));
        }
    }

    fn refused(&mut self, id: String) {
        if self.denied.contains(&id) {
            return;
        }
        if self.denied.len() >= OPEN_CALLS_LIMIT {
            self.denied.pop_front();
        }
        self.denied.push_back(id);
    }

    fn result(&mut self, result: &ResultLine<'_>, out: &mut Vec<EventKind>) {
        // Whatever was refused and not told in between.
        let listed: Vec<Denied<'_>> = result.permission_denials.and_then(parse).unwrap_or_default();
        let mut refused_last = None;
        for denied in listed.iter().take(OPEN_CALLS_LIMIT) {
            let id = denied.tool_use_id.as_deref().map(name).unwrap_or_default();
            let tool = denied.tool_name.as_deref().map(name);
            if self.last_ended.as_ref() == Some(&id) {
                refused_last.clone_from(&tool);
            }
            if !self.denied.contains(&id) {
                self.refused(id.clone());
                // Known by its name here, whether or not its end was told before.
                let tool = self.conversation.close(&id).or(tool).unwrap_or_else(unknown);
                out.push(denied_by_agent(tool));
                out.push(EventKind::ToolUpdate { id, status: ToolStatus::Denied, output: String::new() });
            }
        }
        usage::tell(result, out);
        let mut outcome = outcome::outcome(result, refused_last);
        if let TurnOutcome::Success { answer } = &mut outcome
            && (self.resumed || answer.as_deref().map(tool_text) == self.local)
        {
            *answer = None;
        }
        out.push(EventKind::TurnEnded { outcome });
    }
}

/// The name of a tool of which nothing was told.
fn unknown() -> String {
    "unknown".to_owned()
}

fn denied_by_agent(tool: String) -> EventKind {
    EventKind::PermissionDecided { tool, decision: PermissionDecision::Denied, by: "agent".to_owned() }
}
