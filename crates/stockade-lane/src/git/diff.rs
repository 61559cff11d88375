//! The changes of a run as a difference, from objects alone.

use std::path::Path;

use stockade_core::receipt::Receipt;
use stockade_git::{GitError, Host};

/// Why there is no difference to show.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// The run worked on no repository: only the names of changed files are known.
    #[error(
        "the run worked in a plain folder or in place, where only the names of changed files are recorded"
    )]
    NoRepository,
    /// The run's work is not in the repository.
    #[error("the run's work was not taken out of its worktree{}", .0.as_ref().map(|p| format!(" `{p}`")).unwrap_or_default())]
    NotTaken(Option<String>),
    /// The receipt names no objects.
    #[error("the receipt names no objects")]
    Malformed,
    /// There is no git.
    #[error("no `git` on PATH lies where only root could have put it")]
    NoGit,
    /// Git could not tell.
    #[error(transparent)]
    Git(#[from] GitError),
}

/// Writes the changes of a run to standard output as `git diff` does.
pub fn print_diff(receipt: &Receipt, path: &str) -> Result<(), DiffError> {
    let record = receipt.git.as_ref().ok_or(DiffError::NoRepository)?;
    let result = record.result.as_ref().ok_or_else(|| DiffError::NotTaken(record.worktree.clone()))?;
    if !stockade_git::is_object(&record.start) || !stockade_git::is_object(result) {
        return Err(DiffError::Malformed);
    }
    let git = stockade_git::find_trusted("git", path).ok_or(DiffError::NoGit)?;
    Ok(Host::open(&git, Path::new(&record.repository))?.print_diff(&record.start, result)?)
}
