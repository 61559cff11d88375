//! What the other side of the control socket and of the log needs. Blocking, with bounds.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::log::LogLine;

/// How long the model may take to answer on its control socket.
const REPLY_WAIT: Duration = Duration::from_secs(5);
/// Longer than any reply.
const MAX_REPLY_BYTES: u64 = 512;

/// Why a scripted model cannot be driven or read.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The control socket does not answer.
    #[error("talk to the scripted model at `{path}`")]
    Socket {
        /// The control socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The model refused.
    #[error("the scripted model refused: {reason}")]
    Refused {
        /// In the model's words.
        reason: String,
    },
    /// The log cannot be read.
    #[error("read the log `{path}`")]
    Log {
        /// The log.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A complete line of the log is not one the model writes.
    #[error("understand line {line} of the log `{path}`")]
    LogLine {
        /// The log.
        path: PathBuf,
        /// The number of the line, counted from 1.
        line: usize,
        /// What the parser said.
        source: serde_json::Error,
    },
}

/// Releases the answers held at `name`, now and later.
pub fn release(control: &Path, name: &str) -> Result<(), ClientError> {
    let reply =
        ask(control, name).map_err(|source| ClientError::Socket { path: control.to_owned(), source })?;
    match reply.trim_end() {
        "ok" => Ok(()),
        other => Err(ClientError::Refused { reason: other.trim_start_matches("error ").to_owned() }),
    }
}

fn ask(control: &Path, name: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(control)?;
    stream.set_read_timeout(Some(REPLY_WAIT))?;
    stream.set_write_timeout(Some(REPLY_WAIT))?;
    stream.write_all(format!("release {name}\n").as_bytes())?;
    let mut reply = String::new();
    stream.take(MAX_REPLY_BYTES).read_to_string(&mut reply)?;
    Ok(reply)
}

/// Reads what the log holds so far. A last line that is still being written is left out.
pub fn read_log(path: &Path) -> Result<Vec<LogLine>, ClientError> {
    let failed = |source| ClientError::Log { path: path.to_owned(), source };
    let mut reader = BufReader::new(File::open(path).map_err(failed)?);
    let mut lines = Vec::new();
    let mut text = Vec::new();
    while reader.read_until(b'\n', &mut text).map_err(failed)? > 0 && text.ends_with(b"\n") {
        let line = serde_json::from_slice(&text).map_err(|source| ClientError::LogLine {
            path: path.to_owned(),
            line: lines.len().saturating_add(1),
            source,
        })?;
        lines.push(line);
        text.clear();
    }
    Ok(lines)
}
