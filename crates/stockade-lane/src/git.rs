//! Git in a lane: a private git folder and a worktree before the agent starts, a bundle and references after it ended.
//!
//! Git outside the fence works in the caller's repository alone. Whatever an agent wrote is only ever opened by git inside
//! a fence.

mod diff;
mod export;
mod filling;
mod fingerprint;
mod leftovers;
mod record;
mod script;
mod stage;

pub use diff::{DiffError, print_diff};
pub use leftovers::{leftovers, remove};

pub(crate) use export::Exported;
pub(crate) use stage::Stage;

use stockade_core::status::{Boundary, Cause, Refusal, Status};
use stockade_git::GitError;

/// A step in the repository or in Stockade's own folders that failed before the agent started.
pub(crate) fn refusal(e: &GitError) -> Refusal {
    Refusal::new(
        Status::WorkspaceRefused,
        Cause::new("git", Boundary::Workspace, e.step(), format!("the repository cannot be used: {e}"))
            .with_errno(e.errno().unwrap_or(0))
            .with_evidence(e.path().display().to_string())
            .with_remedy("check the repository with `git fsck`, and its permissions; or say `--in-place`"),
    )
}
