//! What real agents printed, and what a reader makes of it, for the tests of the dialects.

use std::path::Path;

use stockade_core::{event::EventKind, profile::Dialect};

use crate::Reader;

/// A file below `testdata`.
pub(crate) fn recording(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The events of a whole stream.
pub(crate) fn events(dialect: Dialect, bytes: &[u8]) -> Vec<EventKind> {
    read(dialect, &[bytes])
}

/// The events of a stream that comes in these pieces.
pub(crate) fn read(dialect: Dialect, chunks: &[&[u8]]) -> Vec<EventKind> {
    let mut reader = Reader::new(dialect);
    let mut out = Vec::new();
    for chunk in chunks {
        reader.push(chunk, &mut out);
    }
    reader.finish(&mut out);
    out
}

/// One line an event, everything that decides something in it.
pub(crate) fn brief(event: &EventKind) -> String {
    match event {
        EventKind::TurnStarted { session, tools } => {
            format!("turn-started {} {} tools", session.as_deref().map_or(0, str::len), tools.len())
        }
        EventKind::ModelSeen { model, place } => format!("model {model} in {place}"),
        EventKind::Message { text, cut_bytes } => format!("message {text} -{cut_bytes}"),
        EventKind::Thought { text, .. } => format!("thought {text}"),
        EventKind::ToolCall { id, tool, input } => format!("call {id} {tool} {input}"),
        EventKind::ToolUpdate { id, status, output } => format!("update {id} {status:?} {output}"),
        EventKind::PermissionDecided { tool, decision, by } => format!("{decision:?} {tool} by {by}"),
        EventKind::Usage { usage, cost_usd, models } => format!(
            "usage in {:?} cached {:?} out {:?} all {:?} cost {cost_usd:?} models {}",
            usage.input_tokens.unwrap(),
            usage.cached_input_tokens.unwrap(),
            usage.output_tokens.unwrap(),
            usage.total_tokens.unwrap(),
            models.len()
        ),
        EventKind::TurnEnded { outcome } => format!("ended {outcome:?}"),
        EventKind::Note { code, text } => format!("note {code} {text}"),
        other => format!("{other:?}"),
    }
}
