//! Private folders of commands that are no runs, and what is left of them after a kill.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stockade_core::plan::LaunchPlan;
use stockade_core::status::Refusal;
use stockade_fence::probes::host;
use stockade_journal::{
    JournalError, State,
    gc::{self, Leftover},
};

use crate::storage;

pub(crate) use stockade_journal::Scratch;

/// Makes one.
pub(crate) fn make(path: PathBuf) -> Result<Scratch, Refusal> {
    Scratch::make(path).map_err(|e| storage::refusal(&e))
}

/// Notes the control groups that a plan's fence gets.
pub(crate) fn note_groups(scratch: &Scratch, plan: &LaunchPlan) -> Result<(), Refusal> {
    scratch.note_groups(&plan.session, &plan.cgroups).map_err(|e| storage::refusal(&e))
}

/// Finds the folders of commands that were killed, in the folder for temporary things.
pub fn leftovers(temporary: &Path, now: SystemTime) -> Vec<Leftover> {
    // The names of what was made elsewhere come from the path without links.
    let temporary = std::fs::canonicalize(temporary).unwrap_or_else(|_| temporary.to_owned());
    gc::scratch_of_the_killed(&temporary, now)
}

/// Removes one that is safe, and what the probes reached for that was made elsewhere.
pub fn remove(state: &State, leftover: &Leftover) -> Result<(), JournalError> {
    if leftover.safe {
        let inside = std::fs::read_dir(&leftover.path).into_iter().flatten().flatten();
        for folder in inside.map(|entry| entry.path()).chain([leftover.path.clone()]) {
            host::give_back(&folder);
        }
    }
    gc::remove(state, leftover)
}
