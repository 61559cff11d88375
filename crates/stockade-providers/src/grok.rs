//! Grok's `streaming-messages-json`: one JSON object a line, in the manner of the Messages API.
//!
//! `system`/`init` opens, then `assistant` messages and `user` messages with tool results, and one `result` closes.
//! An `assistant` line is printed only when its tools have run, so the log is the quicker source for those.

mod log;
mod outcome;
#[cfg(test)]
mod tests;
mod tool;
mod wire;

use std::collections::VecDeque;

use stockade_core::event::{EventKind, PermissionDecision, ToolStatus};

pub(crate) use self::log::GrokLog;
use self::wire::{Block, Init, Line, Message, ResultLine};
use crate::{
    bounds::{LIST_LIMIT, OPEN_CALLS_LIMIT, cut, name, tool_text},
    reader::Recognised,
};

/// The state between lines.
#[derive(Debug)]
pub(crate) struct GrokMessages {
    /// Open tool calls, oldest first: id and tool.
    open: VecDeque<(String, String)>,
    /// The tool whose permission was cancelled.
    cancelled: Option<String>,
    /// The model that messages named last.
    model: Option<String>,
}

impl GrokMessages {
    pub(crate) fn new() -> Self {
        Self { open: VecDeque::new(), cancelled: None, model: None }
    }

    /// Reads one line.
    pub(crate) fn read(&mut self, bytes: &[u8], out: &mut Vec<EventKind>) -> Recognised {
        let Ok(line) = serde_json::from_slice::<Line<'_>>(bytes) else { return Recognised::No };
        match &*line.kind {
            "assistant" => self.assistant(line.message.and_then(wire::parse), out),
            "user" => self.user(line.message.and_then(wire::parse), out),
            "system" => match wire::parse_bytes::<Init<'_>>(bytes) {
                Some(init) if init.subtype.as_deref() == Some("init") => Self::init(&init, out),
                _ => return Recognised::Unknown("system".to_owned()),
            },
            "result" => self.result(&wire::parse_bytes(bytes).unwrap_or_default(), out),
            other => return Recognised::Unknown(name(other)),
        }
        Recognised::Known
    }

    fn init(init: &Init<'_>, out: &mut Vec<EventKind>) {
        let tools = init.tools.iter().flatten().take(LIST_LIMIT).map(|t| name(t)).collect();
        out.push(EventKind::TurnStarted { session: init.session_id.as_deref().map(name), tools });
        if let Some(model) = &init.model {
            out.push(model_seen(model, "init"));
        }
    }

    fn assistant(&mut self, message: Option<Message<'_>>, out: &mut Vec<EventKind>) {
        let Some(message) = message else { return };
        // Said once and again when it changes: a long run has thousands of messages.
        if let Some(model) = message.model.as_deref().filter(|m| self.model.as_deref() != Some(m)) {
            self.model = Some(name(model));
            out.push(model_seen(model, "message"));
        }
        for block in wire::blocks(message.content) {
            match &*block.kind {
                "text" => {
                    if let Some(t) = block.text.filter(|t| !t.is_empty()) {
                        let (text, cut_bytes) = cut(&t);
                        out.push(EventKind::Message { text, cut_bytes });
                    }
                }
                "thinking" => {
                    if let Some(t) = block.thinking.filter(|t| !t.is_empty()) {
                        let (text, cut_bytes) = cut(&t);
                        out.push(EventKind::Thought { text, cut_bytes });
                    }
                }
                "tool_use" => self.tool_call(&block, out),
                _ => {}
            }
        }
    }

    fn tool_call(&mut self, block: &Block<'_>, out: &mut Vec<EventKind>) {
        let id = block.id.as_deref().map(name).unwrap_or_default();
        let tool = block.name.as_deref().map(name).unwrap_or_default();
        if self.open.len() >= OPEN_CALLS_LIMIT {
            self.open.pop_front();
        }
        self.open.push_back((id.clone(), tool.clone()));
        let input = block.input.map_or("", |raw| raw.get());
        out.push(EventKind::ToolCall { id, tool, input: tool_text(input) });
    }

    fn user(&mut self, message: Option<Message<'_>>, out: &mut Vec<EventKind>) {
        for block in wire::blocks(message.and_then(|m| m.content)) {
            if block.kind == "tool_result" {
                self.tool_result(&block, out);
            }
        }
    }

    fn tool_result(&mut self, block: &Block<'_>, out: &mut Vec<EventKind>) {
        let id = block.tool_use_id.as_deref().map(name).unwrap_or_default();
        let told = tool::told(block.content, block.is_error.unwrap_or(false));
        let at = self.open.iter().position(|(open, _)| *open == id);
        let tool = at.and_then(|at| self.open.remove(at)).map(|(_, tool)| tool);
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
        if let Some(usage) = outcome::usage(result) {
            out.push(usage);
        }
        for model in outcome::models(result) {
            out.push(model_seen(&model, "result"));
        }
        out.push(EventKind::TurnEnded { outcome: outcome::outcome(result, self.cancelled.take()) });
    }
}

fn model_seen(model: &str, place: &str) -> EventKind {
    EventKind::ModelSeen { model: name(model), place: place.to_owned() }
}
