//! Readers of what agents print: bytes in, events out.

use stockade_core::{event::EventKind, profile::Dialect};

use crate::{
    claude::ClaudeStream,
    codex::CodexExec,
    grok::GrokMessages,
    lines::{Line, Lines},
    opencode::OpencodeRun,
};

/// Codes of the notes that a [`Reader`] makes.
pub mod note_code {
    pub use stockade_core::judge::note_code::{STDOUT_NOISE, STDOUT_UNTERMINATED};

    /// A line over the limit was left out; the transcript has it.
    pub const LINE_TOO_LONG: &str = "line-too-long";
    /// A line of the dialect whose type is not known.
    pub const UNKNOWN_EVENT: &str = "unknown-event";
    /// The agent asks the model again after a failed request.
    pub const AGENT_RETRY: &str = "agent-retry";
    /// Text that the agent's program says by itself, without a model.
    pub const AGENT_LOCAL_TEXT: &str = "agent-local-text";
}

/// Notes of one stream beyond this number are counted only; an agent can flood.
const NOTES_LIMIT: u64 = 1_000;
/// The head of a line that a note shows, in bytes.
const NOTE_HEAD_BYTES: usize = 200;

/// Reads the stdout of an agent.
///
/// Any split of the bytes over calls of [`Reader::push`] gives the same events, and the memory it takes does not
/// depend on what the agent prints, save that one line of up to `LINE_LIMIT_BYTES` is held.
#[derive(Debug)]
pub struct Reader {
    lines: Lines,
    stream: Stream,
    notes: Notes,
}

/// The state of a stream between its lines, by dialect.
#[derive(Debug)]
enum Stream {
    GrokMessages(GrokMessages),
    ClaudeStream(ClaudeStream),
    CodexExec(CodexExec),
    OpencodeRun(OpencodeRun),
}

impl Reader {
    /// A reader for a dialect, at the start of a stream.
    pub fn new(dialect: Dialect) -> Self {
        let stream = match dialect {
            Dialect::GrokMessages => Stream::GrokMessages(GrokMessages::default()),
            Dialect::ClaudeStream => Stream::ClaudeStream(ClaudeStream::default()),
            Dialect::CodexExec => Stream::CodexExec(CodexExec::default()),
            Dialect::OpencodeRun => Stream::OpencodeRun(OpencodeRun::default()),
        };
        Self { lines: Lines::new(), stream, notes: Notes::default() }
    }

    /// Takes the next bytes and appends the events of every line that they finish.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<EventKind>) {
        let Self { lines, stream, notes } = self;
        lines.push(bytes, |line| stream.line(notes, line, out));
    }

    /// Ends the stream. A last line without its end is read if it is whole, else it becomes a note.
    pub fn finish(&mut self, out: &mut Vec<EventKind>) {
        let Self { lines, stream, notes } = self;
        lines.finish(|line| stream.line(notes, line, out));
        notes.finish(out);
    }
}

impl Stream {
    fn line(&mut self, notes: &mut Notes, line: Line<'_>, out: &mut Vec<EventKind>) {
        match line {
            Line::Whole(bytes) => match self.read(bytes, out) {
                Recognised::Known => {}
                Recognised::Unknown(kind) => notes.add(note_code::UNKNOWN_EVENT, kind.as_bytes(), out),
                Recognised::No if bytes.trim_ascii().is_empty() => {}
                Recognised::No => notes.add(note_code::STDOUT_NOISE, bytes, out),
            },
            Line::TooLong { bytes } => {
                let text = format!("a line of {bytes} bytes was left out");
                notes.add(note_code::LINE_TOO_LONG, text.as_bytes(), out);
            }
            Line::Unterminated(bytes) => match self.read(bytes, out) {
                Recognised::Known => {}
                Recognised::Unknown(_) | Recognised::No => {
                    notes.add(note_code::STDOUT_UNTERMINATED, bytes, out);
                }
            },
        }
    }

    fn read(&mut self, bytes: &[u8], out: &mut Vec<EventKind>) -> Recognised {
        match self {
            Self::GrokMessages(stream) => stream.read(bytes, out),
            Self::ClaudeStream(stream) => stream.read(bytes, out),
            Self::CodexExec(stream) => stream.read(bytes, out),
            Self::OpencodeRun(stream) => stream.read(bytes, out),
        }
    }
}

/// What a dialect says about a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Recognised {
    /// It was read.
    Known,
    /// It has the form of the dialect and this type, which says nothing to us.
    Unknown(String),
    /// It is none of the dialect.
    No,
}

/// Notes of one stream, bounded.
#[derive(Debug, Default)]
struct Notes {
    made: u64,
}

impl Notes {
    fn add(&mut self, code: &str, text: &[u8], out: &mut Vec<EventKind>) {
        self.made += 1;
        if self.made > NOTES_LIMIT {
            return;
        }
        let head = text.get(..NOTE_HEAD_BYTES.min(text.len())).unwrap_or_default();
        let mut shown = String::from_utf8_lossy(head).into_owned();
        if head.len() < text.len() {
            shown.push('…');
        }
        out.push(EventKind::Note { code: code.to_owned(), text: shown });
    }

    fn finish(&mut self, out: &mut Vec<EventKind>) {
        if self.made > NOTES_LIMIT {
            let text = format!("{} more lines of this kind", self.made - NOTES_LIMIT);
            out.push(EventKind::Note { code: note_code::STDOUT_NOISE.to_owned(), text });
        }
        self.made = 0;
    }
}

#[cfg(test)]
mod tests;
