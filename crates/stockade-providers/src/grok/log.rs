//! The lines of the session's event log that matter: permissions, tools and a cancelled turn.

use std::borrow::Cow;

use serde::Deserialize;
use stockade_core::event::{EventKind, PermissionDecision, TurnOutcome};

use crate::{
    bounds::name,
    text::{Text, json_line},
};

#[derive(Deserialize)]
struct LogLine<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    tool_name: Option<Text<'a>>,
    #[serde(borrow, default)]
    decision: Option<Text<'a>>,
    #[serde(borrow, default)]
    cancellation_category: Option<Text<'a>>,
}

/// What is kept between lines.
#[derive(Debug, Default)]
pub(crate) struct GrokLog {
    running: u32,
    cancelled: Option<String>,
}

impl GrokLog {
    pub(crate) fn tools_running(&self) -> u32 {
        self.running
    }

    /// Reads one line. What is not known says nothing.
    pub(crate) fn read(&mut self, bytes: &[u8], out: &mut Vec<EventKind>) {
        let Some(line) = json_line::<LogLine<'_>>(bytes) else { return };
        let tool = || name(line.tool_name.as_deref().unwrap_or("unknown"));
        match &*line.kind {
            "tool_started" => self.running = self.running.saturating_add(1),
            "tool_completed" => self.running = self.running.saturating_sub(1),
            "permission_requested" => out.push(EventKind::PermissionAsked { tool: tool() }),
            "permission_resolved" => {
                let Some(decision) = line.decision.as_deref().and_then(decision) else { return };
                if decision != PermissionDecision::Allowed {
                    // A call that is refused has no end of its own in the log.
                    self.running = self.running.saturating_sub(1);
                }
                if decision == PermissionDecision::Cancelled {
                    self.cancelled = Some(tool());
                }
                out.push(EventKind::PermissionDecided { tool: tool(), decision, by: "agent".to_owned() });
            }
            // The model is asked again only when every tool is done.
            "loop_started" => self.running = 0,
            "turn_ended" => {
                self.running = 0;
                if line.cancellation_category.as_deref() == Some("permission_cancelled") {
                    let permission = self.cancelled.take().or_else(|| Some("unknown".to_owned()));
                    out.push(EventKind::TurnEnded { outcome: TurnOutcome::Cancelled { permission } });
                }
            }
            _ => {}
        }
    }
}

/// Decisions seen are `allow`, `deny` and `cancelled`; longer forms begin alike.
fn decision(word: &str) -> Option<PermissionDecision> {
    [
        ("allow", PermissionDecision::Allowed),
        ("deny", PermissionDecision::Denied),
        ("denied", PermissionDecision::Denied),
        ("reject", PermissionDecision::Denied),
        ("cancel", PermissionDecision::Cancelled),
    ]
    .into_iter()
    .find_map(|(start, decision)| word.starts_with(start).then_some(decision))
}
