//! The log that an agent keeps of a session, followed while it grows.
//!
//! It lies in the private home, where every tool of the agent can write, so it is opened without following links,
//! read in bounded steps up to a limit, and believed as far as the agent itself. It tells what the
//! stream tells later or not at all: Grok's has a permission that nobody can answer some 25 ms before the stream ends.

mod open;
mod pattern;
#[cfg(test)]
mod tests;

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::io::Errno;
use stockade_core::{event::EventKind, profile::Dialect};

use self::pattern::Pattern;
use crate::{
    codex::Rollout,
    grok::GrokLog,
    lines::{Line, Lines},
};

/// The log is read up to here; a session of a day has a few megabytes.
pub const LOG_LIMIT_BYTES: u64 = 64 * 1024 * 1024;
/// One poll reads at most this much, so that a flood cannot hold up the run.
const POLL_LIMIT_BYTES: u64 = 1024 * 1024;
const CHUNK_BYTES: usize = 64 * 1024;

/// A log that cannot be read, or no further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionLogError {
    /// The path is no plain relative one.
    #[error("follow the session log `{}`: the path is not relative or leaves the home", path.display())]
    Path {
        /// The path relative to the home.
        path: PathBuf,
    },
    /// The private home cannot be opened.
    #[error("open the home `{}`: {errno}", home.display())]
    Home {
        /// The home.
        home: PathBuf,
        /// The error.
        errno: Errno,
    },
    /// The log cannot be opened; a link on the way gives `ELOOP`.
    #[error("open the session log `{}`: {errno}", path.display())]
    Open {
        /// The path relative to the home.
        path: PathBuf,
        /// The error.
        errno: Errno,
    },
    /// What lies there is no regular file.
    #[error("open the session log `{}`: not a regular file", path.display())]
    NotAFile {
        /// The path relative to the home.
        path: PathBuf,
    },
    /// Reading failed.
    #[error("read the session log `{}`: {errno}", path.display())]
    Read {
        /// The path relative to the home.
        path: PathBuf,
        /// The error.
        errno: Errno,
    },
    /// The log is shorter than what was read of it.
    #[error("read the session log `{}`: it was cut", path.display())]
    Cut {
        /// The path relative to the home.
        path: PathBuf,
    },
    /// The log is over [`LOG_LIMIT_BYTES`].
    #[error("read the session log `{}`: over {LOG_LIMIT_BYTES} bytes", path.display())]
    TooLong {
        /// The path relative to the home.
        path: PathBuf,
    },
}

/// What a poll found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The log is not there yet.
    Absent,
    /// Nothing new.
    Still,
    /// This many new bytes were read; there may be more.
    Grown(u64),
    /// An error ended the reading earlier.
    Closed,
}

/// Follows the log of one session.
#[derive(Debug)]
pub struct SessionLog {
    home: OwnedFd,
    pattern: Pattern,
    /// The file that is followed; until one is found, the pattern itself.
    path: PathBuf,
    reading: Reading,
    lines: Lines,
    log: Log,
}

/// The state of a log between its lines, by dialect.
#[derive(Debug)]
pub(crate) enum Log {
    Grok(GrokLog),
    /// It is kept, and its lines say nothing to us.
    Unread,
    Codex(Rollout),
}

impl Log {
    pub(crate) fn of(dialect: Dialect) -> Self {
        match dialect {
            Dialect::GrokMessages => Log::Grok(GrokLog::default()),
            Dialect::ClaudeStream | Dialect::OpencodeRun => Log::Unread,
            Dialect::CodexExec => Log::Codex(Rollout::default()),
        }
    }

    pub(crate) fn read(&mut self, bytes: &[u8], out: &mut Vec<EventKind>) {
        match self {
            Self::Grok(log) => log.read(bytes, out),
            Self::Unread => {}
            Self::Codex(log) => log.read(bytes, out),
        }
    }
}

#[derive(Debug)]
enum Reading {
    Waiting,
    Open { file: OwnedFd, offset: u64 },
    Closed,
}

impl SessionLog {
    /// Prepares to follow the log at `path` below `home`; it need not be there yet. A `*` in a part of the path stands
    /// for anything: the first file that fits is followed, and no other after it.
    ///
    /// # Errors
    ///
    /// [`SessionLogError::Path`] and [`SessionLogError::Home`].
    pub fn open(dialect: Dialect, home: &Path, path: &Path) -> Result<Self, SessionLogError> {
        let Some(pattern) = Pattern::parse(path) else {
            return Err(SessionLogError::Path { path: path.to_owned() });
        };
        let home =
            open::home(home).map_err(|errno| SessionLogError::Home { home: home.to_owned(), errno })?;
        Ok(Self {
            home,
            pattern,
            path: path.to_owned(),
            reading: Reading::Waiting,
            lines: Lines::new(),
            log: Log::of(dialect),
        })
    }

    /// The log that was found, relative to the home; `None`: none yet.
    pub fn found(&self) -> Option<&Path> {
        (!matches!(self.reading, Reading::Waiting)).then_some(&self.path)
    }

    /// Reads what is new, 1 MiB at most, and appends its events.
    ///
    /// # Errors
    ///
    /// The first error ends the reading: later calls give [`Progress::Closed`].
    pub fn poll(&mut self, out: &mut Vec<EventKind>) -> Result<Progress, SessionLogError> {
        let done = self.advance(out);
        if done.is_err() {
            self.reading = Reading::Closed;
        }
        done
    }

    /// Tool calls that started and of which no end is logged. The stream tells of a call only when it has ended.
    pub fn tools_running(&self) -> u32 {
        match &self.log {
            Log::Grok(log) => log.tools_running(),
            Log::Unread => 0,
            Log::Codex(log) => log.tools_running(),
        }
    }

    fn advance(&mut self, out: &mut Vec<EventKind>) -> Result<Progress, SessionLogError> {
        if matches!(self.reading, Reading::Waiting) {
            let Some(path) = self.pattern.first_below(&self.home) else { return Ok(Progress::Absent) };
            match open::log(&self.home, &path)? {
                Some(file) => self.reading = Reading::Open { file, offset: 0 },
                None => return Ok(Progress::Absent),
            }
            self.path = path;
        }
        let Reading::Open { file, offset } = &mut self.reading else { return Ok(Progress::Closed) };
        let read_error = |errno| SessionLogError::Read { path: self.path.clone(), errno };
        let stat = rustix::fs::fstat(&*file).map_err(read_error)?;
        if u64::try_from(stat.st_size).unwrap_or(0) < *offset {
            return Err(SessionLogError::Cut { path: self.path.clone() });
        }
        let start = *offset;
        let mut chunk = vec![0; CHUNK_BYTES];
        while *offset - start < POLL_LIMIT_BYTES {
            let count = match rustix::io::pread(&*file, &mut chunk[..], *offset) {
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(read_error(errno)),
            };
            if count == 0 {
                break;
            }
            *offset += count as u64;
            if *offset > LOG_LIMIT_BYTES {
                return Err(SessionLogError::TooLong { path: self.path.clone() });
            }
            let log = &mut self.log;
            self.lines.push(chunk.get(..count).unwrap_or_default(), |line| {
                if let Line::Whole(bytes) = line {
                    log.read(bytes, out);
                }
            });
        }
        Ok(if *offset == start { Progress::Still } else { Progress::Grown(*offset - start) })
    }
}
