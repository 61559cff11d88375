//! Targets for fuzzing: every reader of what an agent prints and logs, as plain functions.
//!
//! A target reads bytes and checks what must hold whatever they are: any split of them gives the same events, and no event
//! is larger than it may be. The corpus of each lies in `fuzz/corpus/NAME`.

use stockade_core::{event::EventKind, profile::Dialect};

use crate::{Reader, session_log::Log};

/// What must hold and does not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(String);

/// A target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is that of its corpus.
    pub name: &'static str,
    /// Reads one input.
    pub run: fn(&[u8]) -> Result<(), Violation>,
}

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
        if read(&[head, tail]) != whole {
            return Err(Violation(format!("split at {at} it gives other events")));
        }
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
        if length > EVENT_LIMIT_BYTES {
            return Err(Violation(format!("an event of {length} bytes")));
        }
    }
    Ok(())
}
