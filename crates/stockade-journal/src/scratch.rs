//! Folders for the length of one command, outside the state directory. A lock on the folder itself shows that the command
//! lives: of one that was killed, `gc` finds what is left.

use std::{
    fs::DirBuilder,
    os::{fd::OwnedFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FlockOperation, flock};
use stockade_core::limits::CgroupHierarchy;

use crate::{error::JournalError, files, remove::remove_tree, run_dir::file, state::errno_of};

/// How their names begin, by the command that makes them.
pub const PREFIXES: [&str; 3] = ["stockade-doctor-", "stockade-fence-check-", "stockade-rehearsal-"];

/// A folder that exists only as long as this value.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _alive: OwnedFd,
}

impl Scratch {
    /// Makes the folder (0700), which must not be there, and locks it.
    pub fn make(path: PathBuf) -> Result<Self, JournalError> {
        let refused = |step, e| JournalError::storage(step, &path, e);
        DirBuilder::new().mode(0o700).create(&path).map_err(|e| refused("mkdir", errno_of(&e)))?;
        let alive = files::open_folder(CWD, &path).map_err(|e| refused("open", e))?;
        flock(&alive, FlockOperation::NonBlockingLockExclusive).map_err(|e| refused("lock", e))?;
        Ok(Self { path, _alive: alive })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes which control groups the command makes, so that `gc` finds them too.
    pub fn note_groups(&self, session: &str, hierarchies: &[CgroupHierarchy]) -> Result<(), JournalError> {
        let path = self.path.join(file::PLAN);
        let text = serde_json::json!({ "session": session, "cgroups": hierarchies }).to_string();
        std::fs::write(&path, text).map_err(|e| JournalError::storage("write", &path, errno_of(&e)))
    }

    /// Removes it.
    pub fn remove(self) -> Result<(), JournalError> {
        remove_tree(&self.path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is found by `gc`.
        drop(remove_tree(&self.path));
    }
}
