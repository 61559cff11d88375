//! The one error of this crate: a step, the path it was about, and what the kernel said.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use stockade_core::status::{Boundary, Cause};

/// What kind of failure it is, and so what a caller may do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The file system refused: full, read-only, no permission, broken.
    Storage,
    /// Something is already there, a dangling link included.
    Exists,
    /// The file at the reserved path is no longer the reserved one; it was left alone.
    Superseded,
    /// Two files of one order are the same path.
    SamePath,
    /// The path is inside a folder that the agent can write.
    InsideWritableRoot,
    /// The path cannot name such a file: not absolute, no file name, a parent that is no folder.
    PathUnusable,
    /// The state directory belongs to somebody else or can be written by others.
    StateRefused,
    /// There is no such run, receipt or folder.
    NotFound,
    /// The file is no receipt that this version can read.
    Malformed,
    /// It belongs to a run that still lives.
    InUse,
}

impl ErrorKind {
    /// A stable word for programs, as used in causes.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Storage => "storage-failed",
            Self::Exists => "path-exists",
            Self::Superseded => "reservation-superseded",
            Self::SamePath => "same-path",
            Self::InsideWritableRoot => "inside-writable-root",
            Self::PathUnusable => "path-unusable",
            Self::StateRefused => "state-refused",
            Self::NotFound => "not-found",
            Self::Malformed => "malformed-receipt",
            Self::InUse => "in-use",
        }
    }

    const fn boundary(self) -> Boundary {
        match self {
            Self::Storage | Self::Superseded | Self::StateRefused | Self::Malformed | Self::InUse => {
                Boundary::Storage
            }
            Self::Exists
            | Self::SamePath
            | Self::InsideWritableRoot
            | Self::PathUnusable
            | Self::NotFound => Boundary::Order,
        }
    }

    const fn hint(self) -> Option<&'static str> {
        match self {
            Self::Exists => Some("name a path where nothing is yet; existing files are never overwritten"),
            Self::Superseded => Some("`stockade receipt show RUN-ID` shows the receipt of the run directory"),
            Self::SamePath => Some("give `--output` and `--receipt` different paths"),
            Self::InsideWritableRoot => {
                Some("name a path outside the workspace and outside every `--write` path")
            }
            Self::StateRefused => {
                Some("give the state directory to the user who runs Stockade, with mode 0700")
            }
            Self::Storage | Self::PathUnusable | Self::NotFound | Self::Malformed | Self::InUse => None,
        }
    }
}

/// A step that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step} `{}`: {reason}", path.display())]
pub struct JournalError {
    kind: ErrorKind,
    step: &'static str,
    path: PathBuf,
    errno: Option<i32>,
    reason: String,
}

impl JournalError {
    pub(crate) fn new(kind: ErrorKind, step: &'static str, path: &Path, reason: impl Into<String>) -> Self {
        Self { kind, step, path: path.to_owned(), errno: None, reason: reason.into() }
    }

    /// A step that the kernel refused; the kind follows from the error number.
    pub(crate) fn refused(step: &'static str, path: &Path, errno: Errno) -> Self {
        let kind = match errno {
            Errno::EXIST => ErrorKind::Exists,
            Errno::NOENT => ErrorKind::NotFound,
            Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::ISDIR => ErrorKind::PathUnusable,
            _ => ErrorKind::Storage,
        };
        Self::refused_as(kind, step, path, errno)
    }

    /// A step that the kernel refused, on a file of Stockade's own: whatever the number, it is storage that failed.
    pub(crate) fn storage(step: &'static str, path: &Path, errno: Errno) -> Self {
        Self::refused_as(ErrorKind::Storage, step, path, errno)
    }

    pub(crate) fn refused_as(kind: ErrorKind, step: &'static str, path: &Path, errno: Errno) -> Self {
        let reason = std::io::Error::from(errno).to_string();
        Self { kind, step, path: path.to_owned(), errno: Some(errno.raw_os_error()), reason }
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What was being done: `create`, `write`, `sync`, `rename`.
    pub fn step(&self) -> &'static str {
        self.step
    }

    /// The path it was about.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The error number, where the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        self.errno
    }

    /// What to do about it, where that can be said in general.
    pub fn hint(&self) -> Option<&'static str> {
        match self.errno.map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => Some("make room on that file system"),
            Some(Errno::ROFS) => Some("that file system is mounted read-only; name a path elsewhere"),
            Some(Errno::ACCESS | Errno::PERM) if self.kind == ErrorKind::Storage => {
                Some("give the user who runs Stockade the right to that folder")
            }
            Some(Errno::NOTDIR | Errno::LOOP | Errno::EXIST) if self.kind == ErrorKind::Storage => {
                Some("something else stands where a folder is needed; move it away")
            }
            _ => self.kind.hint(),
        }
    }

    /// The same as a cause for receipts and refusals.
    pub fn cause(&self) -> Cause {
        let cause = Cause::new(self.kind.code(), self.kind.boundary(), self.step, self.to_string())
            .with_errno(self.errno.unwrap_or(0))
            .with_evidence(self.path.display().to_string());
        match self.hint() {
            Some(hint) => cause.with_remedy(hint),
            None => cause,
        }
    }
}
