//! The one error of this crate: which step failed, on which path, with which error number.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use stockade_core::survey::Refused;

use crate::errno::errno_name;

/// What kind of failure it was: decides what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FenceErrorKind {
    /// The kernel, or a fence around this process, refused the step.
    Refused,
    /// The file system under the path cannot be mounted with mapped owners (overlayfs, NFS).
    /// The caller may plan with [`Identity::KernelRoot`](crate::Identity::KernelRoot) instead.
    CannotIdmap,
    /// Something the caller asked to bind cannot be opened or is not allowed where it was asked for.
    Source,
    /// A source is no longer what it was when it was checked: somebody swapped it.
    Changed,
    /// The helper ended or did not answer.
    Helper,
    /// The request makes no sense: a fault of the caller.
    Request,
}

/// A step that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{}", self.sentence())]
pub struct FenceError {
    kind: FenceErrorKind,
    step: Cow<'static, str>,
    path: Option<PathBuf>,
    errno: i32,
}

impl FenceError {
    pub(crate) fn new(kind: FenceErrorKind, step: impl Into<Cow<'static, str>>, errno: Errno) -> Self {
        Self { kind, step: step.into(), path: None, errno: errno.raw_os_error() }
    }

    /// A failure for which no error number exists.
    pub(crate) fn bare(kind: FenceErrorKind, step: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, step: step.into(), path: None, errno: 0 }
    }

    pub(crate) fn on(mut self, path: impl AsRef<Path>) -> Self {
        self.path.get_or_insert_with(|| path.as_ref().to_path_buf());
        self
    }

    pub(crate) fn of_kind(mut self, kind: FenceErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// What kind of failure it was.
    pub fn kind(&self) -> FenceErrorKind {
        self.kind
    }

    /// The step, named by its system call and argument: `clone(NEWUSER)`, `fsmount(proc)`.
    pub fn step(&self) -> &str {
        &self.step
    }

    /// The path the step was about, where there is one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The error number, 0 where none applies.
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// The step as the survey and the receipt name it.
    pub fn refused(&self) -> Refused {
        Refused {
            step: self.step.to_string(),
            errno: self.errno,
            errno_name: errno_name(self.errno).to_owned(),
        }
    }

    fn sentence(&self) -> String {
        let mut text = self.step.to_string();
        if let Some(path) = &self.path {
            text.push_str(" on `");
            text.push_str(&path.to_string_lossy());
            text.push('`');
        }
        if self.errno != 0 {
            let name = errno_name(self.errno);
            let meaning = io::Error::from_raw_os_error(self.errno);
            text.push_str(": ");
            if name.is_empty() {
                text.push_str(&meaning.to_string());
            } else {
                text.push_str(name);
            }
        }
        text
    }
}

impl From<FenceError> for Refused {
    fn from(error: FenceError) -> Self {
        error.refused()
    }
}

impl From<&FenceError> for Refused {
    fn from(error: &FenceError) -> Self {
        error.refused()
    }
}

/// Names the step at which a system call failed.
pub(crate) trait Step<T> {
    /// Names the step.
    fn step(self, step: impl Into<Cow<'static, str>>) -> Result<T, FenceError>;

    /// Names the step and the path it was about.
    fn step_on(self, step: impl Into<Cow<'static, str>>, path: impl AsRef<Path>) -> Result<T, FenceError>
    where
        Self: Sized,
    {
        self.step(step).map_err(|e| e.on(path))
    }
}

impl<T> Step<T> for Result<T, Errno> {
    fn step(self, step: impl Into<Cow<'static, str>>) -> Result<T, FenceError> {
        self.map_err(|e| FenceError::new(FenceErrorKind::Refused, step, e))
    }
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, step: impl Into<Cow<'static, str>>) -> Result<T, FenceError> {
        self.map_err(|e| {
            let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
            FenceError::new(FenceErrorKind::Refused, step, errno)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_step_path_and_errno() {
        let e = FenceError::new(FenceErrorKind::Refused, "fsmount(proc)", Errno::PERM);
        assert_eq!(e.to_string(), "fsmount(proc): EPERM");
        assert_eq!(e.on("/proc").to_string(), "fsmount(proc) on `/proc`: EPERM");
        let bare = FenceError::bare(FenceErrorKind::Helper, "the helper ended");
        assert_eq!(bare.to_string(), "the helper ended");
        assert_eq!(bare.refused().errno_name, "");
    }

    #[test]
    fn the_first_path_stays() {
        let e = FenceError::bare(FenceErrorKind::Source, "openat2").on("/a").on("/b");
        assert_eq!(e.path(), Some(Path::new("/a")));
    }
}
