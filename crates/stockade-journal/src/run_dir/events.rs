//! The event log: append-only, one JSON object a line, bounded.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use stockade_core::event::{Event, EventKind, LINE_LIMIT_BYTES, Source};

use super::file;
use crate::{
    error::{ErrorKind, JournalError},
    files,
};

/// All events of one run. A long real turn writes about 1 MB; beyond this something floods.
const LOG_LIMIT_BYTES: u64 = 256 * 1024 * 1024;

/// Kept free for the note that says that the log is full.
const NOTE_RESERVE_BYTES: u64 = 4 * 1024;

#[derive(Debug)]
pub(super) struct EventLog {
    path: PathBuf,
    file: OwnedFd,
    limit: u64,
    written: u64,
    left_out: u64,
    /// A line was torn by a failed write: the next one has to start on a new line.
    torn: bool,
}

impl EventLog {
    pub(super) fn create(folder: &OwnedFd, path: &Path) -> Result<Self, JournalError> {
        Self::with_limit(folder, path, LOG_LIMIT_BYTES)
    }

    pub(super) fn with_limit(folder: &OwnedFd, path: &Path, limit: u64) -> Result<Self, JournalError> {
        let path = path.join(file::EVENTS);
        let file = files::create_private(folder, file::EVENTS)
            .map_err(|e| JournalError::storage("create", &path, e))?;
        Ok(Self { path, file, limit, written: 0, left_out: 0, torn: false })
    }

    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    pub(super) fn append(&mut self, event: &Event) -> Result<(), JournalError> {
        if self.left_out > 0 {
            self.left_out = self.left_out.saturating_add(1);
            return Ok(());
        }
        let mut line = self.encode(event)?;
        if line.len() > LINE_LIMIT_BYTES {
            let text = format!("an event of {} bytes was left out; the transcript has it", line.len());
            line = self.encode(&in_place_of(event, "event-too-long", text))?;
        }
        if self.written.saturating_add(line.len() as u64) > self.limit.saturating_sub(NOTE_RESERVE_BYTES) {
            self.left_out = 1;
            let text =
                format!("the event log reached its limit of {} bytes; later events are left out", self.limit);
            line = self.encode(&in_place_of(event, "event-log-full", text))?;
        }
        self.write(&line)
    }

    fn encode(&self, event: &Event) -> Result<Vec<u8>, JournalError> {
        let mut line = if self.torn { vec![b'\n'] } else { Vec::new() };
        serde_json::to_writer(&mut line, event)
            .map_err(|e| JournalError::new(ErrorKind::Storage, "write", &self.path, e.to_string()))?;
        line.push(b'\n');
        Ok(line)
    }

    fn write(&mut self, line: &[u8]) -> Result<(), JournalError> {
        let written = files::write_all(&self.file, line);
        self.torn = written.is_err();
        written.map_err(|e| JournalError::storage("write", &self.path, e))?;
        self.written = self.written.saturating_add(line.len() as u64);
        Ok(())
    }
}

/// A note that takes the place of an event, number and times included, so that the numbers have no gap.
fn in_place_of(event: &Event, code: &str, text: String) -> Event {
    Event {
        v: event.v,
        seq: event.seq,
        time: event.time.clone(),
        elapsed_ms: event.elapsed_ms,
        source: Source::Stockade,
        event: EventKind::Note { code: code.to_owned(), text },
    }
}
