//! What old runs left: looked at first, removed only on request, and never anything of a run that lives.

mod find;
mod groups;
mod scratch;

use std::{path::PathBuf, time::Duration};

pub use self::{find::plan_gc, scratch::scratch_of_the_killed};
use crate::{
    error::{ErrorKind, JournalError},
    receipts, remove,
    state::{State, WORKTREES},
};

/// How long records are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcPolicy {
    /// Directories of runs that ended.
    pub keep_ended: Duration,
    /// Directories of runs whose launcher died: all that tells what happened.
    pub keep_interrupted: Duration,
}

/// What kind of thing was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftoverKind {
    /// A receipt that was torn while being written, in the run directory or beside the caller's.
    TornReceipt,
    /// The empty file that a dead launcher had reserved for its answer.
    EmptyOutput,
    /// A control group of a run.
    ControlGroup,
    /// The private home of a run.
    Home,
    /// The directory of a run whose launcher died without an ending.
    InterruptedRun,
    /// The directory of a run that ended.
    OldRun,
    /// A half-made installation.
    Staging,
    /// A lock that nobody holds.
    Lock,
    /// The worktree or the private git folder of a run.
    Worktree,
    /// The folder of a command that was killed.
    Scratch,
}

impl LeftoverKind {
    /// A stable word for programs.
    pub const fn id(self) -> &'static str {
        match self {
            Self::TornReceipt => "torn-receipt",
            Self::EmptyOutput => "empty-output",
            Self::ControlGroup => "control-group",
            Self::Home => "home",
            Self::InterruptedRun => "interrupted-run",
            Self::OldRun => "old-run",
            Self::Staging => "staging",
            Self::Lock => "lock",
            Self::Worktree => "worktree",
            Self::Scratch => "scratch",
        }
    }
}

/// Something that was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// What it is.
    pub kind: LeftoverKind,
    /// Where.
    pub path: PathBuf,
    /// The run it belongs to, where it belongs to one.
    pub run: Option<String>,
    /// Bytes of its files; of a huge tree, those the walker came to.
    pub bytes: u64,
    /// Why it is a leftover, or why it is kept.
    pub why: String,
    /// Whether it may be removed now. What is kept for some time is shown, too.
    pub safe: bool,
}

impl Leftover {
    /// Describes a folder of a run.
    pub fn worktree(run: &str, path: PathBuf, why: String, safe: bool) -> Self {
        let bytes = find::bytes_of(&path);
        Self { kind: LeftoverKind::Worktree, path, run: Some(run.to_owned()), bytes, why, safe }
    }
}

/// Removes a leftover, after asking again whether its run lives. One that is not safe is refused.
pub fn remove(state: &State, leftover: &Leftover) -> Result<(), JournalError> {
    let in_use = |reason: &str| JournalError::new(ErrorKind::InUse, "remove", &leftover.path, reason);
    if !leftover.safe {
        return Err(in_use(&leftover.why));
    }
    if let Some(run) = &leftover.run
        && find::run_lives(state, run)
    {
        return Err(in_use("its run lives"));
    }
    match leftover.kind {
        LeftoverKind::Staging => find::remove_staging(state, &leftover.path),
        LeftoverKind::Lock => find::remove_lock(&leftover.path),
        LeftoverKind::EmptyOutput => find::remove_output(state, leftover),
        LeftoverKind::ControlGroup => groups::remove(&leftover.path),
        LeftoverKind::Scratch => scratch::remove(&leftover.path),
        LeftoverKind::OldRun => {
            find::repair_callers_receipt(state, leftover)?;
            remove::remove_tree(&leftover.path)
        }
        LeftoverKind::TornReceipt
        | LeftoverKind::Home
        | LeftoverKind::InterruptedRun
        | LeftoverKind::Worktree => remove::remove_tree(&leftover.path),
    }
}

/// The folders of worktrees whose runs are over, by run. What is in them decides whether they are leftovers.
pub fn worktrees_of_the_dead(state: &State) -> Result<Vec<(String, PathBuf)>, JournalError> {
    let ids = find::names(state, WORKTREES)?;
    let dead =
        ids.into_iter().filter_map(|id| id.into_string().ok()).filter(|id| !find::run_lives(state, id));
    Ok(dead.map(|id| (id.clone(), state.root().join(WORKTREES).join(id))).collect())
}

/// Whether the run of this directory lives, by its launcher file alone or by its receipt.
pub(crate) fn directory_lives(directory: &std::path::Path) -> bool {
    use crate::run_dir::file;
    let record = crate::files::read_at(rustix::fs::CWD, directory.join(file::LAUNCHER), 4096)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let recorded = record.is_some_and(|r| crate::launcher::is_alive(&r));
    recorded || receipts::holds_lock(directory)
}

#[cfg(test)]
mod tests;
