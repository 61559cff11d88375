//! Reading a copy of an answer while it passes: served model, usage, finish reason, and whether it was whole.

mod loose;
mod shape;
mod sse;
mod tokens;

use stockade_core::event::{StatedError, Usage};

use shape::Found;
use sse::Events;

/// The head of an error body that is kept, in bytes.
const ERROR_HEAD_BYTES: usize = 2_000;
/// The largest answer in one piece that is read; longer ones pass unread.
const WHOLE_LIMIT_BYTES: usize = 8 * 1024 * 1024;
/// The largest error body that is read for its code.
const ERROR_LIMIT_BYTES: usize = 64 * 1024;
/// The longest name of a model, a finish reason or a code that is kept, in bytes.
const NAME_LIMIT_BYTES: usize = 200;

/// The longest word that is kept, with the mark of a cut.
pub(crate) const WORD_BYTES: usize = NAME_LIMIT_BYTES + 40;
/// The longest head of an error that is kept: what is no UTF-8 is written as three bytes for each.
pub(crate) const ERROR_BYTES: usize = 3 * ERROR_HEAD_BYTES;

/// What an answer said.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) served_model: Option<String>,
    pub(crate) finish_reason: Option<String>,
    pub(crate) usage: Option<Usage>,
    /// The head of an error, or of what is no answer at all.
    pub(crate) error: Option<String>,
    /// What it states beside its text.
    pub(crate) stated: StatedError,
    /// In how many seconds it can be tried again, by the error.
    pub(crate) resets_in_s: Option<u64>,
    /// Whether a stream came to its own end; true for answers in one piece.
    pub(crate) finished: bool,
}

/// Reads one answer.
#[derive(Debug)]
pub(crate) struct Observer {
    failed: bool,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Events { events: Events, found: Box<Found> },
    Whole { bytes: Vec<u8>, json: bool, overlong: bool },
}

impl Observer {
    /// `content_type` is without parameters.
    pub(crate) fn new(status: u16, content_type: Option<&str>) -> Self {
        let is = |name: &str| content_type.is_some_and(|t| t.eq_ignore_ascii_case(name));
        let failed = !(200..300).contains(&status);
        let body = if is("text/event-stream") {
            Body::Events { events: Events::default(), found: Box::default() }
        } else {
            let json = content_type.is_none_or(|t| t.to_ascii_lowercase().ends_with("json"));
            Body::Whole { bytes: Vec::new(), json, overlong: false }
        };
        Self { failed, body }
    }

    /// Reads the next bytes.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        match &mut self.body {
            Body::Events { events, found } => events.read(bytes, |data| found.read_event(data)),
            Body::Whole { bytes: kept, json, overlong } => {
                let limit = if *json && !self.failed { WHOLE_LIMIT_BYTES } else { ERROR_LIMIT_BYTES };
                let room = limit.saturating_sub(kept.len()).min(bytes.len());
                *overlong |= room < bytes.len();
                kept.extend_from_slice(bytes.get(..room).unwrap_or_default());
            }
        }
    }

    /// Whether a stream has already come to its own end.
    pub(crate) fn finished(&self) -> bool {
        match &self.body {
            Body::Events { found, .. } => found.finished(),
            Body::Whole { .. } => false,
        }
    }

    /// What the answer said.
    pub(crate) fn end(self) -> Seen {
        match self.body {
            Body::Events { mut events, mut found } => {
                events.end(|data| found.read_event(data));
                found.into_seen()
            }
            Body::Whole { bytes, json, overlong } => {
                let mut found = Found::default();
                let read = !overlong && json && found.read_whole(&bytes);
                let mut seen = Seen { finished: true, ..found.into_seen() };
                if self.failed || !json || (!read && !overlong) {
                    seen.error = Some(head(&bytes, ERROR_HEAD_BYTES));
                }
                seen
            }
        }
    }
}

/// The beginning of a text that may be of any kind.
fn head(bytes: &[u8], limit: usize) -> String {
    String::from_utf8_lossy(bytes.get(..bytes.len().min(limit)).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests;
