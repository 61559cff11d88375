//! The one error of this crate: a step, the path it was about, and what the kernel or git said.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// A step that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step} `{}`: {reason}", path.display())]
pub struct GitError {
    step: &'static str,
    path: PathBuf,
    errno: Option<i32>,
    reason: String,
}

impl GitError {
    pub(crate) fn new(step: &'static str, path: &Path, reason: impl Into<String>) -> Self {
        Self { step, path: path.to_owned(), errno: None, reason: reason.into() }
    }

    pub(crate) fn kernel(step: &'static str, path: &Path, errno: Errno) -> Self {
        let text = std::io::Error::from(errno).to_string();
        let reason = text.split(" (os error").next().unwrap_or(&text).to_lowercase();
        Self { step, path: path.to_owned(), errno: Some(errno.raw_os_error()), reason }
    }

    pub(crate) fn io(step: &'static str, path: &Path, error: &std::io::Error) -> Self {
        Self::kernel(step, path, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }

    /// What was being done: a system call, or a command of git.
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
}
