//! Grok's `streaming-messages-json`: one JSON object a line, in the manner of the Messages API.
//!
//! An `assistant` line is printed only when its tools have run, so the log is the quicker source for those.

mod log;
mod outcome;
#[cfg(test)]
mod tests;
mod tool;

use stockade_core::event::{EventKind, PermissionDecision, ToolStatus};

pub(crate) use self::log::GrokLog;
use crate::{
    bounds::{name, tool_text},
    messages::{
        Conversation, usage,
        wire::{self, Block, Message, ResultLine},
    },
    reader::Recognised,
    text::json_line,
};

/// The state between lines.
#[derive(Debug, Default)]
pub(crate) struct GrokMessages {
    conversation: Conversation,
    /// The tool whose permission was cancelled.
    cancelled: Option<String>,
}

impl GrokMessages {
    /// Reads one line.
    pub(crate) fn read(&mut self, bytes: &[u8], out: &mut Vec<EventKind>) -> Recognised {
        let Some(line) = wire::line(bytes) else { return Recognised::No };
        match (&*line.kind, line.subtype.as_deref()) {
            ("assistant", _) => {
                if let Some(message) = line.message {
                    self.conversation.assistant(message, out);
                }
            }
            ("user", _) => self.user(line.message, out),
            ("system", Some("init")) => {
                Conversation::begin(&json_line(bytes).unwrap_or_default(), out);
            }
            ("result", _) => self.result(&json_line(bytes).unwrap_or_default(), out),
            (other, _) => return Recognised::Unknown(name(other)),
        }
        Recognised::Known
    }

    fn user(&mut self, message: Option<Message<'_>>, out: &mut Vec<EventKind>) {
        for block in message.and_then(|m| m.content).into_iter().flatten() {
            if block.kind == "tool_result" {
                self.tool_result(&block, out);
            }
        }
    }

    fn tool_result(&mut self, block: &Block<'_>, out: &mut Vec<EventKind>) {
        let id = block.tool_use_id.as_deref().map(name).unwrap_or_default();
        let told = tool::told(block.content, block.is_error.unwrap_or(false));
        let tool = self.conversation.close(&id);
        let tool = tool.or_else(|| told.named_tool().map(name)).unwrap_or_else(|| "unknown".to_owned());
        let output = tool_text(&told.text);
        out.push(EventKind::ToolUpdate { id, status: told.status, output });
        let decision = match told.status {
            ToolStatus::Denied => PermissionDecision::Denied,
            ToolStatus::Cancelled => {
                self.cancelled = Some(tool.clone());
                PermissionDecision::Cancelled
            }
            ToolStatus::Running | ToolStatus::Completed | ToolStatus::Failed => return,
        };
        out.push(EventKind::PermissionDecided { tool, decision, by: "agent".to_owned() });
    }

    fn result(&mut self, result: &ResultLine<'_>, out: &mut Vec<EventKind>) {
        usage::tell(result, out);
        out.push(EventKind::TurnEnded { outcome: outcome::outcome(result, self.cancelled.take()) });
    }
}
