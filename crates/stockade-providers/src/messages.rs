//! Streams in the manner of the Messages API: what the agents that print such have in common.
//!
//! `system`/`init` opens, then come `assistant` messages and `user` messages with tool results, and one `result` closes.

pub(crate) mod usage;
pub(crate) mod wire;

use std::collections::VecDeque;

use serde_json::value::RawValue;
use stockade_core::event::EventKind;

use self::wire::{Block, Init, Message};
use crate::bounds::{LIST_LIMIT, OPEN_CALLS_LIMIT, cut, name, tool_text};

/// What is kept between the messages of a stream.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// Open tool calls, oldest first: id and tool.
    open: VecDeque<(String, String)>,
    /// The model that messages named last.
    model: Option<String>,
}

impl Conversation {
    /// The opening line.
    pub(crate) fn begin(init: &Init<'_>, out: &mut Vec<EventKind>) {
        let tools = init.tools.iter().flatten().take(LIST_LIMIT).map(|t| name(t)).collect();
        out.push(EventKind::TurnStarted { session: init.session_id.as_deref().map(name), tools });
        if let Some(model) = init.model.as_deref().filter(|m| !m.is_empty()) {
            out.push(model_seen(model, "init"));
        }
    }

    /// A message of the model.
    pub(crate) fn assistant(&mut self, message: Message<'_>, out: &mut Vec<EventKind>) {
        // Said once and again when it changes: a long run has thousands of messages.
        // An endpoint that names none makes an empty name, which states nothing.
        let named = message.model.as_deref().filter(|m| !m.is_empty());
        if let Some(model) = named.filter(|m| self.model.as_deref() != Some(m)) {
            self.model = Some(name(model));
            out.push(model_seen(model, "message"));
        }
        for block in message.content.into_iter().flatten() {
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
        let input = block.input.map_or("", RawValue::get);
        out.push(EventKind::ToolCall { id, tool, input: tool_text(input) });
    }

    /// A tool call has its result: gives the tool, where it is still known.
    pub(crate) fn close(&mut self, id: &str) -> Option<String> {
        let at = self.open.iter().position(|(open, _)| open == id)?;
        self.open.remove(at).map(|(_, tool)| tool)
    }
}

/// The agent names a model.
pub(crate) fn model_seen(model: &str, place: &str) -> EventKind {
    EventKind::ModelSeen { model: name(model), place: place.to_owned() }
}
