//! Targets for fuzzing: every reader of what an agent prints and logs, as plain functions.
//!
//! Any split of the bytes gives the same events, and no event is larger than it may be.

use stockade_core::{
    event::EventKind,
    fuzz::{Target, Violation, holds},
    profile::Dialect,
};

use crate::{Reader, session_log::Log};

/// Every target.
pub const TARGETS: [Target; 6] = [
    Target { name: "claude-stream", run: claude_stream },
    Target { name: "codex-rollout", run: codex_rollout },
    Target { name: "codex-stream", run: codex_stream },
    Target { name: "grok-log", run: grok_log },
    Target { name: "grok-stream", run: grok_stream },
    Target { name: "opencode-stream", run: opencode_stream },
];

/// An event in JSON is at most this long: the longest text, every byte of it escaped, and its names.
const EVENT_LIMIT_BYTES: usize = 1024 * 1024;

/// Claude Code's stream.
pub fn claude_stream(bytes: &[u8]) -> Result<(), Violation> {
    stream(Dialect::ClaudeStream, bytes)
}

/// Codex's stream.
pub fn codex_stream(bytes: &[u8]) -> Result<(), Violation> {
    stream(Dialect::CodexExec, bytes)
}

/// Grok's stream.
pub fn grok_stream(bytes: &[u8]) -> Result<(), Violation> {
    stream(Dialect::GrokMessages, bytes)
}

/// OpenCode's stream.
pub fn opencode_stream(bytes: &[u8]) -> Result<(), Violation> {
    stream(Dialect::OpencodeRun, bytes)
}

/// Codex's record of a session.
pub fn codex_rollout(bytes: &[u8]) -> Result<(), Violation> {
    log(Dialect::CodexExec, bytes)
}

/// Grok's log of a session.
pub fn grok_log(bytes: &[u8]) -> Result<(), Violation> {
    log(Dialect::GrokMessages, bytes)
}

fn stream(dialect: Dialect, bytes: &[u8]) -> Result<(), Violation> {
    let read = |chunks: &[&[u8]]| {
        let (mut reader, mut out) = (Reader::new(dialect), Vec::new());
        for chunk in chunks {
            reader.push(chunk, &mut out);
        }
        reader.finish(&mut out);
        out
    };
    let whole = read(&[bytes]);
    for at in [bytes.len() / 3, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        let (head, tail) = bytes.split_at(at);
        holds(read(&[head, tail]) == whole, || format!("split at {at} it gives other events"))?;
    }
    bounded(&whole)
}

fn log(dialect: Dialect, bytes: &[u8]) -> Result<(), Violation> {
    let (mut log, mut out) = (Log::of(dialect), Vec::new());
    for line in bytes.split(|byte| *byte == b'\n') {
        log.read(line, &mut out);
    }
    bounded(&out)
}

fn bounded(events: &[EventKind]) -> Result<(), Violation> {
    for event in events {
        let length = serde_json::to_vec(event).map_err(|e| Violation(e.to_string()))?.len();
        holds(length <= EVENT_LIMIT_BYTES, || format!("an event of {length} bytes"))?;
    }
    Ok(())
}
