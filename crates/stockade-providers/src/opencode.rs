//! OpenCode's `run --format json`: one JSON object a line, each a part of a message that is finished.
//!
//! A step is one answer of the model: `step_start`, then its texts and the tools that it called, once they have ended, and
//! `step_finish` with the reason. Within a step the lines come in any order, so that only the message's id tells which texts
//! belong to the last answer. `error` is the only other end.

mod step;
#[cfg(test)]
mod tests;
mod wire;

use stockade_core::event::{EventKind, LINE_LIMIT_BYTES, PermissionDecision, ToolStatus, TurnOutcome};

use self::{
    step::{Spent, outcome},
    wire::{ErrorLine, Part, ToolState, parse},
};
use crate::{
    bounds::{cut, name, tool_text},
    reader::Recognised,
    text::json_line,
};

/// The state between lines.
#[derive(Debug, Default)]
pub(crate) struct OpencodeRun {
    /// Whether the first step was told.
    begun: bool,
    answer: Answer,
    spent: Spent,
}

/// The texts of the last message that had any.
#[derive(Debug, Default)]
struct Answer {
    message: String,
    text: String,
    /// Whether it became longer than is kept.
    overlong: bool,
}

impl Answer {
    fn add(&mut self, message: &str, text: &str) {
        if self.message != message {
            *self = Self { message: message.to_owned(), ..Self::default() };
        }
        self.overlong |= self.text.len() + text.len() > LINE_LIMIT_BYTES;
        if !self.overlong {
            self.text.push_str(text);
        }
    }

    /// The texts of a message; `None`: they are too long, and the messages told before are the answer.
    fn of(&mut self, message: &str) -> Option<String> {
        let answer = std::mem::take(self);
        if answer.message != message {
            return Some(String::new());
        }
        (!answer.overlong).then_some(answer.text)
    }
}

impl OpencodeRun {
    /// Reads one line.
    pub(crate) fn read(&mut self, bytes: &[u8], out: &mut Vec<EventKind>) -> Recognised {
        let Some(line) = json_line::<wire::Line<'_>>(bytes) else { return Recognised::No };
        let part: Part<'_> = line.part.and_then(parse).unwrap_or_default();
        match &*line.kind {
            "step_start" => {
                if !self.begun {
                    self.begun = true;
                    let session = line.session.as_deref().map(name);
                    out.push(EventKind::TurnStarted { session, tools: Vec::new() });
                }
            }
            "text" => {
                let text = part.text.as_deref().unwrap_or_default();
                self.answer.add(&name(part.message.as_deref().unwrap_or_default()), text);
                if !text.is_empty() {
                    let (text, cut_bytes) = cut(text);
                    out.push(EventKind::Message { text, cut_bytes });
                }
            }
            "reasoning" => {
                if let Some(text) = part.text.filter(|t| !t.is_empty()) {
                    let (text, cut_bytes) = cut(&text);
                    out.push(EventKind::Thought { text, cut_bytes });
                }
            }
            "tool_use" => tool(&part, out),
            "step_finish" => self.step_finished(&part, out),
            "error" => {
                let error: ErrorLine<'_> = line.error.and_then(parse).unwrap_or_default();
                out.push(EventKind::TurnEnded { outcome: error.outcome(line.error) });
            }
            other => return Recognised::Unknown(name(other)),
        }
        Recognised::Known
    }

    fn step_finished(&mut self, part: &Part<'_>, out: &mut Vec<EventKind>) {
        if let Some(tokens) = part.tokens.and_then(parse) {
            out.push(self.spent.add(&tokens, part.cost.and_then(parse)));
        }
        let Some(mut outcome) = outcome(part.reason.as_deref().unwrap_or_default()) else { return };
        if let TurnOutcome::Success { answer } = &mut outcome {
            *answer = self.answer.of(&name(part.message.as_deref().unwrap_or_default()));
        }
        out.push(EventKind::TurnEnded { outcome });
    }
}

/// A tool that has ended: it is announced with its end.
fn tool(part: &Part<'_>, out: &mut Vec<EventKind>) {
    let state: ToolState<'_> = part.state.and_then(parse).unwrap_or_default();
    let id = part.call.as_deref().map(name).unwrap_or_default();
    let tool = name(&state.tool_meant(part.tool.as_deref().unwrap_or_default()));
    let input = tool_text(state.input.map_or("", |raw| raw.get()));
    out.push(EventKind::ToolCall { id: id.clone(), tool: tool.clone(), input });
    let (status, told) = state.told(part.tool.as_deref());
    let output = tool_text(&told);
    out.push(EventKind::ToolUpdate { id, status, output });
    let decision = match status {
        ToolStatus::Denied => PermissionDecision::Denied,
        ToolStatus::Cancelled => PermissionDecision::Cancelled,
        ToolStatus::Running | ToolStatus::Completed | ToolStatus::Failed => return,
    };
    out.push(EventKind::PermissionDecided { tool, decision, by: "agent".to_owned() });
}
