//! Items of the stream: messages, thoughts, commands, changes of files.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use stockade_core::event::{EventKind, PermissionDecision, ToolStatus};

use super::{AGENT_ERROR, parse};
use crate::{
    bounds::{cut, name, tool_text},
    text::Text,
};

/// An item. Raw where its form depends on its type.
#[derive(Deserialize)]
pub(super) struct Item<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    message: Option<Text<'a>>,
    #[serde(borrow, default)]
    status: Option<Text<'a>>,
    #[serde(borrow, default)]
    command: Option<Text<'a>>,
    #[serde(borrow, default)]
    aggregated_output: Option<Text<'a>>,
    #[serde(default)]
    exit_code: Option<i64>,
    #[serde(borrow, default)]
    changes: Option<&'a RawValue>,
    #[serde(borrow, default)]
    server: Option<Text<'a>>,
    #[serde(borrow, default)]
    tool: Option<Text<'a>>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    query: Option<Text<'a>>,
}

impl<'a> Item<'a> {
    /// The text, where it is a message of the agent.
    pub(super) fn answer(&self) -> Option<&str> {
        self.text.as_deref().filter(|text| self.kind == "agent_message" && !text.is_empty())
    }

    /// Tells of an item that is there.
    pub(super) fn completed(&self, out: &mut Vec<EventKind>) {
        match &*self.kind {
            "agent_message" => {
                if let Some(text) = self.answer() {
                    let (text, cut_bytes) = cut(text);
                    out.push(EventKind::Message { text, cut_bytes });
                }
            }
            "reasoning" => {
                if let Some(text) = self.text.as_deref().filter(|text| !text.is_empty()) {
                    let (text, cut_bytes) = cut(text);
                    out.push(EventKind::Thought { text, cut_bytes });
                }
            }
            "error" => {
                let text = self.message.as_deref().unwrap_or_default();
                out.push(EventKind::Note { code: AGENT_ERROR.to_owned(), text: tool_text(text) });
            }
            _ => {
                if self.input().is_none() {
                    return;
                }
                let status = self.tool_status();
                out.push(EventKind::ToolUpdate { id: self.id(), status, output: self.output() });
                if status == ToolStatus::Denied {
                    let decision = PermissionDecision::Denied;
                    let by = "agent".to_owned();
                    out.push(EventKind::PermissionDecided { tool: self.tool_name(), decision, by });
                }
            }
        }
    }

    /// The call of a tool that is given this.
    pub(super) fn call(&self, input: &str) -> EventKind {
        EventKind::ToolCall { id: self.id(), tool: self.tool_name(), input: tool_text(input) }
    }

    /// What a tool is given, where it is a call of one.
    pub(super) fn input(&self) -> Option<&str> {
        let raw = |raw: Option<&'a RawValue>| raw.map_or("", RawValue::get);
        Some(match &*self.kind {
            "command_execution" => self.command.as_deref().unwrap_or_default(),
            "file_change" => raw(self.changes),
            "mcp_tool_call" => raw(self.arguments),
            "web_search" => self.query.as_deref().unwrap_or_default(),
            _ => return None,
        })
    }

    /// The head of its id.
    pub(super) fn id(&self) -> String {
        self.id.as_deref().map(name).unwrap_or_default()
    }

    fn tool_name(&self) -> String {
        match (self.server.as_deref(), self.tool.as_deref()) {
            (Some(server), Some(tool)) => name(&format!("{server}/{tool}")),
            _ => name(&self.kind),
        }
    }

    fn tool_status(&self) -> ToolStatus {
        match (self.status.as_deref(), self.exit_code) {
            (Some("declined"), _) => ToolStatus::Denied,
            (Some("failed"), _) => ToolStatus::Failed,
            (_, Some(code)) if code != 0 => ToolStatus::Failed,
            _ => ToolStatus::Completed,
        }
    }

    fn output(&self) -> String {
        if let Some(output) = &self.aggregated_output {
            return tool_text(output);
        }
        let raw = self.error.or(self.result);
        let text = raw.map(|raw| match parse::<Text<'_>>(raw) {
            Some(text) => text.into_owned(),
            None => raw.get().to_owned(),
        });
        tool_text(&text.filter(|text| text != "null").unwrap_or_default())
    }
}
