//! What can go wrong, told by kind, step, path and errno.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

/// What sort of failure it is; the caller derives its exit code from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PinErrorKind {
    /// The caller asked for something that cannot be meant (exit 64).
    Usage,
    /// No pin is known for the version asked for, and none was given (exit 64).
    PinUnknown,
    /// What arrived is not what the pin names (exit 65).
    VerificationFailed,
    /// The registry could not be reached or has no such file (exit 69).
    Unreachable,
    /// The provider is not installed (exit 69).
    Unavailable,
    /// An executable is not what it should be: changed, replaced by a link, writable by others (exit 72).
    Refused,
    /// The state directory cannot be written or read: full, read-only, not permitted (exit 74).
    Storage,
    /// The caller asked to stop (exit 130).
    Cancelled,
}

impl PinErrorKind {
    /// The code used in receipts and in errors printed as JSON.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::PinUnknown => "pin-unknown",
            Self::VerificationFailed => "verification-failed",
            Self::Unreachable => "registry-unreachable",
            Self::Unavailable => "unavailable-cli",
            Self::Refused => "executable-refused",
            Self::Storage => "storage-failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The step at which it went wrong, as a phrase that reads after "failed to".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Reading a name such as `grok@1.0.41`, a digest or an address.
    ReadRequest,
    /// Reading the list of pins.
    ReadPins,
    /// Opening or creating the state directory and the folders below it.
    OpenState,
    /// Waiting for another provision of the same version.
    Lock,
    /// Making or clearing the staging directory.
    Stage,
    /// Loading the certificates that the registry is checked against.
    ReadCertificates,
    /// Connecting to the registry and asking for the tarball.
    Connect,
    /// Receiving the tarball.
    Download,
    /// Opening or copying the caller's own file.
    ReadSource,
    /// Comparing the tarball with the registry's integrity value.
    CheckIntegrity,
    /// Reading the tarball and taking files from it.
    Unpack,
    /// Comparing a file with its pin.
    CheckDigest,
    /// Writing a file into the staging directory.
    Write,
    /// Moving the finished folder into place.
    Install,
    /// Reading the record of an installed version.
    ReadRecord,
    /// Finding an installed version.
    Resolve,
    /// Opening an executable.
    OpenExecutable,
    /// Checking type, owner and mode of an executable or its folder.
    CheckExecutable,
    /// Reading an executable to take its digest.
    HashExecutable,
}

impl Step {
    /// The step as a phrase that reads after "failed to".
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::ReadRequest => "read the request",
            Self::ReadPins => "read the pin list",
            Self::OpenState => "open the state directory",
            Self::Lock => "lock the version",
            Self::Stage => "prepare the staging directory",
            Self::ReadCertificates => "load certificates",
            Self::Connect => "reach the registry",
            Self::Download => "download the tarball",
            Self::ReadSource => "read the given file",
            Self::CheckIntegrity => "check the tarball",
            Self::Unpack => "unpack the tarball",
            Self::CheckDigest => "check the digest",
            Self::Write => "write the provider",
            Self::Install => "install the provider",
            Self::ReadRecord => "read the provider's record",
            Self::Resolve => "find the provider",
            Self::OpenExecutable => "open the executable",
            Self::CheckExecutable => "check the executable",
            Self::HashExecutable => "take the executable's digest",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.phrase())
    }
}

/// A failure of this crate. The message is a lower-case fragment without a full stop; the remedy stands apart in [`hint`](Self::hint).
#[derive(Debug, Error)]
#[error("{}", .0.text())]
pub struct PinError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: PinErrorKind,
    step: Step,
    detail: String,
    path: Option<PathBuf>,
    errno: Option<i32>,
    hint: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Inner {
    fn text(&self) -> String {
        match &self.path {
            Some(path) => format!("{}: `{}`: {}", self.step, path.display(), self.detail),
            None => format!("{}: {}", self.step, self.detail),
        }
    }
}

impl PinError {
    /// The sort of failure.
    pub fn kind(&self) -> PinErrorKind {
        self.0.kind
    }

    /// The step at which it happened.
    pub fn step(&self) -> Step {
        self.0.step
    }

    /// The file or folder concerned.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The system's error number, where the system refused something.
    pub fn errno(&self) -> Option<i32> {
        self.0.errno
    }

    /// What the person can do about it.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The error below this one, where there is one.
    pub fn cause(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }

    pub(crate) fn new(kind: PinErrorKind, step: Step, detail: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            step,
            detail: detail.into(),
            path: None,
            errno: None,
            hint: None,
            source: None,
        }))
    }

    pub(crate) fn os(kind: PinErrorKind, step: Step, path: &Path, errno: Errno) -> Self {
        Self::io(kind, step, path, errno.into())
    }

    pub(crate) fn io(kind: PinErrorKind, step: Step, path: &Path, error: io::Error) -> Self {
        let mut new = Self::new(kind, step, error.to_string()).at(path);
        new.0.errno = error.raw_os_error();
        new.0.source = Some(Box::new(error));
        new
    }

    /// A failure of the state directory, with the remedy for the usual reasons.
    pub(crate) fn storage(step: Step, path: &Path, errno: Errno) -> Self {
        let new = Self::os(PinErrorKind::Storage, step, path, errno);
        match errno {
            Errno::NOSPC | Errno::DQUOT => {
                new.hinted("free some space there, or choose another state directory")
            }
            Errno::ROFS | Errno::ACCESS | Errno::PERM => {
                new.hinted("choose a state directory that can be written")
            }
            _ => new,
        }
    }

    pub(crate) fn cancelled(step: Step) -> Self {
        Self::new(PinErrorKind::Cancelled, step, "cancelled")
    }

    pub(crate) fn at(mut self, path: &Path) -> Self {
        self.0.path = Some(path.to_owned());
        self
    }

    pub(crate) fn hinted(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    pub(crate) fn with_errno(mut self, errno: Option<i32>) -> Self {
        self.0.errno = errno;
        self
    }

    pub(crate) fn caused_by(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Box::new(source));
        self
    }
}
