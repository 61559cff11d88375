//! Worktrees that old runs left: shown, and removed only when clean, merged and nobody's.

use std::path::{Path, PathBuf};

use stockade_core::git::WorkTree;
use stockade_git::{Host, OwnRefs};
use stockade_journal::{
    JournalError, State,
    gc::{self, Leftover},
    walk,
};

use super::record::{Taken, WorktreeRecord};

/// Finds the worktrees of runs that are over. `path` is where git is looked for.
pub fn leftovers(state: &State, path: &str) -> Result<Vec<Leftover>, JournalError> {
    let git = stockade_git::find_trusted("git", path);
    let found = gc::worktrees_of_the_dead(state)?;
    Ok(found.into_iter().map(|(run, folder)| judge(&run, folder, git.as_deref())).collect())
}

/// Removes one that is safe, and lets go what its run kept in the repository.
pub fn remove(state: &State, leftover: &Leftover, path: &str) -> Result<(), JournalError> {
    let record = WorktreeRecord::read(&leftover.path);
    gc::remove(state, leftover)?;
    let git = stockade_git::find_trusted("git", path);
    if let (Some(record), Some(git), Some(run)) = (record, git, &leftover.run)
        && let Ok(host) = Host::open(&git, Path::new(&record.repository))
    {
        // It was let go when the run ended, unless the run was killed.
        drop(host.unpin(&OwnRefs::of(run)));
    }
    Ok(())
}

fn judge(run: &str, folder: PathBuf, git: Option<&Path>) -> Leftover {
    let (why, safe) = match WorktreeRecord::read(&folder) {
        None => ("what it is cannot be told".to_owned(), false),
        Some(record) => verdict(run, &record, &folder, git),
    };
    Leftover::worktree(run, folder, why, safe)
}

fn verdict(run: &str, record: &WorktreeRecord, folder: &Path, git: Option<&Path>) -> (String, bool) {
    let kept = |why: &str| (why.to_owned(), false);
    let Some(taken) = &record.taken else {
        return match record.tree {
            WorkTree::Shown => ("the run is over".to_owned(), true),
            WorkTree::Made => kept("its work was never taken out of it: the files are in `tree`"),
            WorkTree::Named => kept("commits of the run were never taken out of it: they are in `git`"),
        };
    };
    if !is_as_it_was(taken, folder) {
        return kept("files changed in it since the run ended");
    }
    let Some(git) = git else { return kept("git is not here to tell whether its work is merged") };
    let commits = taken.commits.iter().cloned().collect();
    match Host::open(git, Path::new(&record.repository)).and_then(|host| host.are_merged(&commits)) {
        Ok(true) => ("clean, merged, and its run is over".to_owned(), true),
        Ok(false) => (
            format!("its work is in `refs/stockade/{run}/` of `{}`, and not merged", record.repository),
            false,
        ),
        Err(e) => kept(&format!("whether its work is merged cannot be told: {e}")),
    }
}

fn is_as_it_was(taken: &Taken, folder: &Path) -> bool {
    walk::Snapshot::take(&folder.join("tree"), &walk::Bounds::default())
        .is_ok_and(|now| now.is_complete() && now.fingerprint() == taken.fingerprint)
}
