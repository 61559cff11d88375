//! The log: one JSON object per line, each with one key that says what it is.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{error::ModelError, told};

/// Bodies are left out of the log once it has grown to this many bytes.
const MAX_BYTES_WITH_BODIES: u64 = 256 * 1024 * 1024;
/// Nothing is written any more once the log has grown to this many bytes.
const MAX_BYTES: u64 = 288 * 1024 * 1024;

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogLine {
    /// A request has come in, as a whole.
    Request(Box<RequestSeen>),
    /// An answer is being held at this name. Written once all bytes before it are on their way.
    Held(String),
    /// A held answer goes on: this name has been released.
    Released(String),
    /// An answer is over.
    Answered(Answered),
}

/// A request as it came over the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestSeen {
    /// The number of the request, counted from 1.
    pub sequence: u64,
    /// The number of the connection it came on, counted from 1.
    pub connection: u64,
    /// Milliseconds since the model began to serve.
    pub elapsed_ms: u64,
    /// The HTTP method.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The headers, `authorization` among them; repeated ones joined by a comma.
    pub headers: BTreeMap<String, String>,
    /// What the request is for.
    pub class: RequestClass,
    /// The model asked for.
    pub model: Option<String>,
    /// The names of the tools offered, in their order.
    pub tools: Vec<String>,
    /// The step that answers it; only for main turns.
    pub step: Option<usize>,
    /// The length of the body in bytes.
    pub body_bytes: usize,
    /// The body where it is JSON and at most [`RequestSeen::MAX_BODY_BYTES`] long.
    pub body: Option<Value>,
    /// The beginning of any other body.
    pub body_text: Option<String>,
    /// Whether the log holds less than the whole body.
    pub body_cut: bool,
}

impl RequestSeen {
    /// The longest body that is logged as a whole, in bytes.
    pub const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;

    /// What the request tells the model about the tool calls of its last answer, in their order.
    pub fn tool_results(&self) -> Vec<String> {
        self.body.as_ref().map(told::tool_results).unwrap_or_default()
    }
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestClass {
    /// A turn of the conversation: answered by a step of the scenario.
    Main,
    /// The call that makes up a title for the session.
    Title,
    /// A completion without tools, such as a summary.
    Toolless,
    /// A question how many tokens a request has.
    TokenCount,
    /// The list of models.
    Models,
    /// `GET /` or `HEAD /`, by which agents warm up a connection.
    Probe,
    /// Anything the model does not serve, or cannot read.
    Other,
}

/// The end of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answered {
    /// The number of the request.
    pub sequence: u64,
    /// Milliseconds since the model began to serve.
    pub elapsed_ms: u64,
    /// The HTTP status; `None` where the connection was closed without an answer, or the client went away.
    pub status: Option<u16>,
    /// Whether the step was played to its end; false where the client went away before.
    pub complete: bool,
}

/// Where the lines go, if anywhere.
#[derive(Debug)]
pub(crate) struct Log {
    sink: Option<Sink>,
    started: Instant,
}

#[derive(Debug)]
struct Sink {
    path: PathBuf,
    file: Mutex<Written>,
    failure: mpsc::Sender<ModelError>,
}

#[derive(Debug)]
struct Written {
    file: File,
    bytes: u64,
}

impl Log {
    /// Makes the log file, 0600 because it holds what the requests were authorized with. Later failures are sent to
    /// `failure`.
    pub(crate) fn create(path: Option<&Path>, failure: mpsc::Sender<ModelError>) -> Result<Self, ModelError> {
        let sink = match path {
            None => None,
            Some(path) => {
                let file = OpenOptions::new()
                    .append(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(path)
                    .map_err(|source| ModelError::Log { path: path.to_owned(), source })?;
                Some(Sink { path: path.to_owned(), file: Mutex::new(Written { file, bytes: 0 }), failure })
            }
        };
        Ok(Self { sink, started: Instant::now() })
    }

    pub(crate) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn request(&self, mut seen: RequestSeen) {
        if self.is_too_full_for_bodies() && (seen.body.is_some() || seen.body_text.is_some()) {
            seen.body = None;
            seen.body_text = None;
            seen.body_cut = true;
        }
        self.write(&LogLine::Request(Box::new(seen)));
    }

    pub(crate) fn held(&self, name: &str) {
        self.write(&LogLine::Held(name.to_owned()));
    }

    pub(crate) fn released(&self, name: &str) {
        self.write(&LogLine::Released(name.to_owned()));
    }

    pub(crate) fn answered(&self, sequence: u64, status: Option<u16>, complete: bool) {
        let elapsed_ms = self.elapsed_ms();
        self.write(&LogLine::Answered(Answered { sequence, elapsed_ms, status, complete }));
    }

    fn is_too_full_for_bodies(&self) -> bool {
        self.sink.as_ref().is_some_and(|sink| {
            sink.file.lock().unwrap_or_else(PoisonError::into_inner).bytes > MAX_BYTES_WITH_BODIES
        })
    }

    fn write(&self, line: &LogLine) {
        let Some(sink) = &self.sink else { return };
        if let Err(source) = sink.append(line) {
            // A full channel holds an earlier failure, which ends the model just as well.
            drop(sink.failure.try_send(ModelError::Log { path: sink.path.clone(), source }));
        }
    }
}

impl Sink {
    fn append(&self, line: &LogLine) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let mut written = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if written.bytes > MAX_BYTES {
            return Ok(());
        }
        written.bytes = written.bytes.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
        written.file.write_all(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_over(file: File, bytes: u64) -> (Log, mpsc::Receiver<ModelError>) {
        let (failure, failed) = mpsc::channel(1);
        let sink = Sink { path: "log".into(), file: Mutex::new(Written { file, bytes }), failure };
        (Log { sink: Some(sink), started: Instant::now() }, failed)
    }

    fn seen() -> RequestSeen {
        RequestSeen {
            sequence: 1,
            connection: 1,
            elapsed_ms: 0,
            method: "POST".to_owned(),
            path: "/".to_owned(),
            headers: BTreeMap::new(),
            class: RequestClass::Other,
            model: None,
            tools: Vec::new(),
            step: None,
            body_bytes: 2,
            body: Some(Value::Null),
            body_text: None,
            body_cut: false,
        }
    }

    #[test]
    fn a_log_that_cannot_be_written_is_a_failure() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (log, mut failed) = log_over(File::open(file.path()).unwrap(), 0);
        log.held("a");
        log.held("b");
        assert!(matches!(failed.try_recv(), Ok(ModelError::Log { .. })));
    }

    #[test]
    fn a_full_log_first_loses_bodies_and_then_everything() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (log, _failed) = log_over(file.reopen().unwrap(), MAX_BYTES_WITH_BODIES + 1);
        log.request(seen());
        let line: LogLine = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
        let expected = RequestSeen { body: None, body_cut: true, ..seen() };
        assert_eq!(line, LogLine::Request(Box::new(expected)));

        let file = tempfile::NamedTempFile::new().unwrap();
        let (log, _failed) = log_over(file.reopen().unwrap(), MAX_BYTES + 1);
        log.held("a");
        assert_eq!(file.path().metadata().unwrap().len(), 0);
    }
}
